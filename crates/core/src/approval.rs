//! Who must approve a plan, and what exactly was approved.
//!
//! An approval is bound to three things: the plan's hash, the commit it was made for and the
//! version of the rules. A change in any of them voids it. With nobody there to ask, a task waits;
//! it never approves itself.

use serde::{Deserialize, Serialize};

use crate::ids::{CommitId, Name, PlanHash, PolicyVersion};
use crate::level::Level;
use crate::risk::Risk;
use crate::rules::Rules;
use crate::time::Timestamp;

/// The base and the rules that a task works from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The commit its work starts from.
    pub base: CommitId,
    /// The version of the rules and policies it runs under.
    pub policy: PolicyVersion,
}

/// What an approval is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The hash of the plan.
    pub plan: PlanHash,
    /// The base and the rules.
    #[serde(flatten)]
    pub pin: Pin,
}

/// A part of a binding that is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum Drift {
    /// Another plan.
    #[strum(serialize = "the plan has changed")]
    Plan,
    /// Another base commit.
    #[strum(serialize = "the base commit has changed")]
    Base,
    /// Other rules.
    #[strum(serialize = "the rules have changed")]
    Policy,
}

impl Binding {
    /// What has changed between what somebody saw and what is there now.
    pub fn drift(&self, now: &Self) -> Option<Drift> {
        if self.plan != now.plan {
            Some(Drift::Plan)
        } else if self.pin.base != now.pin.base {
            Some(Drift::Base)
        } else if self.pin.policy != now.pin.policy {
            Some(Drift::Policy)
        } else {
            None
        }
    }
}

/// One person's yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who.
    pub by: Name,
    /// When.
    pub at: Timestamp,
    /// What exactly.
    pub binding: Binding,
}

/// What the knowledge check and the risk came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The risk, explained.
    pub risk: Risk,
    /// How many critical prohibitions the plan breaks.
    pub blockers: u16,
    /// How many warnings there are.
    pub warnings: u16,
}

/// What the approval of a plan needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It breaks a critical prohibition: a person must cancel, change or override.
    Blocked,
    /// Nobody needs to be asked.
    Automatic,
    /// So many people must approve.
    Ask(u8),
}

/// Decides what the approval of a checked plan needs.
///
/// A person who overrides a blocker answers for the prohibition, not for the plan: an overridden
/// plan is never approved automatically.
pub fn rule(check: &Check, overridden: bool, rules: &Rules) -> Ruling {
    let level = check.risk.level;
    if check.blockers > 0 && !overridden {
        Ruling::Blocked
    } else if level == Level::Low
        && check.blockers == 0
        && rules.scrum_master.task_loop.auto_approve_low_risk
    {
        Ruling::Automatic
    } else {
        Ruling::Ask(rules.ceremony.get(level).approvers)
    }
}
