//! Lessons: what tasks propose to the knowledge base, and what came of it.
//!
//! Everything that a task proposes waits for a person. What says nearly the same as an entry that is
//! there, whatever its status, only adds its evidence. Tasks that end at the same time wait for each
//! other here, so that two of them do not propose the same.

use sqlx::types::Json;
use tamma_core::ids::{Digest, KnowledgeId, ProjectId, Reference, TaskId};
use tamma_core::knowledge::{Entry, hazards};
use tamma_core::learning::{Evidence, Lesson, Merge, Sighting, Trouble, merge};
use tamma_core::review::patterns;

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::knowledge::{Deed, change, fingerprint, project};
use crate::spelling::{json, read, word};

/// How much evidence an entry gathers. What was seen a hundred times is believed.
const EVIDENCE: usize = 100;

/// What became of a lesson.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposed {
    /// The entry that has it now.
    pub entry: KnowledgeId,
    /// Whether it is a new one.
    pub new: bool,
}

/// A fault that several tasks have had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recurring {
    /// What.
    pub fault: String,
    /// Whether the review found it in the code.
    pub in_code: bool,
    /// Which tasks, and where that can be looked up; the oldest first.
    pub sightings: Vec<Sighting>,
}

impl Store {
    /// Proposes lessons, each under the identity that it has if it is new. Proposing them again changes
    /// nothing. What looks like a secret is taken out before anything is kept.
    pub async fn propose(
        &self,
        of: ProjectId,
        lessons: Vec<(KnowledgeId, Lesson)>,
    ) -> Result<Vec<Proposed>> {
        if lessons.is_empty() {
            return Ok(Vec::new());
        }
        let mut writing = self.steps.begin().await?;
        // Until the end of the transaction nobody else proposes for this project.
        let (lock, _) = of.0.as_u64_pair();
        sqlx::query!("SELECT pg_advisory_xact_lock($1)", lock.cast_signed())
            .execute(&mut *writing)
            .await?;
        let rows = sqlx::query_scalar!(
            "SELECT entry FROM knowledge WHERE project = $1 OR project IS NULL
             ORDER BY created_at, id",
            of.0
        )
        .fetch_all(&mut *writing)
        .await?;
        let known: std::result::Result<Vec<Entry>, Damage> =
            rows.into_iter().map(|row| read("entry", row)).collect();
        let (mut known, mut proposed) = (known?, Vec::new());
        for (id, lesson) in lessons {
            let (lesson, secrets) = lesson.without_secrets();
            let reason = reason(&lesson, &secrets);
            match merge(&known, &lesson) {
                Merge::Duplicate { of, evidence } => {
                    let entry = known.iter_mut().find(|entry| entry.id == of);
                    if let Some(entry) = entry {
                        add_evidence(&mut writing, entry, evidence, &reason).await?;
                    }
                    proposed.push(Proposed { entry: of, new: false });
                }
                Merge::New => {
                    let entry = lesson.into_entry(id);
                    insert(&mut writing, &entry, &reason).await?;
                    proposed.push(Proposed { entry: id, new: true });
                    known.push(entry);
                }
            }
        }
        writing.commit().await?;
        Ok(proposed)
    }

    /// Notes what stood against the changes of a task, and returns what of it as many tasks have had.
    pub async fn sight(
        &self,
        (of, task): (ProjectId, TaskId),
        troubles: &[Trouble],
        tasks: usize,
    ) -> Result<Vec<Recurring>> {
        let mut digests = Vec::new();
        for trouble in troubles {
            let (fault, _) = patterns::redacted(&trouble.fault);
            let digest = Digest::of(fault.as_bytes()).to_string();
            sqlx::query!(
                "INSERT INTO faults (project, digest, task, fault, in_code, evidence)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
                of.0,
                digest,
                task.0,
                fault,
                trouble.in_code,
                json(&trouble.evidence),
            )
            .execute(&self.steps)
            .await?;
            digests.push(digest);
        }
        let rows = sqlx::query!(
            "SELECT digest, task, fault, in_code, evidence FROM faults
             WHERE project = $1 AND digest = ANY($2) ORDER BY digest, at, task",
            of.0,
            &digests,
        )
        .fetch_all(&self.steps)
        .await?;
        let mut all: Vec<Recurring> = Vec::new();
        for row in rows {
            let evidence: Vec<Reference> = read("fault", row.evidence)?;
            let sighting = Sighting { task: TaskId(row.task), evidence };
            match all.last_mut().filter(|last| last.fault == row.fault) {
                Some(last) => last.sightings.push(sighting),
                None => all.push(Recurring {
                    fault: row.fault,
                    in_code: row.in_code,
                    sightings: vec![sighting],
                }),
            }
        }
        all.retain(|one| one.sightings.len() >= tasks);
        Ok(all)
    }

    /// Whether what an entry is based on can still be looked up here.
    pub async fn resolves(&self, evidence: Evidence) -> Result<bool> {
        let found = match evidence {
            Evidence::Event(task, number) => sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM entries WHERE task = $1 AND sequence = $2) AS "it!""#,
                task.0,
                i64::try_from(number).unwrap_or(i64::MAX),
            )
            .fetch_one(&self.lists)
            .await?,
            Evidence::Plan(task, version) => sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM plans WHERE task = $1 AND version = $2) AS "it!""#,
                task.0,
                i32::try_from(version).unwrap_or(i32::MAX),
            )
            .fetch_one(&self.lists)
            .await?,
            Evidence::Check(task, ticket) => sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM checks WHERE task = $1 AND ticket = $2) AS "it!""#,
                task.0,
                i64::from(ticket),
            )
            .fetch_one(&self.lists)
            .await?,
            Evidence::Commit(task, commit) => {
                sqlx::query_scalar!(
                    r#"SELECT EXISTS (
                        SELECT FROM iterations WHERE task = $1 AND commit = $2
                     ) AS "it!""#,
                    task.0,
                    commit.to_string(),
                )
                .fetch_one(&self.lists)
                .await?
            }
        };
        Ok(found)
    }
}

/// What whoever decides about it is told of how it came.
fn reason(lesson: &Lesson, secrets: &[&str]) -> String {
    let mut reason = lesson.note.clone();
    let mut say = |text: &str| {
        if !reason.is_empty() {
            reason.push_str("; ");
        }
        reason.push_str(text);
    };
    for secret in secrets {
        say(&format!("what looked like {secret} was taken out of it"));
    }
    for hazard in hazards(&lesson.clone().into_entry(KnowledgeId(uuid::Uuid::nil()))) {
        say(&format!("look twice: {hazard}"));
    }
    reason
}

async fn insert(writing: &mut sqlx::PgConnection, entry: &Entry, reason: &str) -> Result<()> {
    let inserted = sqlx::query!(
        "INSERT INTO knowledge (id, project, kind, status, fingerprint, entry)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        entry.id.0,
        project(entry),
        word(&entry.kind),
        word(&entry.status),
        fingerprint(entry),
        json(entry),
    )
    .execute(&mut *writing)
    .await?;
    // One that is there and says something else now was changed by a person: it stays as it is.
    if inserted.rows_affected() > 0 {
        change(writing, entry, Deed::Proposed, None, Some(reason)).await?;
    }
    Ok(())
}

async fn add_evidence(
    writing: &mut sqlx::PgConnection,
    entry: &mut Entry,
    evidence: Vec<Reference>,
    reason: &str,
) -> Result<()> {
    let room = EVIDENCE.saturating_sub(entry.evidence.len());
    if evidence.is_empty() || room == 0 {
        return Ok(());
    }
    entry.evidence.extend(evidence.into_iter().take(room));
    sqlx::query!(
        "UPDATE knowledge SET entry = $2, revision = nextval('knowledge_revisions'),
            updated_at = clock_timestamp()
         WHERE id = $1",
        entry.id.0,
        Json(json(entry)) as _,
    )
    .execute(&mut *writing)
    .await?;
    change(writing, entry, Deed::Merged, None, Some(reason)).await
}
