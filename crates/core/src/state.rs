//! Where a task can be, and why it goes from one state to another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumCount, EnumIter, EnumString};

use crate::rules::StateTimeouts;

/// Where a task is. Exactly one at a time.
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
    /// Created; waits for the tasks it depends on and for room.
    Pending,
    /// Picked up: base, rules and the gates' baseline are pinned.
    Assigned,
    /// A plan is being written.
    Planning,
    /// The plan is checked against what the team knows, and approved.
    AwaitingApproval,
    /// Approved; waits for an engine, or for a provider's quota.
    Validated,
    /// An engine works.
    InProgress,
    /// The gates run on one exact commit.
    Testing,
    /// Patterns, conformance, criteria, and people where asked.
    QualityReview,
    /// Something failed; the next step is prepared.
    Adjusting,
    /// The council studies a stuck task.
    CtoIntervention,
    /// Passed; waits for its turn to be delivered.
    Approved,
    /// Being delivered.
    Committing,
    /// What can be learned is written down.
    Learning,
    /// A person must decide.
    HumanEscalation,
    /// Done.
    Completed,
    /// Ended by a person before it was done.
    Cancelled,
    /// Given up by a person.
    Failed,
}

/// The column of the board that a state belongs to.
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
#[expect(missing_docs, reason = "the names are those of the board")]
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

impl State {
    /// The states of a task that goes well, in their order.
    pub const MAIN_WAY: [Self; 12] = [
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

    /// Whether nothing leaves this state.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }

    /// What the board shows.
    pub fn phase(self) -> Phase {
        match self {
            Self::Pending | Self::Assigned => Phase::Receive,
            Self::Planning => Phase::Plan,
            Self::AwaitingApproval => Phase::Approve,
            Self::Validated | Self::InProgress => Phase::Implement,
            Self::Testing | Self::QualityReview => Phase::Review,
            Self::Adjusting => Phase::Adjust,
            Self::CtoIntervention => Phase::Council,
            Self::Approved | Self::Committing => Phase::Deliver,
            Self::Learning => Phase::Learn,
            Self::HumanEscalation => Phase::Alert,
            Self::Completed | Self::Cancelled | Self::Failed => Phase::Done,
        }
    }

    /// Minutes that a task is expected to stay here, where that is limited.
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
            Self::Learning => limits.learning,
            Self::HumanEscalation | Self::Completed | Self::Cancelled | Self::Failed => {
                return None;
            }
        })
    }

    /// Whether this state comes before another on a task's way. What happens to a change that
    /// failed comes after its review.
    pub fn is_before(self, other: Self) -> bool {
        // The variants are declared in that order.
        self < other
    }
}

/// Why an arrow is taken.
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
    /// There is room, and nothing to wait for.
    Admitted,
    /// Base, rules and baseline are pinned.
    Prepared,
    /// There is a valid plan.
    #[strum(serialize = "plan made")]
    PlanMade,
    /// The plan has flaws and goes back with them.
    #[strum(serialize = "plan invalid")]
    PlanInvalid,
    /// The plan may run.
    Approved,
    /// A person wants the plan changed.
    #[strum(serialize = "changes asked")]
    ChangesAsked,
    /// The plan breaks a critical prohibition.
    Blocked,
    /// A person refused the plan.
    Rejected,
    /// What was approved is no longer what would run.
    #[strum(serialize = "approval voided")]
    ApprovalVoided,
    /// An engine has taken the run up.
    #[strum(serialize = "run started")]
    RunStarted,
    /// The engine says it is done. That is a claim.
    #[strum(serialize = "run finished")]
    RunFinished,
    /// The engine failed; the change was not judged.
    #[strum(serialize = "engine failed")]
    EngineFailed,
    /// The provider's quota is used up.
    #[strum(serialize = "quota reached")]
    QuotaReached,
    /// The run was stopped by a pause.
    #[strum(serialize = "run interrupted")]
    RunInterrupted,
    /// No gate failed that counts.
    #[strum(serialize = "gates passed")]
    GatesPassed,
    /// A gate failed that counts.
    #[strum(serialize = "gates failed")]
    GatesFailed,
    /// The review found nothing that blocks.
    #[strum(serialize = "review passed")]
    ReviewPassed,
    /// The review, or a person, sent the change back.
    #[strum(serialize = "review failed")]
    ReviewFailed,
    /// What failed is written down for the next run.
    Briefed,
    /// The council is asked.
    #[strum(serialize = "council called")]
    CouncilCalled,
    /// The council has found a cause and a fix.
    #[strum(serialize = "council concluded")]
    CouncilConcluded,
    /// It is this task's turn to be delivered.
    #[strum(serialize = "turn came")]
    TurnCame,
    /// The change is where it belongs.
    Delivered,
    /// A hook failed, or the change conflicts.
    #[strum(serialize = "delivery failed")]
    DeliveryFailed,
    /// Lessons are written down, or could not be.
    Learned,
    /// Tamma cannot go on by itself.
    Alerted,
    /// A person ended the task.
    Cancelled,
    /// A person changed what is wanted.
    Modified,
    /// A person answered: go on.
    Continued,
    /// A person answered: try that again.
    Retried,
    /// A person answered: go back to there.
    #[strum(serialize = "rolled back")]
    RolledBack,
    /// A person answered: take it as done.
    Skipped,
    /// A person lifted the prohibition for this plan.
    Overridden,
    /// A person answered: give it up.
    Abandoned,
}
