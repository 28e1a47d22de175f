//! The append-only log: one entry for everything that happens to a task.
//!
//! Entries are numbered per task without gaps, and never change. The board, the history of a task,
//! the audit and the metrics are all read from them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::actor::Actor;
use crate::approval::{Binding, Check, Pin};
use crate::budget::{Grant, Spend};
use crate::cause::Cause;
use crate::council::Opinion;
use crate::escalation::Decision;
use crate::failure::FailureKind;
use crate::ids::{CommitId, Name, Reference, TaskId};
use crate::level::Level;
use crate::plan::Outline;
use crate::review::{Gates, Summary};
use crate::rules::Seat;
use crate::state::{State, Trigger};
use crate::time::Timestamp;
use crate::version::Format;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The version of this form.
    #[serde(default)]
    pub format: Format,
    /// The task.
    pub task: TaskId,
    /// Its number, from 1.
    pub sequence: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub name: EntryName,
    /// Where the task was.
    pub from: State,
    /// Where it is now: the same, unless the entry is of a transition.
    pub to: State,
    /// Which arrow was taken, if the entry is of a transition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Trigger>,
    /// Who did it.
    pub actor: Actor,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// The facts, for programs.
    #[serde(default, skip_serializing_if = "Fact::is_none")]
    pub data: Fact,
}

/// What happened, in the names of the event log.
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
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names say it; the glossary says more")]
pub enum EntryName {
    SmTaskReceived,
    SmTaskAssigned,
    SmPlanStarted,
    SmPlanGenerated,
    SmPlanInvalid,
    SmPlanAdjusted,
    SmKnowledgeChecked,
    SmApprovalRequested,
    SmApprovalAuto,
    SmApprovalGranted,
    SmApprovalDenied,
    SmApprovalVoided,
    SmChangesRequested,
    SmOverridden,
    SmImplementationStarted,
    SmImplementationProgress,
    SmImplementationCompleted,
    SmImplementationFailed,
    SmQuotaReached,
    SmReviewStarted,
    SmGatesFailed,
    SmReviewPassed,
    SmReviewFailed,
    SmDecisionMade,
    SmCouncilConvened,
    SmCouncilOpinion,
    SmCouncilMemberAbsent,
    SmCouncilConcluded,
    SmDelivered,
    SmDeliveryFailed,
    SmLearningCaptured,
    SmWorkLanded,
    SmAlertSent,
    SmAlertAcknowledged,
    SmQuestionAsked,
    SmQuestionAnswered,
    SmTimeoutWarning,
    SmTimeoutAlert,
    SmTimeoutEscalated,
    SmTaskPaused,
    SmTaskResumed,
    SmTaskModified,
    SmTaskRetried,
    SmRolledBack,
    SmSkipped,
    SmTaskCompleted,
    SmTaskCancelled,
    SmTaskFailed,
    SmTaskRated,
    SmStateTransition,
    SmErrorOccurred,
}

impl From<Trigger> for EntryName {
    fn from(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Admitted => Self::SmTaskAssigned,
            Trigger::Prepared => Self::SmPlanStarted,
            Trigger::PlanMade => Self::SmPlanGenerated,
            Trigger::PlanInvalid => Self::SmPlanInvalid,
            Trigger::Approved => Self::SmApprovalGranted,
            Trigger::ChangesAsked => Self::SmChangesRequested,
            Trigger::Rejected => Self::SmApprovalDenied,
            Trigger::ApprovalVoided => Self::SmApprovalVoided,
            Trigger::RunStarted => Self::SmImplementationStarted,
            Trigger::RunFinished => Self::SmImplementationCompleted,
            Trigger::EngineFailed => Self::SmImplementationFailed,
            Trigger::QuotaReached => Self::SmQuotaReached,
            Trigger::GatesPassed => Self::SmReviewStarted,
            Trigger::GatesFailed => Self::SmGatesFailed,
            Trigger::ReviewPassed => Self::SmReviewPassed,
            Trigger::ReviewFailed => Self::SmReviewFailed,
            Trigger::CouncilCalled => Self::SmCouncilConvened,
            Trigger::CouncilConcluded => Self::SmCouncilConcluded,
            Trigger::Delivered => Self::SmDelivered,
            Trigger::DeliveryFailed => Self::SmDeliveryFailed,
            Trigger::Learned => Self::SmTaskCompleted,
            Trigger::Cancelled => Self::SmTaskCancelled,
            Trigger::Modified => Self::SmTaskModified,
            Trigger::Retried => Self::SmTaskRetried,
            Trigger::RolledBack => Self::SmRolledBack,
            Trigger::Skipped => Self::SmSkipped,
            Trigger::Overridden => Self::SmOverridden,
            Trigger::Abandoned => Self::SmTaskFailed,
            Trigger::RunInterrupted
            | Trigger::Briefed
            | Trigger::TurnCame
            | Trigger::Continued
            | Trigger::Blocked
            | Trigger::Alerted => Self::SmStateTransition,
        }
    }
}

/// The facts of an entry. All of them are small.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each carries what it is named after")]
pub enum Fact {
    #[default]
    None,
    Pin(Pin),
    Plan(Outline),
    Check(Check),
    /// A decision about a plan: what exactly, and how risky it was.
    Approval {
        #[serde(flatten)]
        binding: Binding,
        risk: Level,
    },
    Commit(CommitId),
    Engine(Name),
    Failure(FailureKind),
    Gates(Gates),
    Review(Summary),
    Decision(Decision),
    Cause(Cause),
    Grant(Grant),
    Kept(Reference),
    /// What a member of the council said, or that it was not there.
    Opinion {
        seat: Seat,
        opinion: Opinion,
    },
    Lessons(u16),
    /// What the whole task cost, in its last entry.
    Spend(Spend),
    /// What a person thought of it, 1 to 5.
    Rating(u8),
}

impl Fact {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}
