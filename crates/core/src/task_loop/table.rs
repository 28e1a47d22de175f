//! Transition table: from state, trigger, to state.
//!
//! This is the whole state machine on one page. [`step`](super::step()) takes no other transition,
//! the diagram in the documentation is rendered from it, and the property tests fail if a
//! transition is never taken.

use strum::IntoEnumIterator as _;

use super::{State, Trigger};

/// Returns `true` if the table has this transition.
#[expect(clippy::unnested_or_patterns, reason = "one line per transition reads as a table")]
pub fn allows(from: State, on: Trigger, to: State) -> bool {
    use State::{
        Adjusting, Approved, Assigned, AwaitingApproval, AwaitingMerge, Cancelled, Committing,
        Completed, CtoIntervention, Failed, HumanEscalation, InProgress, Learning, Pending,
        Planning, QualityReview, Testing, Validated,
    };
    use Trigger as On;

    #[rustfmt::skip]
    let listed = matches!((from, on, to),
        // Main path.
          (Pending,          On::Admitted,         Assigned)
        | (Assigned,         On::Prepared,         Planning)
        | (Planning,         On::PlanMade,         AwaitingApproval)
        | (AwaitingApproval, On::Approved,         Validated)
        | (Validated,        On::RunStarted,       InProgress)
        | (InProgress,       On::RunFinished,      Testing)
        | (Testing,          On::GatesPassed,      QualityReview)
        | (QualityReview,    On::ReviewPassed,     Approved)
        | (Approved,         On::DeliveryReady,         Committing)
        | (Committing,       On::Delivered,        Learning)
        | (Learning,         On::Learned,          Completed)

        // Pull request.
        | (Committing,       On::PullRequestOpened, AwaitingMerge)
        | (AwaitingMerge,    On::Merged,           Learning)
        | (AwaitingMerge,    On::FeedbackReceived, Adjusting)
        | (AwaitingMerge,    On::BaseMoved,        Testing)
        | (AwaitingMerge,    On::HeadAdopted,      Testing)
        | (AwaitingMerge,    On::PullRequestClosed, HumanEscalation)
        | (Planning | AwaitingApproval | Validated | InProgress | Testing | QualityReview
             | Adjusting | CtoIntervention | Approved | HumanEscalation,
                             On::PullRequestChanged, AwaitingMerge)

        // Plans that need another version, or a person.
        | (Planning,         On::PlanInvalid,      Planning)
        | (AwaitingApproval, On::RevisionRequested,     Planning)
        | (AwaitingApproval, On::Blocked,          HumanEscalation)
        | (AwaitingApproval, On::Rejected,         HumanEscalation)
        | (Validated,        On::ApprovalVoided,   AwaitingApproval)
        | (InProgress,       On::ApprovalVoided,   AwaitingApproval)
        | (Adjusting,        On::ApprovalVoided,   AwaitingApproval)

        // The agent disputes the plan.
        | (InProgress,       On::PlanWrong,        Planning)

        // Failures of the agent, which say nothing about the change.
        | (InProgress,       On::AgentFailed,     Validated)
        | (InProgress,       On::QuotaReached,     Validated)
        | (InProgress,       On::RunInterrupted,   Validated)

        // Failed changes.
        | (Testing,          On::GatesFailed,      Adjusting)
        | (QualityReview,    On::ReviewFailed,     Adjusting)
        | (Committing,       On::DeliveryFailed,   Adjusting)
        | (Adjusting,        On::Briefed,          Validated)
        | (Adjusting,        On::PlanMade,         AwaitingApproval)
        | (Adjusting,        On::PlanInvalid,      Adjusting)

        // Council: after three failures in a state, or if a person asks. It returns the task.
        | (Planning | AwaitingApproval | Validated | InProgress | Testing | QualityReview
             | Adjusting | Approved | Committing | HumanEscalation,
                             On::CouncilCalled,    CtoIntervention)
        | (CtoIntervention,  On::CouncilConcluded,
             Planning | AwaitingApproval | Validated | Testing | QualityReview | Adjusting
             | Approved | Committing)

        // A person's answers.
        | (HumanEscalation,  On::Continued | On::Retried,
             Pending | Assigned | Planning | AwaitingApproval | Validated | Testing | QualityReview
             | Adjusting | CtoIntervention | Approved | Committing | AwaitingMerge)
        | (HumanEscalation,  On::RolledBack,
             Planning | AwaitingApproval | Validated | Testing | QualityReview)
        | (HumanEscalation,  On::Skipped,          QualityReview | Approved | Learning)
        | (HumanEscalation,  On::Overridden,       AwaitingApproval)
        | (HumanEscalation,  On::Abandoned,        Failed)
    );

    match (on, to) {
        // Every open task can be cancelled.
        (On::Cancelled, Cancelled) => !from.is_terminal(),
        // Every open task can need a person, except one that already does. Learning never stops a
        // task.
        (On::Alerted, HumanEscalation) => {
            !from.is_terminal() && !matches!(from, HumanEscalation | Learning)
        }
        // The request can change until delivery starts.
        (On::TaskChanged, Planning) => {
            !from.is_terminal() && !matches!(from, Pending | Assigned | Committing | Learning)
        }
        _ => listed,
    }
}

/// Returns every transition.
pub fn transitions() -> impl Iterator<Item = (State, Trigger, State)> {
    State::iter().flat_map(|from| {
        Trigger::iter().flat_map(move |on| {
            State::iter().filter(move |to| allows(from, on, *to)).map(move |to| (from, on, to))
        })
    })
}
