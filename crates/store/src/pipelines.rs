//! Pipelines of stories: the newest run of each, and the phases of all runs.

use serde::Serialize;
use serde_json::Value;
use tamma_core::cost::{Cost, Usage};
use tamma_core::ids::{CommitId, Name, PipelineId, ProjectId};
use tamma_core::pipeline::{PhaseRecord, PhaseStatus, PipelineRun, PipelineState};
use tamma_core::pipeline_alert::PipelineAlert;
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::{json, read, word};
use crate::error::{CorruptData, Error, Result};
use crate::steps::{WriteOutcome, to_i64};

/// Run of a pipeline to save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineWrite {
    /// Pipeline of the story.
    pub pipeline: PipelineId,
    /// Number of the run, from 1.
    pub number: u32,
    /// Number of events applied to the run.
    pub revision: u64,
    /// Person who started the run.
    pub started_by: Name,
    /// Start of the run.
    pub started_at: Timestamp,
    /// The run.
    pub run: PipelineRun,
    /// Base commit, once it is known.
    pub base: Option<CommitId>,
    /// Folder of the story, once it is known.
    pub story_path: Option<String>,
    /// Delivered branch and commit.
    pub delivered: Option<(String, CommitId)>,
    /// Reason why the branch was not delivered.
    pub delivery_error: Option<String>,
    /// `false` once the run has ended and is delivered.
    pub is_live: bool,
    /// Alert about the state of the run. It is sent once, and settled by the next state.
    pub alert: Option<PipelineAlert>,
    /// Time of the state.
    pub at: Timestamp,
}

/// Pipeline of a story, with its newest run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryPipeline {
    /// ID of the pipeline.
    pub id: PipelineId,
    /// Project of the story.
    pub project: ProjectId,
    /// Folder of the feature.
    pub feature_dir: String,
    /// ID of the story.
    pub story_id: String,
    /// Time of the first request.
    pub created_at: Timestamp,
    /// Number of writes so far.
    pub version: u64,
    /// Number of the newest run; 0 before the first one is saved.
    pub number: u32,
    /// Newest run; `None` before the first one is saved.
    pub run: Option<PipelineRun>,
    /// Person who started the newest run.
    pub started_by: Option<String>,
    /// Start of the newest run.
    pub started_at: Option<Timestamp>,
    /// Last change.
    pub updated_at: Timestamp,
    /// Base commit of the story's branch.
    pub base: Option<CommitId>,
    /// Folder of the story.
    pub story_path: Option<String>,
    /// Delivered branch.
    pub branch: Option<String>,
    /// Delivered commit.
    pub commit: Option<CommitId>,
    /// Reason why the branch was not delivered.
    pub delivery_error: Option<String>,
    /// `true` if a person must decide, or fix what stopped the run.
    pub needs_person: bool,
    /// `false` once the newest run has ended and is delivered.
    pub is_live: bool,
}

/// Phase of a run, as it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPhase {
    /// Number of the run.
    pub run_number: u32,
    /// Number of the phase.
    pub phase: u8,
    /// ID of the phase in its pipeline.
    pub name: String,
    /// Result, as stored.
    pub status: String,
    /// Signal line.
    pub signal: Option<String>,
    /// Reason, if it is not complete.
    pub reason: Option<String>,
    /// End of the phase.
    pub completed_at: Option<Timestamp>,
    /// Tokens used.
    pub tokens: u64,
}

/// Filter of a list of pipelines. Empty fields match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PipelineFilter {
    /// Project of the story.
    pub project: Option<ProjectId>,
    /// Only runs that have not ended, if `true`.
    pub live: bool,
    /// Only runs that need a person, if `true`: at a gate, or stopped by a phase.
    pub needs_person: bool,
}

#[derive(Serialize)]
struct AlertColumns<'a> {
    question: i32,
    #[serde(flatten)]
    alert: &'a PipelineAlert,
    at: Timestamp,
}

/// Returns the number of the question that a state asks. It is the same whenever the state is saved.
fn question_number(run_number: u32, state: &PipelineState) -> Option<i32> {
    let kind = match state {
        PipelineState::AtGate(_) => 0,
        PipelineState::AtSplit(_) => 1,
        PipelineState::Stopped { .. } => 2,
        PipelineState::Ready
        | PipelineState::Running(_)
        | PipelineState::RunningTasks(_)
        | PipelineState::Complete => return None,
    };
    let phase = i32::from(state.phase()?);
    let run = i32::try_from(run_number).unwrap_or(i32::MAX);
    Some(run.saturating_mul(1000).saturating_add(phase * 3 + kind))
}

#[derive(Serialize)]
struct PhaseColumns {
    phase: u8,
    name: String,
    status: PhaseStatus,
    signal: Option<String>,
    reason: Option<String>,
    completed_at: Option<Timestamp>,
    tokens: i64,
}

impl PhaseColumns {
    fn new(run: &PipelineRun, number: u8, record: &PhaseRecord) -> Self {
        Self {
            phase: number,
            name: run.request.phase(number).map(|phase| phase.id.clone()).unwrap_or_default(),
            status: record.status,
            signal: record.signal.clone(),
            reason: record.reason.clone(),
            completed_at: record.completed_at,
            tokens: to_i64(record.work.tokens()),
        }
    }
}

struct Row {
    id: Uuid,
    project: Uuid,
    feature_dir: String,
    story_id: String,
    created_at: Timestamp,
    version: i64,
    run_number: i32,
    run: Option<Value>,
    started_by: Option<String>,
    started_at: Option<Timestamp>,
    updated_at: Timestamp,
    base: Option<String>,
    story_path: Option<String>,
    branch: Option<String>,
    commit: Option<String>,
    delivery_error: Option<String>,
    needs_person: bool,
    live: bool,
}

/// Selects pipelines that match an SQL condition.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                id, project, feature_dir, story_id, created_at, version, run_number, run,
                started_by, started_at, updated_at, base, story_path, branch, commit,
                delivery_error, needs_person, live
             FROM pipelines WHERE " + $rest
            $(, $argument)*
        )
    };
}

impl Store {
    /// Returns the pipeline of a story, and creates it with this ID if there is none.
    pub async fn ensure_pipeline(
        &self,
        id: PipelineId,
        project: ProjectId,
        feature_dir: &str,
        story_id: &str,
    ) -> Result<StoryPipeline> {
        sqlx::query!(
            "INSERT INTO pipelines (id, project, feature_dir, story_id) VALUES ($1, $2, $3, $4)
             ON CONFLICT (project, feature_dir, story_id) DO NOTHING",
            id.0,
            project.0,
            feature_dir,
            story_id,
        )
        .execute(&self.steps)
        .await?;
        let found = self.find_pipeline(project, feature_dir, story_id).await?;
        found.ok_or_else(|| not_found(story_id.to_owned()))
    }

    /// Returns the pipeline of a story, if there is one.
    pub async fn find_pipeline(
        &self,
        project: ProjectId,
        feature_dir: &str,
        story_id: &str,
    ) -> Result<Option<StoryPipeline>> {
        let row = rows!(
            "project = $1 AND feature_dir = $2 AND story_id = $3",
            project.0,
            feature_dir,
            story_id
        );
        let row = row.fetch_optional(&self.reads).await?;
        row.filter(|row| self.can_read(ProjectId(row.project))).map(read_row).transpose()
    }

    /// Returns a pipeline.
    pub async fn pipeline(&self, id: PipelineId) -> Result<StoryPipeline> {
        let row = rows!("id = $1", id.0).fetch_optional(&self.reads).await?;
        let row = row.filter(|row| self.can_read(ProjectId(row.project)));
        read_row(row.ok_or_else(|| not_found(id.to_string()))?)
    }

    /// Returns the pipelines whose ID ends with these digits, or whose story has this ID, newest
    /// first.
    pub async fn match_pipelines(&self, text: &str) -> Result<Vec<StoryPipeline>> {
        let rows = rows!(
            "(story_id = $1 OR (length($1) >= 4 AND id::text LIKE '%' || $1))
             AND ($2::bool OR project = ANY($3::uuid []))
             ORDER BY updated_at DESC LIMIT 10",
            text,
            self.reads_all(),
            self.readable_projects(),
        );
        rows.fetch_all(&self.lists).await?.into_iter().map(read_row).collect()
    }

    /// Returns pipelines, last changed first.
    pub async fn pipelines(
        &self,
        filter: &PipelineFilter,
        limit: u32,
    ) -> Result<Vec<StoryPipeline>> {
        let rows = rows!(
            "($1::uuid IS NULL OR project = $1) AND (NOT $2::bool OR live)
             AND (NOT $3::bool OR needs_person)
             AND ($5::bool OR project = ANY($6::uuid []))
             ORDER BY updated_at DESC, id LIMIT $4",
            filter.project.map(|project| project.0),
            filter.live,
            filter.needs_person,
            i64::from(limit),
            self.reads_all(),
            self.readable_projects(),
        );
        rows.fetch_all(&self.lists).await?.into_iter().map(read_row).collect()
    }

    /// Returns the phases of all runs of a pipeline, newest run first.
    pub async fn pipeline_phases(&self, id: PipelineId) -> Result<Vec<StoredPhase>> {
        let rows = sqlx::query!(
            "SELECT
                run_number, phase, name, status, signal, reason, completed_at, tokens
             FROM pipeline_phases WHERE pipeline = $1 ORDER BY run_number DESC, phase LIMIT 1000",
            id.0
        )
        .fetch_all(&self.lists)
        .await?;
        let phases = rows.into_iter().map(|row| StoredPhase {
            run_number: row.run_number.unsigned_abs(),
            phase: u8::try_from(row.phase).unwrap_or_default(),
            name: row.name,
            status: row.status,
            signal: row.signal,
            reason: row.reason,
            completed_at: row.completed_at,
            tokens: row.tokens.unsigned_abs(),
        });
        Ok(phases.collect())
    }

    /// Saves a run. An older one, and one that is already saved, changes nothing.
    pub async fn save_pipeline(&self, write: &PipelineWrite) -> Result<WriteOutcome> {
        let PipelineWrite { pipeline, number, revision, run, .. } = write;
        let phases: Vec<_> = run
            .records
            .iter()
            .map(|(number, record)| PhaseColumns::new(run, *number, record))
            .collect();
        let question = question_number(*number, &run.state);
        let alerts: Vec<_> = question
            .zip(write.alert.as_ref())
            .map(|(question, alert)| AlertColumns { question, alert, at: write.at })
            .into_iter()
            .collect();
        let row = sqlx::query_file!(
            "queries/record_pipeline.sql",
            pipeline.0,
            i32::try_from(*number).unwrap_or(i32::MAX),
            to_i64(*revision),
            json(run),
            write.is_live,
            run.state.needs_person(),
            write.started_by.as_str(),
            write.started_at,
            write.base.as_ref().map(word),
            write.story_path.as_deref(),
            write.delivered.as_ref().map(|(branch, _)| branch.as_str()),
            write.delivered.as_ref().map(|(_, commit)| word(commit)),
            write.delivery_error.as_deref(),
            json(&phases),
            json(&alerts),
            question,
            write.at,
        )
        .fetch_one(&self.steps)
        .await?;
        match (row.found, row.saved) {
            (0, _) => Err(not_found(pipeline.to_string())),
            (_, 0) => Ok(WriteOutcome::AlreadyPresent),
            _ => Ok(WriteOutcome::Inserted),
        }
    }

    /// Marks a stopped run as done with, so that it needs nobody any more. Returns `false` if it
    /// does not need a person.
    pub async fn dismiss_pipeline(&self, id: PipelineId) -> Result<bool> {
        let dismissed = sqlx::query_scalar!(
            "WITH dismissed AS (
                UPDATE pipelines SET
                    needs_person = false, version = version + 1, updated_at = clock_timestamp()
                WHERE id = $1 AND needs_person AND NOT live
                RETURNING id, version
             ),
             settled AS (
                UPDATE alerts SET settled_at = clock_timestamp()
                FROM dismissed WHERE alerts.task = dismissed.id AND alerts.settled_at IS NULL
             ),
             told AS (
                SELECT pg_notify('tamma_entries', dismissed.id || ' ' || dismissed.version) AS done
                FROM dismissed
             )
             SELECT count(*) AS \"count!\" FROM told",
            id.0
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(dismissed > 0)
    }

    /// Records the usage of a phase, for budgets and metrics. Recording the same job number again
    /// changes nothing.
    pub async fn record_phase_usage(
        &self,
        id: PipelineId,
        job_number: u32,
        at: Timestamp,
        usage: &Usage,
    ) -> Result<()> {
        let cost = match usage.cost {
            Cost::Known(usd) => Some(word(&usd)),
            Cost::Unknown => None,
        };
        sqlx::query!(
            "INSERT INTO usage
             (task, ticket, project, job, at, tokens_input, tokens_cached, tokens_output, cost_usd)
             SELECT id, $2, project, 'phase', $3, $4, $5, $6, $7::text::numeric
             FROM pipelines WHERE id = $1
             ON CONFLICT (task, ticket) DO NOTHING",
            id.0,
            i64::from(job_number),
            at,
            to_i64(usage.tokens.input),
            to_i64(usage.tokens.cached),
            to_i64(usage.tokens.output),
            cost,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }
}

fn not_found(key: String) -> Error {
    Error::NotFound { what: "pipeline", key }
}

fn read_row(row: Row) -> Result<StoryPipeline> {
    let key = row.id.to_string();
    let damaged = |damage: CorruptData| Error::Corrupt(damage.with_key(key.clone()));
    let commit = |text: Option<String>| {
        let read = |text: String| read("commit", Value::String(text)).map_err(damaged);
        text.map(read).transpose()
    };
    Ok(StoryPipeline {
        id: PipelineId(row.id),
        project: ProjectId(row.project),
        feature_dir: row.feature_dir,
        story_id: row.story_id,
        created_at: row.created_at,
        version: row.version.unsigned_abs(),
        number: row.run_number.unsigned_abs(),
        run: row.run.map(|run| read("pipeline", run).map_err(damaged)).transpose()?,
        started_by: row.started_by,
        started_at: row.started_at,
        updated_at: row.updated_at,
        base: commit(row.base)?,
        story_path: row.story_path,
        branch: row.branch,
        commit: commit(row.commit)?,
        delivery_error: row.delivery_error,
        needs_person: row.needs_person,
        is_live: row.live,
    })
}
