//! Knowledge entries, their changes, and their matches with plans.

use sqlx::types::Json;
use tamma_core::ids::{KnowledgeId, PlanHash, ProjectId, TaskId};
use tamma_core::knowledge::{
    EntryKind, EntryMatch, EntryScope, EntryStatus, KnowledgeEntry, KnowledgeFindings,
};
use tamma_core::learning;
use tamma_core::task_loop::{State, Timestamp};
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::{json, read, read_number, read_word, word};
use crate::error::{Conflict, CorruptData, Error, Result};

/// Knowledge entry with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Current content.
    pub entry: KnowledgeEntry,
    /// Number of its latest change. A writer names the revision it has read.
    pub revision: u64,
    /// Time at which it was added.
    pub created_at: Timestamp,
    /// Time of the latest change.
    pub updated_at: Timestamp,
}

/// Kind of a change to an entry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum KnowledgeAction {
    /// Written by a person.
    Added,
    /// Read from a file.
    Imported,
    /// Proposed by a task.
    Proposed,
    /// Evidence added, because another task proposed the same.
    Merged,
    /// Content changed by a person.
    Edited,
    /// Approved by a person.
    Approved,
    /// Rejected by a person.
    Rejected,
    /// Taken out of force by a person.
    Retired,
    /// Reopened by a person after rejection or retirement.
    Reopened,
}

/// One change of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeChange {
    /// Time of the change.
    pub at: Timestamp,
    /// Author; `None` for a task's proposal.
    pub by: Option<String>,
    /// Kind of the change.
    pub action: KnowledgeAction,
    /// Reason, if one was given.
    pub reason: Option<String>,
    /// Entry after the change.
    pub entry_after: KnowledgeEntry,
}

/// Filter of knowledge entries. Empty fields match every entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnowledgeFilter {
    /// Project that the entries apply to.
    pub project: Option<ProjectId>,
    /// Kind of entry.
    pub kind: Option<EntryKind>,
    /// Status of the entries.
    pub status: Option<EntryStatus>,
}

struct Row {
    id: Uuid,
    entry: serde_json::Value,
    revision: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// Role of an entry in the check of a plan.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MatchRole {
    /// Critical prohibition.
    Blocker,
    /// Other prohibition, or one that could not be decided.
    Warning,
    /// Recommendation.
    Recommendation,
    /// Convention.
    Convention,
    /// Lesson.
    Learning,
}

/// Match of an entry with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanMatch {
    /// Role of the entry.
    pub role: MatchRole,
    /// Entry and the reasons for the match.
    pub matched: EntryMatch,
    /// `true` if agents were shown the entry.
    pub shown: bool,
}

/// Task whose plan an entry matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedTask {
    /// ID of the task.
    pub task: TaskId,
    /// Title of the task.
    pub title: String,
    /// Current state of the task.
    pub state: State,
    /// Role of the entry in the check.
    pub role: MatchRole,
    /// Time of the match.
    pub at: Timestamp,
}

impl Store {
    /// Adds an entry. Its ID must be new.
    pub async fn add_knowledge(
        &self,
        entry: &KnowledgeEntry,
        action: KnowledgeAction,
        by: Option<&str>,
        reason: Option<&str>,
    ) -> Result<StoredEntry> {
        let mut writing = self.begin_writing().await?;
        let row = sqlx::query_as!(
            Row,
            "INSERT INTO knowledge (id, project, kind, status, fingerprint, entry)
             VALUES ($1, $2, $3, $4, $5, $6)
             RETURNING id, entry, revision, created_at, updated_at",
            entry.id.0,
            project_column(entry),
            word(&entry.kind),
            word(&entry.status),
            fingerprint(entry),
            json(entry),
        )
        .fetch_one(&mut *writing)
        .await?;
        record_change(&mut writing, entry, action, by, reason).await?;
        writing.commit().await?;
        stored_entry(row)
    }

    /// Changes an entry, unless it has changed since revision `seen`.
    pub async fn change_knowledge(
        &self,
        entry: &KnowledgeEntry,
        seen: u64,
        action: KnowledgeAction,
        by: Option<&str>,
        reason: Option<&str>,
    ) -> Result<StoredEntry> {
        let mut writing = self.begin_writing().await?;
        let row = sqlx::query_as!(
            Row,
            "UPDATE knowledge SET
                project = $2, kind = $3, status = $4, fingerprint = $5, entry = $6,
                revision = nextval('knowledge_revisions'), updated_at = clock_timestamp()
             WHERE id = $1 AND revision = $7
             RETURNING id, entry, revision, created_at, updated_at",
            entry.id.0,
            project_column(entry),
            word(&entry.kind),
            word(&entry.status),
            fingerprint(entry),
            json(entry),
            i64::try_from(seen).unwrap_or(i64::MAX),
        )
        .fetch_optional(&mut *writing)
        .await?;
        let Some(row) = row else {
            // Tell a missing entry from a changed one.
            self.knowledge_entry(entry.id).await?;
            return Err(Conflict::KnowledgeChanged { entry: entry.id }.into());
        };
        record_change(&mut writing, entry, action, by, reason).await?;
        writing.commit().await?;
        stored_entry(row)
    }

    /// Returns an entry by its ID.
    pub async fn knowledge_entry(&self, id: KnowledgeId) -> Result<StoredEntry> {
        let row = sqlx::query_as!(
            Row,
            "SELECT id, entry, revision, created_at, updated_at FROM knowledge WHERE id = $1",
            id.0
        )
        .fetch_optional(&self.lists)
        .await?;
        let missing = || Error::NotFound { what: "entry", key: id.to_string() };
        let stored = stored_entry(row.ok_or_else(missing)?)?;
        if self.can_read_entry(stored.entry.scope) { Ok(stored) } else { Err(missing()) }
    }

    /// Returns several entries by their IDs. Unknown IDs are skipped.
    pub async fn knowledge_by_ids(&self, ids: &[KnowledgeId]) -> Result<Vec<StoredEntry>> {
        let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
        let rows = sqlx::query_as!(
            Row,
            "SELECT id, entry, revision, created_at, updated_at FROM knowledge WHERE id = ANY($1)",
            &ids
        )
        .fetch_all(&self.lists)
        .await?;
        let entries = rows.into_iter().map(stored_entry);
        let readable = |stored: &StoredEntry| self.can_read_entry(stored.entry.scope);
        entries.filter(|stored| stored.as_ref().map_or(true, readable)).collect()
    }

    /// Returns a few IDs that start or end with `digits`, or whose last eight digits start with
    /// them.
    ///
    /// The last eight digits are the short form that people use.
    pub async fn find_knowledge_ids(&self, digits: &str) -> Result<Vec<KnowledgeId>> {
        let ids = sqlx::query_scalar!(
            "SELECT id FROM knowledge
             WHERE (starts_with(replace(id::text, '-', ''), $1)
                OR right(replace(id::text, '-', ''), length($1)) = $1
                OR starts_with(right(id::text, 8), $1))
                AND ($2::bool OR project = ANY($3::uuid [])
                    OR (project IS NULL AND cardinality($3::uuid []) > 0))
             ORDER BY id LIMIT 9",
            digits,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(ids.into_iter().map(KnowledgeId).collect())
    }

    /// Returns the entries that match a filter, oldest first.
    pub async fn list_knowledge(&self, filter: &KnowledgeFilter) -> Result<Vec<StoredEntry>> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT id, entry, revision, created_at, updated_at FROM knowledge
             WHERE ($1::uuid IS NULL OR project = $1 OR project IS NULL)
                AND ($2::text IS NULL OR kind = $2)
                AND ($3::text IS NULL OR status = $3)
                AND ($4::bool OR project = ANY($5::uuid [])
                    OR (project IS NULL AND cardinality($5::uuid []) > 0))
             ORDER BY created_at, id",
            filter.project.map(|project| project.0),
            filter.kind.as_ref().map(word),
            filter.status.as_ref().map(word),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter().map(stored_entry).collect()
    }

    /// Returns a number that changes with every entry that applies to a project.
    pub async fn knowledge_revision(&self, project: ProjectId) -> Result<u64> {
        let newest = sqlx::query_scalar!(
            r#"SELECT greatest(
                (SELECT max(revision) FROM knowledge WHERE project = $1),
                (SELECT max(revision) FROM knowledge WHERE project IS NULL),
                0
             ) AS "newest!""#,
            project.0
        )
        .fetch_one(&self.lists)
        .await?;
        Ok(newest.unsigned_abs())
    }

    /// Returns the changes of an entry, oldest first.
    pub async fn knowledge_changes(&self, id: KnowledgeId) -> Result<Vec<KnowledgeChange>> {
        let rows = sqlx::query!(
            "SELECT at, by, what, reason, entry_then FROM knowledge_changes
             WHERE entry = $1 ORDER BY id",
            id.0
        )
        .fetch_all(&self.lists)
        .await?;
        let what = "change of an entry";
        rows.into_iter()
            .map(|row| {
                Ok(KnowledgeChange {
                    at: row.at,
                    by: row.by,
                    action: read_word(what, row.what)?,
                    reason: row.reason,
                    entry_after: read(what, row.entry_then)?,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(id.to_string()).into())
    }

    /// Saves the matches of a plan and replaces earlier ones. `shown` are the entries that its
    /// agents see.
    pub async fn save_matches(
        &self,
        (task, project): (TaskId, ProjectId),
        plan: PlanHash,
        findings: &KnowledgeFindings,
        shown: &[KnowledgeId],
    ) -> Result<()> {
        let plan = plan.to_string();
        let lists = [
            (MatchRole::Blocker, &findings.blockers),
            (MatchRole::Warning, &findings.warnings),
            (MatchRole::Recommendation, &findings.recommendations),
            (MatchRole::Convention, &findings.conventions),
            (MatchRole::Learning, &findings.learnings),
        ];
        let all: Vec<_> = lists
            .into_iter()
            .flat_map(|(role, list)| list.iter().map(move |entry_match| (role, entry_match)))
            .collect();
        let entries: Vec<Uuid> = all.iter().map(|(_, it)| it.entry.0).collect();
        let roles: Vec<String> = all.iter().map(|(role, _)| word(role)).collect();
        let relevances: Vec<i32> = all.iter().map(|(_, it)| i32::from(it.relevance)).collect();
        let reasons: Vec<serde_json::Value> = all.iter().map(|(_, it)| json(&it.reasons)).collect();
        let shown_flags: Vec<bool> = all.iter().map(|(_, it)| shown.contains(&it.entry)).collect();
        sqlx::query!(
            "WITH kept AS (
                INSERT INTO knowledge_matches
                    (task, plan, project, entry, role, relevance, reasons, shown)
                SELECT $1::uuid, $2::text, $3::uuid, * FROM unnest(
                    $4::uuid[], $5::text[], $6::int[], $7::jsonb[], $8::bool[]
                )
                ON CONFLICT (task, plan, entry) DO UPDATE SET
                    project = excluded.project, role = excluded.role,
                    relevance = excluded.relevance, reasons = excluded.reasons,
                    shown = excluded.shown, at = clock_timestamp()
             )
             DELETE FROM knowledge_matches
             WHERE task = $1::uuid AND plan = $2::text AND entry <> ALL($4::uuid[])",
            task.0,
            plan,
            project.0,
            &entries,
            &roles,
            &relevances,
            &reasons,
            &shown_flags,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the tasks whose plans an entry matched, each once, latest match first.
    pub async fn recently_matched_tasks(
        &self,
        entry: KnowledgeId,
        limit: u32,
    ) -> Result<Vec<MatchedTask>> {
        let rows = sqlx::query!(
            "SELECT tasks.id, tasks.title, tasks.state, newest.role, newest.at
             FROM (
                SELECT DISTINCT ON (task) task, role, at FROM knowledge_matches
                WHERE entry = $1 ORDER BY task, at DESC
             ) AS newest
             JOIN tasks ON tasks.id = newest.task
             WHERE $3::bool OR tasks.project = ANY($4::uuid [])
             ORDER BY newest.at DESC LIMIT $2",
            entry.0,
            i64::from(limit),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let met = rows.into_iter().map(|row| {
            Ok(MatchedTask {
                task: TaskId(row.id),
                title: row.title,
                state: read_word("state", row.state)?,
                role: read_word("match", row.role)?,
                at: row.at,
            })
        });
        Ok(met.collect::<Result<_, CorruptData>>()?)
    }

    /// Returns the matches of a plan: blockers first, then by relevance.
    pub async fn plan_matches(&self, task: TaskId, plan: PlanHash) -> Result<Vec<PlanMatch>> {
        let rows = sqlx::query!(
            "SELECT entry, role, relevance, reasons, shown FROM knowledge_matches
             WHERE task = $1 AND plan = $2",
            task.0,
            plan.to_string(),
        )
        .fetch_all(&self.lists)
        .await?;
        let what = "match";
        let mut all: Vec<PlanMatch> = rows
            .into_iter()
            .map(|row| {
                Ok(PlanMatch {
                    role: read_word(what, row.role)?,
                    matched: EntryMatch {
                        entry: KnowledgeId(row.entry),
                        reasons: read(what, row.reasons)?,
                        relevance: read_number(what, row.relevance.into())?,
                    },
                    shown: row.shown,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()))?;
        all.sort_by_key(|it| (it.role, std::cmp::Reverse(it.matched.relevance), it.matched.entry));
        Ok(all)
    }
}

pub(crate) async fn record_change(
    writing: &mut sqlx::PgConnection,
    entry: &KnowledgeEntry,
    action: KnowledgeAction,
    by: Option<&str>,
    reason: Option<&str>,
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO knowledge_changes (entry, by, what, reason, entry_then)
         VALUES ($1, $2, $3, $4, $5)",
        entry.id.0,
        by,
        word(&action),
        reason,
        Json(json(entry)) as _,
    )
    .execute(writing)
    .await?;
    Ok(())
}

pub(crate) fn project_column(entry: &KnowledgeEntry) -> Option<Uuid> {
    match entry.scope {
        EntryScope::Project(project) => Some(project.0),
        EntryScope::Organisation => None,
    }
}

pub(crate) fn fingerprint(entry: &KnowledgeEntry) -> String {
    learning::fingerprint(entry.kind, &entry.text).to_string()
}

fn stored_entry(row: Row) -> Result<StoredEntry> {
    Ok(StoredEntry {
        entry: read("entry", row.entry).map_err(|damage| damage.with_key(row.id.to_string()))?,
        revision: read_number("entry", row.revision)?,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
