//! Pipelines: a story taken through ordered phases.
//!
//! Each phase ends as complete, failed, blocked or skipped. Only its exact success signal makes it
//! complete. There are no automatic retries: a person fixes the problem and continues from that
//! phase. [`step()`] is pure; its caller runs phases, asks people and stores files.

mod definition;
pub mod files;
mod report;
pub mod signal;
mod step;
mod task_graph;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

pub use self::definition::{
    BUILT_IN_PIPELINE, PhaseDefinition, PhaseRunner, PipelineDefinition, PipelinePhases,
};
pub use self::report::{PhaseRow, PipelineReport, PipelineVerdict};
pub use self::step::{GateAnswer, PhaseWork, PipelineCommand, PipelineEvent, step};
pub use self::task_graph::{NodeStatus, StoryTask, TaskGraph, TaskNode, TaskSplit};
use crate::ids::Name;
use crate::pipeline::signal::{PhaseSignal, SignalSource};
use crate::time::Timestamp;

/// Longest feature directory, in bytes.
const MAX_FEATURE_DIR: usize = 500;

/// Longest story ID, in bytes.
const MAX_STORY_ID: usize = 100;

/// Key in the metadata of a story's task that names its pipeline. The task starts from the branch
/// of the story.
pub const PIPELINE_METADATA_KEY: &str = "pipeline";

/// Request to run a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineRequest {
    /// Pipeline to run.
    pub definition: PipelineDefinition,
    /// Folder of the feature, from the root of the repository.
    pub feature_dir: String,
    /// ID of the story.
    pub story_id: String,
    /// Number of the first phase to run.
    pub from: u8,
    /// Number of the last phase to run.
    pub to: u8,
    /// Numbers of the phases that need a person's approval before they start.
    #[serde(default)]
    pub approve: BTreeSet<u8>,
}

impl PipelineRequest {
    /// Returns the definition of a phase.
    pub fn phase(&self, number: u8) -> Option<&PhaseDefinition> {
        self.definition.phase(number)
    }

    /// Returns the ID of a phase, for messages.
    fn id(&self, number: u8) -> &str {
        self.phase(number).map_or("?", |phase| phase.id.as_str())
    }
}

/// Reason why a request or an event is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PipelineRefusal {
    /// Pipeline has no such phase.
    #[error("unknown phase {number}; the pipeline has phases 1 to {last}")]
    UnknownPhase {
        /// Requested number.
        number: u8,
        /// Number of the last phase.
        last: u8,
    },
    /// Range ends before it starts.
    #[error("invalid range: phase {to} comes before phase {from}; swap --from and --to")]
    InvalidRange {
        /// First phase of the range.
        from: u8,
        /// Last phase of the range.
        to: u8,
    },
    /// Gate for a phase outside the range.
    #[error("gate for phase {0} is outside the range; extend the range or remove the gate")]
    GateOutsideRange(u8),
    /// Feature directory that is not a folder below the root of the repository.
    #[error(
        "invalid feature directory `{0}`; use a folder from the root of the repository, such as \
         plans/features/wishlist"
    )]
    InvalidFeatureDir(String),
    /// Story ID that cannot be a folder name.
    #[error("invalid story ID `{0}`; use letters, digits, `-`, `_` or `.`, such as WISH-001")]
    InvalidStoryId(String),
    /// Event does not fit the state, such as the end of a phase that is not running.
    #[error("event `{event}` is not possible: the run is {state}")]
    UnexpectedEvent {
        /// State of the run.
        state: String,
        /// Name of the event.
        event: &'static str,
    },
    /// Run has not ended, or has nothing left to do.
    #[error("cannot continue: the run is {0}")]
    NothingToContinue(String),
}

/// Result of a phase.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PhaseStatus {
    /// Gave its success signal.
    Complete,
    /// Reported failure, gave no clear signal, crashed or timed out.
    Failed,
    /// Needs a person.
    Blocked,
    /// Outside the range, or skipped by a person.
    Skipped,
}

/// Record of a finished phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Result of the phase.
    pub status: PhaseStatus,
    /// Signal line of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Source of the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SignalSource>,
    /// Reason if it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// End of the phase; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Output and resource use.
    #[serde(default)]
    pub work: PhaseWork,
}

impl PhaseRecord {
    fn skipped(reason: String, at: Option<Timestamp>) -> Self {
        Self {
            status: PhaseStatus::Skipped,
            signal: None,
            source: None,
            reason: Some(reason),
            completed_at: at,
            work: PhaseWork::default(),
        }
    }

    fn from_signal(
        phase: &PhaseDefinition,
        signal: &PhaseSignal,
        source: SignalSource,
        at: Option<Timestamp>,
        work: PhaseWork,
    ) -> Self {
        let (status, reason) = match signal {
            PhaseSignal::Success => (PhaseStatus::Complete, None),
            PhaseSignal::Blocked(reason) => (PhaseStatus::Blocked, Some(reason.clone())),
            PhaseSignal::Failed(reason) => (PhaseStatus::Failed, Some(reason.clone())),
            PhaseSignal::Unclear(_) => (PhaseStatus::Failed, Some("no clear signal".to_owned())),
        };
        let signal = signal.line(phase);
        Self { status, signal, source: Some(source), reason, completed_at: at, work }
    }
}

/// State of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineState {
    /// Not started.
    Ready,
    /// Waiting for a person's decision at a phase's gate.
    AtGate(u8),
    /// Running a phase.
    Running(u8),
    /// Waiting for a person's decision about the tasks of a phase.
    AtSplit(u8),
    /// Waiting for the tasks of a phase.
    RunningTasks(u8),
    /// All phases of the range have ended.
    Complete,
    /// Phase did not complete, or a person stopped the run. The run can continue from there.
    Stopped {
        /// Phase at which it stopped.
        phase: u8,
        /// Kind of stop.
        verdict: PipelineVerdict,
        /// Reason for the stop.
        reason: String,
        /// Person who stopped it; `None` if a phase did not complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Name>,
    },
}

impl PipelineState {
    /// Returns the stored name of the state, for lists.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::AtGate(_) => "at_gate",
            Self::Running(_) => "running",
            Self::AtSplit(_) => "at_split",
            Self::RunningTasks(_) => "running_tasks",
            Self::Complete => "complete",
            Self::Stopped { verdict: PipelineVerdict::Failed, .. } => "failed",
            Self::Stopped { .. } => "blocked",
        }
    }

    /// Returns `true` if the run has ended.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Complete | Self::Stopped { .. })
    }

    /// Returns `true` if the run waits for a person's decision.
    pub fn is_asking(&self) -> bool {
        matches!(self, Self::AtGate(_) | Self::AtSplit(_))
    }

    /// Returns `true` if a person must act: decide, or fix what stopped the run.
    pub fn needs_person(&self) -> bool {
        self.is_asking() || matches!(self, Self::Stopped { by: None, .. })
    }

    /// Returns the phase that the run is at. `None` before it starts and after it is complete.
    pub fn phase(&self) -> Option<u8> {
        match self {
            Self::Ready | Self::Complete => None,
            Self::AtGate(phase)
            | Self::Running(phase)
            | Self::AtSplit(phase)
            | Self::RunningTasks(phase)
            | Self::Stopped { phase, .. } => Some(*phase),
        }
    }
}

/// Approval at the gate of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateApproval {
    /// Person who approved.
    pub by: Name,
    /// Time of the approval.
    pub at: Timestamp,
}

/// Run of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineRun {
    /// Request that started it.
    pub request: PipelineRequest,
    /// Current state.
    pub state: PipelineState,
    /// Records of finished phases, by number.
    pub records: BTreeMap<u8, PhaseRecord>,
    /// Tasks of phases that split the story, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub graphs: BTreeMap<u8, TaskGraph>,
    /// Resource use of the planners of these phases, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub planning: BTreeMap<u8, PhaseWork>,
    /// Number of the last job. Numbers continue in later runs of the story.
    #[serde(default)]
    pub last_job_number: u32,
    /// People who let a phase or its tasks start at a gate, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub approvals: BTreeMap<u8, GateApproval>,
    /// Person who cancelled the run. It stops once its tasks have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<Name>,
}

impl PipelineRun {
    /// Creates a run that has not started.
    pub fn new(request: PipelineRequest) -> Result<Self, PipelineRefusal> {
        let PipelineRequest { from, to, .. } = request;
        let last = request.definition.last();
        for number in [from, to].into_iter().chain(request.approve.iter().copied()) {
            if number == 0 || number > last {
                return Err(PipelineRefusal::UnknownPhase { number, last });
            }
        }
        if to < from {
            return Err(PipelineRefusal::InvalidRange { from, to });
        }
        if let Some(outside) = request.approve.iter().find(|phase| !(from..=to).contains(*phase)) {
            return Err(PipelineRefusal::GateOutsideRange(*outside));
        }
        if !is_folder(&request.feature_dir) {
            return Err(PipelineRefusal::InvalidFeatureDir(request.feature_dir));
        }
        if !is_story_id(&request.story_id) {
            return Err(PipelineRefusal::InvalidStoryId(request.story_id));
        }
        Ok(Self {
            request,
            state: PipelineState::Ready,
            records: BTreeMap::new(),
            graphs: BTreeMap::new(),
            planning: BTreeMap::new(),
            last_job_number: 0,
            approvals: BTreeMap::new(),
            cancelled_by: None,
        })
    }

    /// Returns a run that continues after this one has ended, at the start of the new range.
    ///
    /// Records of earlier phases are kept, and the tasks that its first phase has completed.
    pub fn continue_with(&self, request: PipelineRequest) -> Result<Self, PipelineRefusal> {
        if !self.state.is_over() {
            return Err(PipelineRefusal::NothingToContinue(self.describe_state()));
        }
        let mut run = Self::new(request)?;
        run.last_job_number = self.last_job_number;
        if run.request.definition == self.request.definition {
            let from = run.request.from;
            run.records = self.records.clone();
            run.records.retain(|phase, _| *phase < from);
            run.graphs = self.graphs.clone();
            run.graphs.retain(|phase, _| *phase <= from);
            run.planning = self.planning.clone();
            if let Some(graph) = run.graphs.get_mut(&from) {
                graph.reset();
            }
        }
        Ok(run)
    }

    /// Returns the request that resumes a stopped run at the phase where it stopped.
    pub fn resume_request(&self) -> Result<PipelineRequest, PipelineRefusal> {
        let PipelineState::Stopped { phase, .. } = &self.state else {
            return Err(PipelineRefusal::NothingToContinue(self.describe_state()));
        };
        let mut request = self.request.clone();
        request.from = *phase;
        request.approve.retain(|gate| gate >= phase);
        Ok(request)
    }

    /// Rebuilds a run from the outputs of its phases, by phase number, if its own state is lost or
    /// damaged.
    ///
    /// The rebuilt run has ended: complete, or stopped at the first phase without proof of success.
    /// Later outputs are from an earlier attempt and are ignored. Token counts and durations are
    /// lost.
    pub fn rebuild(
        request: PipelineRequest,
        outputs: &BTreeMap<u8, String>,
    ) -> Result<Self, PipelineRefusal> {
        let mut run = Self::new(request)?;
        run.state = PipelineState::Complete;
        let last = run.request.to;
        let phases: Vec<_> =
            run.request.definition.numbered().map(|(n, p)| (n, p.clone())).collect();
        for (number, phase) in phases.into_iter().filter(|(number, _)| *number <= last) {
            let record = match outputs.get(&number) {
                Some(output) => PhaseRecord::from_signal(
                    &phase,
                    &signal::parse(output, &phase),
                    SignalSource::LastLine,
                    None,
                    PhaseWork::default(),
                ),
                None if outputs.range(number..=last).next().is_some() => {
                    PhaseRecord::skipped("no stored output".to_owned(), None)
                }
                None => {
                    run.stop(number, PipelineVerdict::Blocked, "run state was lost".to_owned());
                    break;
                }
            };
            run.record_phase(number, record);
            if run.state != PipelineState::Complete {
                break;
            }
        }
        Ok(run)
    }

    /// Adopts records of phases before the range that this run does not know, from the story's
    /// files. Records that it knows stay.
    pub fn adopt_records(&mut self, found: &BTreeMap<u8, PhaseRecord>) {
        for (number, record) in found.range(..self.request.from) {
            self.records.entry(*number).or_insert_with(|| record.clone());
        }
    }

    /// Returns the number of the phase that comes next: the current one, or the one after the last.
    pub fn current_phase(&self) -> u8 {
        let after_last =
            || self.records.keys().next_back().map_or(1, |last| last.saturating_add(1));
        self.state.phase().unwrap_or_else(after_last)
    }

    /// Returns the state in words.
    pub fn describe_state(&self) -> String {
        DescribedState(self).to_string()
    }

    /// Stores the record of a phase, and stops the run unless the phase is complete or skipped.
    fn record_phase(&mut self, phase: u8, record: PhaseRecord) {
        let verdict = match record.status {
            PhaseStatus::Complete | PhaseStatus::Skipped => None,
            PhaseStatus::Failed => Some(PipelineVerdict::Failed),
            PhaseStatus::Blocked => Some(PipelineVerdict::Blocked),
        };
        if let Some(verdict) = verdict {
            self.stop(phase, verdict, record.reason.clone().unwrap_or_default());
        }
        self.records.insert(phase, record);
    }

    fn stop(&mut self, phase: u8, verdict: PipelineVerdict, reason: String) {
        self.state = PipelineState::Stopped { phase, verdict, reason, by: None };
    }

    /// Stops the run as a person asked.
    fn stop_by(&mut self, phase: u8, by: &Name, reason: String) {
        let (verdict, by) = (PipelineVerdict::Blocked, Some(by.clone()));
        self.state = PipelineState::Stopped { phase, verdict, reason, by };
    }
}

/// State of a run, with the ID of its phase.
struct DescribedState<'a>(&'a PipelineRun);

impl fmt::Display for DescribedState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |number: &u8| self.0.request.id(*number);
        match &self.0.state {
            PipelineState::Ready => write!(f, "ready"),
            PipelineState::AtGate(phase) => write!(f, "at the gate of {}", id(phase)),
            PipelineState::Running(phase) => write!(f, "running {}", id(phase)),
            PipelineState::AtSplit(phase) => {
                write!(f, "waiting for approval of the tasks of {}", id(phase))
            }
            PipelineState::RunningTasks(phase) if self.0.cancelled_by.is_some() => {
                write!(f, "cancelling the tasks of {}", id(phase))
            }
            PipelineState::RunningTasks(phase) => write!(f, "running the tasks of {}", id(phase)),
            PipelineState::Complete => write!(f, "complete"),
            PipelineState::Stopped { phase, .. } => write!(f, "stopped at {}", id(phase)),
        }
    }
}

/// Returns whether a text names a folder below the root of a repository.
fn is_folder(text: &str) -> bool {
    let is_name = |part: &str| {
        !matches!(part, "" | "." | ".." | ".git")
            && !part.contains(|c: char| c.is_control() || matches!(c, '\\' | ':' | '*' | '?' | '`'))
    };
    text.len() <= MAX_FEATURE_DIR && text.split('/').all(is_name)
}

fn is_story_id(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts_well && text.len() <= MAX_STORY_ID && text.chars().all(is_allowed)
}
