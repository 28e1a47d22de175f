//! Entries as a Markdown file that can live in a repository, and back without loss.
//!
//! An entry is a section: a heading for people, what it says as a quotation, and everything else as a
//! block of JSON. Whatever stands between is for people and is not read.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::Entry;

/// What the file begins with.
const HEAD: &str = "# What the team knows\n\n\
    Written by `tamma knowledge export`, and read again by `tamma knowledge import`. Change what is \
    quoted or in the blocks; the rest is for people.\n";

/// What is wrong with a file of entries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A section has no block of JSON.
    #[error("line {line}: the section has no block that starts with ```json")]
    NoBlock {
        /// The line of its heading.
        line: usize,
    },
    /// A section has a block that is not that of an entry.
    #[error("line {line}: this is not an entry: {why}")]
    NoEntry {
        /// The line of its heading.
        line: usize,
        /// Why.
        why: String,
    },
}

/// Writes entries as a file.
pub fn write<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> String {
    let mut file = HEAD.to_owned();
    for entry in entries {
        let _ = write!(file, "\n## {} ({}, {})\n\n", entry.kind, entry.severity, entry.status);
        for line in entry.text.split('\n') {
            let _ = writeln!(
                file,
                "{}",
                if line.is_empty() { ">".to_owned() } else { format!("> {line}") }
            );
        }
        let mut rest = match serde_json::to_value(entry) {
            Ok(Value::Object(rest)) => rest,
            _ => Map::new(),
        };
        rest.remove("text");
        let rest = serde_json::to_string_pretty(&rest).unwrap_or_default();
        let _ = write!(file, "\n```json\n{rest}\n```\n");
    }
    file
}

/// Reads what [`write`] wrote, and what people made of it.
pub fn read(file: &str) -> Result<Vec<Entry>, Flaw> {
    let mut entries = Vec::new();
    let mut section: Option<Section> = None;
    let mut block: Option<String> = None;
    for (number, line) in file.lines().enumerate() {
        if let Some(text) = &mut block {
            if line.trim_end() == "```" {
                if let (Some(section), Some(text)) = (&mut section, block.take()) {
                    section.block.get_or_insert(text);
                }
            } else {
                text.push_str(line);
                text.push('\n');
            }
        } else if line.starts_with("## ") {
            entries.extend(section.take().map(Section::entry).transpose()?);
            section = Some(Section { line: number + 1, text: Vec::new(), block: None });
        } else if line.trim_end() == "```json" {
            block = Some(String::new());
        } else if let (Some(section), Some(quoted)) = (&mut section, line.strip_prefix('>')) {
            section.text.push(quoted.strip_prefix(' ').unwrap_or(quoted).to_owned());
        }
    }
    entries.extend(section.map(Section::entry).transpose()?);
    Ok(entries)
}

struct Section {
    line: usize,
    text: Vec<String>,
    block: Option<String>,
}

impl Section {
    fn entry(self) -> Result<Entry, Flaw> {
        let line = self.line;
        let block = self.block.ok_or(Flaw::NoBlock { line })?;
        let flaw = |error: serde_json::Error| Flaw::NoEntry { line, why: error.to_string() };
        let mut rest: Map<String, Value> = serde_json::from_str(&block).map_err(flaw)?;
        rest.insert("text".to_owned(), Value::String(self.text.join("\n")));
        serde_json::from_value(Value::Object(rest)).map_err(flaw)
    }
}
