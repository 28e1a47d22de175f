//! Why an event was not taken.

use super::{Action, JobKind, State, Timestamp, Trigger};
use crate::approval::Drift;
use crate::ids::CommitId;

/// Why an event was not taken. Nothing has changed.
///
/// The messages are for the person who asked; the variants are for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The task has ended.
    #[error("the task is {0}: nothing more can happen to it")]
    Ended(State),
    /// Only a person may do that.
    #[error("only a person may {0} a task")]
    NotAPerson(String),
    /// The result of a job that is not under way.
    #[error("the result is of job {found}, which is not under way{}: it is too late", current(*.expected))]
    Stale {
        /// The ticket of the result.
        found: u32,
        /// The ticket of the job that is under way.
        expected: Option<u32>,
    },
    /// A result that the job under way cannot have.
    #[error("a job of kind `{job}` cannot end as `{outcome}`")]
    WrongOutcome {
        /// The job.
        job: JobKind,
        /// The result.
        outcome: String,
    },
    /// An action that the state does not know.
    #[error("a task that is {state} cannot take `{action}`")]
    NotNow {
        /// Where the task is.
        state: State,
        /// What was asked.
        action: String,
    },
    /// An approval of something else than what is there now.
    #[error("{0} since you saw it: look at it again")]
    Drifted(Drift),
    /// A review of another commit than the one under review.
    #[error("the change under review is commit {now}, not {seen}: look at it again")]
    OtherCommit {
        /// What they reviewed.
        seen: CommitId,
        /// What is under review.
        now: CommitId,
    },
    /// The same person cannot approve twice.
    #[error("you have approved this plan already: it needs another person")]
    ApprovedTwice,
    /// What would run is not what was approved.
    #[error("the plan that would run has not been approved")]
    NotApproved,
    /// A plan with a version that does not follow.
    #[error("the plan has version {found}, and {expected} comes next")]
    PlanVersion {
        /// The version it has.
        found: u32,
        /// The version it should have.
        expected: u32,
    },
    /// Already paused.
    #[error("the task is paused already")]
    Paused,
    /// Not paused.
    #[error("the task is not paused")]
    NotPaused,
    /// Nothing is asked.
    #[error("there is no open question to acknowledge")]
    NoQuestion,
    /// It goes on without.
    #[error("nothing waits that could be tried again: the task is at work")]
    NothingToRetry,
    /// The limit would be hit again at once.
    #[error("the limit is reached: grant at least one more run, or more money or tokens, to go on")]
    NeedsGrant,
    /// The answer is not among those that the question takes.
    #[error("`{action}` does not answer this question")]
    NotAnAnswer {
        /// What was asked.
        action: String,
    },
    /// The task cannot be rolled back there.
    #[error("the task cannot go back to {to}: {why}")]
    NoWayBack {
        /// Where to.
        to: State,
        /// Why not.
        why: &'static str,
    },
    /// Too early.
    #[error("nothing is due before {}", .0.map_or_else(|| "something happens".to_owned(), |at| at.to_rfc3339()))]
    NothingDue(Option<Timestamp>),
    /// The base and the rules are what they were.
    #[error("base and rules are what they were")]
    SamePin,
    /// There is no base yet that could change.
    #[error("the task has no base commit yet: it will take the newest when it is picked up")]
    NotPinned,
    /// The machine has no such arrow. Should this ever be seen, it is a fault in the machine.
    #[error("the machine has no way from {from} to {to} on `{on}`: please report this")]
    NoArrow {
        /// From where.
        from: State,
        /// On what.
        on: Trigger,
        /// To where.
        to: State,
    },
}

fn current(expected: Option<u32>) -> String {
    expected.map_or_else(String::new, |ticket| format!(" (that is job {ticket})"))
}

impl Refusal {
    pub(super) fn not_now(state: State, action: &Action) -> Self {
        Self::NotNow { state, action: action.to_string() }
    }
}
