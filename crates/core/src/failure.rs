//! Failures of jobs.

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::ids::{Name, Reason};
use crate::time::Timestamp;

/// Failure of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFailure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Observed error, for people.
    pub reason: Reason,
}

/// Kind of a job failure. None of them says anything about the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureKind {
    /// The process or the step crashed.
    Crashed,
    /// The agent or a service could not be reached.
    Unavailable,
    /// The time limit was exceeded.
    TimedOut,
    /// The provider's quota is used up.
    Quota {
        /// Provider of the quota.
        provider: Name,
        /// Time of the reset.
        until: Timestamp,
    },
    /// A budget limit was reached.
    OverBudget,
    /// The model refused the work. The same prompt would be refused again.
    Refused,
    /// Every attempt ended with its worker, so the job may be what kills them. It is not tried again.
    WorkersLost,
}
