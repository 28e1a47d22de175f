//! Suggestions to retire an entry.
//!
//! An entry takes space in prompts and blocks plans while it is in effect, so a useless one is
//! suggested for retirement, with the reason. A person decides.

use std::fmt;

use chrono::{DateTime, Utc};
use globset::GlobBuilder;
use serde::{Deserialize, Serialize};

use super::LessonEffect;
use crate::ids::Reference;
use crate::knowledge::{EntryStatus, KnowledgeEntry};

/// Finished tasks without a match after which retirement is suggested.
pub const UNMATCHED_TASKS_LIMIT: u32 = 50;

/// Reason to retire or rewrite an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetirementSuggestion {
    /// Entry has expired.
    Expired {
        /// Expiry time.
        at: DateTime<Utc>,
    },
    /// Entry has matched no task.
    NeverMatched {
        /// Tasks that finished since it took effect.
        tasks: u32,
    },
    /// Entry has no positive effect.
    DoesNotHelp(LessonEffect),
    /// Files that it applies to no longer exist.
    PathsGone {
        /// Globs that match no file.
        globs: Vec<String>,
    },
    /// Its evidence no longer exists.
    EvidenceGone {
        /// Missing evidence.
        evidence: Vec<Reference>,
    },
}

impl fmt::Display for RetirementSuggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { at } => write!(f, "expired on {}", at.date_naive()),
            Self::NeverMatched { tasks } => {
                write!(f, "matched none of the {tasks} tasks that finished since it took effect")
            }
            Self::DoesNotHelp(effect) => write!(f, "{effect}"),
            Self::PathsGone { globs } => {
                write!(f, "no files match {} any more", quote_list(globs.iter()))
            }
            Self::EvidenceGone { evidence } => {
                write!(f, "evidence no longer exists: {}", quote_list(evidence.iter()))
            }
        }
    }
}

fn quote_list(items: impl Iterator<Item = impl fmt::Display>) -> String {
    items.map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ")
}

/// Usage and environment of an entry.
#[derive(Debug, Clone, Copy)]
pub struct EntryUsage<'a> {
    /// Finished tasks that it could have matched.
    pub tasks: u32,
    /// Tasks that it matched.
    pub matched: u32,
    /// Measured effect on them.
    pub effect: LessonEffect,
    /// Files of the repositories in its scope; `None` if they cannot be read.
    pub files: Option<&'a [String]>,
    /// Evidence that no longer exists. Git removes commits of abandoned attempts, so retirement is
    /// suggested only if no evidence is left.
    pub missing_evidence: &'a [Reference],
}

/// Returns the reasons to reconsider an approved entry.
pub fn retirement_suggestions(
    entry: &KnowledgeEntry,
    usage: &EntryUsage<'_>,
    now: DateTime<Utc>,
) -> Vec<RetirementSuggestion> {
    let mut suggestions = Vec::new();
    if entry.status != EntryStatus::Approved {
        return suggestions;
    }
    if let Some(at) = entry.expires_at.filter(|at| *at <= now) {
        suggestions.push(RetirementSuggestion::Expired { at });
    }
    if usage.matched == 0 && usage.tasks >= UNMATCHED_TASKS_LIMIT {
        suggestions.push(RetirementSuggestion::NeverMatched { tasks: usage.tasks });
    }
    if usage.effect.suggests_retirement() {
        suggestions.push(RetirementSuggestion::DoesNotHelp(usage.effect));
    }
    let globs = usage.files.map(|files| unmatched_globs(&entry.globs, files)).unwrap_or_default();
    if !globs.is_empty() {
        suggestions.push(RetirementSuggestion::PathsGone { globs });
    }
    let is_missing = |evidence: &Reference| usage.missing_evidence.contains(evidence);
    if !entry.evidence.is_empty() && entry.evidence.iter().all(is_missing) {
        suggestions
            .push(RetirementSuggestion::EvidenceGone { evidence: usage.missing_evidence.to_vec() });
    }
    suggestions
}

/// Returns the globs that match no file. Invalid globs are reported as a content warning instead.
fn unmatched_globs(globs: &[String], files: &[String]) -> Vec<String> {
    let matches_file = |glob: &String| {
        let Ok(glob) = GlobBuilder::new(glob).literal_separator(true).build() else { return true };
        let glob = glob.compile_matcher();
        files.iter().any(|file| glob.is_match(file))
    };
    globs.iter().filter(|glob| !matches_file(glob)).cloned().collect()
}
