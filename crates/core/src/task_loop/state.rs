//! Where a task can be.

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
