//! What a person asks of a task, and what came of it.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};
use tamma_core::budget;
use tamma_core::cost::Usd;
use tamma_core::task_loop::State;
use utoipa::ToSchema;

/// What a person says of one line of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LineComment {
    /// The file, from the root of the repository.
    pub file: String,
    /// The line after the change, counted from 1.
    pub line: u32,
    /// What is to be different.
    pub text: String,
}

/// A change that a task has made and that was reviewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The commit.
    pub commit: String,
    /// Whether our own checks let it pass.
    pub passed: bool,
    /// What it changes, as a patch. Lines that look like secrets are hidden.
    pub patch: String,
}

/// What a person asks of a task. It is written as an object with one key, the name of the action.
///
/// Where a plan or a commit is named, the person says which one they have seen: its hash, or at
/// least the first eight digits of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, Display, IntoStaticStr)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// Let this plan run.
    Approve {
        /// The plan they saw.
        plan: String,
        /// Why, if they say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Do not let this plan run.
    Reject {
        /// The plan they saw.
        plan: String,
        /// Why.
        reason: String,
    },
    /// Change this plan.
    AskChanges {
        /// The plan they saw.
        plan: String,
        /// What is to be changed.
        changes: String,
    },
    /// Lift the prohibition for this plan.
    Override {
        /// The plan they saw.
        plan: String,
        /// Why.
        reason: String,
    },
    /// Take this change.
    Accept {
        /// The commit they reviewed.
        commit: String,
        /// Why, if they say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Send this change back.
    Rework {
        /// The commit they reviewed.
        commit: String,
        /// What is to be different.
        #[serde(default)]
        comments: String,
        /// What is to be different on lines of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lines: Vec<LineComment>,
    },
    /// Stop for now.
    Pause {},
    /// Go on from where it was.
    Resume {},
    /// End it.
    Cancel {
        /// Why.
        reason: String,
    },
    /// Change what is wanted.
    Modify {
        /// What is wanted now.
        note: String,
    },
    /// Do not wait any longer; or, as an answer, try what failed again.
    Retry {
        /// What it may use beyond its limits.
        #[serde(default)]
        grant: Grant,
    },
    /// As an answer: go on.
    Continue {
        /// What it may use beyond its limits.
        #[serde(default)]
        grant: Grant,
    },
    /// As an answer: what the agent wanted to know.
    Reply {
        /// The reply, which the agent reads.
        text: String,
    },
    /// As an answer: go back to an earlier state.
    RollBack {
        /// Where to.
        #[schema(value_type = String, example = "planning")]
        to: State,
        /// Why.
        reason: String,
    },
    /// As an answer: take the failed step as done.
    Skip {
        /// Why.
        reason: String,
    },
    /// As an answer: give it up.
    Abandon {
        /// Why.
        reason: String,
    },
    /// I have seen it; stop reminding.
    Acknowledge {},
}

/// What a task may use beyond its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Grant {
    /// More runs.
    pub iterations: u16,
    /// More US dollars.
    #[schema(value_type = String, example = "5.00")]
    pub usd: Usd,
    /// More tokens.
    pub tokens: u64,
}

impl From<Grant> for budget::Grant {
    fn from(grant: Grant) -> Self {
        Self { iterations: grant.iterations, usd: grant.usd, tokens: grant.tokens }
    }
}

/// Where a task stands after something was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Standing {
    /// Where it is.
    #[schema(value_type = String)]
    pub state: State,
    /// Whether it is paused.
    pub paused: bool,
    /// How many events its machine has taken.
    pub step: u64,
    /// The hash of the plan that waits or runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Who asked.
    pub by: String,
}
