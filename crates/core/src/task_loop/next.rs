//! "What moves this forward next, and when?" Every live task can answer.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::{Action, JobKind, Question, State, TaskLoop, Timestamp};
use crate::cause::Cause;
use crate::ids::Name;
use crate::rules::Rules;

/// What moves a task forward next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// A person resumes it.
    Resume {
        /// Who paused it.
        paused_by: Name,
    },
    /// A person answers.
    Answer {
        /// Why they are asked.
        cause: Cause,
        /// What they may answer.
        answers: Vec<Answer>,
        /// When they will be reminded.
        reminder_at: Option<Timestamp>,
    },
    /// A job that was told to stop ends.
    Stopped {
        /// Which job.
        job: JobKind,
    },
    /// A provider's quota is there again.
    Quota {
        /// Which provider.
        provider: Name,
        /// When.
        until: Timestamp,
    },
    /// A job is tried again.
    Again {
        /// Which job.
        job: JobKind,
        /// When.
        at: Timestamp,
    },
    /// A job ends.
    Work {
        /// Which job.
        job: JobKind,
        /// When people will be told that it takes long.
        expected_by: Option<Timestamp>,
    },
}

/// What a person may answer.
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
#[expect(missing_docs, reason = "each is the action of its name")]
pub enum Answer {
    Approve,
    Reject,
    AskChanges,
    Accept,
    Rework,
    Override,
    Reply,
    Continue,
    Modify,
    Retry,
    RollBack,
    Skip,
    Cancel,
    Abandon,
}

impl TryFrom<&Action> for Answer {
    type Error = ();
    fn try_from(action: &Action) -> Result<Self, ()> {
        Ok(match action {
            Action::Approve { .. } => Self::Approve,
            Action::Reject { .. } => Self::Reject,
            Action::AskChanges { .. } => Self::AskChanges,
            Action::Accept { .. } => Self::Accept,
            Action::Rework { .. } => Self::Rework,
            Action::Override { .. } => Self::Override,
            Action::Reply { .. } => Self::Reply,
            Action::Continue { .. } => Self::Continue,
            Action::Modify { .. } => Self::Modify,
            Action::Retry { .. } => Self::Retry,
            Action::RollBack { .. } => Self::RollBack,
            Action::Skip { .. } => Self::Skip,
            Action::Cancel { .. } => Self::Cancel,
            Action::Abandon { .. } => Self::Abandon,
            Action::Pause | Action::Resume | Action::Acknowledge => return Err(()),
        })
    }
}

/// What may be answered to a question.
pub fn answers(question: &Question) -> Vec<Answer> {
    use Answer as A;
    match question.cause {
        Cause::ApprovalNeeded { .. } => {
            vec![A::Approve, A::Reject, A::AskChanges, A::Modify, A::Cancel]
        }
        Cause::ReviewNeeded => vec![A::Accept, A::Rework, A::Modify, A::Cancel],
        Cause::Blocked(_) => vec![A::Override, A::Modify, A::Retry, A::Cancel, A::Abandon],
        Cause::AgentAsked => vec![A::Reply, A::Modify, A::Cancel, A::Abandon],
        Cause::Rejected => vec![A::Modify, A::Retry, A::Cancel, A::Abandon],
        _ => {
            let mut answers = vec![A::Continue, A::Modify, A::Retry, A::RollBack];
            answers.extend(skip_to(question).map(|_| A::Skip));
            answers.extend([A::Cancel, A::Abandon]);
            answers
        }
    }
}

/// Where skipping the failed step leads, if it can be skipped. Approval never can.
pub(super) fn skip_to(question: &Question) -> Option<State> {
    match question.from {
        State::Testing => Some(State::QualityReview),
        State::QualityReview | State::Adjusting | State::CtoIntervention => Some(State::Approved),
        State::Committing => Some(State::Learning),
        _ => None,
    }
}

impl TaskLoop {
    /// What moves the task forward next, and when. Nothing does once it has ended.
    pub fn next(&self, rules: &Rules) -> Option<Next> {
        if self.state.is_terminal() {
            return None;
        }
        if let Some(pause) = &self.paused {
            return Some(Next::Resume { paused_by: pause.by.clone() });
        }
        if let Some(question) = &self.question {
            return Some(Next::Answer {
                cause: question.cause,
                answers: answers(question),
                reminder_at: self.next_reminder(rules),
            });
        }
        if let Some(left) = self.leaving.or(self.work.filter(|work| work.stopping)) {
            return Some(Next::Stopped { job: left.kind });
        }
        let work = self.work?;
        Some(match (&self.quota, work.not_before) {
            (Some(quota), Some(_)) => {
                Next::Quota { provider: quota.provider.clone(), until: quota.until }
            }
            (None, Some(at)) => Next::Again { job: work.kind, at },
            (_, None) => {
                Next::Work { job: work.kind, expected_by: self.next_stage(rules).map(|(at, _)| at) }
            }
        })
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |at: &Timestamp| at.format("%Y-%m-%d %H:%M UTC");
        match self {
            Self::Resume { paused_by } => {
                write!(f, "paused by {paused_by}: it goes on when somebody resumes it")
            }
            Self::Answer { cause, answers, reminder_at } => {
                write!(f, "{cause}: it waits for a person to ")?;
                for (index, answer) in answers.iter().enumerate() {
                    let between = match index {
                        0 => "",
                        _ if index + 1 == answers.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{between}{}", answer.to_string().replace('_', " "))?;
                }
                match reminder_at {
                    Some(moment) => write!(f, "; reminds at {}", at(moment)),
                    None => f.write_str("; somebody has seen it"),
                }
            }
            Self::Stopped { job } => write!(f, "waits until `{job}` has stopped"),
            Self::Quota { provider, until } => {
                write!(f, "the quota of {provider} is used up until {}", at(until))
            }
            Self::Again { job, at: moment } => write!(f, "tries `{job}` again at {}", at(moment)),
            Self::Work { job, expected_by: Some(moment) } => {
                write!(f, "`{job}` is under way, expected by {}", at(moment))
            }
            Self::Work { job, expected_by: None } => {
                write!(f, "`{job}` is under way, longer than expected")
            }
        }
    }
}
