//! Messages to the workflow of a task, and the events that they become.

use serde::{Deserialize, Serialize};
use tamma_core::actor::{Actor, Authentication};
use tamma_core::forge::PullRequestFacts;
use tamma_core::ids::{Name, PlanHash, Reference};
use tamma_core::pull_request::QueueResult;
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Action, EventKind, State, TaskEvent, Timestamp};
use tamma_core::version::FormatVersion;

/// Action that a person requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRequest {
    /// Time of the request.
    pub at: Timestamp,
    /// Authenticated name of the person.
    pub by: Name,
    /// Authentication of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authentication>,
    /// Requested action.
    pub action: Action,
}

/// Notification that a worker has started a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Start time.
    pub at: Timestamp,
    /// Job number of the run.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Agent that runs.
    #[serde(rename = "engine")]
    pub agent: Name,
}

/// Question of a run that waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionOpened {
    /// Time of the question.
    pub at: Timestamp,
    /// Job number of the run.
    pub job_number: u32,
    /// Stored text of the question.
    pub question: Reference,
    /// Stored answer to use if nobody answers in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_answer: Option<Reference>,
}

/// New rules for a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RulesChanged {
    /// Time of the change.
    pub at: Timestamp,
    /// Authenticated name of the person who applied the rules.
    pub by: Name,
    /// Authentication of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authentication>,
    /// Rules without secrets. The caller has stored them.
    pub rules: Rules,
}

/// Status of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Current state.
    pub state: State,
    /// Set while the task is paused.
    pub paused: bool,
    /// Number of events applied so far.
    pub step: u64,
    /// Plan that awaits approval or runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanHash>,
}

/// Response to a request: the new status, or the reason for refusing it.
pub type ActionResponse = Result<TaskStatus, String>;

impl From<ActionRequest> for TaskEvent {
    fn from(request: ActionRequest) -> Self {
        let ActionRequest { at, by, auth, action } = request;
        Self {
            format: FormatVersion,
            at,
            by: Actor::Person(by),
            auth,
            kind: EventKind::ActionRequested(action),
        }
    }
}

impl From<RunStarted> for TaskEvent {
    fn from(run_started: RunStarted) -> Self {
        let RunStarted { at, job_number, agent } = run_started;
        Self {
            format: FormatVersion,
            at,
            by: Actor::Tamma,
            auth: None,
            kind: EventKind::RunStarted { job_number, agent },
        }
    }
}

impl From<QuestionOpened> for TaskEvent {
    fn from(opened: QuestionOpened) -> Self {
        let QuestionOpened { at, job_number, question, default_answer } = opened;
        let kind = EventKind::QuestionOpened { job_number, question, default_answer };
        Self { format: FormatVersion, at, by: Actor::Tamma, auth: None, kind }
    }
}

/// News from the forge about the pull request of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForgeSignal {
    /// Facts about the pull request, as the poller read them.
    Observed(Box<PullRequestFacts>),
    /// Result of the merge queue.
    QueueSettled(QueueResult),
}

impl ForgeSignal {
    /// Returns the event of the news at a time. The facts name the accounts that acted; Tamma only
    /// reports them.
    pub(super) fn into_event(self, at: Timestamp) -> TaskEvent {
        let kind = match self {
            Self::Observed(facts) => EventKind::PullRequestObserved(facts),
            Self::QueueSettled(result) => EventKind::QueueSettled(result),
        };
        TaskEvent { format: FormatVersion, at, by: Actor::Tamma, auth: None, kind }
    }

    /// Returns `true` if newer news makes this one useless.
    pub(super) fn is_replaced_by(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::Observed(_), Self::Observed(_))
            | (Self::QueueSettled(_), Self::QueueSettled(_)) => true,
            (Self::Observed(_), Self::QueueSettled(_))
            | (Self::QueueSettled(_), Self::Observed(_)) => false,
        }
    }
}
