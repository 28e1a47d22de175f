//! What the team knows: entries with their history, and which of them met which task.

use sqlx::types::Json;
use tamma_core::ids::{KnowledgeId, PlanHash, ProjectId, TaskId};
use tamma_core::knowledge::{Entry, Findings, Kind, Match, Scope, Status};
use tamma_core::learning;
use tamma_core::task_loop::{State, Timestamp};
use uuid::Uuid;

use crate::connection::Store;
use crate::error::{Conflict, Damage, Error, Result};
use crate::spelling::{json, read, read_number, read_word, word};

/// An entry, and when it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The entry.
    pub entry: Entry,
    /// Its newest change. Whoever changes it names the one that they have seen.
    pub revision: u64,
    /// When it came in.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// What was done to an entry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Deed {
    /// A person wrote it.
    Added,
    /// It was read from a file.
    Imported,
    /// A task proposed it.
    Proposed,
    /// Another task proposed the same, and its evidence was added.
    Merged,
    /// A person changed what it says.
    Edited,
    /// A person approved it.
    Approved,
    /// A person turned it down.
    Rejected,
    /// A person took it out of force.
    Retired,
    /// A person took up again what was turned down or retired.
    Reopened,
}

/// One change of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeChange {
    /// When.
    pub at: Timestamp,
    /// Who; nobody, where a task proposed it.
    pub by: Option<String>,
    /// What.
    pub deed: Deed,
    /// Why.
    pub reason: Option<String>,
    /// The entry as it was afterwards.
    pub then: Entry,
}

/// Which entries are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnowledgeFilter {
    /// Those that reach this project; of all projects where none is named.
    pub project: Option<ProjectId>,
    /// Of this kind only.
    pub kind: Option<Kind>,
    /// Of this status only.
    pub status: Option<Status>,
}

struct Row {
    id: Uuid,
    entry: serde_json::Value,
    revision: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// As what an entry matched.
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
    /// A critical prohibition.
    Blocker,
    /// Another prohibition, or something that cannot be decided.
    Warning,
    /// A recommendation.
    Recommendation,
    /// A convention.
    Convention,
    /// A learning.
    Learning,
}

/// An entry that a plan was held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// As what.
    pub role: MatchRole,
    /// The entry, and why.
    pub matched: Match,
    /// Whether the agents were told.
    pub shown: bool,
}

/// A task that an entry met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    /// The task.
    pub task: TaskId,
    /// Its title.
    pub title: String,
    /// Where it is now.
    pub state: State,
    /// What the entry was for its plan.
    pub role: MatchRole,
    /// When it matched.
    pub at: Timestamp,
}

impl Store {
    /// Adds an entry. One with the same id must not be there.
    pub async fn add_knowledge(
        &self,
        entry: &Entry,
        deed: Deed,
        by: Option<&str>,
        reason: Option<&str>,
    ) -> Result<Known> {
        let mut writing = self.steps.begin().await?;
        let row = sqlx::query_as!(
            Row,
            "INSERT INTO knowledge (id, project, kind, status, fingerprint, entry)
             VALUES ($1, $2, $3, $4, $5, $6)
             RETURNING id, entry, revision, created_at, updated_at",
            entry.id.0,
            project(entry),
            word(&entry.kind),
            word(&entry.status),
            fingerprint(entry),
            json(entry),
        )
        .fetch_one(&mut *writing)
        .await?;
        change(&mut writing, entry, deed, by, reason).await?;
        writing.commit().await?;
        known(row)
    }

    /// Changes an entry that nobody has changed since `seen`.
    pub async fn change_knowledge(
        &self,
        entry: &Entry,
        seen: u64,
        deed: Deed,
        by: Option<&str>,
        reason: Option<&str>,
    ) -> Result<Known> {
        let mut writing = self.steps.begin().await?;
        let row = sqlx::query_as!(
            Row,
            "UPDATE knowledge SET
                project = $2, kind = $3, status = $4, fingerprint = $5, entry = $6,
                revision = nextval('knowledge_revisions'), updated_at = clock_timestamp()
             WHERE id = $1 AND revision = $7
             RETURNING id, entry, revision, created_at, updated_at",
            entry.id.0,
            project(entry),
            word(&entry.kind),
            word(&entry.status),
            fingerprint(entry),
            json(entry),
            i64::try_from(seen).unwrap_or(i64::MAX),
        )
        .fetch_optional(&mut *writing)
        .await?;
        let Some(row) = row else {
            // Either it is not there, or it is no longer what was seen.
            self.knowledge(entry.id).await?;
            return Err(Conflict::KnowledgeChanged { entry: entry.id }.into());
        };
        change(&mut writing, entry, deed, by, reason).await?;
        writing.commit().await?;
        known(row)
    }

    /// One entry.
    pub async fn knowledge(&self, id: KnowledgeId) -> Result<Known> {
        let row = sqlx::query_as!(
            Row,
            "SELECT id, entry, revision, created_at, updated_at FROM knowledge WHERE id = $1",
            id.0
        )
        .fetch_optional(&self.lists)
        .await?;
        known(row.ok_or_else(|| Error::NotFound { what: "entry", key: id.to_string() })?)
    }

    /// Several entries by their ids. One that is not there is left out.
    pub async fn knowledge_of(&self, ids: &[KnowledgeId]) -> Result<Vec<Known>> {
        let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
        let rows = sqlx::query_as!(
            Row,
            "SELECT id, entry, revision, created_at, updated_at FROM knowledge WHERE id = ANY($1)",
            &ids
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter().map(known).collect()
    }

    /// Which entries have an id that begins or ends with some digits, or whose last eight, by which people
    /// call them, begin with them; up to a few.
    pub async fn knowledge_like(&self, digits: &str) -> Result<Vec<KnowledgeId>> {
        let found = sqlx::query_scalar!(
            "SELECT id FROM knowledge
             WHERE starts_with(replace(id::text, '-', ''), $1)
                OR right(replace(id::text, '-', ''), length($1)) = $1
                OR starts_with(right(id::text, 8), $1)
             ORDER BY id LIMIT 9",
            digits
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(found.into_iter().map(KnowledgeId).collect())
    }

    /// The entries that a filter lets through, the oldest first.
    pub async fn all_knowledge(&self, filter: &KnowledgeFilter) -> Result<Vec<Known>> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT id, entry, revision, created_at, updated_at FROM knowledge
             WHERE ($1::uuid IS NULL OR project = $1 OR project IS NULL)
                AND ($2::text IS NULL OR kind = $2)
                AND ($3::text IS NULL OR status = $3)
             ORDER BY created_at, id",
            filter.project.map(|project| project.0),
            filter.kind.as_ref().map(word),
            filter.status.as_ref().map(word),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter().map(known).collect()
    }

    /// What changes whenever an entry that reaches a project does.
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

    /// How an entry came to be what it is, the oldest change first.
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
                    deed: read_word(what, row.what)?,
                    reason: row.reason,
                    then: read(what, row.entry_then)?,
                })
            })
            .collect::<Result<_, Damage>>()
            .map_err(|damage| damage.of(id.to_string()).into())
    }

    /// Keeps which entries a plan was held against. Those of the same plan are replaced. `shown` are
    /// those that its agents are told.
    pub async fn keep_matches(
        &self,
        (task, project): (TaskId, ProjectId),
        plan: PlanHash,
        found: &Findings,
        shown: &[KnowledgeId],
    ) -> Result<()> {
        let plan = plan.to_string();
        let lists = [
            (MatchRole::Blocker, &found.blockers),
            (MatchRole::Warning, &found.warnings),
            (MatchRole::Recommendation, &found.recommendations),
            (MatchRole::Convention, &found.conventions),
            (MatchRole::Learning, &found.learnings),
        ];
        let all: Vec<_> = lists
            .into_iter()
            .flat_map(|(role, list)| list.iter().map(move |found| (role, found)))
            .collect();
        let entries: Vec<Uuid> = all.iter().map(|(_, it)| it.entry.0).collect();
        let roles: Vec<String> = all.iter().map(|(role, _)| word(role)).collect();
        let relevances: Vec<i32> = all.iter().map(|(_, it)| i32::from(it.relevance)).collect();
        let reasons: Vec<serde_json::Value> = all.iter().map(|(_, it)| json(&it.reasons)).collect();
        let told: Vec<bool> = all.iter().map(|(_, it)| shown.contains(&it.entry)).collect();
        let mut writing = self.steps.begin().await?;
        sqlx::query!("DELETE FROM knowledge_matches WHERE task = $1 AND plan = $2", task.0, plan)
            .execute(&mut *writing)
            .await?;
        sqlx::query!(
            "INSERT INTO knowledge_matches
                (task, plan, project, entry, role, relevance, reasons, shown)
             SELECT $1, $2, $3, * FROM unnest($4::uuid[], $5::text[], $6::int[], $7::jsonb[], $8::bool[])",
            task.0,
            plan,
            project.0,
            &entries,
            &roles,
            &relevances,
            &reasons,
            &told,
        )
        .execute(&mut *writing)
        .await?;
        writing.commit().await?;
        Ok(())
    }

    /// The tasks whose plans an entry matched lately, the newest first, each once.
    pub async fn met_lately(&self, entry: KnowledgeId, limit: u32) -> Result<Vec<Met>> {
        let rows = sqlx::query!(
            "SELECT tasks.id, tasks.title, tasks.state, newest.role, newest.at
             FROM (
                SELECT DISTINCT ON (task) task, role, at FROM knowledge_matches
                WHERE entry = $1 ORDER BY task, at DESC
             ) AS newest
             JOIN tasks ON tasks.id = newest.task
             ORDER BY newest.at DESC LIMIT $2",
            entry.0,
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        let met = rows.into_iter().map(|row| {
            Ok(Met {
                task: TaskId(row.id),
                title: row.title,
                state: read_word("state", row.state)?,
                role: read_word("match", row.role)?,
                at: row.at,
            })
        });
        Ok(met.collect::<Result<_, Damage>>()?)
    }

    /// Which entries a plan was held against: blockers first, the most relevant first.
    pub async fn matches(&self, task: TaskId, plan: PlanHash) -> Result<Vec<Matched>> {
        let rows = sqlx::query!(
            "SELECT entry, role, relevance, reasons, shown FROM knowledge_matches
             WHERE task = $1 AND plan = $2",
            task.0,
            plan.to_string(),
        )
        .fetch_all(&self.lists)
        .await?;
        let what = "match";
        let mut all: Vec<Matched> = rows
            .into_iter()
            .map(|row| {
                Ok(Matched {
                    role: read_word(what, row.role)?,
                    matched: Match {
                        entry: KnowledgeId(row.entry),
                        reasons: read(what, row.reasons)?,
                        relevance: read_number(what, row.relevance.into())?,
                    },
                    shown: row.shown,
                })
            })
            .collect::<Result<_, Damage>>()
            .map_err(|damage| damage.of(task.to_string()))?;
        all.sort_by_key(|it| (it.role, std::cmp::Reverse(it.matched.relevance), it.matched.entry));
        Ok(all)
    }
}

pub(crate) async fn change(
    writing: &mut sqlx::PgConnection,
    entry: &Entry,
    deed: Deed,
    by: Option<&str>,
    reason: Option<&str>,
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO knowledge_changes (entry, by, what, reason, entry_then)
         VALUES ($1, $2, $3, $4, $5)",
        entry.id.0,
        by,
        word(&deed),
        reason,
        Json(json(entry)) as _,
    )
    .execute(writing)
    .await?;
    Ok(())
}

pub(crate) fn project(entry: &Entry) -> Option<Uuid> {
    match entry.scope {
        Scope::Project(project) => Some(project.0),
        Scope::Organisation => None,
    }
}

pub(crate) fn fingerprint(entry: &Entry) -> String {
    learning::fingerprint(entry.kind, &entry.text).to_string()
}

fn known(row: Row) -> Result<Known> {
    Ok(Known {
        entry: read("entry", row.entry).map_err(|damage| damage.of(row.id.to_string()))?,
        revision: read_number("entry", row.revision)?,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
