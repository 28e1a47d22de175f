//! Steps as they are recorded: in workflow histories, in job requests and in the store.

use serde::{Deserialize, Serialize};

use super::{Alert, Command, JobKind, State, Step, TaskLoop, Timestamp, Trigger};
use crate::actor::Actor;
use crate::cause::AlertCause;
use crate::cost::Usage;
use crate::history::{EntryData, HistoryEntry};

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

    /// Returns the cause of an alert of this step.
    ///
    /// The state machine has one cause for every change that is sent back. The entry of the transition
    /// says what failed.
    pub fn alert_cause(&self, alert: &Alert) -> AlertCause {
        if alert.cause != AlertCause::ReviewFailed {
            return alert.cause;
        }
        let is_sent_back = |it: &&HistoryEntry| it.to == State::Adjusting && it.trigger.is_some();
        let Some(entry) = self.entries.iter().rfind(is_sent_back) else { return alert.cause };
        match (entry.trigger, &entry.actor, &entry.data) {
            (Some(Trigger::GatesFailed), _, EntryData::Gates(gates)) => {
                AlertCause::GatesFailed(gates.failed)
            }
            (Some(Trigger::ReviewFailed), Actor::Person(_), _) => AlertCause::ChangesRequested,
            (Some(Trigger::DeliveryFailed), ..) => AlertCause::DeliveryFailed,
            _ => alert.cause,
        }
    }
}
