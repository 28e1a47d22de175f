//! Activity interface between the task workflow and its workers.
//!
//! Temporal may run an activity more than once, so every activity is idempotent and every request
//! carries what another attempt needs. Serialised names are part of recorded workflow histories:
//! rename the Rust item, and keep the recorded name with `#[serde(rename)]`.
#![expect(missing_docs, reason = "the macro generates undocumented constants")]

use serde::{Deserialize, Serialize};
use tamma_core::cost::Usage;
use tamma_core::history::HistoryEntry;
use tamma_core::ids::{PolicyVersion, ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{Command, Job, JobKind, Outcome, TaskLoop, Timestamp};
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::activity_definitions;

/// Request to run one job of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Sequence number of the job within its task. A result with another number is stale.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Job to run, with its arguments.
    pub job: Job,
    /// Steps to save before the job starts.
    #[serde(flatten)]
    pub pending: PendingSteps,
}

/// Steps of one task that may not be in the database yet. Saving them twice has no effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingSteps {
    /// Task ID.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Policy version of the rules that the task runs under.
    pub policy: PolicyVersion,
    /// Task and rules as submitted; `None` once they are known to be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "arrival")]
    pub submission: Option<Box<TaskSubmission>>,
    /// Steps, oldest first.
    pub steps: Vec<StepRecord>,
}

/// Task and rules as submitted, saved once before the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSubmission {
    /// Task as its author wrote it.
    pub task: Task,
    /// Rules that the task runs under.
    pub rules: Rules,
}

/// Step of the state machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of events applied so far.
    pub step: u64,
    /// Time of the event.
    pub at: Timestamp,
    /// State machine after the event.
    pub next: TaskLoop,
    /// History entries of the step.
    pub entries: Vec<HistoryEntry>,
    /// Commands of the step.
    pub commands: Vec<Command>,
    /// Usage of the job that finished with this step, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "used")]
    pub job_usage: Option<JobUsage>,
}

/// Usage of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    /// Job number.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Kind of the job.
    pub job: JobKind,
    /// Tokens and cost.
    pub usage: Usage,
}

/// Result that a worker returns for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobResult {
    /// Job ended; `outcome` says whether it succeeded. `usage` is `None` without model calls.
    #[serde(rename = "ended")]
    Finished {
        /// Outcome of the job.
        outcome: Outcome,
        /// Usage; `None` without model calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// Job not ready; the workflow requests it again after this delay.
    #[serde(rename = "later")]
    RetryAfter {
        /// Delay, in seconds.
        seconds: u32,
    },
}

impl JobResult {
    /// Returns the result of a job without model calls.
    pub fn finished(outcome: Outcome) -> Self {
        Self::Finished { outcome, usage: None }
    }
}

/// Activity names. Recorded histories contain them, so they never change.
pub mod names {
    pub const RECORD: &str = "record";
    pub const ADMIT: &str = "admit";
    pub const PREPARE: &str = "prepare";
    pub const PLAN: &str = "plan";
    pub const CHECK: &str = "check";
    pub const IMPLEMENT: &str = "implement";
    pub const TEST: &str = "test";
    pub const REVIEW: &str = "review";
    pub const BRIEF: &str = "brief";
    pub const CONVENE: &str = "convene";
    pub const AWAIT_DELIVERY: &str = "await_turn";
    pub const DELIVER: &str = "deliver";
    pub const LEARN: &str = "learn";
    pub const SAVE_WORK: &str = "land";
}

/// Type of a failure that a retry cannot fix.
pub const NON_RETRYABLE: &str = "Final";

/// Declarations of the activities: names and types. The macro requires a body for each and ignores
/// it;
/// `tamma-worker` implements them under the same names.
pub struct Activities;

#[activity_definitions]
#[expect(clippy::result_large_err, reason = "type of a declaration that is never called")]
impl Activities {
    #[activity(name = names::RECORD)]
    pub fn record(_: PendingSteps) -> Result<(), ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::ADMIT)]
    pub fn admit(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::PREPARE)]
    pub fn prepare(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::PLAN)]
    pub fn plan(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::CHECK)]
    pub fn check(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::IMPLEMENT)]
    pub fn implement(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::TEST)]
    pub fn test(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::REVIEW)]
    pub fn review(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::BRIEF)]
    pub fn brief(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::CONVENE)]
    pub fn convene(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::AWAIT_DELIVERY)]
    pub fn await_delivery(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::DELIVER)]
    pub fn deliver(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::LEARN)]
    pub fn learn(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::SAVE_WORK)]
    pub fn save_work(_: JobRequest) -> Result<JobResult, ApplicationFailure> {
        unimplemented!()
    }
}
