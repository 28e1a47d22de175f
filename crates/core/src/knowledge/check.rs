//! Checks of plans and changes against the knowledge base.
//!
//! An entry has up to four kinds of condition: paths, task types, keywords and a pattern. Within a
//! kind, one match is enough. A prohibition needs a match of every kind that it has; other entries
//! are ranked ([`KnowledgeIndex`]).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::index::parse_glob;
use super::{EntryKind, EntrySeverity, KnowledgeEntry, KnowledgeIndex, MatchReason};
use crate::ids::KnowledgeId;
use crate::issue;
use crate::plan::Plan;
use crate::review::patterns::LineMatcher;
use crate::rules::Rules;
use crate::task::Task;

/// Entry that matched, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryMatch {
    /// ID of the entry.
    pub entry: KnowledgeId,
    /// Reasons for the match.
    pub reasons: Vec<MatchReason>,
    /// Relevance to the plan, 0 to 100. Always 100 for a matching prohibition.
    pub relevance: u8,
}

/// Matches of a plan, most relevant first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeFindings {
    /// Critical prohibitions: a person must decide.
    pub blockers: Vec<EntryMatch>,
    /// Other prohibitions, and undecidable entries. They raise the risk.
    pub warnings: Vec<EntryMatch>,
    /// Relevant recommendations.
    pub recommendations: Vec<EntryMatch>,
    /// Relevant conventions.
    pub conventions: Vec<EntryMatch>,
    /// Relevant lessons.
    pub learnings: Vec<EntryMatch>,
}

impl KnowledgeFindings {
    /// Returns true if the plan can proceed without an override by a person.
    pub fn can_proceed(&self) -> bool {
        self.blockers.is_empty()
    }
}

/// Checks a task and its plan against entries. To check many plans, build a [`KnowledgeIndex`]
/// once.
pub fn check(
    task: &Task,
    plan: &Plan,
    entries: &[KnowledgeEntry],
    now: DateTime<Utc>,
    rules: &Rules,
) -> KnowledgeFindings {
    KnowledgeIndex::new(entries.iter().cloned()).check(task, plan, now, rules)
}

pub(crate) fn split_words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Added line that violates a prohibition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProhibitionViolation {
    /// ID of the prohibition.
    pub entry: KnowledgeId,
    /// Severity of the prohibition.
    pub severity: EntrySeverity,
    /// File of the line.
    pub file: String,
    /// Line number, from 1; `None` if the pattern is invalid and any line could match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Reason of the match.
    pub reason: MatchReason,
}

impl ProhibitionViolation {
    /// Converts it to a review issue. As with plans, only a critical prohibition blocks.
    pub fn to_issue(&self) -> issue::Issue {
        issue::Issue {
            severity: match self.severity {
                EntrySeverity::Critical => issue::IssueSeverity::Critical,
                EntrySeverity::Low | EntrySeverity::Medium | EntrySeverity::High => {
                    issue::IssueSeverity::Warning
                }
            },
            category: issue::IssueCategory::Code,
            message: format!("prohibited by {}: {}", self.entry, self.reason),
            file: Some(self.file.clone()),
            line: self.line,
            scenario: None,
        }
    }
}

/// Checks the lines that a change adds to one file against prohibitions with a pattern.
///
/// Paths and task types restrict a prohibition here as they do for a plan. Keywords do not: they
/// are about the text of a plan, and prohibited code stays prohibited in any case.
pub fn check_added_lines<'a>(
    task: &Task,
    entries: impl IntoIterator<Item = &'a KnowledgeEntry>,
    now: DateTime<Utc>,
    path: &str,
    lines: &[(u32, &str)],
) -> Vec<ProhibitionViolation> {
    let mut violations = Vec::new();
    for entry in entries {
        let Some(pattern) = &entry.pattern else {
            continue;
        };
        let applies = !lines.is_empty()
            && entry.kind == EntryKind::Prohibition
            && entry.is_in_force(task.project, now)
            && (entry.task_types.is_empty() || entry.task_types.contains(&task.r#type));
        if !applies {
            continue;
        }
        let violation = |line, reason| ProhibitionViolation {
            entry: entry.id,
            severity: entry.severity,
            file: path.to_owned(),
            line,
            reason,
        };
        if !matches_globs(&entry.globs, path) {
            continue;
        }
        if let Ok(matcher) = LineMatcher::new(pattern, &[]) {
            violations.extend(matcher.find_matches(path, lines).into_iter().map(
                |(line, found)| {
                    let reason = MatchReason::Pattern { pattern: pattern.clone(), found };
                    violation(Some(line), reason)
                },
            ));
        } else {
            let reason = MatchReason::Undecidable { condition: pattern.clone() };
            violations.push(violation(None, reason));
        }
    }
    violations.sort_by_key(|violation| (violation.line, violation.entry));
    violations
}

/// Returns true if a path may match one of the globs: also without any globs, or if one is invalid.
fn matches_globs(globs: &[String], path: &str) -> bool {
    let can_match =
        |text: &String| parse_glob(text).is_none_or(|glob| glob.compile_matcher().is_match(path));
    globs.is_empty() || globs.iter().any(can_match)
}
