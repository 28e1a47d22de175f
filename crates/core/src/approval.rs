//! Approval of plans: the required approvers, and the scope of an approval.
//!
//! An approval covers the hash of a plan, its base commit, the version of the rules and the digest
//! of the prompts. If any of them changes, the approval is void. A task waits for as long as nobody answers; it never
//! approves itself.

use serde::{Deserialize, Serialize};

use crate::ids::{CommitId, Digest, Name, PlanHash, PolicyVersion};
use crate::level::RiskLevel;
use crate::risk::Risk;
use crate::rules::Rules;
use crate::time::Timestamp;

/// Base commit, rules and prompts that a task is pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Commit that the work starts from.
    pub base: CommitId,
    /// Version of the rules.
    pub policy: PolicyVersion,
    /// Digest of the prompts. Tasks from before prompts were pinned have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<Digest>,
}

/// Scope of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalScope {
    /// Hash of the plan.
    pub plan: PlanHash,
    /// Base commit, rules and prompts.
    #[serde(flatten)]
    pub pin: Pin,
}

/// Part of a scope that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum ScopeChange {
    /// The plan was replaced.
    #[strum(serialize = "the plan has changed")]
    Plan,
    /// The base commit has moved.
    #[strum(serialize = "the base commit has changed")]
    Base,
    /// The rules were edited.
    #[strum(serialize = "the rules have changed")]
    Policy,
    /// The prompts were edited.
    #[strum(serialize = "the prompts have changed")]
    Prompts,
}

impl ApprovalScope {
    /// Returns the first difference between the scope that a person saw and the current one.
    pub fn first_change(&self, now: &Self) -> Option<ScopeChange> {
        if self.plan != now.plan {
            Some(ScopeChange::Plan)
        } else if self.pin.base != now.pin.base {
            Some(ScopeChange::Base)
        } else if self.pin.policy != now.pin.policy {
            Some(ScopeChange::Policy)
        } else if self.pin.prompts != now.pin.prompts {
            Some(ScopeChange::Prompts)
        } else {
            None
        }
    }
}

/// Approval by one person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Person who approved.
    pub by: Name,
    /// Time of the approval.
    pub at: Timestamp,
    /// Scope that the person saw.
    #[serde(rename = "binding")]
    pub scope: ApprovalScope,
}

/// Result of the risk assessment and the knowledge check of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanAssessment {
    /// Risk with its factors.
    pub risk: Risk,
    /// Number of critical prohibitions that the plan violates.
    pub blockers: u16,
    /// Number of warnings.
    pub warnings: u16,
}

/// Requirement for the approval of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalRequirement {
    /// A critical prohibition blocks the plan: a person must cancel, change or override.
    Blocked,
    /// Nobody has to approve.
    Automatic,
    /// Number of people who must approve.
    #[serde(rename = "ask")]
    Approvers(u8),
}

/// Returns the requirement for approving a checked plan.
///
/// Overriding a prohibition does not approve the plan, so an overridden plan is never approved
/// automatically.
pub fn approval_requirement(
    check: &PlanAssessment,
    overridden: bool,
    rules: &Rules,
) -> ApprovalRequirement {
    let level = check.risk.level;
    if check.blockers > 0 && !overridden {
        ApprovalRequirement::Blocked
    } else if level == RiskLevel::Low
        && check.blockers == 0
        && rules.scrum_master.task_loop.auto_approve_low_risk
    {
        ApprovalRequirement::Automatic
    } else {
        ApprovalRequirement::Approvers(rules.ceremony.get(level).approvers)
    }
}
