//! Steps as they are recorded: in workflow histories, in job requests and in the store.

use serde::{Deserialize, Serialize};

use super::{Command, JobKind, Step, TaskLoop, Timestamp};
use crate::cost::Usage;
use crate::history::HistoryEntry;

/// One step of a task's state machine, as it is saved.
///
/// Serialised names are part of recorded workflow histories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of events applied so far. The step that creates a task is step 0.
    pub step: u64,
    /// Time of the event.
    pub at: Timestamp,
    /// State machine after the event.
    pub next: TaskLoop,
    /// History entries of the step.
    pub entries: Vec<HistoryEntry>,
    /// Commands of the step. The store derives rows from alert and provider commands.
    pub commands: Vec<Command>,
    /// Usage of the job that finished with this step, if known.
    #[serde(rename = "used", default, skip_serializing_if = "Option::is_none")]
    pub job_usage: Option<JobUsage>,
}

/// Tokens and cost of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    /// Sequence number of the job within its task.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Kind of the job.
    pub job: JobKind,
    /// Tokens and cost.
    pub usage: Usage,
}

impl StepRecord {
    /// Creates the record of a step in which no job reported its usage.
    pub fn new(number: u64, at: Timestamp, step: Step) -> Self {
        let Step { next, commands, entries } = step;
        Self { step: number, at, next, entries, commands, job_usage: None }
    }

    /// Returns the length of the history before the step.
    pub fn entries_before(&self) -> u64 {
        self.next.entry_count.saturating_sub(self.entries.len() as u64)
    }
}
