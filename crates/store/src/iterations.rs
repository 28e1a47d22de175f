//! Iterations: the runs of a task, and what came of each.

use tamma_core::ids::TaskId;
use tamma_core::review::Fingerprint;
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::spelling::{read, read_number, read_word};

/// What came of an iteration.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Ending {
    /// The engine failed; it will be run again.
    EngineFailed,
    /// A gate failed because of the change.
    GatesFailed,
    /// The review failed.
    ReviewFailed,
    /// It passed.
    Passed,
}

/// One run of an engine and the review of what it made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iteration {
    /// Its number, from 1.
    pub number: u32,
    /// How strong an engine it had.
    pub tier: Option<Tier>,
    /// Which engine.
    pub engine: Option<String>,
    /// The hash of the plan.
    pub plan: Option<String>,
    /// When the last run of it started.
    pub started_at: Option<Timestamp>,
    /// The commit it made.
    pub commit: Option<String>,
    /// When it made it.
    pub finished_at: Option<Timestamp>,
    /// What came of it; nothing while that is not known.
    pub ending: Option<Ending>,
    /// What it scored, if it was reviewed.
    pub score: Option<u8>,
    /// What its failure looked like, if its gates failed.
    pub fingerprint: Option<Fingerprint>,
    /// When it was judged.
    pub judged_at: Option<Timestamp>,
}

impl Store {
    /// The iterations of a task, in their order.
    pub async fn iterations(&self, task: TaskId) -> Result<Vec<Iteration>> {
        let rows = sqlx::query!(
            "SELECT
                number, tier, engine, plan, started_at, commit, finished_at, outcome, score,
                fingerprint, judged_at
             FROM iterations WHERE task = $1 ORDER BY number",
            task.0
        )
        .fetch_all(&self.steps)
        .await?;
        let what = "iteration";
        rows.into_iter()
            .map(|row| {
                Ok(Iteration {
                    number: read_number(what, row.number.into())?,
                    tier: row.tier.map(|tier| read_word(what, tier)).transpose()?,
                    engine: row.engine,
                    plan: row.plan,
                    started_at: row.started_at,
                    commit: row.commit,
                    finished_at: row.finished_at,
                    ending: row.outcome.map(|ending| read_word(what, ending)).transpose()?,
                    score: row.score.map(|score| read_number(what, score.into())).transpose()?,
                    fingerprint: row.fingerprint.map(|print| read(what, print)).transpose()?,
                    judged_at: row.judged_at,
                })
            })
            .collect::<Result<_, Damage>>()
            .map_err(|damage| damage.of(task.to_string()).into())
    }
}
