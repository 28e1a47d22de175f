//! Pipelines of stories.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use tamma_core::access::Permission;
use tamma_core::pipeline::{
    NodeStatus, PhaseDefinition, PhaseRunner, PhaseStatus, PipelineReport, PipelineRun,
    PipelineState, StoryTask,
};
use tamma_store::{StoredPhase, StoryPipeline};
use utoipa::ToSchema;
use uuid::Uuid;

use super::card::short_id;

/// Run of a pipeline to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPipelineRun {
    /// Project ID or name; optional if only one project is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Folder of the feature, from the root of the repository.
    pub feature_dir: String,
    /// ID of the story.
    pub story_id: String,
    /// Name of the pipeline. Default: `story`, which has six phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// Number of the first phase. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u8>,
    /// Number of the last phase. Default: the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u8>,
    /// Numbers of the phases that need approval before they start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approve: Vec<u8>,
}

/// Action on a pipeline
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, Display, EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PipelineAction {
    /// Answer at a gate: run the phase or its tasks.
    Continue,
    /// Answer at a gate: skip the phase.
    Skip,
    /// Answer at a gate: stop the run.
    Stop,
    /// Cancel the run.
    Cancel,
    /// Continue a stopped run at the phase where it stopped.
    Resume,
    /// Remove a stopped run from the inbox.
    Dismiss,
}

impl PipelineAction {
    /// Returns the permission that the action needs.
    pub(crate) fn permission(self) -> Permission {
        match self {
            Self::Continue | Self::Skip | Self::Stop => Permission::Decide,
            Self::Cancel | Self::Resume | Self::Dismiss => Permission::Work,
        }
    }

    /// Describes what the action causes now.
    pub(crate) fn consequence(self, view: &PipelineView) -> &'static str {
        let phase = view.phases.iter().find(|it| Some(it.number) == view.phase);
        let is_approval = phase.is_some_and(|it| it.runner == "approval");
        match self {
            Self::Continue if view.state == "at_split" => "The tasks start.",
            Self::Continue if is_approval => "The phase is complete.",
            Self::Continue => "The phase starts.",
            Self::Skip => "The run continues without this phase.",
            Self::Stop => "The run ends here. You can resume it.",
            Self::Cancel => "The run ends, and open tasks of the story are cancelled.",
            Self::Resume => {
                "The phase that stopped starts again, with your commits on the story's branch."
            }
            Self::Dismiss => "The story leaves the inbox. Nothing else changes.",
        }
    }
}

/// Request for an action on a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineActionBody {
    /// Requested action.
    pub action: PipelineAction,
}

/// List of pipelines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PipelineList {
    /// Pipelines, last changed first.
    pub pipelines: Vec<PipelineView>,
}

/// Pipeline of a story, with its newest run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PipelineView {
    /// ID of the pipeline.
    pub id: Uuid,
    /// Last characters of the ID, for people.
    pub short: String,
    /// Name of the project.
    pub project: String,
    /// ID of the project.
    pub project_id: Uuid,
    /// Folder of the feature.
    pub feature_dir: String,
    /// ID of the story.
    pub story_id: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// `ready`, `at_gate`, `running`, `at_split`, `running_tasks`, `complete`, `blocked` or
    /// `failed`.
    pub state: String,
    /// State in words.
    pub state_text: String,
    /// Number of the current phase, or of the phase where the run stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<u8>,
    /// `true` once the run has ended and its branch is delivered.
    pub over: bool,
    /// Question to a person, if the run waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// `true` if a person must decide, or fix what stopped the run.
    pub needs_person: bool,
    /// Actions that are possible now.
    pub actions: Vec<PipelineAction>,
    /// Number of the newest run, from 1.
    pub run: u32,
    /// Number of changes so far; see `newer_than`.
    pub version: u64,
    /// Number of the first phase of the run.
    pub from: u8,
    /// Number of the last phase of the run.
    pub to: u8,
    /// Person who started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// Start of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    /// Last change.
    pub updated_at: DateTime<Utc>,
    /// Folder of the story.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub story_path: Option<String>,
    /// Branch with the story's commits, once it is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Delivered commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Reason why the branch was not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_error: Option<String>,
    /// All phases, in order.
    pub phases: Vec<PipelinePhaseView>,
    /// Tasks of the story, if a phase splits it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<StoryTaskView>,
    /// Phases of earlier runs, newest run first. Empty in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_phases: Vec<EarlierPhase>,
    /// Report of the run.
    #[schema(value_type = Object)]
    pub report: PipelineReport,
    /// Signal of the run, such as `WORKFLOW COMPLETE`, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// Phase of a pipeline, as far as it has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PipelinePhaseView {
    /// Number, from 1.
    pub number: u8,
    /// ID of the phase.
    pub id: String,
    /// Title.
    pub title: String,
    /// `agent`, `command`, `tasks`, `approval` or `status`.
    pub runner: String,
    /// `complete`, `failed`, `blocked` or `skipped`; `running` or `waiting` for the current phase;
    /// `pending` before it starts.
    pub status: String,
    /// Signal line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Reason, if it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Person who approved it at its gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// End of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<DateTime<Utc>>,
    /// Tokens used.
    pub tokens: u64,
    /// Duration, in milliseconds.
    pub took_ms: u64,
    /// `true` if the output of the phase is stored.
    pub has_output: bool,
}

/// Phase of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EarlierPhase {
    /// Number of the run.
    pub run: u32,
    /// Number of the phase.
    pub phase: u8,
    /// ID of the phase.
    pub id: String,
    /// `complete`, `failed`, `blocked` or `skipped`.
    pub status: String,
    /// Signal line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Reason, if it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// End of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<DateTime<Utc>>,
    /// Tokens used.
    pub tokens: u64,
}

impl From<StoredPhase> for EarlierPhase {
    fn from(it: StoredPhase) -> Self {
        Self {
            run: it.run_number,
            phase: it.phase,
            id: it.name,
            status: it.status,
            signal: it.signal,
            reason: it.reason,
            completed_at: it.completed_at,
            tokens: it.tokens,
        }
    }
}

/// Task of a story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoryTaskView {
    /// Number of the phase that it belongs to.
    pub phase: u8,
    /// Key in the story.
    pub key: String,
    /// Title.
    pub title: String,
    /// Description for its agent. Omitted in lists.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Acceptance criteria. Omitted in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance_criteria: Vec<String>,
    /// Estimated number of changed lines. Omitted in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_lines: Option<u32>,
    /// Keys of the tasks that must be completed first.
    pub depends_on: Vec<String>,
    /// `waiting`, `running`, `complete`, `failed` or `skipped`.
    pub status: String,
    /// ID of the task, once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Uuid>,
    /// Reason why a completed task was not merged into the story's branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Output of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PhaseOutput {
    /// Number of the phase.
    pub phase: u8,
    /// Text of the output.
    pub text: String,
}

impl PipelineView {
    /// Builds the view of a pipeline. Returns `None` before its first run is saved.
    pub(crate) fn new(story: &StoryPipeline, project: String) -> Option<Self> {
        let run = story.run.as_ref()?;
        let report = PipelineReport::new(run);
        let over = run.state.is_over() && !story.is_live;
        Some(Self {
            id: story.id.0,
            short: short_id(story.id.0),
            project,
            project_id: story.project.0,
            feature_dir: story.feature_dir.clone(),
            story_id: story.story_id.clone(),
            pipeline: run.request.definition.name.clone(),
            state: run.state.name().to_owned(),
            state_text: run.describe_state(),
            phase: run.state.phase(),
            over,
            question: question(run),
            needs_person: story.needs_person,
            actions: actions(run, story),
            run: story.number,
            version: story.version,
            from: run.request.from,
            to: run.request.to,
            started_by: story.started_by.clone(),
            started_at: story.started_at,
            updated_at: story.updated_at,
            story_path: story.story_path.clone(),
            branch: story.branch.clone(),
            commit: story.commit.map(|commit| commit.to_string()),
            delivery_error: story.delivery_error.clone(),
            phases: run
                .request
                .definition
                .numbered()
                .map(|(number, phase)| phase_view(run, number, phase))
                .collect(),
            tasks: run.graphs.iter().flat_map(|(phase, graph)| task_views(*phase, graph)).collect(),
            earlier_phases: Vec::new(),
            signal: over.then(|| report.signal_line()),
            report,
        })
    }
}

impl StoryTaskView {
    /// Adds the content of the task, as its planner proposed it.
    pub(crate) fn add_content(&mut self, task: StoryTask) {
        self.description = task.description;
        self.acceptance_criteria = task.acceptance_criteria;
        self.estimated_lines = Some(task.estimated_lines);
    }
}

fn phase_view(run: &PipelineRun, number: u8, phase: &PhaseDefinition) -> PipelinePhaseView {
    let record = run.records.get(&number);
    let status = match (&run.state, record) {
        (PipelineState::Running(at) | PipelineState::RunningTasks(at), _) if *at == number => {
            "running".to_owned()
        }
        (PipelineState::AtGate(at) | PipelineState::AtSplit(at), _) if *at == number => {
            "waiting".to_owned()
        }
        (_, Some(record)) => record.status.to_string(),
        (_, None) => "pending".to_owned(),
    };
    PipelinePhaseView {
        number,
        id: phase.id.clone(),
        title: phase.title().to_owned(),
        runner: phase.runner.to_string(),
        status,
        signal: record.and_then(|it| it.signal.clone()),
        reason: record.and_then(|it| it.reason.clone()),
        approved_by: run.approvals.get(&number).map(|it| it.by.to_string()),
        completed_at: record.and_then(|it| it.completed_at),
        tokens: record.map_or(0, |it| it.work.tokens()),
        took_ms: record.map_or(0, |it| it.work.took_ms),
        has_output: record.is_some_and(|it| it.work.output.is_some()),
    }
}

fn task_views(
    phase: u8,
    graph: &tamma_core::pipeline::TaskGraph,
) -> impl Iterator<Item = StoryTaskView> {
    graph.nodes.iter().map(move |node| StoryTaskView {
        phase,
        key: node.key.clone(),
        title: node.title.clone(),
        description: String::new(),
        acceptance_criteria: Vec::new(),
        estimated_lines: None,
        depends_on: node.depends_on.clone(),
        status: node.status.to_string(),
        task: node.task.map(|task| task.0),
        reason: node.reason.clone(),
    })
}

fn actions(run: &PipelineRun, story: &StoryPipeline) -> Vec<PipelineAction> {
    use PipelineAction as A;
    match &run.state {
        PipelineState::AtGate(_) | PipelineState::AtSplit(_) => {
            vec![A::Continue, A::Skip, A::Stop, A::Cancel]
        }
        PipelineState::RunningTasks(_) if run.cancelled_by.is_some() => Vec::new(),
        PipelineState::Ready | PipelineState::Running(_) | PipelineState::RunningTasks(_) => {
            vec![A::Cancel]
        }
        // The branch is being delivered.
        PipelineState::Stopped { .. } | PipelineState::Complete if story.is_live => vec![A::Cancel],
        PipelineState::Stopped { .. } if story.needs_person => vec![A::Resume, A::Dismiss],
        PipelineState::Stopped { .. } => vec![A::Resume],
        PipelineState::Complete => Vec::new(),
    }
}

/// Returns the question of a run that waits for a person.
fn question(run: &PipelineRun) -> Option<String> {
    let request = &run.request;
    match &run.state {
        PipelineState::AtGate(number) => {
            let phase = request.phase(*number)?;
            let ready = match (phase.runner, &phase.command) {
                (PhaseRunner::Approval, _) => "A person decides this phase.".to_owned(),
                (_, Some(command)) => format!(
                    "Ready to execute: {command} {} {}",
                    request.feature_dir, request.story_id
                ),
                (_, None) => format!("Ready to execute: {}", phase.title()),
            };
            let earlier = run.records.range(..*number);
            let all_complete =
                earlier.clone().all(|(_, record)| record.status == PhaseStatus::Complete);
            let earlier = if all_complete {
                "Previous phases completed successfully."
            } else {
                "Some previous phases were skipped."
            };
            let title = phase.title();
            Some(format!("Approval Gate: Phase {number} ({title})\n\n{ready}\n\n{earlier}"))
        }
        PipelineState::AtSplit(number) => {
            let (phase, graph) = (request.phase(*number)?, run.graphs.get(number)?);
            let open = graph.keys(NodeStatus::Waiting).len();
            let (title, all) = (phase.title(), graph.nodes.len());
            Some(format!(
                "Approval Gate: Phase {number} ({title})\n\nReady to start {open} of {all} tasks."
            ))
        }
        _ => None,
    }
}
