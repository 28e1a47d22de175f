//! Refusals of events.

use super::{Action, JobKind, State, Timestamp, Trigger};
use crate::approval::ScopeChange;
use crate::ids::CommitId;
use crate::task::TaskEditError;

/// Reason why an event was refused. The task has not changed.
///
/// Messages are for the person who acted; variants are for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The task is closed.
    #[error("the task is closed ({0})")]
    Ended(State),
    /// The task is still open.
    #[error("the task is not closed yet ({0}); rate it once it is")]
    StillOpen(State),
    /// The last job of a closed task is still running.
    #[error("Tamma is still capturing lessons from the task; rate it afterwards")]
    StillLearning,
    /// Rating outside its range.
    #[error("{0} is not a rating; use 1 to 5 stars")]
    InvalidRating(u8),
    /// Edit of a task that is not valid.
    #[error("{0}")]
    InvalidEdit(TaskEditError),
    /// New title for a task that has a plan.
    #[error("the plan was made for this title; change the task to replan it")]
    TitleHasPlan,
    /// Edited plan without a change.
    #[error("the edited plan is the same as plan {0}; change at least one field")]
    PlanUnchanged(u32),
    /// The action needs a person.
    #[error("only a person can {0}")]
    PersonRequired(String),
    /// Result of a job that is not running.
    #[error("result refused: job {found} is not running{}", current(*.expected))]
    StaleResult {
        /// Job number of the result.
        found: u32,
        /// Number of the running job.
        expected: Option<u32>,
    },
    /// Outcome that the running job cannot have.
    #[error("`{outcome}` is not an outcome of a `{job}` job")]
    WrongOutcome {
        /// Kind of the job.
        job: JobKind,
        /// Name of the outcome.
        outcome: String,
    },
    /// Action that the state does not allow.
    #[error("`{action}` is not possible while the task is {state}")]
    WrongState {
        /// Current state.
        state: State,
        /// Label of the action.
        action: String,
    },
    /// Decision about a scope that is no longer current.
    #[error("{0} since you saw it; review it again")]
    ScopeChanged(ScopeChange),
    /// Decision about a commit that is no longer under review.
    #[error("commit {now} is under review, not {seen}; review it again")]
    CommitChanged {
        /// Commit that the person reviewed.
        seen: CommitId,
        /// Commit under review.
        now: CommitId,
    },
    /// Second approval by the same person.
    #[error("you have already approved this plan; another person must approve it too")]
    AlreadyApproved,
    /// The plan to run is not the approved one.
    #[error("the current plan is not approved")]
    NotApproved,
    /// Plan version out of sequence.
    #[error("expected plan version {expected}, got {found}")]
    PlanVersion {
        /// Version of the plan.
        found: u32,
        /// Next version.
        expected: u32,
    },
    /// The task is already paused.
    #[error("the task is already paused")]
    AlreadyPaused,
    /// The task is not paused.
    #[error("the task is not paused")]
    NotPaused,
    /// No question is open.
    #[error("no open question to acknowledge")]
    NoOpenQuestion,
    /// The task is not waiting to retry anything.
    #[error("nothing to retry: the task is running")]
    NothingToRetry,
    /// The same limit would stop the task again at once.
    #[error("the limit is reached; grant at least one run, or dollars or tokens, to continue")]
    NeedsGrant,
    /// Answer that the question does not allow.
    #[error("`{action}` is not an answer to this question")]
    AnswerNotAllowed {
        /// Label of the action.
        action: String,
    },
    /// The task has had all the councils that it can have.
    #[error(
        "the council cannot be convened again: the task had {held} of {max} councils \
         (`max_councils`)"
    )]
    CouncilLimit {
        /// Councils held.
        held: u8,
        /// Councils that the rules allow.
        max: u8,
    },
    /// The task cannot be rolled back to this state.
    #[error("cannot roll back to {to}: {reason}")]
    CannotRollBack {
        /// Requested state.
        to: State,
        /// Reason.
        reason: &'static str,
    },
    /// No timer is due yet.
    #[error("nothing is due before {}", .0.map_or_else(|| "the next event".to_owned(), |at| at.to_rfc3339()))]
    NothingDue(Option<Timestamp>),
    /// The task has no such pull request, or is done with it.
    #[error("the task has no open pull request with this number")]
    NoPullRequest,
    /// The facts about the pull request are known.
    #[error("nothing about the pull request has changed")]
    FactsUnchanged,
    /// The pull request is not in the merge queue.
    #[error("the pull request is not in the merge queue")]
    NotQueued,
    /// Base commit and rules are unchanged.
    #[error("base commit and rules are unchanged")]
    PinUnchanged,
    /// The task has no base commit yet.
    #[error("the task has no base commit yet; it takes the newest one when it is prepared")]
    NotPinned,
    /// Transition that is not in the table. This is always a bug in the state machine.
    #[error("no transition from {from} to {to} on `{on}`; report this as a bug")]
    NoTransition {
        /// Current state.
        from: State,
        /// Trigger of the transition.
        on: Trigger,
        /// Target state.
        to: State,
    },
}

fn current(expected: Option<u32>) -> String {
    expected.map_or_else(String::new, |number| format!(" (job {number} is)"))
}

impl Refusal {
    pub(super) fn wrong_state(state: State, action: &Action) -> Self {
        Self::WrongState { state, action: action.label().to_owned() }
    }
}
