//! Result that an implementing agent reports about its own run.
//!
//! Everything here is a claim. Gates and the review decide whether the work is done; the claims are
//! stored, shown as unverified and passed on to the next run.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

/// Maximum number of characters of a summary that are shown.
const MAX_SUMMARY_CHARS: usize = 2_000;

/// Maximum number of items of a list that are shown.
const MAX_ITEMS: usize = 20;

/// Maximum number of characters of an item that are shown.
const MAX_ITEM_CHARS: usize = 300;

/// End of a run in the agent's own words.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, Display, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunStatus {
    /// The plan is carried out.
    Done,
    /// Something is missing that only a person can provide.
    Blocked,
    /// The plan cannot work as written.
    PlanWrong,
}

/// Claims of an agent about its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// `done`: the plan is carried out. `blocked`: you need something that only a person can give.
    /// `plan_wrong`: the plan cannot work as written.
    pub status: RunStatus,
    /// Work done, in a few sentences. For `blocked` and `plan_wrong`: what you saw and what you need.
    pub summary: String,
    /// Each difference from the plan, with its reason. Empty if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deviations: Vec<String>,
    /// Everything that you did not run or check. Empty if there is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<String>,
    /// Answer to each comment thread that the brief lists. Empty if it lists none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<ThreadAnswer>,
}

/// Answer to a thread of review comments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadAnswer {
    /// ID of the thread, as the brief gives it.
    pub thread: String,
    /// What you changed, or why you did not change anything. The author of the comment reads it.
    pub answer: String,
    /// You changed what the comment asks for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
}

impl RunResult {
    /// Returns the errors of a submitted result; empty if it is valid.
    pub fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.summary.trim().is_empty() {
            errors.push(match self.status {
                RunStatus::Done => "`summary` is empty: say what you did".to_owned(),
                RunStatus::Blocked => {
                    "`summary` is empty: say what blocks you and what you need".to_owned()
                }
                RunStatus::PlanWrong => {
                    "`summary` is empty: say what is wrong with the plan and how you know"
                        .to_owned()
                }
            });
        }
        for (name, list) in [("deviations", &self.deviations), ("unverified", &self.unverified)] {
            if list.iter().any(|text| text.trim().is_empty()) {
                errors.push(format!("`{name}` has an empty item: describe it, or remove it"));
            }
        }
        if self.answers.iter().any(|it| it.thread.trim().is_empty() || it.answer.trim().is_empty())
        {
            errors.push("`answers` has an item without `thread` or `answer`".to_owned());
        }
        errors
    }

    /// Returns the claims as Markdown, marked as unverified.
    pub fn to_markdown(&self) -> String {
        let summary = shorten(&self.summary, MAX_SUMMARY_CHARS);
        let mut text = format!("The agent says (unverified): {summary}\n");
        for (title, list) in
            [("Deviations from the plan", &self.deviations), ("Not verified", &self.unverified)]
        {
            if list.is_empty() {
                continue;
            }
            let _ = write!(text, "\n{title}:\n\n");
            for item in list.iter().take(MAX_ITEMS) {
                let _ = writeln!(text, "- {}", shorten(item, MAX_ITEM_CHARS));
            }
            if list.len() > MAX_ITEMS {
                let _ = writeln!(text, "- and {} more", list.len() - MAX_ITEMS);
            }
        }
        text
    }
}

/// Returns the start of a claim on one line.
fn shorten(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(summary: &str) -> RunResult {
        RunResult {
            status: RunStatus::Done,
            summary: summary.to_owned(),
            deviations: Vec::new(),
            unverified: Vec::new(),
            answers: Vec::new(),
        }
    }

    #[test]
    fn empty_texts_are_rejected() {
        assert_eq!(result("Added the check.").validate(), Vec::<String>::new());
        assert_eq!(result(" ").validate(), ["`summary` is empty: say what you did"]);
        let blank = RunResult { unverified: vec![" ".to_owned()], ..result("a") };
        assert_eq!(blank.validate(), ["`unverified` has an empty item: describe it, or remove it"]);
        let answer = ThreadAnswer { thread: "7".to_owned(), answer: " ".to_owned(), fixed: true };
        let silent = RunResult { answers: vec![answer], ..result("a") };
        assert_eq!(silent.validate(), ["`answers` has an item without `thread` or `answer`"]);
    }

    #[test]
    fn claims_are_marked_as_unverified_and_short() {
        let claims = RunResult {
            deviations: vec!["Also changed\nb.rs.".to_owned()],
            unverified: vec!["x".repeat(5_000); 50],
            ..result("Added the check.")
        };
        let text = claims.to_markdown();
        assert!(text.starts_with("The agent says (unverified): Added the check.\n"), "{text}");
        assert!(text.contains("Deviations from the plan:\n\n- Also changed b.rs.\n"), "{text}");
        assert!(text.contains("- and 30 more\n"), "{text}");
        assert!(text.len() < 7_000, "{}", text.len());
    }
}
