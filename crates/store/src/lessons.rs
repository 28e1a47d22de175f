//! Lessons that tasks propose to the knowledge base.
//!
//! Every proposal waits for a person. A lesson that nearly repeats an existing entry, in any
//! status, only adds its evidence to that entry.
//!
//! Tasks of a project propose one at a time, so that two of them never propose the same lesson.

use sqlx::types::Json;
use tamma_core::ids::{Digest, KnowledgeId, ProjectId, Reference, TaskId};
use tamma_core::knowledge::{KnowledgeEntry, content_warnings};
use tamma_core::learning::{
    FailureOccurrence, Lesson, LessonEvidence, LessonMerge, RecordedFault, merge_lesson,
};
use tamma_core::review::patterns;

use crate::connection::Store;
use crate::encoding::{json, read, word};
use crate::error::{CorruptData, Result};
use crate::knowledge::{KnowledgeAction, fingerprint, project_column, record_change};

/// Upper bound on the evidence of an entry. More adds no confidence.
const MAX_EVIDENCE: usize = 100;

/// Result of proposing a lesson.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposedLesson {
    /// Entry that contains the lesson now.
    pub entry: KnowledgeId,
    /// `true` if the entry was created by this proposal.
    pub is_new: bool,
}

/// Fault that several tasks had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecurringFault {
    /// Description of the fault.
    pub fault: String,
    /// `true` if a review found it in the code.
    pub in_code: bool,
    /// Tasks that had it, with evidence, oldest first.
    pub sightings: Vec<FailureOccurrence>,
}

impl Store {
    /// Proposes lessons. Each uses its given ID if it becomes a new entry.
    ///
    /// Proposing them again changes nothing. Secrets are removed before anything is stored.
    pub async fn propose_lessons(
        &self,
        of: ProjectId,
        lessons: Vec<(KnowledgeId, Lesson)>,
    ) -> Result<Vec<ProposedLesson>> {
        if lessons.is_empty() {
            return Ok(Vec::new());
        }
        let mut writing = self.begin_writing().await?;
        // Serialise proposals per project until the transaction ends.
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
        let entries: std::result::Result<Vec<KnowledgeEntry>, CorruptData> =
            rows.into_iter().map(|row| read("entry", row)).collect();
        let (mut entries, mut proposed) = (entries?, Vec::new());
        for (id, lesson) in lessons {
            let (lesson, secrets) = lesson.without_secrets();
            let reason = proposal_reason(&lesson, &secrets);
            match merge_lesson(&entries, &lesson) {
                LessonMerge::Duplicate { of, evidence } => {
                    let entry = entries.iter_mut().find(|entry| entry.id == of);
                    if let Some(entry) = entry {
                        add_evidence(&mut writing, entry, evidence, &reason).await?;
                    }
                    proposed.push(ProposedLesson { entry: of, is_new: false });
                }
                LessonMerge::New => {
                    let entry = lesson.into_entry(id);
                    insert_entry(&mut writing, &entry, &reason).await?;
                    proposed.push(ProposedLesson { entry: id, is_new: true });
                    entries.push(entry);
                }
            }
        }
        writing.commit().await?;
        Ok(proposed)
    }

    /// Records the faults of a task's changes, and returns those that enough tasks have had.
    pub async fn record_faults(
        &self,
        (of, task): (ProjectId, TaskId),
        faults: &[RecordedFault],
        tasks: usize,
    ) -> Result<Vec<RecurringFault>> {
        if faults.is_empty() {
            return Ok(Vec::new());
        }
        let mut digests = Vec::new();
        for fault_record in faults {
            let (fault, _) = patterns::redact_secrets(&fault_record.fault);
            let digest = Digest::of(fault.as_bytes()).to_string();
            sqlx::query!(
                "INSERT INTO faults (project, digest, task, fault, in_code, evidence)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
                of.0,
                digest,
                task.0,
                fault,
                fault_record.in_code,
                json(&fault_record.evidence),
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
        let mut all: Vec<RecurringFault> = Vec::new();
        for row in rows {
            let evidence: Vec<Reference> = read("fault", row.evidence)?;
            let occurrence = FailureOccurrence { task: TaskId(row.task), evidence };
            match all.last_mut().filter(|last| last.fault == row.fault) {
                Some(last) => last.sightings.push(occurrence),
                None => all.push(RecurringFault {
                    fault: row.fault,
                    in_code: row.in_code,
                    sightings: vec![occurrence],
                }),
            }
        }
        all.retain(|one| one.sightings.len() >= tasks);
        Ok(all)
    }

    /// Returns `true` if the evidence of an entry still exists in this database.
    pub async fn evidence_exists(&self, evidence: LessonEvidence) -> Result<bool> {
        let exists = match evidence {
            LessonEvidence::Event(task, number) => sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM entries WHERE task = $1 AND sequence = $2) AS "it!""#,
                task.0,
                i64::try_from(number).unwrap_or(i64::MAX),
            )
            .fetch_one(&self.lists)
            .await?,
            LessonEvidence::Plan(task, version) => sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM plans WHERE task = $1 AND version = $2) AS "it!""#,
                task.0,
                i32::try_from(version).unwrap_or(i32::MAX),
            )
            .fetch_one(&self.lists)
            .await?,
            LessonEvidence::Check(task, job_number) => sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM checks WHERE task = $1 AND ticket = $2) AS "it!""#,
                task.0,
                i64::from(job_number),
            )
            .fetch_one(&self.lists)
            .await?,
            LessonEvidence::Commit(task, commit) => {
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
        Ok(exists)
    }
}

/// Builds the reason shown to the person who decides about the proposal.
fn proposal_reason(lesson: &Lesson, secrets: &[&str]) -> String {
    let mut reason = lesson.note.clone();
    let mut append = |text: &str| {
        if !reason.is_empty() {
            reason.push_str("; ");
        }
        reason.push_str(text);
    };
    for secret in secrets {
        append(&format!("removed {secret} from the text"));
    }
    for warning in content_warnings(&lesson.clone().into_entry(KnowledgeId(uuid::Uuid::nil()))) {
        append(&format!("warning: {warning}"));
    }
    reason
}

async fn insert_entry(
    writing: &mut sqlx::PgConnection,
    entry: &KnowledgeEntry,
    reason: &str,
) -> Result<()> {
    let inserted = sqlx::query!(
        "INSERT INTO knowledge (id, project, kind, status, fingerprint, entry)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        entry.id.0,
        project_column(entry),
        word(&entry.kind),
        word(&entry.status),
        fingerprint(entry),
        json(entry),
    )
    .execute(&mut *writing)
    .await?;
    // An existing entry with other content was edited by a person, so it is left unchanged.
    if inserted.rows_affected() > 0 {
        record_change(writing, entry, KnowledgeAction::Proposed, None, Some(reason)).await?;
    }
    Ok(())
}

async fn add_evidence(
    writing: &mut sqlx::PgConnection,
    entry: &mut KnowledgeEntry,
    evidence: Vec<Reference>,
    reason: &str,
) -> Result<()> {
    let room = MAX_EVIDENCE.saturating_sub(entry.evidence.len());
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
    record_change(writing, entry, KnowledgeAction::Merged, None, Some(reason)).await
}
