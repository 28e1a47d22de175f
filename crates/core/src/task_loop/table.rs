//! Every arrow of the machine: from where, on what, to where.
//!
//! This is the whole machine on one page. [`step`](super::step()) takes no arrow that is not here,
//! the picture in the documentation is drawn from it, and the property tests fail when an arrow is
//! never taken.

use strum::IntoEnumIterator as _;

use super::{State, Trigger};

/// Tells whether the machine has this arrow.
#[expect(clippy::unnested_or_patterns, reason = "one line for each arrow reads as a table")]
pub fn allows(from: State, on: Trigger, to: State) -> bool {
    use State::{
        Adjusting, Approved, Assigned, AwaitingApproval, Cancelled, Committing, Completed,
        CtoIntervention, Failed, HumanEscalation, InProgress, Learning, Pending, Planning,
        QualityReview, Testing, Validated,
    };
    use Trigger as On;

    #[rustfmt::skip]
    let listed = matches!((from, on, to),
        // The main way.
          (Pending,          On::Admitted,         Assigned)
        | (Assigned,         On::Prepared,         Planning)
        | (Planning,         On::PlanMade,         AwaitingApproval)
        | (AwaitingApproval, On::Approved,         Validated)
        | (Validated,        On::RunStarted,       InProgress)
        | (InProgress,       On::RunFinished,      Testing)
        | (Testing,          On::GatesPassed,      QualityReview)
        | (QualityReview,    On::ReviewPassed,     Approved)
        | (Approved,         On::TurnCame,         Committing)
        | (Committing,       On::Delivered,        Learning)
        | (Learning,         On::Learned,          Completed)

        // A plan that is not good enough.
        | (Planning,         On::PlanInvalid,      Planning)
        | (AwaitingApproval, On::ChangesAsked,     Planning)
        | (AwaitingApproval, On::Blocked,          HumanEscalation)
        | (AwaitingApproval, On::Rejected,         HumanEscalation)
        | (Validated,        On::ApprovalVoided,   AwaitingApproval)
        | (InProgress,       On::ApprovalVoided,   AwaitingApproval)
        | (Adjusting,        On::ApprovalVoided,   AwaitingApproval)

        // An engine that fails is not a change that fails.
        | (InProgress,       On::EngineFailed,     Validated)
        | (InProgress,       On::QuotaReached,     Validated)
        | (InProgress,       On::RunInterrupted,   Validated)

        // A change that fails.
        | (Testing,          On::GatesFailed,      Adjusting)
        | (QualityReview,    On::ReviewFailed,     Adjusting)
        | (Committing,       On::DeliveryFailed,   Adjusting)
        | (Adjusting,        On::Briefed,          Validated)
        | (Adjusting,        On::PlanMade,         AwaitingApproval)
        | (Adjusting,        On::PlanInvalid,      Adjusting)
        | (Adjusting,        On::CouncilCalled,    CtoIntervention)
        | (Planning,         On::CouncilCalled,    CtoIntervention)
        | (CtoIntervention,  On::CouncilConcluded, Adjusting)

        // A person's answers.
        | (HumanEscalation,  On::Continued | On::Retried,
             Pending | Assigned | Planning | AwaitingApproval | Validated | Testing | QualityReview
             | Adjusting | CtoIntervention | Approved | Committing)
        | (HumanEscalation,  On::RolledBack,
             Planning | AwaitingApproval | Validated | Testing | QualityReview)
        | (HumanEscalation,  On::Skipped,          QualityReview | Approved | Learning)
        | (HumanEscalation,  On::Overridden,       AwaitingApproval)
        | (HumanEscalation,  On::Abandoned,        Failed)
    );

    match (on, to) {
        // Whatever lives can be cancelled.
        (On::Cancelled, Cancelled) => !from.is_terminal(),
        // Whatever lives can need a person, but for two: one that has one, and learning, which
        // never stops a task.
        (On::Alerted, HumanEscalation) => {
            !from.is_terminal() && !matches!(from, HumanEscalation | Learning)
        }
        // What is wanted can change until the change is on its way out.
        (On::Modified, Planning) => {
            !from.is_terminal() && !matches!(from, Pending | Assigned | Committing | Learning)
        }
        _ => listed,
    }
}

/// Every arrow there is.
pub fn arrows() -> impl Iterator<Item = (State, Trigger, State)> {
    State::iter().flat_map(|from| {
        Trigger::iter().flat_map(move |on| {
            State::iter().filter(move |to| allows(from, on, *to)).map(move |to| (from, on, to))
        })
    })
}
