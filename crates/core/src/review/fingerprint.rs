//! Fingerprints: hashes of an attempt, for detecting repeated failures.
//!
//! Two similar failures must have the same hash, although line numbers, addresses, temporary
//! folders and durations differ. So volatile parts are removed from error texts before hashing.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::ids::Digest;

/// Fingerprint of one attempt. Empty parts have no hash, because they make no attempts similar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Files touched.
    pub files: Option<Digest>,
    /// Failing tests.
    pub tests: Option<Digest>,
    /// Error text without its volatile parts.
    pub error: Option<Digest>,
    /// Exact diff.
    pub diff: Option<Digest>,
}

impl Fingerprint {
    /// Computes the fingerprint of an attempt.
    pub fn from_attempt<'a>(
        files: impl IntoIterator<Item = &'a str>,
        failing_tests: impl IntoIterator<Item = &'a str>,
        error: &str,
        diff: &str,
    ) -> Self {
        Self {
            files: digest_set(files),
            tests: digest_set(failing_tests),
            error: digest_text(&normalize_error(error)),
            diff: digest_text(diff),
        }
    }
}

fn digest_text(text: &str) -> Option<Digest> {
    (!text.trim().is_empty()).then(|| Digest::of(text.as_bytes()))
}

fn digest_set<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Digest> {
    let names: BTreeSet<&str> = names.into_iter().collect();
    // Names of files and tests cannot contain this character.
    digest_text(&names.into_iter().collect::<Vec<_>>().join("\0"))
}

/// Volatile parts of error texts, with their replacements. The order matters: digits come last.
const VOLATILE_PATTERNS: [(&str, &str); 8] = [
    // Terminal colours
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
    VOLATILE_PATTERNS
        .iter()
        .filter_map(|(pattern, replacement)| Some((Regex::new(pattern).ok()?, *replacement)))
        .collect()
});

fn normalize_error(error: &str) -> String {
    PATTERNS.iter().fold(error.trim().to_owned(), |text, (pattern, replacement)| {
        pattern.replace_all(&text, *replacement).into_owned()
    })
}
