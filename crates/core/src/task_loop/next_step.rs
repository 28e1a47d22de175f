//! Next step of an open task and its time.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::{Action, JobKind, OpenQuestion, State, TaskLoop, Timestamp};
use crate::cause::{AlertCause, PullRequestProblem};
use crate::ids::Name;
use crate::pull_request::PullRequestStage;
use crate::rules::Rules;

/// Event that moves a task forward next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NextStep {
    /// A person resumes the task.
    Resume {
        /// Person who paused the task.
        paused_by: Name,
    },
    /// A person answers the open question.
    Answer {
        /// Reason for the question.
        cause: AlertCause,
        /// Allowed answers.
        answers: Vec<AnswerKind>,
        /// Time of the next reminder; `None` once someone has seen the question.
        reminder_at: Option<Timestamp>,
    },
    /// A job that is being stopped ends.
    #[serde(rename = "stopped")]
    JobStopping {
        /// Kind of the job.
        job: JobKind,
    },
    /// A provider's quota resets.
    Quota {
        /// Provider of the quota.
        provider: Name,
        /// Time of the reset.
        until: Timestamp,
    },
    /// A failed job is retried.
    #[serde(rename = "again")]
    RetryJob {
        /// Kind of the job.
        job: JobKind,
        /// Time of the retry.
        at: Timestamp,
    },
    /// An agent starts: once a worker has a free slot, and no limit or budget is used up.
    #[serde(rename = "slot")]
    AgentSlot {
        /// Next threshold of the soft timeout.
        expected_by: Option<Timestamp>,
    },
    /// A running job ends.
    #[serde(rename = "work")]
    JobRunning {
        /// Kind of the job.
        job: JobKind,
        /// Next threshold of the soft timeout.
        expected_by: Option<Timestamp>,
    },
    /// The forge reports something new about the pull request.
    PullRequest {
        /// Number of the pull request.
        number: u64,
        /// Stage of the pull request.
        stage: PullRequestStage,
    },
}

/// Kind of an answer to a question.
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
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is the action of the same name")]
pub enum AnswerKind {
    Approve,
    Reject,
    #[serde(rename = "ask_changes")]
    #[strum(serialize = "ask_changes")]
    RevisePlan,
    Accept,
    #[serde(rename = "rework")]
    #[strum(serialize = "rework")]
    RequestChanges,
    Override,
    Reply,
    Continue,
    #[serde(rename = "modify")]
    #[strum(serialize = "modify")]
    ChangeTask,
    Retry,
    RollBack,
    Skip,
    Convene,
    Cancel,
    Abandon,
}

impl AnswerKind {
    /// Returns the name of the answer for people, as it follows "to". [`Display`](fmt::Display)
    /// gives the serialised name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::RevisePlan => "revise the plan",
            Self::Accept => "accept",
            Self::RequestChanges => "request changes",
            Self::Override => "override",
            Self::Reply => "reply",
            Self::Continue => "continue",
            Self::ChangeTask => "change the task",
            Self::Retry => "retry",
            Self::RollBack => "roll back",
            Self::Skip => "skip",
            Self::Convene => "convene the council",
            Self::Cancel => "cancel",
            Self::Abandon => "abandon",
        }
    }
}

impl TryFrom<&Action> for AnswerKind {
    type Error = ();
    fn try_from(action: &Action) -> Result<Self, ()> {
        Ok(match action {
            Action::Approve { .. } => Self::Approve,
            Action::Reject { .. } => Self::Reject,
            Action::RevisePlan { .. } => Self::RevisePlan,
            Action::Accept { .. } => Self::Accept,
            Action::RequestChanges { .. } => Self::RequestChanges,
            Action::Override { .. } => Self::Override,
            Action::Reply { .. } => Self::Reply,
            Action::Continue { .. } => Self::Continue,
            Action::ChangeTask { .. } => Self::ChangeTask,
            Action::Retry { .. } => Self::Retry,
            Action::RollBack { .. } => Self::RollBack,
            Action::Skip { .. } => Self::Skip,
            Action::Convene { .. } => Self::Convene,
            Action::Cancel { .. } => Self::Cancel,
            Action::Abandon { .. } => Self::Abandon,
            Action::Pause
            | Action::Resume
            | Action::Acknowledge
            | Action::AdjustPlan { .. }
            | Action::Edit(_)
            | Action::Rate { .. } => return Err(()),
        })
    }
}

/// Returns the answers that a question allows.
pub fn allowed_answers(question: &OpenQuestion) -> Vec<AnswerKind> {
    use AnswerKind as A;
    let mut answers = match question.cause {
        AlertCause::ApprovalNeeded { .. } => {
            vec![A::Approve, A::Reject, A::RevisePlan, A::ChangeTask, A::Cancel]
        }
        AlertCause::ReviewNeeded => vec![A::Accept, A::RequestChanges, A::ChangeTask, A::Cancel],
        AlertCause::Blocked(_) => vec![A::Override, A::ChangeTask, A::Retry, A::Cancel, A::Abandon],
        // A waiting run has not failed, so there is nothing to abandon.
        AlertCause::AgentQuestion if question.live => vec![A::Reply, A::ChangeTask, A::Cancel],
        AlertCause::AgentQuestion => vec![A::Reply, A::ChangeTask, A::Cancel, A::Abandon],
        AlertCause::PullRequest(problem) => match problem {
            PullRequestProblem::NoChecks
            | PullRequestProblem::RoundsUsedUp
            | PullRequestProblem::Blocked => {
                vec![A::Continue, A::ChangeTask, A::Retry, A::Skip, A::Cancel, A::Abandon]
            }
            PullRequestProblem::HeadMoved => vec![A::Continue, A::Skip, A::Cancel, A::Abandon],
            // It is never opened again.
            PullRequestProblem::Closed => vec![A::Cancel, A::Abandon],
        },
        AlertCause::Rejected => vec![A::ChangeTask, A::Retry, A::Cancel, A::Abandon],
        _ => {
            let mut answers = vec![A::Continue, A::ChangeTask, A::Retry, A::RollBack];
            answers.extend(skip_target(question).map(|_| A::Skip));
            answers.extend([A::Cancel, A::Abandon]);
            answers
        }
    };
    if question.council {
        let end = answers.iter().position(|answer| *answer == A::Cancel).unwrap_or(answers.len());
        answers.insert(end, A::Convene);
    }
    answers
}

/// Returns the state after a skipped step, or `None` if it cannot be skipped. Approval never can.
pub(super) fn skip_target(question: &OpenQuestion) -> Option<State> {
    match question.from_state {
        State::Testing => Some(State::QualityReview),
        State::QualityReview | State::Adjusting | State::CtoIntervention => Some(State::Approved),
        State::Committing | State::AwaitingMerge => Some(State::Learning),
        _ => None,
    }
}

impl TaskLoop {
    /// Returns the next step of the task, or `None` once it is closed.
    pub fn next_step(&self, rules: &Rules) -> Option<NextStep> {
        if self.state.is_terminal() {
            return None;
        }
        if let Some(pause) = &self.paused {
            return Some(NextStep::Resume { paused_by: pause.by.clone() });
        }
        if let Some(question) = &self.open_question {
            return Some(NextStep::Answer {
                cause: question.cause,
                answers: allowed_answers(question),
                reminder_at: self.next_reminder(rules),
            });
        }
        if let Some(job) = self.stopping_job.or(self.active_job.filter(|job| job.stopping)) {
            return Some(NextStep::JobStopping { job: job.kind });
        }
        let Some(job) = self.active_job else {
            let memory = self.pull_request.as_ref();
            return memory.filter(|_| self.state == State::AwaitingMerge).map(|memory| {
                NextStep::PullRequest { number: memory.number, stage: memory.stage }
            });
        };
        Some(match (&self.quota, job.not_before) {
            (Some(quota), Some(_)) => {
                NextStep::Quota { provider: quota.provider.clone(), until: quota.until }
            }
            (None, Some(at)) => NextStep::RetryJob { job: job.kind, at },
            // The start of the agent ends this state.
            (_, None) if self.state == State::Validated && job.kind == JobKind::Implement => {
                NextStep::AgentSlot {
                    expected_by: self.next_timeout_stage(rules).map(|(at, _)| at),
                }
            }
            (_, None) => NextStep::JobRunning {
                job: job.kind,
                expected_by: self.next_timeout_stage(rules).map(|(at, _)| at),
            },
        })
    }
}

impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: &Timestamp| time.format("%Y-%m-%d %H:%M UTC");
        match self {
            Self::Resume { paused_by } => {
                write!(f, "paused by {paused_by}; waiting to be resumed")
            }
            Self::Answer { cause, answers, reminder_at } => {
                write!(f, "{cause}: waiting for a person to ")?;
                for (index, answer) in answers.iter().enumerate() {
                    let separator = match index {
                        0 => "",
                        _ if index + 1 == answers.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{separator}{}", answer.label())?;
                }
                match reminder_at {
                    Some(at) => write!(f, "; next reminder at {}", time(at)),
                    None => f.write_str("; seen, no more reminders"),
                }
            }
            Self::JobStopping { job } => write!(f, "waiting for `{job}` to stop"),
            Self::Quota { provider, until } => {
                write!(f, "waiting for {provider}'s quota to reset at {}", time(until))
            }
            Self::RetryJob { job, at } => write!(f, "retrying `{job}` at {}", time(at)),
            Self::AgentSlot { expected_by: Some(at) } => {
                write!(f, "waiting for an agent slot, due by {}", time(at))
            }
            Self::AgentSlot { expected_by: None } => {
                f.write_str("waiting for an agent slot, overdue")
            }
            Self::JobRunning { job, expected_by: Some(at) } => {
                write!(f, "`{job}` running, due by {}", time(at))
            }
            Self::JobRunning { job, expected_by: None } => {
                write!(f, "`{job}` running, overdue")
            }
            Self::PullRequest { number, stage } => {
                write!(f, "pull request #{number}: {}", stage.description())
            }
        }
    }
}
