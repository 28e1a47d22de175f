//! Effects that the state machine requests.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use super::{AnswerKind, State, Timestamp};
use crate::approval::Pin;
use crate::budget::SpendLimit;
use crate::cause::{AlertCause, PullRequestProblem};
use crate::council::{CouncilSeat, OpinionRecord};
use crate::escalation::EscalationDecision;
use crate::ids::{CommitId, Name, Reference};
use crate::level::RiskLevel;
use crate::plan::PlanSummary;
use crate::pull_request::PullRequestJob;
use crate::rules::Rules;
use crate::tier::Tier;

/// Effect to execute, as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Run a job and report its result with the job number. At most one job runs at a time.
    #[serde(rename = "start")]
    StartJob {
        /// Sequence number of the job within its task.
        #[serde(rename = "ticket")]
        job_number: u32,
        /// Earliest start; `None` starts at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
        /// Job with its arguments.
        job: Job,
    },
    /// Stop a job, wait until it has stopped, save its work and report its result.
    #[serde(rename = "stop")]
    StopJob {
        /// Job to stop.
        #[serde(rename = "ticket")]
        job_number: u32,
        /// Reason, which the worker records.
        #[serde(rename = "why")]
        reason: StopReason,
    },
    /// Notify people.
    Alert(Alert),
    /// Cancel the reminders of a question that has been answered.
    #[serde(rename = "settle")]
    CloseQuestion {
        /// Number of the answered question.
        #[serde(rename = "question")]
        question_number: u32,
    },
    /// Start no run on this provider, on any worker, before `until`.
    #[serde(rename = "hold_provider")]
    BlockProvider {
        /// Provider whose quota is used up.
        provider: Name,
        /// End of the block.
        until: Timestamp,
    },
}

/// Reason for stopping a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// Task was paused.
    Paused,
    /// Task moved to another state.
    Superseded,
    /// Task was closed.
    Ended,
}

/// Work that the state machine requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Wait for dependencies and for capacity.
    Admit,
    /// Pin base commit and rules, and measure the gates' baseline.
    Prepare,
    /// Write a plan, review a submitted one, or revise the last one.
    Plan {
        /// Version of the new plan.
        version: u32,
        /// Plan to start from: the submitted one, or the last version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Reference>,
        /// Input for the planner: validation errors, requested changes or the council's guidance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Reference>,
    },
    /// Check a plan against the knowledge base.
    Check {
        /// Plan to check.
        plan: PlanSummary,
    },
    /// Run an agent.
    Implement(Box<RunSpec>),
    /// Run the gates on a commit.
    Test {
        /// Commit to test.
        commit: CommitId,
        /// Risk level, which selects the gates.
        risk: RiskLevel,
    },
    /// Evaluate patterns, plan conformance and acceptance criteria.
    Review {
        /// Commit to review.
        commit: CommitId,
        /// Stored verdict of the first validator, if a second one has to confirm its critical
        /// finding.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unconfirmed: Option<Reference>,
    },
    /// Write the failure brief.
    Brief {
        /// Escalation decision, with its reason.
        decision: EscalationDecision,
        /// More content for the brief: a person's comments, or the output of a failed hook.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Reference>,
    },
    /// Ask one council seat, or a top-tier model for the whole council if `seat` is `None`.
    Convene {
        /// 1 for the first council of the task, 2 for the second.
        #[serde(rename = "council")]
        council_number: u8,
        /// Member or chair to ask.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seat: Option<CouncilSeat>,
        /// Opinions of the members, for the chair. Members do not see each other's opinions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        opinions: Vec<OpinionRecord>,
    },
    /// Wait for the project's delivery lock.
    #[serde(rename = "await_turn")]
    AwaitDelivery,
    /// Deliver a commit.
    Deliver {
        /// Commit to deliver.
        commit: CommitId,
    },
    /// Act on the open pull request.
    PullRequest(PullRequestJob),
    /// Record lessons.
    Learn {
        /// Final state of the task.
        ending: State,
        /// Asks a model for lessons. Without it, only the failures are recorded, which needs no
        /// model.
        #[serde(rename = "model", default, skip_serializing_if = "std::ops::Not::not")]
        use_model: bool,
    },
    /// Commit, push and report the current work, so that nothing is lost while a person decides.
    #[serde(rename = "land")]
    SaveWork,
}

/// Kind of a job, without its arguments.
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
#[expect(missing_docs, reason = "each variant is the job of the same name")]
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
    #[serde(rename = "await_turn")]
    #[strum(serialize = "await_turn")]
    AwaitDelivery,
    Deliver,
    PullRequest,
    Learn,
    #[serde(rename = "land")]
    #[strum(serialize = "land")]
    SaveWork,
}

/// Place where a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Worker that runs the workflow, within its workflow task. For jobs that need no model, run no
    /// program of the project, and change nothing outside.
    Inline,
    /// Any worker.
    Worker,
    /// Worker with a free slot for an agent. The job may wait in the queue for one.
    AgentPool,
}

impl JobKind {
    /// Returns `true` if a pause stops the job. Jobs with external effects, or that save work,
    /// finish.
    pub fn is_interruptible(self) -> bool {
        !matches!(self, Self::Deliver | Self::PullRequest | Self::Learn | Self::SaveWork)
    }
}

impl Job {
    /// Returns the place where the job runs.
    pub fn placement(&self) -> Placement {
        match self {
            Self::Admit
            | Self::Prepare
            | Self::Check { .. }
            | Self::Brief { .. }
            | Self::AwaitDelivery
            // As in all tasks of older editions.
            | Self::Learn { use_model: false, .. } => Placement::Inline,
            Self::Plan { .. }
            | Self::Test { .. }
            | Self::Review { .. }
            | Self::Convene { .. }
            | Self::Deliver { .. }
            | Self::PullRequest(_)
            | Self::Learn { use_model: true, .. }
            | Self::SaveWork => Placement::Worker,
            Self::Implement(_) => Placement::AgentPool,
        }
    }

    /// Returns the kind of the job.
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
            Self::AwaitDelivery => JobKind::AwaitDelivery,
            Self::Deliver { .. } => JobKind::Deliver,
            Self::PullRequest(_) => JobKind::PullRequest,
            Self::Learn { .. } => JobKind::Learn,
            Self::SaveWork => JobKind::SaveWork,
        }
    }
}

/// Limits and inputs of an implementation run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Tier of the agent.
    pub tier: Tier,
    /// Number of the iteration, from 1.
    pub iteration: u16,
    /// Approved plan.
    pub plan: PlanSummary,
    /// Base commit and rules.
    pub pin: Pin,
    /// Failure brief; `None` on the first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<Reference>,
    /// Seconds after which the run is stopped.
    #[serde(rename = "seconds")]
    pub timeout_seconds: u32,
    /// Remaining budget of the task.
    pub allowance: SpendLimit,
}

/// Message to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Kind of the message.
    pub kind: AlertKind,
    /// Urgency, which selects immediate delivery or the digest.
    pub severity: AlertSeverity,
    /// Reason for the message.
    pub cause: AlertCause,
    /// Number of the question that it asks. A reminder has the number of the original message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<u32>,
    /// Allowed answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnswerKind>,
}

/// Kind of an alert.
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
    /// A plan or a change is waiting for a person.
    ApprovalNeeded,
    /// A prohibition or a rejection blocks the task.
    TaskBlocked,
    /// Retry or council limit reached.
    MaxRetriesExceeded,
    /// Gates, a review or the delivery failed; work continues.
    ReviewFailed,
    /// Budget nearly or fully spent.
    CostLimitWarning,
    /// A state takes longer than expected.
    Timeout,
    /// Any other failure.
    Error,
}

impl AlertKind {
    /// Returns `true` unless the rules turn alerts of this kind off.
    pub fn is_enabled(self, rules: &Rules) -> bool {
        let rules = &rules.scrum_master.alerts;
        match self {
            Self::ApprovalNeeded => rules.on_approval_needed,
            Self::TaskBlocked => rules.on_block,
            Self::MaxRetriesExceeded => rules.on_max_retries,
            Self::ReviewFailed => rules.on_review_failed,
            Self::CostLimitWarning | Self::Timeout | Self::Error => true,
        }
    }
}

impl From<AlertCause> for AlertKind {
    fn from(cause: AlertCause) -> Self {
        use crate::rules::HaltCondition;
        match cause {
            AlertCause::ApprovalNeeded { .. }
            | AlertCause::ReviewNeeded
            | AlertCause::PhaseApproval { .. }
            | AlertCause::SplitApproval { .. } => Self::ApprovalNeeded,
            AlertCause::Blocked(_)
            | AlertCause::Rejected
            | AlertCause::AgentQuestion
            | AlertCause::PullRequest(
                PullRequestProblem::NoChecks
                | PullRequestProblem::HeadMoved
                | PullRequestProblem::Blocked
                | PullRequestProblem::Closed,
            )
            | AlertCause::PhaseBlocked { .. } => Self::TaskBlocked,
            AlertCause::LimitReached(_)
            | AlertCause::PullRequest(PullRequestProblem::RoundsUsedUp)
            | AlertCause::Halted(HaltCondition::MaxIterationsReached) => Self::MaxRetriesExceeded,
            AlertCause::CostWarning | AlertCause::Halted(HaltCondition::BudgetExceeded) => {
                Self::CostLimitWarning
            }
            AlertCause::ReviewFailed
            | AlertCause::GatesFailed(_)
            | AlertCause::ChangesRequested
            | AlertCause::DeliveryFailed => Self::ReviewFailed,
            AlertCause::SoftTimeout { .. } | AlertCause::AgentTimedOut => Self::Timeout,
            AlertCause::Halted(HaltCondition::SecurityCritical)
            | AlertCause::JobFailed(_)
            | AlertCause::AgentFailed
            | AlertCause::AgentRefused
            | AlertCause::WorkersLost
            | AlertCause::MergeQueue
            | AlertCause::WorkflowLost(_)
            | AlertCause::PhaseFailed { .. } => Self::Error,
        }
    }
}

/// Urgency of an alert.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AlertSeverity {
    /// Informational; goes into the digest.
    Info,
    /// Needs attention.
    Warning,
    /// Sent immediately, even in quiet hours.
    Critical,
}
