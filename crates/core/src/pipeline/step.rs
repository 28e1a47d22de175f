//! The pipeline's one function: where a run is and what happened, to where it is then and what is
//! to be done.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoEnumIterator as _};

use super::signal::{Signal, Source};
use super::{Phase, Record, Refusal, Report, Run, State, Status, Verdict};
use crate::ids::{Name, Reference};

/// What a phase took and left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Where its output is kept, whole or as far as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Reference>,
    /// The tokens it used.
    pub tokens: u64,
    /// The milliseconds it took.
    pub took_ms: u64,
}

/// What a person says at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Answer {
    /// Run the phase.
    Continue,
    /// Go on without it.
    Skip,
    /// End the run here.
    Stop,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The run is to start.
    Start,
    /// A person answered at a gate.
    GateAnswered {
        /// What they said.
        answer: Answer,
        /// Who they are.
        by: Name,
    },
    /// A phase came to its end.
    PhaseEnded {
        /// Which one.
        phase: Phase,
        /// How it says it ended.
        signal: Signal,
        /// How it said so.
        source: Source,
        /// What it took and left.
        work: Work,
    },
    /// A phase broke off.
    PhaseCrashed {
        /// Which one.
        phase: Phase,
        /// What is known about it.
        error: String,
        /// What it took and left until then.
        work: Work,
    },
    /// A phase was stopped because it took too long.
    PhaseTimedOut {
        /// Which one.
        phase: Phase,
        /// What it took and left until then.
        work: Work,
    },
}

impl Event {
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

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Run a phase.
    RunPhase {
        /// Which one.
        phase: Phase,
        /// What to tell the agent; nothing where the phase only brings the status up to date.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// Ask a person whether a phase may start.
    AskGate {
        /// Which one.
        phase: Phase,
        /// What would run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// Tell how the run ended.
    Report(Report),
}

/// Takes a run one step on.
pub fn step(run: &Run, event: Event) -> Result<(Run, Vec<Command>), Refusal> {
    let mut next = run.clone();
    let command = match (&run.state, event) {
        (State::Ready, Event::Start) => {
            for phase in Phase::iter().filter(|phase| *phase < run.order.from) {
                next.records
                    .entry(phase)
                    .or_insert_with(|| Record::skipped("before the range".to_owned()));
            }
            next.enter(run.order.from)
        }
        (State::AtGate(phase), Event::GateAnswered { answer, by }) => match answer {
            Answer::Continue => next.run_phase(*phase),
            Answer::Skip => next.leave(*phase, Record::skipped(format!("skipped by {by}"))),
            Answer::Stop => {
                next.stop(*phase, Verdict::Blocked, format!("stopped by {by}"));
                Command::Report(Report::of(&next))
            }
        },
        (State::Running(running), Event::PhaseEnded { phase, signal, source, work })
            if *running == phase =>
        {
            next.leave(phase, Record::of_signal(phase, &signal, source, work))
        }
        (State::Running(running), Event::PhaseCrashed { phase, error, work })
            if *running == phase =>
        {
            next.leave(phase, broken_off(format!("crashed: {error}"), work))
        }
        (State::Running(running), Event::PhaseTimedOut { phase, work }) if *running == phase => {
            next.leave(phase, broken_off("timed out".to_owned(), work))
        }
        (state, event) => {
            return Err(Refusal::Untimely { state: state.clone(), event: event.name() });
        }
    };
    Ok((next, vec![command]))
}

fn broken_off(reason: String, work: Work) -> Record {
    Record { status: Status::Failed, signal: None, source: None, reason: Some(reason), work }
}

impl Run {
    fn enter(&mut self, phase: Phase) -> Command {
        if self.order.approve.contains(&phase) {
            self.state = State::AtGate(phase);
            Command::AskGate { phase, command: self.command(phase) }
        } else {
            self.run_phase(phase)
        }
    }

    fn run_phase(&mut self, phase: Phase) -> Command {
        self.state = State::Running(phase);
        Command::RunPhase { phase, command: self.command(phase) }
    }

    fn leave(&mut self, phase: Phase, record: Record) -> Command {
        self.state = State::Complete;
        self.close(phase, record);
        match phase.next().filter(|next| *next <= self.order.to) {
            Some(next) if self.state == State::Complete => self.enter(next),
            _ => Command::Report(Report::of(self)),
        }
    }

    fn command(&self, phase: Phase) -> Option<String> {
        let Self { order, .. } = self;
        phase.command().map(|command| format!("{command} {} {}", order.feature_dir, order.story_id))
    }
}
