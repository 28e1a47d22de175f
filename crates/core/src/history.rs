//! Append-only history: one entry for everything that happens to a task.
//!
//! Entries are numbered per task without gaps and never change. The board, the timeline, audits and
//! metrics are computed from them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::actor::{Actor, Authentication};
use crate::approval::{ApprovalScope, Pin, PlanAssessment};
use crate::budget::{Grant, Spend};
use crate::cause::AlertCause;
use crate::council::OpinionRecord;
use crate::escalation::EscalationDecision;
use crate::failure::FailureKind;
use crate::format::humanize;
use crate::ids::{CommitId, Name, Reference, TaskId};
use crate::level::RiskLevel;
use crate::plan::PlanSummary;
use crate::pull_request::PullRequestStage;
use crate::review::{GateCounts, ReviewSummary};
use crate::rules::AgentSelection;
use crate::state::{State, Trigger};
use crate::task::TaskEdit;
use crate::time::Timestamp;
use crate::version::FormatVersion;

/// Entry of a task's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Format version of the entry.
    #[serde(default)]
    pub format: FormatVersion,
    /// Task ID.
    pub task: TaskId,
    /// Sequence number within the task, from 1.
    pub sequence: u64,
    /// Time of the event.
    pub at: Timestamp,
    /// Name of the entry.
    pub name: EntryName,
    /// State before the event.
    pub from: State,
    /// State after the event; differs from `from` only for transitions.
    pub to: State,
    /// Trigger, if the entry records a transition.
    #[serde(rename = "on", default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Author of the event.
    pub actor: Actor,
    /// Authentication of the author; `None` for Tamma and the council, and in older entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authentication>,
    /// Reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// Data, for programs.
    #[serde(default, skip_serializing_if = "EntryData::is_none")]
    pub data: EntryData,
}

/// Name of a history entry.
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
#[expect(missing_docs, reason = "the names are self-explanatory; the glossary explains the terms")]
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
    SmPlanDisputed,
    SmQuotaReached,
    SmReviewStarted,
    SmGatesFailed,
    SmReviewPassed,
    SmReviewFailed,
    SmSecondReviewRequested,
    SmDecisionMade,
    SmCouncilConvened,
    SmCouncilOpinion,
    SmCouncilMemberAbsent,
    SmCouncilConcluded,
    SmDelivered,
    SmDeliveryFailed,
    SmPullRequestOpened,
    SmPullRequestUpdated,
    SmPullRequestClosed,
    SmFeedbackReceived,
    SmRebased,
    SmHeadAdopted,
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
    SmTaskEdited,
    SmTaskRetried,
    SmRolledBack,
    SmSkipped,
    SmTaskCompleted,
    SmTaskCancelled,
    SmTaskFailed,
    SmTaskRated,
    SmTaskReconciled,
    SmStateTransition,
    SmErrorOccurred,
}

impl EntryName {
    /// Returns the name as pages, the terminal and chat show it, in lower case.
    pub fn label(self) -> String {
        let label = match self {
            Self::SmTaskReceived => "task added",
            Self::SmTaskModified => "task changed",
            Self::SmPlanAdjusted => "plan revised",
            Self::SmApprovalAuto => "approved automatically",
            Self::SmCouncilMemberAbsent => "council member did not respond",
            Self::SmLearningCaptured => "lessons captured",
            Self::SmWorkLanded => "work saved",
            Self::SmRebased => "rebased onto the new base",
            Self::SmHeadAdopted => "commits of somebody else adopted",
            Self::SmPlanDisputed => "agent disputes the plan",
            Self::SmSecondReviewRequested => "second review of a critical finding",
            Self::SmStateTransition => "state changed",
            Self::SmTaskReconciled => "reconciled with Temporal",
            name => {
                let name = name.to_string().to_ascii_lowercase();
                return humanize(name.trim_start_matches("sm_"));
            }
        };
        label.to_owned()
    }
}

impl From<Trigger> for EntryName {
    fn from(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Admitted => Self::SmTaskAssigned,
            Trigger::Prepared => Self::SmPlanStarted,
            Trigger::PlanMade => Self::SmPlanGenerated,
            Trigger::PlanInvalid => Self::SmPlanInvalid,
            Trigger::Approved => Self::SmApprovalGranted,
            Trigger::RevisionRequested => Self::SmChangesRequested,
            Trigger::Rejected => Self::SmApprovalDenied,
            Trigger::ApprovalVoided => Self::SmApprovalVoided,
            Trigger::RunStarted => Self::SmImplementationStarted,
            Trigger::RunFinished => Self::SmImplementationCompleted,
            Trigger::PlanWrong => Self::SmPlanDisputed,
            Trigger::AgentFailed => Self::SmImplementationFailed,
            Trigger::QuotaReached => Self::SmQuotaReached,
            Trigger::GatesPassed => Self::SmReviewStarted,
            Trigger::GatesFailed => Self::SmGatesFailed,
            Trigger::ReviewPassed => Self::SmReviewPassed,
            Trigger::ReviewFailed => Self::SmReviewFailed,
            Trigger::CouncilCalled => Self::SmCouncilConvened,
            Trigger::CouncilConcluded => Self::SmCouncilConcluded,
            Trigger::Delivered | Trigger::Merged => Self::SmDelivered,
            Trigger::DeliveryFailed => Self::SmDeliveryFailed,
            Trigger::PullRequestOpened => Self::SmPullRequestOpened,
            Trigger::PullRequestClosed => Self::SmPullRequestClosed,
            Trigger::FeedbackReceived => Self::SmFeedbackReceived,
            Trigger::BaseMoved => Self::SmRebased,
            Trigger::HeadAdopted => Self::SmHeadAdopted,
            Trigger::Learned => Self::SmTaskCompleted,
            Trigger::Cancelled => Self::SmTaskCancelled,
            Trigger::TaskChanged => Self::SmTaskModified,
            Trigger::Retried => Self::SmTaskRetried,
            Trigger::RolledBack => Self::SmRolledBack,
            Trigger::Skipped => Self::SmSkipped,
            Trigger::Overridden => Self::SmOverridden,
            Trigger::Abandoned => Self::SmTaskFailed,
            Trigger::RunInterrupted
            | Trigger::Briefed
            | Trigger::DeliveryReady
            | Trigger::PullRequestChanged
            | Trigger::Continued
            | Trigger::Blocked
            | Trigger::Alerted => Self::SmStateTransition,
        }
    }
}

/// Data of an entry. Every variant is small.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant carries the type of the same name")]
pub enum EntryData {
    #[default]
    None,
    Pin(Pin),
    Plan(PlanSummary),
    /// Plan that a person edited, with the stored list of edited fields.
    Adjusted {
        plan: PlanSummary,
        #[serde(rename = "kept")]
        adjustments: Reference,
    },
    Check(PlanAssessment),
    /// Decision about a plan, with its scope and risk.
    Approval {
        #[serde(flatten)]
        scope: ApprovalScope,
        risk: RiskLevel,
    },
    Commit(CommitId),
    #[serde(rename = "engine")]
    Agent(Name),
    Failure(FailureKind),
    Gates(GateCounts),
    Review(ReviewSummary),
    Decision(EscalationDecision),
    Cause(AlertCause),
    Grant(Grant),
    #[serde(rename = "kept")]
    Stored(Reference),
    /// Opinion or absence of a council member.
    Opinion {
        #[serde(rename = "seat")]
        member: AgentSelection,
        opinion: OpinionRecord,
    },
    Lessons(u16),
    /// Total spend, in the last entry of a task.
    Spend(Spend),
    /// Stage of the pull request.
    PullRequest(PullRequestStage),
    /// Rating by a person, 1 to 5.
    Rating(u8),
    /// New title, priority or labels.
    Edited(TaskEdit),
}

impl EntryData {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}
