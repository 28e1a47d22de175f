//! Holding plans and changes against what the team knows.
//!
//! An entry has up to four kinds of condition: paths, task types, words and a pattern. Within a
//! kind, one that holds is enough. A prohibition needs every kind it has; the other entries are
//! ranked ([`Index`]).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::index::glob;
use super::{Entry, Index, Kind, MatchReason, Severity};
use crate::ids::KnowledgeId;
use crate::issue;
use crate::plan::Plan;
use crate::review::patterns::Matcher;
use crate::rules::Rules;
use crate::task::Task;

/// An entry that matched, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// The entry.
    pub entry: KnowledgeId,
    /// What matched what.
    pub reasons: Vec<MatchReason>,
    /// How much it has to say to the plan, 0 to 100. A prohibition that matches has all.
    pub relevance: u8,
}

/// What the knowledge base has to say about a plan. The most relevant come first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Critical prohibitions: a person must decide.
    pub blockers: Vec<Match>,
    /// Other prohibitions, and entries that cannot be decided. They raise the risk.
    pub warnings: Vec<Match>,
    /// Relevant recommendations.
    pub recommendations: Vec<Match>,
    /// Relevant conventions.
    pub conventions: Vec<Match>,
    /// Relevant learnings.
    pub learnings: Vec<Match>,
}

impl Findings {
    /// Whether the plan may go on without a person's override.
    pub fn can_proceed(&self) -> bool {
        self.blockers.is_empty()
    }
}

/// Holds a task and its plan against entries. Who has many of them and many plans makes an [`Index`] of
/// them once.
pub fn check(
    task: &Task,
    plan: &Plan,
    entries: &[Entry],
    now: DateTime<Utc>,
    rules: &Rules,
) -> Findings {
    Index::new(entries.iter().cloned()).check(task, plan, now, rules)
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// A line of a change that does what the team has forbidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The prohibition.
    pub entry: KnowledgeId,
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// The line, counted from 1; none where the pattern cannot be read and so every line may be it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What matched what.
    pub reason: MatchReason,
}

impl Violation {
    /// The issue that the review makes of it: as with plans, only a critical one blocks.
    pub fn issue(&self) -> issue::Issue {
        issue::Issue {
            severity: match self.severity {
                Severity::Critical => issue::Severity::Critical,
                Severity::Low | Severity::Medium | Severity::High => issue::Severity::Warning,
            },
            category: issue::Category::Code,
            message: format!("prohibited by {}: {}", self.entry, self.reason),
            file: Some(self.file.clone()),
            line: self.line,
        }
    }
}

/// Holds the lines that a change adds to one file against the prohibitions that have a pattern.
///
/// Paths and task types narrow a prohibition here as they do for a plan. Keywords do not: they
/// are about the words of a plan, and code that is forbidden stays so whatever the plan said.
pub fn added_lines<'a>(
    task: &Task,
    entries: impl IntoIterator<Item = &'a Entry>,
    now: DateTime<Utc>,
    path: &str,
    lines: &[(u32, &str)],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for entry in entries {
        let Some(pattern) = &entry.pattern else {
            continue;
        };
        let concerns = !lines.is_empty()
            && entry.kind == Kind::Prohibition
            && entry.is_in_force(task.project, now)
            && (entry.task_types.is_empty() || entry.task_types.contains(&task.r#type));
        if !concerns {
            continue;
        }
        let violation = |line, reason| Violation {
            entry: entry.id,
            severity: entry.severity,
            file: path.to_owned(),
            line,
            reason,
        };
        if !is_under(&entry.globs, path) {
            continue;
        }
        if let Ok(matcher) = Matcher::new(pattern, &[]) {
            violations.extend(matcher.found(path, lines).into_iter().map(|(line, found)| {
                let reason = MatchReason::Pattern { pattern: pattern.clone(), found };
                violation(Some(line), reason)
            }));
        } else {
            let reason = MatchReason::Undecidable { condition: pattern.clone() };
            violations.push(violation(None, reason));
        }
    }
    violations.sort_by_key(|one| (one.line, one.entry));
    violations
}

/// Whether a path may be under one of some globs: it is where there are none, or where one cannot be
/// read.
fn is_under(globs: &[String], path: &str) -> bool {
    let may_hold =
        |text: &String| glob(text).is_none_or(|readable| readable.compile_matcher().is_match(path));
    globs.is_empty() || globs.iter().any(may_hold)
}
