//! Effect of knowledge entries: tasks that an entry matched, compared with the others.

use std::collections::{BTreeMap, BTreeSet};

use tamma_core::cost::Usd;
use tamma_core::ids::{KnowledgeId, ProjectId, TaskId};
use tamma_core::knowledge::EntryScope;
use tamma_core::learning::{self, LessonEffect, ReviewOutcomes};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_number, read_word};
use crate::error::{CorruptData, Result};
use crate::knowledge::StoredEntry;

/// Totals of tasks that reached a review.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskTally {
    /// Number of tasks, and how many passed their first review.
    pub outcomes: ReviewOutcomes,
    /// Iterations of all tasks together.
    pub iterations: u64,
    /// Cost of all tasks together.
    pub cost: Usd,
}

impl TaskTally {
    fn add(&mut self, ended: &EndedTask) {
        let Some(passed) = ended.passed_first_review else { return };
        self.outcomes.tasks += 1;
        self.outcomes.first_pass += u32::from(passed);
        self.iterations += u64::from(ended.iterations);
        self.cost += ended.cost;
    }
}

/// Effect of an entry since its latest approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryEffect {
    /// Time of the latest approval; `None` if the entry was never approved.
    pub since: Option<Timestamp>,
    /// Number of tasks in its scope that ended since then.
    pub tasks: u32,
    /// Number of tasks that it ever matched, ended or not.
    pub matched: u32,
    /// Number of matched tasks that it blocked until a person decided.
    pub stopped: u32,
    /// Time of the latest match.
    pub last_matched: Option<Timestamp>,
    /// Tasks whose agents were shown the entry.
    pub with_entry: TaskTally,
    /// Other tasks in its scope.
    pub without_entry: TaskTally,
}

impl EntryEffect {
    /// Compares the tasks with the entry to those without it.
    pub fn effect(&self) -> LessonEffect {
        learning::measure_effect(self.with_entry.outcomes, self.without_entry.outcomes)
    }
}

/// Task that has ended.
struct EndedTask {
    project: ProjectId,
    at: Timestamp,
    iterations: u32,
    cost: Usd,
    /// `None` if no change of the task was ever reviewed.
    passed_first_review: Option<bool>,
}

struct Row {
    id: uuid::Uuid,
    project: uuid::Uuid,
    since: Timestamp,
    iterations: i32,
    spent_usd: String,
    first: Option<String>,
}

/// Match of an entry with a task.
struct TaskMatch {
    task: TaskId,
    shown: bool,
    stopped: bool,
    at: Timestamp,
}

impl Store {
    /// Returns the effect of each entry, in the given order.
    pub async fn entry_effects(&self, entries: &[StoredEntry]) -> Result<Vec<EntryEffect>> {
        let ids: Vec<_> = entries.iter().map(|stored| stored.entry.id.0).collect();
        let since = self.in_force_since(&ids).await?;
        let matches = self.matches_by_entry(&ids).await?;
        let ended = self.ended_tasks().await?;
        let effect = |stored: &StoredEntry| {
            let id = stored.entry.id;
            let matches = matches.get(&id).map(Vec::as_slice).unwrap_or_default();
            measure_effect(stored.entry.scope, since.get(&id).copied(), matches, &ended)
        };
        Ok(entries.iter().map(effect).collect())
    }

    /// Returns the time of the latest approval, by entry.
    async fn in_force_since(&self, ids: &[uuid::Uuid]) -> Result<BTreeMap<KnowledgeId, Timestamp>> {
        // Added evidence does not change the content that people approved.
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

    /// Returns the tasks that each entry matched.
    async fn matches_by_entry(
        &self,
        ids: &[uuid::Uuid],
    ) -> Result<BTreeMap<KnowledgeId, Vec<TaskMatch>>> {
        let rows = sqlx::query!(
            r#"SELECT
                entry, task, bool_or(shown) AS "told!", bool_or(role = 'blocker') AS "stopped!",
                max(at) AS "at!"
             FROM knowledge_matches
             WHERE entry = ANY($1) AND ($2::bool OR project = ANY($3::uuid []))
             GROUP BY entry, task"#,
            ids,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let mut all: BTreeMap<KnowledgeId, Vec<TaskMatch>> = BTreeMap::new();
        for row in rows {
            let task_match = TaskMatch {
                task: TaskId(row.task),
                shown: row.told,
                stopped: row.stopped,
                at: row.at,
            };
            all.entry(KnowledgeId(row.entry)).or_default().push(task_match);
        }
        Ok(all)
    }

    /// Returns every ended task with its outcome.
    async fn ended_tasks(&self) -> Result<BTreeMap<TaskId, EndedTask>> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT
                id, project, since, iterations, spent_usd::text AS "spent_usd!",
                (SELECT outcome FROM iterations
                 WHERE task = tasks.id
                     AND outcome IN ('gates_failed', 'review_failed', 'changes_requested', 'passed')
                 ORDER BY number LIMIT 1) AS first
             FROM tasks WHERE NOT live AND ($1::bool OR project = ANY($2::uuid []))"#,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let read = |row: &Row| -> Result<EndedTask, CorruptData> {
            Ok(EndedTask {
                project: ProjectId(row.project),
                at: row.since,
                iterations: read_number("task", row.iterations.into())?,
                cost: read_word("task", row.spent_usd.clone())?,
                passed_first_review: row.first.as_ref().map(|first| first == "passed"),
            })
        };
        rows.iter()
            .map(|row| {
                Ok((TaskId(row.id), read(row).map_err(|it| it.with_key(row.id.to_string()))?))
            })
            .collect()
    }

    /// Returns the IDs from `ids` that belong to existing tasks.
    pub async fn existing_tasks(&self, ids: &BTreeSet<TaskId>) -> Result<BTreeSet<TaskId>> {
        let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
        let existing = sqlx::query_scalar!("SELECT id FROM tasks WHERE id = ANY($1)", &ids)
            .fetch_all(&self.lists)
            .await?;
        Ok(existing.into_iter().map(TaskId).collect())
    }
}

fn measure_effect(
    scope: EntryScope,
    since: Option<Timestamp>,
    matches: &[TaskMatch],
    ended: &BTreeMap<TaskId, EndedTask>,
) -> EntryEffect {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mut effect = EntryEffect {
        since,
        matched: count(matches.len()),
        stopped: count(matches.iter().filter(|task_match| task_match.stopped).count()),
        last_matched: matches.iter().map(|task_match| task_match.at).max(),
        ..EntryEffect::default()
    };
    let shown: BTreeSet<_> = matches
        .iter()
        .filter(|task_match| task_match.shown)
        .map(|task_match| task_match.task)
        .collect();
    let counts = |task: &&EndedTask| {
        scope.covers(task.project) && since.is_some_and(|since| since <= task.at)
    };
    for (id, task) in ended.iter().filter(|(_, task)| counts(task)) {
        effect.tasks += 1;
        let side =
            if shown.contains(id) { &mut effect.with_entry } else { &mut effect.without_entry };
        side.add(task);
    }
    effect
}
