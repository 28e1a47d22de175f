//! Why a job failed.

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::ids::{Name, Reason};
use crate::time::Timestamp;

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// What was seen.
    pub reason: Reason,
}

/// What kind of failure it is. None of them says anything about the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureKind {
    /// The process or the step died.
    Crashed,
    /// The agent or service could not be reached.
    Unavailable,
    /// It took longer than it may.
    TimedOut,
    /// The provider's quota is used up until then.
    Quota {
        /// Which provider.
        provider: Name,
        /// Until when.
        until: Timestamp,
    },
    /// It reached a limit of the budget.
    OverBudget,
}
