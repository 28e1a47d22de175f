//! Entries as a Markdown file that can live in a repository, and back without loss.
//!
//! An entry is a section: a heading for people, what it says as a quotation, and everything else as a
//! block of JSON. A text that a quotation would not keep to the letter is in the block as well, and
//! counts from there. Whatever else stands there is for people and is not read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::Entry;
use crate::ids::KnowledgeId;

/// What the file begins with.
const HEAD: &str = "# What the team knows\n\n\
    Written by `tamma knowledge export`, and read again by `tamma knowledge import`. Change what is \
    quoted or in the blocks; the rest is for people.\n";

/// What is wrong with a file of entries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A section has no block of JSON.
    #[error("line {line}: the section has no block between ```json and ```")]
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
    /// Two sections are the same entry, and nobody can tell which of them is meant.
    #[error("line {line}: the entry {id} is there already, above: take one of them out")]
    Twice {
        /// The line of the second heading.
        line: usize,
        /// Which.
        id: KnowledgeId,
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
        let rest = match serde_json::to_value(entry) {
            Ok(Value::Object(rest)) => rest,
            _ => Map::new(),
        };
        let quotable = is_quotable(&entry.text);
        let rest: Map<_, _> =
            rest.into_iter().filter(|(name, _)| name != "text" || !quotable).collect();
        let rest = serde_json::to_string_pretty(&rest).unwrap_or_default();
        let _ = write!(file, "\n```json\n{rest}\n```\n");
    }
    file
}

/// Whether a text is the same after it was quoted, and after an editor has tidied the file.
fn is_quotable(text: &str) -> bool {
    let tidy = |line: &str| line.trim_end() == line && !line.contains(char::is_control);
    text.split('\n').all(tidy)
}

/// Reads what [`write()`] wrote, and what people made of it.
pub fn read(file: &str) -> Result<Vec<Entry>, Flaw> {
    let mut sections: Vec<Section> = Vec::new();
    let mut block: Option<String> = None;
    for (number, line) in file.lines().enumerate() {
        if let Some(text) = &mut block {
            if line.trim_end() == "```" {
                if let (Some(section), Some(text)) = (sections.last_mut(), block.take()) {
                    section.block.get_or_insert(text);
                }
            } else {
                text.push_str(line);
                text.push('\n');
            }
        } else if line.starts_with("## ") {
            sections.push(Section { line: number + 1, text: Vec::new(), block: None });
        } else if line.trim_end() == "```json" {
            block = Some(String::new());
        } else if let (Some(section), Some(quoted)) = (sections.last_mut(), line.strip_prefix('>'))
        {
            section.text.push(quoted.strip_prefix(' ').unwrap_or(quoted).to_owned());
        }
    }
    let (mut entries, mut ids) = (Vec::new(), BTreeSet::new());
    for section in sections {
        let line = section.line;
        let entry = section.entry()?;
        if !ids.insert(entry.id) {
            return Err(Flaw::Twice { line, id: entry.id });
        }
        entries.push(entry);
    }
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
        rest.entry("text").or_insert_with(|| Value::String(self.text.join("\n")));
        serde_json::from_value(Value::Object(rest)).map_err(flaw)
    }
}
