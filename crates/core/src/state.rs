//! States of a task, and triggers of transitions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumCount, EnumIter, EnumString};

use crate::rules::StateTimeouts;

/// State of a task, exactly one at a time
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
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
    EnumCount,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// Created; waiting for dependencies and capacity
    Pending,
    /// Preparing: pins base commit, rules and the gates' baseline
    Assigned,
    /// Plan in progress
    Planning,
    /// Plan is checked against the knowledge base and awaits approval
    AwaitingApproval,
    /// Approved; waiting for an agent or a provider's quota
    Validated,
    /// Agent running
    InProgress,
    /// Gates run on one exact commit
    Testing,
    /// Review of patterns, conformance and criteria, and by people if required
    QualityReview,
    /// Something failed; the next attempt is prepared
    Adjusting,
    /// Council analyses a stuck task
    CtoIntervention,
    /// Review passed; waiting for the delivery lock
    Approved,
    /// Delivery in progress
    Committing,
    /// Pull request is open; waiting for its checks, its reviews and its merge
    AwaitingMerge,
    /// Lessons are recorded
    Learning,
    /// Waiting for a person's decision
    HumanEscalation,
    /// Completed
    Completed,
    /// Cancelled by a person
    Cancelled,
    /// Given up by a person
    Failed,
}

/// Board column that a state belongs to.
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
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "title_case")]
#[expect(missing_docs, reason = "the names are the columns of the board")]
pub enum Phase {
    Receive,
    Plan,
    Approve,
    Implement,
    Review,
    Adjust,
    Council,
    Deliver,
    Learn,
    Alert,
    Done,
}

impl Phase {
    /// Returns the heading of the board column.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alert => "Needs attention",
            Self::Receive => "Queued",
            Self::Plan => "Planning",
            Self::Approve => "Approval",
            Self::Implement => "In progress",
            Self::Review => "Review",
            Self::Adjust => "Rework",
            Self::Council => "Council",
            Self::Deliver => "Delivery",
            Self::Learn => "Learning",
            Self::Done => "Done",
        }
    }
}

impl State {
    /// States of a task without failures, in order. A task that delivers a pull request also waits in
    /// `awaiting_merge`.
    pub const MAIN_PATH: [Self; 12] = [
        Self::Pending,
        Self::Assigned,
        Self::Planning,
        Self::AwaitingApproval,
        Self::Validated,
        Self::InProgress,
        Self::Testing,
        Self::QualityReview,
        Self::Approved,
        Self::Committing,
        Self::Learning,
        Self::Completed,
    ];

    /// Returns `true` if no transition leaves the state.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }

    /// Returns the words for people. The serialised name is for programs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pending => "queued",
            Self::Assigned => "preparing",
            Self::Planning => "planning",
            Self::AwaitingApproval => "awaiting approval",
            Self::Validated => "waiting for an agent",
            Self::InProgress => "implementing",
            Self::Testing => "running gates",
            Self::QualityReview => "in review",
            Self::Adjusting => "reworking",
            Self::CtoIntervention => "in council",
            Self::Approved => "passed review",
            Self::Committing => "delivering",
            Self::AwaitingMerge => "awaiting merge",
            Self::Learning => "capturing lessons",
            Self::HumanEscalation => "needs a decision",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Returns the board column.
    pub fn phase(self) -> Phase {
        match self {
            Self::Pending | Self::Assigned => Phase::Receive,
            Self::Planning => Phase::Plan,
            Self::AwaitingApproval => Phase::Approve,
            Self::Validated | Self::InProgress => Phase::Implement,
            Self::Testing | Self::QualityReview => Phase::Review,
            Self::Adjusting => Phase::Adjust,
            Self::CtoIntervention => Phase::Council,
            Self::Approved | Self::Committing | Self::AwaitingMerge => Phase::Deliver,
            Self::Learning => Phase::Learn,
            Self::HumanEscalation => Phase::Alert,
            Self::Completed | Self::Cancelled | Self::Failed => Phase::Done,
        }
    }

    /// Returns the expected minutes in this state, or `None` if it has no soft timeout.
    pub fn soft_timeout(self, limits: &StateTimeouts) -> Option<u32> {
        Some(match self {
            Self::Pending => limits.pending,
            Self::Assigned => limits.assigned,
            Self::Planning => limits.planning,
            Self::AwaitingApproval => limits.awaiting_approval,
            Self::Validated => limits.validated,
            Self::InProgress => limits.in_progress,
            Self::Testing => limits.testing,
            Self::QualityReview => limits.quality_review,
            Self::Adjusting => limits.adjusting,
            Self::CtoIntervention => limits.cto_intervention,
            Self::Approved => limits.approved,
            Self::Committing => limits.committing,
            Self::AwaitingMerge => limits.awaiting_merge,
            Self::Learning => limits.learning,
            Self::HumanEscalation | Self::Completed | Self::Cancelled | Self::Failed => {
                return None;
            }
        })
    }

    /// Returns `true` if this state comes before another one in a task. Handling a failed change
    /// comes after its review.
    pub fn is_before(self, other: Self) -> bool {
        // The variants are declared in that order.
        self < other
    }
}

/// Trigger of a transition.
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
#[strum(serialize_all = "lowercase")]
pub enum Trigger {
    /// Capacity is available and no dependency is open.
    Admitted,
    /// Base commit, rules and baseline are pinned.
    Prepared,
    /// A valid plan is ready.
    #[strum(serialize = "plan ready")]
    PlanMade,
    /// The plan is invalid and returns to the planner with its errors.
    #[strum(serialize = "plan invalid")]
    PlanInvalid,
    /// The plan is approved.
    Approved,
    /// A person asked for a revised plan.
    #[strum(serialize = "revision requested")]
    #[serde(rename = "changes_asked")]
    RevisionRequested,
    /// The plan violates a critical prohibition.
    Blocked,
    /// A person rejected the plan.
    Rejected,
    /// The approved scope has changed.
    #[strum(serialize = "approval void")]
    ApprovalVoided,
    /// An agent started the run.
    #[strum(serialize = "run started")]
    RunStarted,
    /// The agent reports completion. The review verifies it.
    #[strum(serialize = "run finished")]
    RunFinished,
    /// The agent says that the plan cannot work; the planner gets its reasons.
    #[strum(serialize = "plan wrong")]
    PlanWrong,
    /// The agent failed; the change was not judged.
    #[strum(serialize = "agent failed")]
    #[serde(rename = "engine_failed")]
    AgentFailed,
    /// The provider's quota is used up.
    #[strum(serialize = "quota reached")]
    QuotaReached,
    /// A pause stopped the run.
    #[strum(serialize = "run interrupted")]
    RunInterrupted,
    /// No gate failure counts against the change.
    #[strum(serialize = "gates passed")]
    GatesPassed,
    /// A gate failure counts against the change.
    #[strum(serialize = "gates failed")]
    GatesFailed,
    /// The review has no blocking finding.
    #[strum(serialize = "review passed")]
    ReviewPassed,
    /// The review failed, or a person requested changes.
    #[strum(serialize = "review failed")]
    ReviewFailed,
    /// The failure brief for the next run is ready.
    Briefed,
    /// The council was called.
    #[strum(serialize = "council convened")]
    CouncilCalled,
    /// The council found a root cause and a fix.
    #[strum(serialize = "council concluded")]
    CouncilConcluded,
    /// The task holds the delivery lock.
    #[strum(serialize = "delivery ready")]
    #[serde(rename = "turn_came")]
    DeliveryReady,
    /// The change was delivered.
    Delivered,
    /// A hook failed, or the change conflicts.
    #[strum(serialize = "delivery failed")]
    DeliveryFailed,
    /// The change is in a pull request, new or updated.
    #[strum(serialize = "pull request opened")]
    PullRequestOpened,
    /// The pull request was merged.
    Merged,
    /// Failed checks, review comments or a conflict go back to the agent.
    #[strum(serialize = "feedback received")]
    FeedbackReceived,
    /// The base moved, and the change is on top of it.
    #[strum(serialize = "base moved")]
    BaseMoved,
    /// Commits that somebody else pushed were taken over.
    #[strum(serialize = "head adopted")]
    HeadAdopted,
    /// A person closed the pull request without merging it.
    #[strum(serialize = "pull request closed")]
    PullRequestClosed,
    /// The pull request ended, or a question about it is settled, while the task did something else.
    #[strum(serialize = "pull request changed")]
    PullRequestChanged,
    /// Lessons are recorded, or recording them failed.
    Learned,
    /// Tamma cannot continue without a person.
    Alerted,
    /// A person cancelled the task.
    Cancelled,
    /// A person changed the request.
    #[serde(rename = "modified")]
    #[strum(serialize = "modified")]
    TaskChanged,
    /// A person answered: continue.
    Continued,
    /// A person answered: retry.
    Retried,
    /// A person answered: return to an earlier state.
    #[strum(serialize = "rolled back")]
    RolledBack,
    /// A person answered: treat the step as done.
    Skipped,
    /// A person overrode the prohibitions for this plan.
    Overridden,
    /// A person answered: give up.
    Abandoned,
}
