//! Well-known secret formats, for projects without a secret scanner. A scanner that knows hundreds
//! of formats, such as gitleaks, belongs in a gate of kind `secrets`.
//!
//! Placeholders are not secrets: values marked as examples, and variables to fill in. So the sample
//! keys in providers' documentation do not count.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use globset::{Glob, GlobSet, GlobSetBuilder};
use regex::{Match, Regex};

/// Names and patterns of the formats. A capture group is the secret itself; it must also look
/// random, because people choose the text before it.
const SECRET_FORMS: [(&str, &str); 16] = [
    ("a private key", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    ("an AWS access key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{50,255})\b"),
    ("a GitLab token", r"\bgl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_-]{20,}"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9]{2,}-[A-Za-z0-9-]{10,}"),
    (
        "a Slack webhook",
        r"\bhooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{20,}",
    ),
    ("a Stripe live key", r"\b[sr]k_live_[A-Za-z0-9]{20,}"),
    ("an OpenAI key", r"\bsk-(?:[a-z]+-)?[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    ("an Anthropic key", r"\bsk-ant-[a-z]+[0-9]{2}-[A-Za-z0-9_-]{60,}"),
    ("a Google key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("a Google client secret", r"\bGOCSPX-[A-Za-z0-9_-]{28}"),
    ("an npm token", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("a PyPI token", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
    ("a signed token (JWT)", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,}"),
    ("a password in a URL", r"\b[a-z][a-z0-9+.-]*://[^/\s:@]{1,100}:([^/\s:@]{10,200})@"),
    (
        "a password or key",
        concat!(
            r"(?i)\b[\w.-]*(?:passwo?r?d|passphrase|secret|token|api[_-]?key|access[_-]?key|",
            r"private[_-]?key|auth[_-]?key|credential)s?(?:[_-]?(?:key|value))?",
            r#"["'`]?\]?\s*(?::\s*[\w&<>']+\s*)?(?::=|=>|[:=])\s*["'`]([^"'`\s]{10,200})["'`]"#,
        ),
    ),
];

/// Substrings of placeholders, in lower case.
const PLACEHOLDERS: [&str; 20] = [
    "example",
    "placeholder",
    "changeme",
    "change-me",
    "change_me",
    "your",
    "dummy",
    "fake",
    "sample",
    "redacted",
    "replace",
    "insert",
    "xxxx",
    "****",
    "....",
    "1234567890",
    "abcdefgh",
    "${",
    "{{",
    "$(",
];

/// Generated files that contain hashes.
const LOCK_FILES: [&str; 8] = [
    "**/*.lock",
    "**/*.lockb",
    "**/*.sum",
    "**/npm-shrinkwrap.json",
    "**/package-lock.json",
    "**/packages.lock.json",
    "**/pnpm-lock.yaml",
    "**/*.lock.json",
];

/// Minimum entropy of random text, in bits per character. Words and names are below it.
const MIN_ENTROPY_BITS: f64 = 3.0;

static SECRET_PATTERNS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    SECRET_FORMS
        .iter()
        .filter_map(|(name, pattern)| Some((*name, Regex::new(pattern).ok()?)))
        .collect()
});

static PRIVATE_KEY_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [^-]*-----|\z)")
        .ok()
});

static LOCK_FILE_GLOBS: LazyLock<GlobSet> = LazyLock::new(|| {
    let globs = LOCK_FILES.iter().filter_map(|glob| Glob::new(glob).ok());
    globs
        .fold(&mut GlobSetBuilder::new(), |set, glob| set.add(glob))
        .build()
        .unwrap_or_else(|_| GlobSet::empty())
});

/// Returns `true` for files that a package manager writes.
pub(super) fn is_lock_file(path: &str) -> bool {
    LOCK_FILE_GLOBS.is_match(path)
}

/// Returns the kind of secret in a line.
pub(super) fn detect_secret(line: &str) -> Option<&'static str> {
    SECRET_PATTERNS
        .iter()
        .find(|(_, pattern)| contains_secret(pattern, line))
        .map(|(name, _)| *name)
}

/// Redacts the secrets in a text and returns the kind of each.
pub(super) fn redact(text: &str) -> (String, Vec<&'static str>) {
    let (mut redacted, mut kinds) = (text.to_owned(), Vec::new());
    // The pattern matches only the first line of a private key; the secret is in the lines below
    // it.
    if let Some(key) = PRIVATE_KEY_PATTERN.as_ref()
        && key.is_match(&redacted)
    {
        redacted = key.replace_all(&redacted, "[redacted]").into_owned();
        kinds.push(SECRET_FORMS[0].0);
    }
    for (name, pattern) in SECRET_PATTERNS.iter() {
        // Replace from last to first, so that earlier positions stay valid.
        let ranges: Vec<_> = secrets_in(pattern, &redacted).map(|secret| secret.range()).collect();
        for range in ranges.into_iter().rev() {
            redacted.replace_range(range, "[redacted]");
            kinds.push(*name);
        }
    }
    (redacted, kinds)
}

fn contains_secret(pattern: &Regex, line: &str) -> bool {
    secrets_in(pattern, line).next().is_some()
}

/// Returns the matches of a pattern that are secrets.
fn secrets_in<'a>(pattern: &'a Regex, text: &'a str) -> impl Iterator<Item = Match<'a>> {
    pattern.captures_iter(text).filter_map(|captures| match (captures.get(1), captures.get(0)) {
        (Some(chosen), _) => Some(chosen)
            .filter(|secret| !is_placeholder(secret.as_str()) && looks_random(secret.as_str())),
        (None, full_match) => full_match.filter(|secret| !is_placeholder(secret.as_str())),
    })
}

fn is_placeholder(text: &str) -> bool {
    let lowercase = text.to_lowercase();
    PLACEHOLDERS.iter().any(|word| lowercase.contains(word)) || text.starts_with(['<', '%', '$'])
}

/// Returns `true` for text that mixes letters and digits and is not a path, URL or variable name.
fn looks_random(text: &str) -> bool {
    let has = |kind: fn(&char) -> bool| text.chars().any(|letter| kind(&letter));
    let is_name = text
        .chars()
        .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_');
    let is_path = text.starts_with(['/', '.']) || text.contains("://");
    has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
        && !is_name
        && !is_path
        && entropy_bits(text) >= MIN_ENTROPY_BITS
}

/// Returns the entropy of a text, in bits per character.
#[expect(clippy::cast_precision_loss, reason = "a line is short")]
fn entropy_bits(text: &str) -> f64 {
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    for letter in text.chars() {
        *counts.entry(letter).or_default() += 1;
    }
    let all = text.chars().count() as f64;
    counts.values().map(|&count| count as f64 / all).map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_and_every_glob_compiles() {
        assert_eq!(SECRET_PATTERNS.len(), SECRET_FORMS.len());
        assert_eq!(LOCK_FILE_GLOBS.len(), LOCK_FILES.len());
    }
}
