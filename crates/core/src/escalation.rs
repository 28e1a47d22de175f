//! What follows a failed review: the one place that decides.
//!
//! The rules are tried in their order; the first that holds decides, and says why:
//!
//! 1. A halt condition holds: the work is landed and a person is asked. Where a critical security
//!    finding is not a halt condition, the top tier takes over at once.
//! 2. The task is [`stuck`]: top tier and council.
//! 3. Enough failures in a row in a tier: the next tier, or from the top one the council.
//! 4. Where 2 or 3 would need one retry or one council too many: a person is asked instead.
//! 5. Otherwise the same plan runs again in the same tier, with a brief of what failed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Limit};
use crate::rules::{HaltCondition, Rules};
use crate::stuck::{self, Attempt, Likeness};
use crate::tier::Tier;
use crate::version::Edition;

/// What the decision looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation<'a> {
    /// The last attempts, the newest at the end.
    pub attempts: &'a [Attempt],
    /// The tier that failed.
    pub tier: Tier,
    /// How often in a row that tier has failed, this time included.
    pub tier_failures: u8,
    /// How often the plan has been adjusted.
    pub retries: u8,
    /// How often the council has been asked.
    pub councils: u8,
    /// How many runs there have been.
    pub iterations: u16,
    /// How many there may be, with what people have granted.
    pub max_iterations: u16,
    /// Whether the review found a critical security fault.
    pub security_critical: bool,
    /// Whether the task has spent what it may.
    pub over_budget: bool,
    /// The behaviour that the task was started with.
    pub edition: Edition,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Land the work and ask a person.
    Halt(HaltCondition),
    /// Run the same plan again in this tier, with a brief.
    Iterate(Tier),
    /// Adjust the plan and go on in this tier.
    Escalate(Tier),
    /// Go to the top tier and ask the council.
    Council,
    /// Ask a person, because a limit stands in the way of the rest.
    AskPerson(Limit),
}

/// Why it is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Rule 1: a halt condition holds.
    HaltCondition,
    /// Rule 1: a critical security finding, where it does not halt.
    SecurityCritical,
    /// Rule 2: the last attempts are alike.
    Stuck(Likeness),
    /// Rule 3: so many failures in a row in the tier.
    FailuresInTier(u8),
    /// Rule 5: there is still something to try.
    RoomToTry,
    /// Work of one state, planning or delivery, failed as often as it may.
    FailuresInState(u8),
}

/// A verdict with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What is to be done.
    pub verdict: Verdict,
    /// Why.
    pub why: Why,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halt(_) => f.write_str("land the work and ask a person"),
            Self::Iterate(tier) => write!(f, "try the same plan again, in tier {tier}"),
            Self::Escalate(tier) => write!(f, "adjust the plan and go on in tier {tier}"),
            Self::Council => f.write_str("ask the council"),
            Self::AskPerson(Limit::Retries) => {
                f.write_str("ask a person: the plan was adjusted as often as it may be")
            }
            Self::AskPerson(Limit::Councils) => {
                f.write_str("ask a person: the council was asked as often as it may be")
            }
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.verdict)?;
        match (self.why, self.verdict) {
            (Why::HaltCondition, Verdict::Halt(condition)) => {
                write!(f, "{}", Cause::Halted(condition))
            }
            (Why::HaltCondition, _) => f.write_str("a halt condition holds"),
            (Why::SecurityCritical, _) => f.write_str("there is a critical security finding"),
            (Why::Stuck(likeness), _) => f.write_str(likeness.in_words()),
            (Why::FailuresInTier(count), _) => {
                write!(f, "it failed {} in a row in the tier", times(count))
            }
            (Why::RoomToTry, _) => f.write_str("there is still something to try"),
            (Why::FailuresInState(count), _) => write!(f, "the step failed {}", times(count)),
        }
    }
}

fn times(count: u8) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// Decides what follows a failed review.
pub fn after_failed_review(situation: &Situation<'_>, rules: &Rules) -> Decision {
    let limits = &rules.scrum_master.task_loop;
    let decided = |verdict, why| Decision { verdict, why };

    // Rule 1. Budget and iterations are hard limits and always halt; security does where configured.
    let security_halts = limits.halt_conditions.contains(&HaltCondition::SecurityCritical);
    for (condition, holds) in [
        (HaltCondition::SecurityCritical, situation.security_critical && security_halts),
        (HaltCondition::BudgetExceeded, situation.over_budget),
        (HaltCondition::MaxIterationsReached, situation.iterations >= situation.max_iterations),
    ] {
        if holds {
            return decided(Verdict::Halt(condition), Why::HaltCondition);
        }
    }
    if situation.security_critical && situation.tier != Tier::TOP {
        return decided(Verdict::Iterate(Tier::TOP), Why::SecurityCritical);
    }

    // Rule 2.
    let alike = match situation.edition {
        _ if !limits.stuck_detection => None,
        Edition::November2026 => stuck::alike(situation.attempts),
        Edition::Review2026 | Edition::Knowledge2026 => stuck::detect(situation.attempts),
    };
    if let Some(likeness) = alike {
        let why = Why::Stuck(likeness);
        return decided(council(situation, rules), why);
    }

    // Rule 3.
    let why = Why::FailuresInTier(situation.tier_failures);
    match situation.tier.above() {
        Some(above) if situation.tier_failures >= limits.escalation_threshold => {
            let verdict = if situation.retries < limits.max_retries {
                Verdict::Escalate(above)
            } else {
                // Rule 4.
                Verdict::AskPerson(Limit::Retries)
            };
            decided(verdict, why)
        }
        None if situation.tier_failures >= limits.top_tier_threshold => {
            decided(council(situation, rules), why)
        }
        // Rule 5.
        _ => decided(Verdict::Iterate(situation.tier), Why::RoomToTry),
    }
}

/// The council, or by rule 4 a person where a limit stands in its way.
fn council(situation: &Situation<'_>, rules: &Rules) -> Verdict {
    let limits = &rules.scrum_master.task_loop;
    if situation.councils >= limits.max_councils {
        Verdict::AskPerson(Limit::Councils)
    } else if situation.retries >= limits.max_retries {
        Verdict::AskPerson(Limit::Retries)
    } else {
        Verdict::Council
    }
}

/// Decides what follows a failure of planning or delivery: the same work again, or after too many
/// in a row the council, or after too many councils a person.
pub fn after_failed_work(failures: u8, councils: u8, tier: Tier, rules: &Rules) -> Decision {
    let limits = &rules.scrum_master.task_loop;
    let verdict = if failures < limits.max_failures_per_state {
        Verdict::Iterate(tier)
    } else if councils < limits.max_councils {
        Verdict::Council
    } else {
        Verdict::AskPerson(Limit::Councils)
    };
    Decision { verdict, why: Why::FailuresInState(failures) }
}
