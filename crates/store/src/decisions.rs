//! Decisions about plans, with author, time, reason and approval scope.

use tamma_core::ids::TaskId;
use tamma_core::level::RiskLevel;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_number, read_word};
use crate::error::{CorruptData, Result};

/// Kind of a decision.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PlanVerdict {
    /// Approved by a person.
    Approve,
    /// Rejected by a person.
    Reject,
    /// Revision requested by a person.
    Changes,
    /// Prohibition overridden by a person.
    Override,
    /// Approved automatically by the rules.
    Auto,
}

/// One decision about a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanDecision {
    /// Sequence number of its history entry.
    pub sequence: u64,
    /// Time of the decision.
    pub at: Timestamp,
    /// Kind of the decision.
    pub verdict: PlanVerdict,
    /// Person who decided; `None` for the rules.
    pub by: Option<String>,
    /// Reason, if one was given.
    pub reason: Option<String>,
    /// Hash of the plan.
    pub plan: Option<String>,
    /// Base commit.
    pub base: Option<String>,
    /// Policy version.
    pub policy: Option<String>,
    /// Risk of the plan.
    pub risk: Option<RiskLevel>,
}

impl Store {
    /// Returns all decisions about a task's plans, in order.
    pub async fn decisions(&self, task: TaskId) -> Result<Vec<PlanDecision>> {
        let rows = sqlx::query!(
            "SELECT sequence, at, decision, decided_by, reason, plan, base, policy, risk
             FROM approvals WHERE task = $1 ORDER BY sequence",
            task.0
        )
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(PlanDecision {
                    sequence: read_number("decision", row.sequence)?,
                    at: row.at,
                    verdict: read_word("decision", row.decision)?,
                    by: row.decided_by,
                    reason: row.reason,
                    plan: row.plan,
                    base: row.base,
                    policy: row.policy,
                    risk: row.risk.map(|risk| read_word("decision", risk)).transpose()?,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()).into())
    }
}
