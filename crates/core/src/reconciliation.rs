//! Agreement between a stored task and its workflow.
//!
//! The database holds the truth. A workflow that ended too early, is missing, or is at another step
//! is replaced by one that starts from the stored state machine. [`decide`] compares both sides and
//! says what to do; the state machine then takes the result as one event, which explains it in the
//! task's history.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::ids::Reason;
use crate::state::State;

/// Restarts without a finished job after which a person decides. After twice as many, the task is
/// closed.
pub const MAX_RESTARTS: u8 = 3;

/// Job numbers that a restart leaves out if the database may have lost some. Workers may still have
/// processes and files of the lost ones.
pub(crate) const JOB_NUMBER_GAP: u32 = 1000;

/// Reason that Tamma gives when it terminates a workflow itself, to replace it.
pub const REPLACED: &str = "Tamma replaces this workflow";

/// Task as the database has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPosition {
    /// State of the task.
    pub state: State,
    /// Number of events applied so far.
    pub step: u64,
    /// A job is active. Only the last lessons of a closed task are.
    pub has_job: bool,
    /// Restarts since the last finished job.
    pub restarts: u8,
}

/// Workflow as Temporal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowFinding {
    /// Temporal knows no workflow of the task.
    Missing,
    /// Workflow is open.
    Running {
        /// Number of events applied so far; `None` if it was not asked, or did not respond.
        step: Option<u64>,
        /// Both sides were at the same steps when they were compared before. A single difference is
        /// normal while a step is being saved.
        confirmed: bool,
    },
    /// Workflow returned, with this state of its task.
    Completed(Option<State>),
    /// Workflow failed.
    Failed {
        /// Message of the failure.
        reason: String,
    },
    /// Workflow reached a time limit, or the limit of its history.
    TimedOut,
    /// Somebody terminated the workflow.
    Terminated {
        /// Reason that they gave.
        reason: String,
        /// Identity of the client.
        by: String,
    },
    /// Workflow was cancelled.
    Cancelled,
}

/// Cause of a reconciliation.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WorkflowLoss {
    /// Temporal has no workflow of the task.
    Missing,
    /// Workflow and database are at different steps.
    Diverged,
    /// Workflow returned, and the database still has the task as open.
    Returned,
    /// Workflow failed.
    Failed,
    /// Workflow timed out.
    TimedOut,
    /// Somebody terminated the workflow.
    Terminated,
    /// Workflow was cancelled.
    Cancelled,
    /// Operator restarted the task.
    Requested,
}

impl WorkflowLoss {
    /// Returns `true` if the database may have lost steps that workers have seen.
    pub(crate) fn may_have_lost_steps(self) -> bool {
        match self {
            Self::Missing | Self::Diverged | Self::Returned | Self::Failed | Self::Requested => {
                true
            }
            Self::TimedOut | Self::Terminated | Self::Cancelled => false,
        }
    }

    /// Returns the cause as a sentence fragment.
    pub fn label(self) -> &'static str {
        match self {
            Self::Missing => "workflow is missing",
            Self::Diverged => "workflow and database disagree",
            Self::Returned => "workflow has ended before",
            Self::Failed => "workflow failed",
            Self::TimedOut => "workflow timed out",
            Self::Terminated => "workflow was terminated",
            Self::Cancelled => "workflow was cancelled",
            Self::Requested => "restart was requested",
        }
    }
}

/// Result of a reconciliation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Resolution {
    /// New workflow continues from the stored state machine.
    Restart,
    /// New workflow asks a person first. No agent runs before the answer.
    AskPerson,
    /// Task is closed as cancelled.
    Close,
    /// Task is closed already; only the history changes.
    Settle,
}

/// Reconciliation of a task, as an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Cause of the reconciliation.
    pub loss: WorkflowLoss,
    /// Result of the reconciliation.
    pub resolution: Resolution,
    /// Explanation for people, as long as a person's reason at most.
    pub reason: String,
}

/// Decision about a task and its workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReconcileDecision {
    /// Both sides agree.
    Leave,
    /// Both sides differ, perhaps for a moment only. Compare them again later.
    LookAgain,
    /// Both sides disagree. A workflow that still runs is terminated first.
    Recover(Recovery),
}

/// Compares a stored task with its workflow.
pub fn decide(stored: &StoredPosition, workflow: &WorkflowFinding) -> ReconcileDecision {
    use WorkflowFinding as W;
    let loss = match workflow {
        W::Running { step: None, .. } => return ReconcileDecision::Leave,
        W::Running { step: Some(step), .. } if *step == stored.step => {
            return ReconcileDecision::Leave;
        }
        W::Running { confirmed: false, .. } => return ReconcileDecision::LookAgain,
        W::Running { .. } => WorkflowLoss::Diverged,
        W::Missing => WorkflowLoss::Missing,
        W::Completed(_) => WorkflowLoss::Returned,
        W::Failed { .. } => WorkflowLoss::Failed,
        W::TimedOut => WorkflowLoss::TimedOut,
        // Tamma terminated it and was stopped before it started the next one.
        W::Terminated { reason, .. } if reason.starts_with(REPLACED) => WorkflowLoss::Diverged,
        W::Terminated { .. } => WorkflowLoss::Terminated,
        W::Cancelled => WorkflowLoss::Cancelled,
    };
    let is_running = matches!(workflow, W::Running { .. });
    let resolution = if stored.state.is_terminal() {
        if !is_running && !stored.has_job {
            return ReconcileDecision::Leave;
        }
        Resolution::Settle
    } else {
        resolution(stored, workflow, loss)
    };
    let reason = explanation(stored, workflow, loss, resolution);
    ReconcileDecision::Recover(Recovery { loss, resolution, reason })
}

/// Returns the recovery of a task that an operator restarts.
pub fn requested_restart(stored: &StoredPosition, by: &str) -> Recovery {
    let (loss, resolution) = (WorkflowLoss::Requested, Resolution::Restart);
    let text = format!("restarted by {by} from step {} of the database", stored.step);
    Recovery { loss, resolution, reason: short_reason(&text) }
}

fn resolution(
    stored: &StoredPosition,
    workflow: &WorkflowFinding,
    loss: WorkflowLoss,
) -> Resolution {
    if stored.restarts >= MAX_RESTARTS.saturating_mul(2) {
        return Resolution::Close;
    }
    match loss {
        // A person ended the task, and the database has lost it.
        WorkflowLoss::Returned
            if matches!(
                workflow,
                WorkflowFinding::Completed(Some(State::Cancelled | State::Failed))
            ) =>
        {
            Resolution::Close
        }
        // The work may be delivered already, or somebody wanted it to stop: no agent starts again by
        // itself.
        WorkflowLoss::Returned | WorkflowLoss::Terminated | WorkflowLoss::Cancelled => {
            Resolution::AskPerson
        }
        _ if stored.restarts >= MAX_RESTARTS => Resolution::AskPerson,
        WorkflowLoss::Missing
        | WorkflowLoss::Diverged
        | WorkflowLoss::Failed
        | WorkflowLoss::TimedOut
        | WorkflowLoss::Requested => Resolution::Restart,
    }
}

fn explanation(
    stored: &StoredPosition,
    workflow: &WorkflowFinding,
    loss: WorkflowLoss,
    resolution: Resolution,
) -> String {
    use WorkflowFinding as W;
    let found = match workflow {
        W::Running { step: Some(step), .. } => {
            format!("the workflow is at step {step}, and the database at step {}", stored.step)
        }
        W::Completed(Some(state)) => format!("the workflow has ended with the task {state}"),
        W::Failed { reason } => format!("the workflow failed: {reason}"),
        W::Terminated { reason, by } if reason.is_empty() => {
            format!("the workflow was terminated by {by}")
        }
        W::Terminated { reason, by } => format!("the workflow was terminated by {by}: {reason}"),
        W::Running { step: None, .. }
        | W::Missing
        | W::Completed(None)
        | W::TimedOut
        | W::Cancelled => format!("the {}", loss.label()),
    };
    let found: String = found.chars().take(Reason::MAX / 2).collect();
    let (step, restarts) = (stored.step, stored.restarts);
    let done = match resolution {
        Resolution::Restart => format!("restarted from step {step} of the database"),
        Resolution::AskPerson if restarts >= MAX_RESTARTS => {
            format!("restarted {restarts} times without progress, so a person decides")
        }
        Resolution::AskPerson => "a person decides how to continue".to_owned(),
        Resolution::Close if restarts >= MAX_RESTARTS => {
            format!("restarted {restarts} times without progress, so the task is closed")
        }
        Resolution::Close => "the task is closed again".to_owned(),
        Resolution::Settle => "the task stays closed".to_owned(),
    };
    short_reason(&format!("{found}; {done}"))
}

/// Cuts a text to the length of a reason.
fn short_reason(text: &str) -> String {
    text.chars().take(Reason::MAX).collect()
}
