//! What the lines that a change adds must not have in them: prohibited patterns, and secrets.
//!
//! Only added lines count: nobody is blamed for what was there before. One [`Matcher`] serves the
//! rules of a project, the well-known forms of secrets, and what the team has forbidden
//! ([`knowledge`](crate::knowledge)). Rules of ast-grep need a parser, so they are the engine's.

mod secret;

use globset::{Glob, GlobMatcher};
use regex::Regex;

use crate::issue::{Category, Issue, Severity};
use crate::rules::{PatternRules, ReviewRules};

/// How much of what was found is shown.
const SHOWN: usize = 80;

/// A regular expression for lines, narrowed by paths.
#[derive(Debug, Clone)]
pub struct Matcher {
    regex: Regex,
    paths: Vec<GlobMatcher>,
}

impl Matcher {
    /// A matcher, or why the expression is none. A glob that cannot be read narrows nothing: what
    /// cannot be decided must not pass.
    pub fn new(regex: &str, globs: &[String]) -> Result<Self, regex::Error> {
        let read: Result<Vec<_>, _> = globs
            .iter()
            .map(|glob| Ok::<_, globset::Error>(Glob::new(glob)?.compile_matcher()))
            .collect();
        Ok(Self { regex: Regex::new(regex)?, paths: read.unwrap_or_default() })
    }

    /// Whether it is about a file.
    pub fn concerns(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|glob| glob.is_match(path))
    }

    /// Every line of a file in which it finds something, with the first that it finds there, cut to
    /// a readable length.
    pub fn found(&self, path: &str, lines: &[(u32, &str)]) -> Vec<(u32, String)> {
        if !self.concerns(path) {
            return Vec::new();
        }
        let hit = |(number, text): &(u32, &str)| {
            let found = self.regex.find(text)?;
            Some((*number, found.as_str().chars().take(SHOWN).collect()))
        };
        lines.iter().filter_map(hit).collect()
    }
}

/// The patterns of a project that are regular expressions, and the secrets, ready to be looked for.
#[derive(Debug, Default)]
pub struct Patterns<'a> {
    wanted: Vec<(&'a str, &'a PatternRules, Matcher)>,
    secrets: bool,
    /// Patterns that cannot be read. Rules that were loaded have none.
    undecidable: Vec<Issue>,
}

impl<'a> Patterns<'a> {
    /// Those of the rules.
    pub fn of(rules: &'a ReviewRules) -> Self {
        let mut patterns = Self { secrets: rules.secrets, ..Self::default() };
        for (name, pattern) in &rules.patterns {
            let Some(regex) = &pattern.regex else { continue };
            match Matcher::new(regex, &pattern.paths) {
                Ok(matcher) => patterns.wanted.push((name, pattern, matcher)),
                Err(_) => patterns.undecidable.push(undecidable(name, "it is no expression")),
            }
        }
        patterns
    }

    /// What cannot be decided at all.
    pub fn undecidable(&self) -> &[Issue] {
        &self.undecidable
    }

    /// What is wrong with the lines that a change adds to a file.
    pub fn issues(&self, path: &str, lines: &[(u32, &str)]) -> Vec<Issue> {
        let mut issues = Vec::new();
        for (name, pattern, matcher) in &self.wanted {
            let found = matcher.found(path, lines);
            issues.extend(
                found.into_iter().map(|(line, found)| issue(name, pattern, path, line, &found)),
            );
        }
        if self.secrets {
            issues.extend(secrets(path, lines));
        }
        issues.sort_by_key(|issue| issue.line);
        issues
    }
}

/// The issue for a place where a pattern was found.
pub fn issue(name: &str, pattern: &PatternRules, path: &str, line: u32, found: &str) -> Issue {
    Issue {
        severity: pattern.severity,
        category: pattern.category,
        message: format!("`{name}` is prohibited here: {} (found: `{found}`)", pattern.message),
        file: Some(path.to_owned()),
        line: Some(line),
    }
}

/// The issue for a pattern that cannot be decided, which therefore lets nothing pass.
pub fn undecidable(name: &str, why: &str) -> Issue {
    Issue {
        severity: Severity::Error,
        category: Category::Code,
        message: format!(
            "the pattern `{name}` cannot be decided: {why}; mend `review.patterns.{name}`"
        ),
        file: None,
        line: None,
    }
}

/// A text, line by line, with what kind of secret it is in place of every line that has one.
pub fn without_secrets(text: &str) -> String {
    let line = |line: &str| match secret::form_of(line) {
        // The first letter says in a patch whether the line is new.
        Some(form) => {
            let first: String = line.chars().take(1).filter(|it| "+- ".contains(*it)).collect();
            format!("{first}[hidden: this looks like {form}]")
        }
        None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The secrets in the lines that a change adds to a file. What a secret is stays out of the issue,
/// which goes into reports and prompts.
pub fn secrets(path: &str, lines: &[(u32, &str)]) -> Vec<Issue> {
    if secret::is_lock_file(path) {
        return Vec::new();
    }
    let issue = |(line, form): (u32, &str)| Issue {
        severity: Severity::Critical,
        category: Category::Security,
        message: format!(
            "this looks like {form}: take it out, and change it where it is used, because it is \
             in a commit now"
        ),
        file: Some(path.to_owned()),
        line: Some(line),
    };
    lines
        .iter()
        .filter_map(|(line, text)| Some((*line, secret::form_of(text)?)))
        .map(issue)
        .collect()
}

/// A text without the secrets themselves, and what kind each was. What stands around them is left.
pub fn redacted(text: &str) -> (String, Vec<&'static str>) {
    secret::without(text)
}
