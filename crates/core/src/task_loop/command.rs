//! What the machine wants done.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use super::{Answer, State, Timestamp};
use crate::approval::Pin;
use crate::budget::Limit;
use crate::cause::Cause;
use crate::council::{Opinion, Place};
use crate::escalation::Decision;
use crate::ids::{CommitId, Name, Reference};
use crate::level::Level;
use crate::plan::Outline;
use crate::tier::Tier;

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Do a job, and report its end with the ticket. There is never more than one at a time.
    Start {
        /// The number of the job.
        ticket: u32,
        /// Wait until then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
        /// What to do.
        job: Job,
    },
    /// Stop a job, make sure that it has stopped, save what it made, and report its end.
    Stop {
        /// The number of the job.
        ticket: u32,
        /// Why.
        why: StopReason,
    },
    /// Tell people.
    Alert(Alert),
    /// A question has been answered: take back its reminders.
    Settle {
        /// The number of the question.
        question: u32,
    },
    /// Start nothing on this provider until then, anywhere in the pool.
    HoldProvider {
        /// Which provider.
        provider: Name,
        /// Until when.
        until: Timestamp,
    },
}

/// Why a job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The task is paused.
    Paused,
    /// The task has gone elsewhere.
    Superseded,
    /// The task has ended.
    Ended,
}

/// A piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Wait for dependencies and for room.
    Admit,
    /// Pin base and rules, take the gates' baseline.
    Prepare,
    /// Write a plan, or review the one the task brought, or revise the last one.
    Plan {
        /// The version the new plan will have.
        version: u32,
        /// The plan to start from: the one brought, or the last version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Reference>,
        /// What to take into account: flaws, a person's changes, the council's guidance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Reference>,
    },
    /// Check the plan against what the team knows.
    Check {
        /// The plan.
        plan: Outline,
    },
    /// Run an engine.
    Implement(Order),
    /// Run the gates on a commit.
    Test {
        /// Which commit.
        commit: CommitId,
        /// The risk, which chooses the gates.
        risk: Level,
    },
    /// Judge patterns, conformance and criteria.
    Review {
        /// Which commit.
        commit: CommitId,
    },
    /// Write the brief of what failed.
    Brief {
        /// What was decided, and why.
        decision: Decision,
        /// What else it must say: a person's comments, the text of a failed hook.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Reference>,
    },
    /// Ask the council: one seat of it, or, without one, a model of the top tier for all of it.
    Convene {
        /// The first or the second time.
        council: u8,
        /// Whose turn it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seat: Option<Place>,
        /// What the members have said, for the chair. Members do not know of each other.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        opinions: Vec<Opinion>,
    },
    /// Wait for the task's turn to be delivered.
    AwaitTurn,
    /// Deliver a commit.
    Deliver {
        /// Which commit.
        commit: CommitId,
    },
    /// Write down what can be learned.
    Learn {
        /// How the task ends.
        ending: State,
        /// Whether a model is asked: there is occasion, and money for it. Otherwise only what failed
        /// is written down, which needs none.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        model: bool,
    },
    /// Commit, push and report what there is, so that nothing is lost while a person thinks.
    Land,
}

/// What kind of job it is.
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
#[expect(missing_docs, reason = "each is the job of its name")]
pub enum JobKind {
    Admit,
    Prepare,
    Plan,
    Check,
    Implement,
    Test,
    Review,
    Brief,
    Convene,
    AwaitTurn,
    Deliver,
    Learn,
    Land,
}

impl JobKind {
    /// Whether a pause stops it. What acts on the outside world, or saves work, is let finish.
    pub fn is_interruptible(self) -> bool {
        !matches!(self, Self::Deliver | Self::Learn | Self::Land)
    }
}

impl Job {
    /// What kind of job it is.
    pub fn kind(&self) -> JobKind {
        match self {
            Self::Admit => JobKind::Admit,
            Self::Prepare => JobKind::Prepare,
            Self::Plan { .. } => JobKind::Plan,
            Self::Check { .. } => JobKind::Check,
            Self::Implement(_) => JobKind::Implement,
            Self::Test { .. } => JobKind::Test,
            Self::Review { .. } => JobKind::Review,
            Self::Brief { .. } => JobKind::Brief,
            Self::Convene { .. } => JobKind::Convene,
            Self::AwaitTurn => JobKind::AwaitTurn,
            Self::Deliver { .. } => JobKind::Deliver,
            Self::Learn { .. } => JobKind::Learn,
            Self::Land => JobKind::Land,
        }
    }
}

/// What an engine is to do, and within what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// How strong an engine.
    pub tier: Tier,
    /// The number of the iteration, from 1.
    pub iteration: u16,
    /// The approved plan.
    pub plan: Outline,
    /// Where the work starts from.
    pub pin: Pin,
    /// What failed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<Reference>,
    /// Seconds after which it is stopped.
    pub seconds: u32,
    /// What it may spend.
    pub allowance: Limit,
}

/// Something people are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// What kind of message it is.
    pub kind: AlertKind,
    /// How urgent it is.
    pub severity: Severity,
    /// Why it is sent.
    pub cause: Cause,
    /// The question it asks, if it asks one; a reminder has the number of the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<u32>,
    /// What may be answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
}

/// What kind of message an alert is.
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
pub enum AlertKind {
    /// A plan or a change waits for a person.
    ApprovalNeeded,
    /// What the team has forbidden, or a person, stands in the way.
    TaskBlocked,
    /// Retries or councils are used up.
    MaxRetriesExceeded,
    /// A review failed; the loop goes on.
    ReviewFailed,
    /// The budget is nearly, or quite, spent.
    CostLimitWarning,
    /// A state takes longer than expected.
    Timeout,
    /// Something else went wrong.
    Error,
}

/// How urgent an alert is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Good to know; for the digest.
    Info,
    /// Worth a look.
    Warning,
    /// Now.
    Critical,
}
