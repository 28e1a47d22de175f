//! Prohibited content of added lines: patterns and secrets.
//!
//! Only added lines count, not those that were there before. [`LineMatcher`] serves project rules,
//! secret patterns and prohibitions of the knowledge base ([`knowledge`](crate::knowledge)). Rules
//! of ast-grep need a parser, so they run in the `engine` crate.

mod secret;

use globset::{Glob, GlobMatcher};
use regex::Regex;

use crate::issue::{Issue, IssueCategory, IssueSeverity};
use crate::rules::{PatternRule, ReviewRules};

/// Maximum number of characters of a match that are shown.
const MAX_MATCH_CHARS: usize = 80;

/// Regular expression for lines, restricted to paths.
#[derive(Debug, Clone)]
pub struct LineMatcher {
    regex: Regex,
    paths: Vec<GlobMatcher>,
}

impl LineMatcher {
    /// Compiles a matcher. An invalid glob restricts nothing, so that an undecidable rule lets
    /// nothing pass.
    pub fn new(regex: &str, globs: &[String]) -> Result<Self, regex::Error> {
        let matchers: Result<Vec<_>, _> = globs
            .iter()
            .map(|glob| Ok::<_, globset::Error>(Glob::new(glob)?.compile_matcher()))
            .collect();
        Ok(Self { regex: Regex::new(regex)?, paths: matchers.unwrap_or_default() })
    }

    /// Returns `true` if the matcher applies to a file.
    pub fn applies_to(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|glob| glob.is_match(path))
    }

    /// Returns every matching line of a file with its first match, truncated.
    pub fn find_matches(&self, path: &str, lines: &[(u32, &str)]) -> Vec<(u32, String)> {
        if !self.applies_to(path) {
            return Vec::new();
        }
        let first_match = |(number, text): &(u32, &str)| {
            let matched = self.regex.find(text)?;
            Some((*number, matched.as_str().chars().take(MAX_MATCH_CHARS).collect()))
        };
        lines.iter().filter_map(first_match).collect()
    }
}

/// Compiled patterns of a project, and the secret check.
#[derive(Debug, Default)]
pub struct ReviewPatterns<'a> {
    patterns: Vec<(&'a str, &'a PatternRule, LineMatcher)>,
    check_secrets: bool,
    /// Patterns that do not compile. Loaded rules have none.
    undecidable: Vec<Issue>,
}

impl<'a> ReviewPatterns<'a> {
    /// Compiles the patterns of the rules.
    pub fn from_rules(rules: &'a ReviewRules) -> Self {
        let mut patterns = Self { check_secrets: rules.secrets, ..Self::default() };
        for (name, pattern) in &rules.patterns {
            let Some(regex) = &pattern.regex else { continue };
            match LineMatcher::new(regex, &pattern.paths) {
                Ok(matcher) => patterns.patterns.push((name, pattern, matcher)),
                Err(_) => patterns
                    .undecidable
                    .push(undecidable_issue(name, "it is not a regular expression")),
            }
        }
        patterns
    }

    /// Returns an issue for each pattern that cannot be evaluated.
    pub fn undecidable(&self) -> &[Issue] {
        &self.undecidable
    }

    /// Returns the issues of the lines that a change adds to a file.
    pub fn find_issues(&self, path: &str, lines: &[(u32, &str)]) -> Vec<Issue> {
        let mut issues = Vec::new();
        for (name, pattern, matcher) in &self.patterns {
            let matches = matcher.find_matches(path, lines);
            issues.extend(
                matches
                    .into_iter()
                    .map(|(line, matched)| pattern_issue(name, pattern, path, line, &matched)),
            );
        }
        if self.check_secrets {
            issues.extend(find_secrets(path, lines));
        }
        issues.sort_by_key(|issue| issue.line);
        issues
    }
}

/// Returns the issue for a match of a pattern.
pub fn pattern_issue(
    name: &str,
    pattern: &PatternRule,
    path: &str,
    line: u32,
    matched: &str,
) -> Issue {
    Issue {
        severity: pattern.severity,
        category: pattern.category,
        message: format!("`{name}` is prohibited here: {} (found: `{matched}`)", pattern.message),
        file: Some(path.to_owned()),
        line: Some(line),
        scenario: None,
    }
}

/// Returns the issue for a pattern that cannot be evaluated, which fails the review.
pub fn undecidable_issue(name: &str, reason: &str) -> Issue {
    Issue {
        severity: IssueSeverity::Error,
        category: IssueCategory::Code,
        message: format!(
            "pattern `{name}` cannot be evaluated: {reason}; fix `review.patterns.{name}`"
        ),
        file: None,
        line: None,
        scenario: None,
    }
}

/// Replaces every line that contains a secret with the kind of the secret.
pub fn mask_secret_lines(text: &str) -> String {
    let line = |line: &str| match secret::detect_secret(line) {
        // The first character of a patch line shows whether it is new.
        Some(kind) => {
            let mark: String = line.chars().take(1).filter(|mark| "+- ".contains(*mark)).collect();
            format!("{mark}[hidden: this looks like {kind}]")
        }
        None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Finds secrets in the lines that a change adds to a file. The issue never contains the secret,
/// because it goes into reports and prompts.
pub fn find_secrets(path: &str, lines: &[(u32, &str)]) -> Vec<Issue> {
    if secret::is_lock_file(path) {
        return Vec::new();
    }
    let issue = |(line, kind): (u32, &str)| Issue {
        severity: IssueSeverity::Critical,
        category: IssueCategory::Security,
        message: format!(
            "this looks like {kind}: remove it and rotate it, because it is already \
             in a commit"
        ),
        file: Some(path.to_owned()),
        line: Some(line),
        scenario: None,
    };
    lines
        .iter()
        .filter_map(|(line, text)| Some((*line, secret::detect_secret(text)?)))
        .map(issue)
        .collect()
}

/// Redacts the secrets in a text and returns the kind of each. The text around them stays.
pub fn redact_secrets(text: &str) -> (String, Vec<&'static str>) {
    secret::redact(text)
}
