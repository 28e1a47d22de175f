//! Decisions about plans: who said what, when, why, about what exactly.

use tamma_core::ids::TaskId;
use tamma_core::level::Level;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::spelling::{read_number, read_word};

/// What was decided.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// A person approved it.
    Approve,
    /// A person rejected it.
    Reject,
    /// A person asked for changes.
    Changes,
    /// A person lifted a prohibition.
    Override,
    /// The rules approved it.
    Auto,
}

/// One decision about a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The number of the entry that tells of it.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub verdict: Verdict,
    /// Who; nobody, where the rules decided.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The hash of the plan.
    pub plan: Option<String>,
    /// The base commit.
    pub base: Option<String>,
    /// The policy version.
    pub policy: Option<String>,
    /// How risky the plan was.
    pub risk: Option<Level>,
}

impl Store {
    /// Every decision about a task's plans, in their order.
    pub async fn decisions(&self, task: TaskId) -> Result<Vec<Decision>> {
        let rows = sqlx::query!(
            "SELECT sequence, at, decision, decided_by, reason, plan, base, policy, risk
             FROM approvals WHERE task = $1 ORDER BY sequence",
            task.0
        )
        .fetch_all(&self.steps)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(Decision {
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
            .collect::<Result<_, Damage>>()
            .map_err(|damage| damage.of(task.to_string()).into())
    }
}
