//! Step function of the pipeline: from a run and an event to the next state and commands.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoEnumIterator as _};

use super::signal::{PhaseSignal, SignalSource};
use super::{
    PhaseRecord, PhaseStatus, PipelinePhase, PipelineRefusal, PipelineReport, PipelineRun,
    PipelineState, PipelineVerdict,
};
use crate::ids::{Name, Reference};

/// Output and resource use of a phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseWork {
    /// Stored output, complete or partial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Reference>,
    /// Tokens used.
    pub tokens: u64,
    /// Duration, in milliseconds.
    pub took_ms: u64,
}

/// Person's answer at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GateAnswer {
    /// Run the phase.
    Continue,
    /// Skip the phase.
    Skip,
    /// Stop the run.
    Stop,
}

/// Event of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineEvent {
    /// Start the run.
    Start,
    /// Person answered at a gate.
    GateAnswered {
        /// Answer.
        answer: GateAnswer,
        /// Person's name.
        by: Name,
    },
    /// Phase ended.
    PhaseEnded {
        /// Phase that ended.
        phase: PipelinePhase,
        /// Reported result.
        signal: PhaseSignal,
        /// Source of the signal.
        source: SignalSource,
        /// Output and resource use.
        work: PhaseWork,
    },
    /// Phase crashed.
    PhaseCrashed {
        /// Phase that crashed.
        phase: PipelinePhase,
        /// Error message.
        error: String,
        /// Output and resource use so far.
        work: PhaseWork,
    },
    /// Phase was stopped at its time limit.
    PhaseTimedOut {
        /// Phase that was stopped.
        phase: PipelinePhase,
        /// Output and resource use so far.
        work: PhaseWork,
    },
}

impl PipelineEvent {
    fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::GateAnswered { .. } => "gate_answered",
            Self::PhaseEnded { .. } => "phase_ended",
            Self::PhaseCrashed { .. } => "phase_crashed",
            Self::PhaseTimedOut { .. } => "phase_timed_out",
        }
    }
}

/// Command for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineCommand {
    /// Run a phase.
    RunPhase {
        /// Phase to run.
        phase: PipelinePhase,
        /// Command for the agent; `None` if the phase needs no agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// Ask a person whether a phase may start.
    AskGate {
        /// Phase that would start.
        phase: PipelinePhase,
        /// Agent command that would run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// Report the end of the run.
    Report(PipelineReport),
}

/// Applies one event to a run.
pub fn step(
    run: &PipelineRun,
    event: PipelineEvent,
) -> Result<(PipelineRun, Vec<PipelineCommand>), PipelineRefusal> {
    let mut next = run.clone();
    let command = match (&run.state, event) {
        (PipelineState::Ready, PipelineEvent::Start) => {
            for phase in PipelinePhase::iter().filter(|phase| *phase < run.request.from) {
                next.records
                    .entry(phase)
                    .or_insert_with(|| PhaseRecord::skipped("before the range".to_owned()));
            }
            next.start_phase(run.request.from)
        }
        (PipelineState::AtGate(phase), PipelineEvent::GateAnswered { answer, by }) => {
            match answer {
                GateAnswer::Continue => next.run_phase(*phase),
                GateAnswer::Skip => {
                    next.finish_phase(*phase, PhaseRecord::skipped(format!("skipped by {by}")))
                }
                GateAnswer::Stop => {
                    next.stop(*phase, PipelineVerdict::Blocked, format!("stopped by {by}"));
                    PipelineCommand::Report(PipelineReport::new(&next))
                }
            }
        }
        (
            PipelineState::Running(running),
            PipelineEvent::PhaseEnded { phase, signal, source, work },
        ) if *running == phase => {
            next.finish_phase(phase, PhaseRecord::from_signal(phase, &signal, source, work))
        }
        (PipelineState::Running(running), PipelineEvent::PhaseCrashed { phase, error, work })
            if *running == phase =>
        {
            next.finish_phase(phase, failed_record(format!("crashed: {error}"), work))
        }
        (PipelineState::Running(running), PipelineEvent::PhaseTimedOut { phase, work })
            if *running == phase =>
        {
            next.finish_phase(phase, failed_record("timed out".to_owned(), work))
        }
        (state, event) => {
            return Err(PipelineRefusal::UnexpectedEvent {
                state: state.clone(),
                event: event.name(),
            });
        }
    };
    Ok((next, vec![command]))
}

fn failed_record(reason: String, work: PhaseWork) -> PhaseRecord {
    PhaseRecord {
        status: PhaseStatus::Failed,
        signal: None,
        source: None,
        reason: Some(reason),
        work,
    }
}

impl PipelineRun {
    fn start_phase(&mut self, phase: PipelinePhase) -> PipelineCommand {
        if self.request.approve.contains(&phase) {
            self.state = PipelineState::AtGate(phase);
            PipelineCommand::AskGate { phase, command: self.agent_command(phase) }
        } else {
            self.run_phase(phase)
        }
    }

    fn run_phase(&mut self, phase: PipelinePhase) -> PipelineCommand {
        self.state = PipelineState::Running(phase);
        PipelineCommand::RunPhase { phase, command: self.agent_command(phase) }
    }

    fn finish_phase(&mut self, phase: PipelinePhase, record: PhaseRecord) -> PipelineCommand {
        self.state = PipelineState::Complete;
        self.record_phase(phase, record);
        match phase.next().filter(|next| *next <= self.request.to) {
            Some(next) if self.state == PipelineState::Complete => self.start_phase(next),
            _ => PipelineCommand::Report(PipelineReport::new(self)),
        }
    }

    fn agent_command(&self, phase: PipelinePhase) -> Option<String> {
        let Self { request: order, .. } = self;
        phase.command().map(|command| format!("{command} {} {}", order.feature_dir, order.story_id))
    }
}
