//! Entries as a Markdown file for a repository, in a lossless format.
//!
//! Each entry is a section: a heading for people, its text as a quotation, and the rest as a JSON
//! block. A text that a quotation would not preserve exactly is also in the block, which then
//! counts. All other content is ignored.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::KnowledgeEntry;
use crate::ids::KnowledgeId;

/// Header of the file.
const FILE_HEADER: &str = "# Knowledge base\n\n\
    Exported by `tamma knowledge export`; import it with `tamma knowledge import`. Edit only the \
    quotations and the JSON blocks; everything else is ignored.\n";

/// Error in a file of entries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnowledgeFileError {
    /// Section without a JSON block.
    #[error("line {line}: section has no JSON block; add one between ```json and ```")]
    MissingBlock {
        /// Line of its heading.
        line: usize,
    },
    /// Block is not a valid entry.
    #[error("line {line}: invalid entry: {reason}")]
    InvalidEntry {
        /// Line of its heading.
        line: usize,
        /// Reason.
        reason: String,
    },
    /// Two sections have the same ID.
    #[error("line {line}: duplicate entry {id}; remove one of them")]
    DuplicateEntry {
        /// Line of the second heading.
        line: usize,
        /// Duplicate ID.
        id: KnowledgeId,
    },
}

/// Renders entries as a file.
pub fn render<'a>(entries: impl IntoIterator<Item = &'a KnowledgeEntry>) -> String {
    let mut file = FILE_HEADER.to_owned();
    for entry in entries {
        let _ = write!(file, "\n## {} ({}, {})\n\n", entry.kind, entry.severity, entry.status);
        for line in entry.text.split('\n') {
            let _ = writeln!(
                file,
                "{}",
                if line.is_empty() { ">".to_owned() } else { format!("> {line}") }
            );
        }
        let fields = match serde_json::to_value(entry) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let quotable = is_quotable(&entry.text);
        let fields: Map<_, _> =
            fields.into_iter().filter(|(name, _)| name != "text" || !quotable).collect();
        let fields = serde_json::to_string_pretty(&fields).unwrap_or_default();
        let _ = write!(file, "\n```json\n{fields}\n```\n");
    }
    file
}

/// Returns true if a text survives quoting, and an editor that trims whitespace.
fn is_quotable(text: &str) -> bool {
    let is_exact = |line: &str| line.trim_end() == line && !line.contains(char::is_control);
    text.split('\n').all(is_exact)
}

/// Parses a file written by [`render()`], including edits by people.
pub fn parse(file: &str) -> Result<Vec<KnowledgeEntry>, KnowledgeFileError> {
    let mut sections: Vec<EntrySection> = Vec::new();
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
            sections.push(EntrySection { line: number + 1, text: Vec::new(), block: None });
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
        let entry = section.into_entry()?;
        if !ids.insert(entry.id) {
            return Err(KnowledgeFileError::DuplicateEntry { line, id: entry.id });
        }
        entries.push(entry);
    }
    Ok(entries)
}

struct EntrySection {
    line: usize,
    text: Vec<String>,
    block: Option<String>,
}

impl EntrySection {
    fn into_entry(self) -> Result<KnowledgeEntry, KnowledgeFileError> {
        let line = self.line;
        let block = self.block.ok_or(KnowledgeFileError::MissingBlock { line })?;
        let invalid = |error: serde_json::Error| KnowledgeFileError::InvalidEntry {
            line,
            reason: error.to_string(),
        };
        let mut fields: Map<String, Value> = serde_json::from_str(&block).map_err(invalid)?;
        fields.entry("text").or_insert_with(|| Value::String(self.text.join("\n")));
        serde_json::from_value(Value::Object(fields)).map_err(invalid)
    }
}
