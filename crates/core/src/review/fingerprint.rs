//! What an attempt looked like, as hashes: by these the machine sees that it goes in circles.
//!
//! Two attempts that fail alike must have the same hash, although line numbers moved, addresses
//! and temporary folders differ and the run took a little longer. So an error text is hashed
//! without everything that changes from run to run.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::ids::Digest;

/// What one attempt looked like. A part that was empty has no hash: having nothing in common is
/// not being alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The set of files it touched.
    pub files: Option<Digest>,
    /// The set of tests that failed.
    pub tests: Option<Digest>,
    /// The error, without what changes from run to run.
    pub error: Option<Digest>,
    /// The diff, to the letter.
    pub diff: Option<Digest>,
}

impl Fingerprint {
    /// The fingerprint of an attempt.
    pub fn of<'a>(
        files: impl IntoIterator<Item = &'a str>,
        failing_tests: impl IntoIterator<Item = &'a str>,
        error: &str,
        diff: &str,
    ) -> Self {
        Self {
            files: digest_of_set(files),
            tests: digest_of_set(failing_tests),
            error: digest_of(&normalised(error)),
            diff: digest_of(diff),
        }
    }
}

fn digest_of(text: &str) -> Option<Digest> {
    (!text.trim().is_empty()).then(|| Digest::of(text.as_bytes()))
}

fn digest_of_set<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Digest> {
    let names: BTreeSet<&str> = names.into_iter().collect();
    // No name of a file or a test has this character in it.
    digest_of(&names.into_iter().collect::<Vec<_>>().join("\0"))
}

/// What changes from run to run, and what stands in its place. The order matters: digits go last.
const CHANGING: [(&str, &str); 8] = [
    // Colours of a terminal.
    (r"\x1b\[[0-9;]*m", ""),
    (r"\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}([.,]\d+)?(Z|[+-]\d{2}:?\d{2})?", "<time>"),
    (r#"(/private)?/(tmp|var/tmp|var/folders)/[^\s:;,'")\]]+"#, "<temporary>"),
    (r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<id>"),
    (r"\b(0x[0-9a-fA-F]+|[0-9a-f]{16,64})\b", "<hex>"),
    (
        r"\b(\d+([.]\d+)?\s?(ns|µs|us|ms|s|sec|seconds?|m|min|minutes?|h|hours?)\s?)+\b",
        "<duration>",
    ),
    (r"\d+", "<n>"),
    (r"\s+", " "),
];

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    CHANGING
        .iter()
        .filter_map(|(pattern, instead)| Some((Regex::new(pattern).ok()?, *instead)))
        .collect()
});

fn normalised(error: &str) -> String {
    PATTERNS.iter().fold(error.trim().to_owned(), |text, (pattern, instead)| {
        pattern.replace_all(&text, *instead).into_owned()
    })
}
