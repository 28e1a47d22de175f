//! Iterations of a task and their outcomes.

use tamma_core::ids::TaskId;
use tamma_core::review::Fingerprint;
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;

use crate::connection::Store;
use crate::encoding::{read, read_number, read_word};
use crate::error::{CorruptData, Result};

/// Outcome of an iteration.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum IterationOutcome {
    /// Agent failed and will run again.
    #[serde(rename = "engine_failed")]
    #[strum(serialize = "engine_failed")]
    AgentFailed,
    /// Gate failed because of the change.
    GatesFailed,
    /// Review failed.
    ReviewFailed,
    /// Person requested changes.
    ChangesRequested,
    /// Review passed.
    Passed,
}

/// One implementation run and the review of its change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IterationRecord {
    /// Number of the iteration, from 1.
    pub number: u32,
    /// Tier that the agent ran as.
    pub tier: Option<Tier>,
    /// Name of the agent.
    pub agent: Option<String>,
    /// Hash of the plan.
    pub plan: Option<String>,
    /// Start of its latest run.
    pub started_at: Option<Timestamp>,
    /// Commit that it produced.
    pub commit: Option<String>,
    /// Time of the commit.
    pub finished_at: Option<Timestamp>,
    /// Outcome; `None` while it is open.
    pub outcome: Option<IterationOutcome>,
    /// Score of the review.
    pub score: Option<u8>,
    /// Fingerprint of the failure, if gates failed.
    pub fingerprint: Option<Fingerprint>,
    /// End of the review.
    pub judged_at: Option<Timestamp>,
}

impl Store {
    /// Returns the iterations of a task, in order.
    pub async fn iterations(&self, task: TaskId) -> Result<Vec<IterationRecord>> {
        let rows = sqlx::query!(
            "SELECT
                number, tier, engine, plan, started_at, commit, finished_at, outcome, score,
                fingerprint, judged_at
             FROM iterations WHERE task = $1 ORDER BY number",
            task.0
        )
        .fetch_all(&self.reads)
        .await?;
        let what = "iteration";
        rows.into_iter()
            .map(|row| {
                Ok(IterationRecord {
                    number: read_number(what, row.number.into())?,
                    tier: row.tier.map(|tier| read_word(what, tier)).transpose()?,
                    agent: row.engine,
                    plan: row.plan,
                    started_at: row.started_at,
                    commit: row.commit,
                    finished_at: row.finished_at,
                    outcome: row.outcome.map(|ending| read_word(what, ending)).transpose()?,
                    score: row.score.map(|score| read_number(what, score.into())).transpose()?,
                    fingerprint: row.fingerprint.map(|print| read(what, print)).transpose()?,
                    judged_at: row.judged_at,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()).into())
    }
}
