//! Why people are told something, and how it is said.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::level::Level;
use crate::rules::HaltCondition;
use crate::state::State;

/// Why people are told something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The plan needs so many approvals.
    ApprovalNeeded {
        /// How risky it is.
        risk: Level,
        /// How many people must approve.
        approvers: u8,
    },
    /// The change needs a person's review.
    ReviewNeeded,
    /// The plan breaks so many critical prohibitions.
    Blocked(u16),
    /// A person refused the plan.
    Rejected,
    /// A halt condition holds.
    Halted(HaltCondition),
    /// A limit of the loop is reached.
    LimitReached(Limit),
    /// The work of a state failed too often.
    WorkFailed(State),
    /// An agent has a question.
    AgentAsked,
    /// The engine failed too often.
    EngineFailed,
    /// The engine took too long, also with more time.
    EngineTimedOut,
    /// A review failed and the loop goes on.
    ReviewFailed,
    /// The budget is nearly spent.
    CostWarning,
    /// The task has been where it is for longer than expected.
    Slow {
        /// Where.
        state: State,
        /// How far it has come.
        stage: Stage,
    },
}

/// A limit of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The plan has been adjusted as often as it may.
    Retries,
    /// The council has been asked as often as it may.
    Councils,
}

/// How far a soft timeout has come.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Stage {
    /// Under 80 %.
    #[default]
    Quiet,
    /// 80 %: people were warned.
    Warned,
    /// 100 %: people were alerted.
    Alerted,
    /// 150 %: people were alerted urgently.
    Escalated,
}

impl Stage {
    /// The next stage and the share of the limit at which it comes, in percent.
    pub fn following(self) -> Option<(Self, u32)> {
        match self {
            Self::Quiet => Some((Self::Warned, 80)),
            Self::Warned => Some((Self::Alerted, 100)),
            Self::Alerted => Some((Self::Escalated, 150)),
            Self::Escalated => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApprovalNeeded { risk, approvers: 1 } => {
                write!(f, "a plan of {risk} risk needs approval")
            }
            Self::ApprovalNeeded { risk, approvers } => {
                write!(f, "a plan of {risk} risk needs {approvers} approvals")
            }
            Self::ReviewNeeded => f.write_str("the change needs a person's review"),
            Self::Blocked(1) => f.write_str("the plan breaks a critical prohibition"),
            Self::Blocked(count) => write!(f, "the plan breaks {count} critical prohibitions"),
            Self::Rejected => f.write_str("the plan was rejected"),
            Self::Halted(HaltCondition::SecurityCritical) => {
                f.write_str("the change has a critical security fault")
            }
            Self::Halted(HaltCondition::MaxIterationsReached) => {
                f.write_str("the task has had all its runs")
            }
            Self::Halted(HaltCondition::BudgetExceeded) => {
                f.write_str("the next step does not fit in the budget")
            }
            Self::LimitReached(Limit::Retries) => {
                f.write_str("the plan has been adjusted as often as it may")
            }
            Self::LimitReached(Limit::Councils) => {
                f.write_str("the council has been asked as often as it may")
            }
            Self::WorkFailed(state) => write!(f, "the work of `{state}` keeps failing"),
            Self::AgentAsked => f.write_str("an agent has a question"),
            Self::EngineFailed => f.write_str("the engine keeps failing"),
            Self::EngineTimedOut => f.write_str("the engine took too long, also with more time"),
            Self::ReviewFailed => f.write_str("a review failed; the loop goes on"),
            Self::CostWarning => f.write_str("the budget is nearly spent"),
            Self::Slow { state, stage: Stage::Quiet | Stage::Warned } => {
                write!(f, "`{state}` has used most of its expected time")
            }
            Self::Slow { state, stage: Stage::Alerted } => {
                write!(f, "`{state}` takes longer than expected")
            }
            Self::Slow { state, stage: Stage::Escalated } => {
                write!(f, "`{state}` takes far longer than expected")
            }
        }
    }
}
