//! The activities that the workflow calls: what they are called, given and answer.
//!
//! An activity is given everything it needs to be run again: the task, the ticket of the job, and
//! what is to be written down before it begins. Whoever runs one twice does no harm.
#![expect(missing_docs, reason = "the macro makes constants that cannot be documented")]

use serde::{Deserialize, Serialize};
use tamma_core::cost::Usage;
use tamma_core::ids::{PolicyVersion, ProjectId, TaskId};
use tamma_core::log::Entry;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{Command, Job, JobKind, Outcome, TaskLoop, Timestamp};
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::activity_definitions;

/// A piece of work for a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    /// The number of the job in its task.
    pub ticket: u32,
    /// What to do.
    pub job: Job,
    /// What to write down first.
    #[serde(flatten)]
    pub diary: Diary,
}

/// Steps of one task that are to be written down, in their order. Those that are there already are
/// passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diary {
    /// The task.
    pub task: TaskId,
    /// Its project.
    pub project: ProjectId,
    /// The rules it runs under.
    pub policy: PolicyVersion,
    /// How the task came in, as long as nobody is known to have written that down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<Box<Arrival>>,
    /// The steps.
    pub steps: Vec<Recorded>,
}

/// What is written down once, before the first step of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// The task in its author's words.
    pub task: Task,
    /// The rules it runs under.
    pub rules: Rules,
}

/// One step of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// How many events the machine has taken.
    pub step: u64,
    /// When the event happened.
    pub at: Timestamp,
    /// The machine after it.
    pub next: TaskLoop,
    /// What it wrote down.
    pub entries: Vec<Entry>,
    /// What it wanted done.
    pub commands: Vec<Command>,
    /// What the job that ended has used, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

/// What a job has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The number of the job.
    pub ticket: u32,
    /// What kind of job it was.
    pub job: JobKind,
    /// What it used.
    pub usage: Usage,
}

/// What a worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The job has ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// What it used, if it asked a model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// There is something to wait for; the worker is to be asked again then.
    Later {
        /// Seconds until then.
        seconds: u32,
    },
}

impl Answer {
    /// A job that has ended and used no model.
    pub fn ended(outcome: Outcome) -> Self {
        Self::Ended { outcome, usage: None }
    }
}

/// What the activities are called. Histories know them by these names: they never change.
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
    pub const AWAIT_TURN: &str = "await_turn";
    pub const DELIVER: &str = "deliver";
    pub const LEARN: &str = "learn";
    pub const LAND: &str = "land";
}

/// The type of a failure that trying again does not mend.
pub const FINAL: &str = "Final";

/// The activities: their names and types. The library wants a body for each and throws it away; the
/// worker's `hands` do the work, under the same names.
pub struct Hands;

#[activity_definitions]
#[expect(clippy::result_large_err, reason = "the type of the declaration, which nobody calls")]
impl Hands {
    #[activity(name = names::RECORD)]
    pub fn record(_: Diary) -> Result<(), ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::ADMIT)]
    pub fn admit(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::PREPARE)]
    pub fn prepare(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::PLAN)]
    pub fn plan(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::CHECK)]
    pub fn check(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::IMPLEMENT)]
    pub fn implement(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::TEST)]
    pub fn test(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::REVIEW)]
    pub fn review(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::BRIEF)]
    pub fn brief(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::CONVENE)]
    pub fn convene(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::AWAIT_TURN)]
    pub fn await_turn(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::DELIVER)]
    pub fn deliver(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::LEARN)]
    pub fn learn(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
    #[activity(name = names::LAND)]
    pub fn land(_: Errand) -> Result<Answer, ApplicationFailure> {
        unimplemented!()
    }
}
