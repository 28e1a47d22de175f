//! Escalation: the decision after a failed review.
//!
//! The rules are evaluated in order. The first one that applies decides and gives the reason:
//!
//! 1. A halt condition applies: save the work and ask a person. If a critical security finding is
//!    not a halt condition, the top tier takes over at once.
//! 2. The task is [`stuck`]: top tier and council.
//! 3. The failure limit of a tier is reached: next tier, or council after the top tier.
//! 4. Rule 2 or 3 would exceed the retry or council limit: ask a person instead.
//! 5. Otherwise: run the same plan again in the same tier, with a failure brief.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cause::{AlertCause, LoopLimit};
use crate::rules::{HaltCondition, Rules};
use crate::stuck::{self, AttemptRecord, AttemptSimilarity};
use crate::tier::Tier;
use crate::version::Edition;

/// Inputs of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EscalationContext<'a> {
    /// Last attempts, oldest first.
    pub attempts: &'a [AttemptRecord],
    /// Tier that failed.
    pub tier: Tier,
    /// Consecutive failures of that tier, including this one.
    pub tier_failures: u8,
    /// Plan revisions so far.
    pub retries: u8,
    /// Councils so far.
    pub councils: u8,
    /// Finished runs.
    pub iterations: u16,
    /// Run limit, including grants.
    pub max_iterations: u16,
    /// The review found a critical security issue.
    pub security_critical: bool,
    /// The next run would exceed the budget.
    pub over_budget: bool,
    /// Edition that the task started with.
    pub edition: Edition,
}

/// Action after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationAction {
    /// Save the work and ask a person.
    Halt(HaltCondition),
    /// Run the same plan again in this tier, with a failure brief.
    Iterate(Tier),
    /// Revise the plan and continue in this tier.
    Escalate(Tier),
    /// Use the top tier and ask the council.
    Council,
    /// Ask a person, because a limit prevents every other action.
    AskPerson(LoopLimit),
}

/// Reason for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationReason {
    /// Rule 1: a halt condition applies.
    HaltCondition,
    /// Rule 1: critical security finding that does not halt.
    SecurityCritical,
    /// Rule 2: the last attempts are similar.
    Stuck(AttemptSimilarity),
    /// Rule 3: number of consecutive failures in the tier.
    FailuresInTier(u8),
    /// Rule 5: attempts remain.
    #[serde(rename = "room_to_try")]
    AttemptsLeft,
    /// Number of failures of the jobs of a state.
    FailuresInState(u8),
    /// A person asked for it.
    Requested,
    /// Failed checks, comments or a conflict of the pull request.
    Feedback,
    /// A plan was submitted with the task, and the council reviews such plans.
    PlanSubmitted,
}

/// Action with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationDecision {
    /// Action to take.
    #[serde(rename = "verdict")]
    pub action: EscalationAction,
    /// Reason for the action.
    #[serde(rename = "why")]
    pub reason: EscalationReason,
}

impl fmt::Display for EscalationAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halt(_) => f.write_str("save the work and ask a person"),
            Self::Iterate(tier) => write!(f, "retry the same plan in the {tier} tier"),
            Self::Escalate(tier) => write!(f, "revise the plan and continue in the {tier} tier"),
            Self::Council => f.write_str("ask the council"),
            Self::AskPerson(LoopLimit::Retries) => {
                f.write_str("ask a person: plan revision limit reached")
            }
            Self::AskPerson(LoopLimit::Councils) => {
                f.write_str("ask a person: council limit reached")
            }
        }
    }
}

impl fmt::Display for EscalationDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.action)?;
        match (self.reason, self.action) {
            (EscalationReason::HaltCondition, EscalationAction::Halt(condition)) => {
                write!(f, "{}", AlertCause::Halted(condition))
            }
            (EscalationReason::HaltCondition, _) => f.write_str("a halt condition applies"),
            (EscalationReason::SecurityCritical, _) => {
                f.write_str("the review found a critical security issue")
            }
            (EscalationReason::Stuck(similarity), _) => f.write_str(similarity.description()),
            (EscalationReason::FailuresInTier(count), _) => {
                write!(f, "failed {} in a row in this tier", format_times(count))
            }
            (EscalationReason::AttemptsLeft, _) => f.write_str("attempts remain"),
            (EscalationReason::FailuresInState(count), _) => {
                write!(f, "the step failed {}", format_times(count))
            }
            (EscalationReason::Requested, _) => f.write_str("a person asked for it"),
            (EscalationReason::Feedback, _) => f.write_str("the pull request has feedback"),
            (EscalationReason::PlanSubmitted, _) => {
                f.write_str("a plan was submitted with the task")
            }
        }
    }
}

fn format_times(count: u8) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// Decides how to continue after a failed review.
pub fn decide_after_failed_review(
    context: &EscalationContext<'_>,
    rules: &Rules,
) -> EscalationDecision {
    let limits = &rules.scrum_master.task_loop;
    let decision = |action, reason| EscalationDecision { action, reason };

    // Rule 1. Budget and run limits always halt; a security finding halts if configured.
    let security_halts = limits.halt_conditions.contains(&HaltCondition::SecurityCritical);
    for (condition, applies) in [
        (HaltCondition::SecurityCritical, context.security_critical && security_halts),
        (HaltCondition::BudgetExceeded, context.over_budget),
        (HaltCondition::MaxIterationsReached, context.iterations >= context.max_iterations),
    ] {
        if applies {
            return decision(EscalationAction::Halt(condition), EscalationReason::HaltCondition);
        }
    }
    if context.security_critical && context.tier != Tier::TOP {
        return decision(EscalationAction::Iterate(Tier::TOP), EscalationReason::SecurityCritical);
    }

    // Rule 2.
    let similarity = match context.edition {
        _ if !limits.stuck_detection => None,
        Edition::November2026 => stuck::detect_repetition(context.attempts),
        Edition::Review2026 | Edition::Knowledge2026 => stuck::detect(context.attempts),
        Edition::Harness2026 | Edition::Council2026 => {
            stuck::detect_without_progress(context.attempts)
        }
    };
    if let Some(similarity) = similarity {
        let reason = EscalationReason::Stuck(similarity);
        return decision(council_or_person(context, rules), reason);
    }

    // Rule 3.
    let reason = EscalationReason::FailuresInTier(context.tier_failures);
    match context.tier.above() {
        Some(above) if context.tier_failures >= limits.escalation_threshold => {
            let action = if context.retries < limits.max_retries {
                EscalationAction::Escalate(above)
            } else {
                // Rule 4.
                EscalationAction::AskPerson(LoopLimit::Retries)
            };
            decision(action, reason)
        }
        None if context.tier_failures >= limits.top_tier_threshold => {
            decision(council_or_person(context, rules), reason)
        }
        // Rule 5.
        _ => decision(EscalationAction::Iterate(context.tier), EscalationReason::AttemptsLeft),
    }
}

/// Returns the council, or by rule 4 a person if a limit prevents it.
fn council_or_person(context: &EscalationContext<'_>, rules: &Rules) -> EscalationAction {
    let limits = &rules.scrum_master.task_loop;
    if context.councils >= limits.max_councils {
        EscalationAction::AskPerson(LoopLimit::Councils)
    } else if context.retries >= limits.max_retries {
        EscalationAction::AskPerson(LoopLimit::Retries)
    } else {
        EscalationAction::Council
    }
}

/// Decides how to continue after failed planning or delivery: retry, then council, then a person.
pub fn decide_after_failed_job(
    failures: u8,
    councils: u8,
    tier: Tier,
    rules: &Rules,
) -> EscalationDecision {
    let limits = &rules.scrum_master.task_loop;
    let action = if failures < limits.max_failures_per_state {
        EscalationAction::Iterate(tier)
    } else if councils < limits.max_councils {
        EscalationAction::Council
    } else {
        EscalationAction::AskPerson(LoopLimit::Councils)
    };
    EscalationDecision { action, reason: EscalationReason::FailuresInState(failures) }
}
