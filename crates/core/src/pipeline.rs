//! Pipelines: a story taken through ordered phases.
//!
//! Each phase runs an agent command and ends as complete, failed, blocked or skipped. Only its
//! exact success signal makes it complete. There are no automatic retries: a person fixes the
//! problem and continues from that phase. [`step()`] is pure; its caller runs phases, asks people
//! and stores files.

mod report;
pub mod signal;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, FromRepr, IntoEnumIterator as _};

pub use self::report::{PhaseRow, PipelineReport, PipelineVerdict};
pub use self::step::{GateAnswer, PhaseWork, PipelineCommand, PipelineEvent, step};
use crate::pipeline::signal::{PhaseSignal, SignalSource};

/// Phase of the built-in pipeline, in order. The command line uses their numbers.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
    FromRepr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum PipelinePhase {
    /// Write the story.
    Generate = 1,
    /// Work out the details.
    Elaborate = 2,
    /// Implement the story.
    Implement = 3,
    /// Review the code.
    CodeReview = 4,
    /// Verify the result.
    Qa = 5,
    /// Update the story's status.
    Done = 6,
}

impl PipelinePhase {
    /// Returns its number, from 1.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the phase with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::from_repr(number)
    }

    /// Returns its display name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Generate => "PM Generate",
            Self::Elaborate => "Elaboration",
            Self::Implement => "Implementation",
            Self::CodeReview => "Code Review",
            Self::Qa => "QA Verify",
            Self::Done => "Done",
        }
    }

    /// Returns the agent command; `None` if the phase needs no agent.
    pub fn command(self) -> Option<&'static str> {
        match self {
            Self::Generate => Some("/pm-story generate"),
            Self::Elaborate => Some("/elab-story"),
            Self::Implement => Some("/dev-implement-story"),
            Self::CodeReview => Some("/dev-code-review"),
            Self::Qa => Some("/qa-verify-story"),
            Self::Done => None,
        }
    }

    /// Returns the line that marks the phase as complete.
    pub fn success_signal(self) -> &'static str {
        match self {
            Self::Generate => "PM COMPLETE",
            Self::Elaborate => "ELAB PASS",
            Self::Implement => "DOCUMENTATION COMPLETE",
            Self::CodeReview => "CODE REVIEW PASS",
            Self::Qa => "QA PASS",
            Self::Done => "WORKFLOW COMPLETE",
        }
    }

    fn next(self) -> Option<Self> {
        Self::from_number(self.number() + 1)
    }
}

/// Request to run a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineRequest {
    /// Folder of the feature, from the root of the repository.
    pub feature_dir: String,
    /// ID of the story.
    pub story_id: String,
    /// First phase to run.
    pub from: PipelinePhase,
    /// Last phase to run.
    pub to: PipelinePhase,
    /// Phases that need a person's approval before they start.
    #[serde(default)]
    pub approve: BTreeSet<PipelinePhase>,
}

/// Reason why a request or an event is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PipelineRefusal {
    /// Range ends before it starts.
    #[error("invalid range: phase {to} comes before phase {from}; swap --from and --to", from = .from.number(), to = .to.number())]
    InvalidRange {
        /// First phase of the range.
        from: PipelinePhase,
        /// Last phase of the range.
        to: PipelinePhase,
    },
    /// Gate for a phase outside the range.
    #[error("gate for phase {number} is outside the range; extend the range or remove the gate", number = .0.number())]
    GateOutsideRange(PipelinePhase),
    /// Event does not fit the state, such as the end of a phase that is not running.
    #[error("event `{event}` is not possible: the run is {state}")]
    UnexpectedEvent {
        /// State of the run.
        state: PipelineState,
        /// Name of the event.
        event: &'static str,
    },
    /// Run has not ended, or has nothing left to do.
    #[error("cannot continue: the run is {0}")]
    NothingToContinue(PipelineState),
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
    /// Output and resource use.
    #[serde(default)]
    pub work: PhaseWork,
}

impl PhaseRecord {
    fn skipped(reason: String) -> Self {
        Self {
            status: PhaseStatus::Skipped,
            signal: None,
            source: None,
            reason: Some(reason),
            work: PhaseWork::default(),
        }
    }

    fn from_signal(
        phase: PipelinePhase,
        signal: &PhaseSignal,
        source: SignalSource,
        work: PhaseWork,
    ) -> Self {
        let (status, reason) = match signal {
            PhaseSignal::Success => (PhaseStatus::Complete, None),
            PhaseSignal::Blocked(reason) => (PhaseStatus::Blocked, Some(reason.clone())),
            PhaseSignal::Failed(reason) => (PhaseStatus::Failed, Some(reason.clone())),
            PhaseSignal::Unclear(_) => (PhaseStatus::Failed, Some("no clear signal".to_owned())),
        };
        Self { status, signal: signal.line(phase), source: Some(source), reason, work }
    }
}

/// State of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineState {
    /// Not started.
    Ready,
    /// Waiting for a person's decision at a phase's gate.
    AtGate(PipelinePhase),
    /// Running a phase.
    Running(PipelinePhase),
    /// All phases of the range have ended.
    Complete,
    /// Phase did not complete, or a person stopped at its gate. The run can continue from there.
    Stopped {
        /// Phase at which it stopped.
        phase: PipelinePhase,
        /// Kind of stop.
        verdict: PipelineVerdict,
        /// Reason for the stop.
        reason: String,
    },
}

impl fmt::Display for PipelineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::AtGate(phase) => write!(f, "at the gate of {phase}"),
            Self::Running(phase) => write!(f, "running {phase}"),
            Self::Complete => write!(f, "complete"),
            Self::Stopped { phase, .. } => write!(f, "stopped at {phase}"),
        }
    }
}

/// Run of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineRun {
    /// Request that started it.
    #[serde(rename = "order")]
    pub request: PipelineRequest,
    /// Current state.
    pub state: PipelineState,
    /// Records of finished phases.
    pub records: BTreeMap<PipelinePhase, PhaseRecord>,
}

impl PipelineRun {
    /// Creates a run that has not started.
    pub fn new(request: PipelineRequest) -> Result<Self, PipelineRefusal> {
        let PipelineRequest { from, to, .. } = request;
        if to < from {
            return Err(PipelineRefusal::InvalidRange { from, to });
        }
        if let Some(outside) = request.approve.iter().find(|phase| !(from..=to).contains(*phase)) {
            return Err(PipelineRefusal::GateOutsideRange(*outside));
        }
        Ok(Self { request, state: PipelineState::Ready, records: BTreeMap::new() })
    }

    /// Returns a run that continues where this one stopped, or at the start of the new range.
    ///
    /// Records of earlier phases are kept.
    pub fn continue_with(&self, request: PipelineRequest) -> Result<Self, PipelineRefusal> {
        if !matches!(self.state, PipelineState::Stopped { .. }) {
            return Err(PipelineRefusal::NothingToContinue(self.state.clone()));
        }
        let mut run = Self::new(request)?;
        run.records = self.records.clone();
        run.records.retain(|phase, _| *phase < run.request.from);
        Ok(run)
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
        for phase in PipelinePhase::iter().filter(|phase| *phase <= last) {
            let record = match outputs.get(&phase.number()) {
                Some(output) => {
                    let signal = signal::parse(output, phase);
                    PhaseRecord::from_signal(
                        phase,
                        &signal,
                        SignalSource::LastLine,
                        PhaseWork::default(),
                    )
                }
                None if outputs.range(phase.number()..=last.number()).next().is_some() => {
                    PhaseRecord::skipped("no stored output".to_owned())
                }
                None => {
                    run.stop(phase, PipelineVerdict::Blocked, "run state was lost".to_owned());
                    break;
                }
            };
            run.record_phase(phase, record);
            if run.state != PipelineState::Complete {
                break;
            }
        }
        Ok(run)
    }

    /// Stores the record of a phase, and stops the run unless the phase is complete or skipped.
    fn record_phase(&mut self, phase: PipelinePhase, record: PhaseRecord) {
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

    fn stop(&mut self, phase: PipelinePhase, verdict: PipelineVerdict, reason: String) {
        self.state = PipelineState::Stopped { phase, verdict, reason };
    }
}
