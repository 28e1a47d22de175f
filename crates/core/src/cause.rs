//! Causes of alerts, and their text.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::level::RiskLevel;
use crate::reconciliation::WorkflowLoss;
use crate::rules::HaltCondition;
use crate::state::State;

/// Reason for an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertCause {
    /// A plan needs approval.
    ApprovalNeeded {
        /// Risk level of the plan.
        risk: RiskLevel,
        /// Number of people who must approve.
        approvers: u8,
    },
    /// A change needs a person's review.
    ReviewNeeded,
    /// The plan violates this many critical prohibitions.
    Blocked(u16),
    /// A person rejected the plan.
    Rejected,
    /// A halt condition applies.
    Halted(HaltCondition),
    /// A limit of the task loop is reached.
    LimitReached(LoopLimit),
    /// The jobs of a state failed too often.
    #[serde(rename = "work_failed")]
    JobFailed(State),
    /// An agent has a question.
    #[serde(rename = "agent_asked")]
    AgentQuestion,
    /// The agent failed too often.
    #[serde(rename = "engine_failed")]
    AgentFailed,
    /// The agent timed out twice.
    #[serde(rename = "engine_timed_out")]
    AgentTimedOut,
    /// The model refused the work, and no stronger tier is left.
    AgentRefused,
    /// Several workers died while they ran the same job.
    WorkersLost,
    /// A review failed, and work continues. The state machine gives this cause for every change that is
    /// sent back; `StepRecord::alert_cause` tells them apart.
    ReviewFailed,
    /// This many gates failed, and work continues.
    GatesFailed(u16),
    /// A person requested changes, and work continues.
    ChangesRequested,
    /// The change could not be delivered, and work continues.
    DeliveryFailed,
    /// The budget is nearly used up.
    CostWarning,
    /// The task has been in a state for longer than expected.
    #[serde(rename = "slow")]
    SoftTimeout {
        /// State of the task.
        state: State,
        /// Threshold reached.
        stage: TimeoutStage,
    },
    /// The pull request cannot go on without a person.
    PullRequest(PullRequestProblem),
    /// The merge queue that the task waits in needs a person.
    MergeQueue,
    /// The task's workflow ended too early, or disagreed with the database.
    WorkflowLost(WorkflowLoss),
    /// A phase of a pipeline needs approval.
    PhaseApproval {
        /// Number of the phase.
        phase: u8,
    },
    /// The tasks of a story need approval.
    SplitApproval {
        /// Number of the phase with the tasks.
        phase: u8,
    },
    /// A pipeline stopped because a phase needs a person.
    PhaseBlocked {
        /// Number of the phase.
        phase: u8,
    },
    /// A pipeline stopped because a phase failed.
    PhaseFailed {
        /// Number of the phase.
        phase: u8,
    },
}

/// Limit of the task loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopLimit {
    /// Plan revisions are used up.
    Retries,
    /// Councils are used up.
    Councils,
}

/// Problem of a pull request that a person decides about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PullRequestProblem {
    /// No check ran, or a required one did not start. To continue is to go on without it, to retry is
    /// to wait again.
    NoChecks,
    /// Somebody else pushed to the branch. To continue is to take over their commits.
    HeadMoved,
    /// Feedback has gone back to the agent as often as the rules allow. To continue is to ignore this
    /// feedback, to retry is to allow as many rounds again.
    RoundsUsedUp,
    /// The forge does not allow something. To continue is to leave the merge to a person, to retry is
    /// to try again.
    Blocked,
    /// A person closed the pull request; the reason is the answer.
    Closed,
}

/// Threshold of a soft timeout.
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
pub enum TimeoutStage {
    /// Below 80%.
    #[default]
    Quiet,
    /// 80%: informational alert.
    Warned,
    /// 100%: warning.
    Alerted,
    /// 150%: critical alert.
    Escalated,
}

impl TimeoutStage {
    /// Returns the next threshold and its percentage of the expected time.
    pub fn next_threshold(self) -> Option<(Self, u32)> {
        match self {
            Self::Quiet => Some((Self::Warned, 80)),
            Self::Warned => Some((Self::Alerted, 100)),
            Self::Alerted => Some((Self::Escalated, 150)),
            Self::Escalated => None,
        }
    }
}

impl fmt::Display for AlertCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApprovalNeeded { risk, approvers: 1 } => {
                write!(f, "{risk}-risk plan needs approval")
            }
            Self::ApprovalNeeded { risk, approvers } => {
                write!(f, "{risk}-risk plan needs {approvers} approvals")
            }
            Self::ReviewNeeded => f.write_str("change needs review"),
            Self::Blocked(1) => f.write_str("plan violates a critical prohibition"),
            Self::Blocked(count) => write!(f, "plan violates {count} critical prohibitions"),
            Self::Rejected => f.write_str("plan was rejected"),
            Self::Halted(HaltCondition::SecurityCritical) => {
                f.write_str("change has a critical security issue")
            }
            Self::Halted(HaltCondition::MaxIterationsReached) => f.write_str("run limit reached"),
            Self::Halted(HaltCondition::BudgetExceeded) => {
                f.write_str("next step would exceed the budget")
            }
            Self::LimitReached(LoopLimit::Retries) => f.write_str("plan revision limit reached"),
            Self::LimitReached(LoopLimit::Councils) => f.write_str("council limit reached"),
            Self::JobFailed(state) => write!(f, "`{state}` keeps failing"),
            Self::AgentQuestion => f.write_str("agent has a question"),
            Self::AgentFailed => f.write_str("agent keeps failing"),
            Self::AgentTimedOut => f.write_str("agent timed out twice"),
            Self::AgentRefused => f.write_str("model refused the work"),
            Self::WorkersLost => {
                f.write_str("several workers died while running this job; it is not retried")
            }
            Self::ReviewFailed => f.write_str("review failed; work continues"),
            Self::GatesFailed(1) => f.write_str("a gate failed; work continues"),
            Self::GatesFailed(count) => write!(f, "{count} gates failed; work continues"),
            Self::ChangesRequested => f.write_str("changes were requested; work continues"),
            Self::DeliveryFailed => f.write_str("delivery failed; work continues"),
            Self::CostWarning => f.write_str("budget is nearly used up"),
            Self::SoftTimeout { state, stage: TimeoutStage::Quiet | TimeoutStage::Warned } => {
                write!(f, "`{state}` has used most of its expected time")
            }
            Self::SoftTimeout { state, stage: TimeoutStage::Alerted } => {
                write!(f, "`{state}` is taking longer than expected")
            }
            Self::SoftTimeout { state, stage: TimeoutStage::Escalated } => {
                write!(f, "`{state}` is taking much longer than expected")
            }
            Self::PullRequest(problem) => f.write_str(match problem {
                PullRequestProblem::NoChecks => "no checks ran on the pull request",
                PullRequestProblem::HeadMoved => "somebody else pushed to the pull request",
                PullRequestProblem::RoundsUsedUp => {
                    "limit of feedback rounds of the pull request reached"
                }
                PullRequestProblem::Blocked => "forge blocks the pull request",
                PullRequestProblem::Closed => "pull request was closed; say why",
            }),
            Self::MergeQueue => {
                f.write_str("merge queue needs a person; the page of merge queues says why")
            }
            Self::WorkflowLost(loss) => f.write_str(loss.label()),
            Self::PhaseApproval { phase } => write!(f, "phase {phase} needs approval"),
            Self::SplitApproval { phase } => write!(f, "tasks of phase {phase} need approval"),
            Self::PhaseBlocked { phase } => write!(f, "phase {phase} is blocked"),
            Self::PhaseFailed { phase } => write!(f, "phase {phase} failed"),
        }
    }
}
