//! What became of what is known: which tasks an entry met, and how those went against the others.

use std::collections::{BTreeMap, BTreeSet};

use tamma_core::cost::Usd;
use tamma_core::ids::{KnowledgeId, ProjectId, TaskId};
use tamma_core::knowledge::Scope;
use tamma_core::learning::{self, Effect, Outcomes};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::knowledge::Known;
use crate::spelling::{read_number, read_word};

/// How some tasks went that came as far as a review.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there were, and how many of them passed at once.
    pub outcomes: Outcomes,
    /// How many iterations they had together.
    pub iterations: u64,
    /// What they cost together.
    pub cost: Usd,
}

impl Tally {
    fn add(&mut self, ended: &Ended) {
        let Some(passed) = ended.passed_at_once else { return };
        self.outcomes.tasks += 1;
        self.outcomes.first_pass += u32::from(passed);
        self.iterations += u64::from(ended.iterations);
        self.cost += ended.cost;
    }
}

/// What became of an entry since a person last let it have effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Followed {
    /// Since when it counts; never, where nobody has approved it.
    pub since: Option<Timestamp>,
    /// How many tasks ended since then where it holds.
    pub tasks: u32,
    /// How many tasks it met, ended or not, since it is there.
    pub matched: u32,
    /// How many of those it stopped until a person decided.
    pub stopped: u32,
    /// When it last met one.
    pub last_matched: Option<Timestamp>,
    /// How the tasks went whose agents were told.
    pub with: Tally,
    /// How the others went.
    pub without: Tally,
}

impl Followed {
    /// What it did.
    pub fn effect(&self) -> Effect {
        learning::effect(self.with.outcomes, self.without.outcomes)
    }
}

/// A task that has ended.
struct Ended {
    project: ProjectId,
    at: Timestamp,
    iterations: u32,
    cost: Usd,
    /// Nothing where no work of it was ever judged.
    passed_at_once: Option<bool>,
}

struct Row {
    id: uuid::Uuid,
    project: uuid::Uuid,
    since: Timestamp,
    iterations: i32,
    spent_usd: String,
    first: Option<String>,
}

/// What an entry was to a task.
struct Met {
    task: TaskId,
    told: bool,
    stopped: bool,
    at: Timestamp,
}

impl Store {
    /// What became of some entries, one for each and in their order.
    pub async fn followed(&self, known: &[Known]) -> Result<Vec<Followed>> {
        let ids: Vec<_> = known.iter().map(|known| known.entry.id.0).collect();
        let since = self.in_force_since(&ids).await?;
        let met = self.met(&ids).await?;
        let ended = self.ended().await?;
        let one = |known: &Known| {
            let id = known.entry.id;
            let met = met.get(&id).map(Vec::as_slice).unwrap_or_default();
            follow(known.entry.scope, since.get(&id).copied(), met, &ended)
        };
        Ok(known.iter().map(one).collect())
    }

    /// Since when entries count that a person has approved.
    async fn in_force_since(&self, ids: &[uuid::Uuid]) -> Result<BTreeMap<KnowledgeId, Timestamp>> {
        // Evidence that was added changes nothing of what people approved.
        let rows = sqlx::query!(
            r#"SELECT entry, max(at) AS "at!" FROM knowledge_changes
             WHERE entry = ANY($1) AND what IN ('approved', 'imported')
                AND entry_then ->> 'status' = 'approved'
             GROUP BY entry"#,
            ids
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(rows.into_iter().map(|row| (KnowledgeId(row.entry), row.at)).collect())
    }

    /// Which tasks entries have met.
    async fn met(&self, ids: &[uuid::Uuid]) -> Result<BTreeMap<KnowledgeId, Vec<Met>>> {
        let rows = sqlx::query!(
            r#"SELECT
                entry, task, bool_or(shown) AS "told!", bool_or(role = 'blocker') AS "stopped!",
                max(at) AS "at!"
             FROM knowledge_matches WHERE entry = ANY($1) GROUP BY entry, task"#,
            ids
        )
        .fetch_all(&self.lists)
        .await?;
        let mut all: BTreeMap<KnowledgeId, Vec<Met>> = BTreeMap::new();
        for row in rows {
            let met =
                Met { task: TaskId(row.task), told: row.told, stopped: row.stopped, at: row.at };
            all.entry(KnowledgeId(row.entry)).or_default().push(met);
        }
        Ok(all)
    }

    /// Every task that has ended, and how it went.
    async fn ended(&self) -> Result<BTreeMap<TaskId, Ended>> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT
                id, project, since, iterations, spent_usd::text AS "spent_usd!",
                (SELECT outcome FROM iterations
                 WHERE task = tasks.id AND outcome IN ('gates_failed', 'review_failed', 'passed')
                 ORDER BY number LIMIT 1) AS first
             FROM tasks WHERE NOT live"#,
        )
        .fetch_all(&self.lists)
        .await?;
        let read = |row: &Row| -> Result<Ended, Damage> {
            Ok(Ended {
                project: ProjectId(row.project),
                at: row.since,
                iterations: read_number("task", row.iterations.into())?,
                cost: read_word("task", row.spent_usd.clone())?,
                passed_at_once: row.first.as_ref().map(|first| first == "passed"),
            })
        };
        rows.iter()
            .map(|row| Ok((TaskId(row.id), read(row).map_err(|it| it.of(row.id.to_string()))?)))
            .collect()
    }

    /// Which of some tasks there are.
    pub async fn which_tasks(&self, ids: &BTreeSet<TaskId>) -> Result<BTreeSet<TaskId>> {
        let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
        let found = sqlx::query_scalar!("SELECT id FROM tasks WHERE id = ANY($1)", &ids)
            .fetch_all(&self.lists)
            .await?;
        Ok(found.into_iter().map(TaskId).collect())
    }
}

fn follow(
    scope: Scope,
    since: Option<Timestamp>,
    met: &[Met],
    ended: &BTreeMap<TaskId, Ended>,
) -> Followed {
    let count = |met: usize| u32::try_from(met).unwrap_or(u32::MAX);
    let mut followed = Followed {
        since,
        matched: count(met.len()),
        stopped: count(met.iter().filter(|met| met.stopped).count()),
        last_matched: met.iter().map(|met| met.at).max(),
        ..Followed::default()
    };
    let told: BTreeSet<_> = met.iter().filter(|met| met.told).map(|met| met.task).collect();
    let counts =
        |task: &&Ended| scope.covers(task.project) && since.is_some_and(|since| since <= task.at);
    for (id, task) in ended.iter().filter(|(_, task)| counts(task)) {
        followed.tasks += 1;
        let side = if told.contains(id) { &mut followed.with } else { &mut followed.without };
        side.add(task);
    }
    followed
}
