//! The well-known forms of secrets. A scanner that knows hundreds, such as gitleaks, belongs in a gate
//! of kind `secrets`; these are the net under projects that have none.
//!
//! A placeholder is no secret: what names itself an example, or is a variable to be filled in. So
//! the keys that a provider's own documentation shows do not count.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use globset::{Glob, GlobSet, GlobSetBuilder};
use regex::{Match, Regex};

/// The forms: what each is called, and how it looks. Where there is a group, that is the secret;
/// it must also look random, because people choose what is before it.
const FORMS: [(&str, &str); 16] = [
    ("a private key", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    ("an access key of AWS", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    ("a token of GitHub", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{50,255})\b"),
    ("a token of GitLab", r"\bgl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_-]{20,}"),
    ("a token of Slack", r"\bxox[abeoprs]-[A-Za-z0-9]{2,}-[A-Za-z0-9-]{10,}"),
    (
        "a webhook of Slack",
        r"\bhooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{20,}",
    ),
    ("a live key of Stripe", r"\b[sr]k_live_[A-Za-z0-9]{20,}"),
    ("a key of OpenAI", r"\bsk-(?:[a-z]+-)?[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    ("a key of Anthropic", r"\bsk-ant-[a-z]+[0-9]{2}-[A-Za-z0-9_-]{60,}"),
    ("a key of Google", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("a client secret of Google", r"\bGOCSPX-[A-Za-z0-9_-]{28}"),
    ("a token of npm", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("a token of PyPI", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
    ("a signed token (JWT)", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,}"),
    ("a password in an address", r"\b[a-z][a-z0-9+.-]*://[^/\s:@]{1,100}:([^/\s:@]{10,200})@"),
    (
        "a password or key",
        concat!(
            r"(?i)\b[\w.-]*(?:passwo?r?d|passphrase|secret|token|api[_-]?key|access[_-]?key|",
            r"private[_-]?key|auth[_-]?key|credential)s?(?:[_-]?(?:key|value))?",
            r#"["'`]?\]?\s*(?::\s*[\w&<>']+\s*)?(?::=|=>|[:=])\s*["'`]([^"'`\s]{10,200})["'`]"#,
        ),
    ),
];

/// What a placeholder has in it, in lower case.
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

/// Files that hold hashes, and never by hand.
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

/// Bits per character from which a text looks random: words and names are below it.
const RANDOM: f64 = 3.0;

static READY: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    FORMS.iter().filter_map(|(name, form)| Some((*name, Regex::new(form).ok()?))).collect()
});

static KEY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [^-]*-----|\z)")
        .ok()
});

static LOCKS: LazyLock<GlobSet> = LazyLock::new(|| {
    let globs = LOCK_FILES.iter().filter_map(|glob| Glob::new(glob).ok());
    globs
        .fold(&mut GlobSetBuilder::new(), |set, glob| set.add(glob))
        .build()
        .unwrap_or_else(|_| GlobSet::empty())
});

/// Whether a file is written by a package manager.
pub(super) fn is_lock_file(path: &str) -> bool {
    LOCKS.is_match(path)
}

/// What kind of secret a line has in it, if any.
pub(super) fn form_of(line: &str) -> Option<&'static str> {
    READY.iter().find(|(_, form)| has(form, line)).map(|(name, _)| *name)
}

/// A text with the secrets in it taken out, and what kind each was.
pub(super) fn without(text: &str) -> (String, Vec<&'static str>) {
    let (mut clean, mut forms) = (text.to_owned(), Vec::new());
    // Of a key the first line is the form, and what is below it is the secret.
    if let Some(key) = KEY.as_ref()
        && key.is_match(&clean)
    {
        clean = key.replace_all(&clean, "[redacted]").into_owned();
        forms.push(FORMS[0].0);
    }
    for (name, form) in READY.iter() {
        // From the last to the first, so that the places of the others stay where they are.
        let places: Vec<_> = secrets_in(form, &clean).map(|found| found.range()).collect();
        for place in places.into_iter().rev() {
            clean.replace_range(place, "[redacted]");
            forms.push(*name);
        }
    }
    (clean, forms)
}

fn has(form: &Regex, line: &str) -> bool {
    secrets_in(form, line).next().is_some()
}

/// Where a form finds a secret.
fn secrets_in<'a>(form: &'a Regex, text: &'a str) -> impl Iterator<Item = Match<'a>> {
    form.captures_iter(text).filter_map(|found| match (found.get(1), found.get(0)) {
        (Some(chosen), _) => {
            Some(chosen).filter(|it| !is_placeholder(it.as_str()) && looks_random(it.as_str()))
        }
        (None, whole) => whole.filter(|it| !is_placeholder(it.as_str())),
    })
}

fn is_placeholder(text: &str) -> bool {
    let small = text.to_lowercase();
    PLACEHOLDERS.iter().any(|word| small.contains(word)) || text.starts_with(['<', '%', '$'])
}

/// Whether a text is none that a person would read: letters and digits mixed, and no path, address
/// or name of a variable.
fn looks_random(text: &str) -> bool {
    let has = |kind: fn(&char) -> bool| text.chars().any(|letter| kind(&letter));
    let is_name =
        text.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_');
    let is_place = text.starts_with(['/', '.']) || text.contains("://");
    has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
        && !is_name
        && !is_place
        && bits(text) >= RANDOM
}

/// The entropy of a text, in bits per character.
#[expect(clippy::cast_precision_loss, reason = "a line is short")]
fn bits(text: &str) -> f64 {
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
    fn every_form_and_every_glob_can_be_read() {
        assert_eq!(READY.len(), FORMS.len());
        assert_eq!(LOCKS.len(), LOCK_FILES.len());
    }
}
