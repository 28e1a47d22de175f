//! Pipelines: a story taken through its phases in order.
//!
//! Each phase runs a command of an agent and ends as complete, failed, blocked or skipped; only
//! its exact success signal makes it complete. There is no automatic retry: whatever stops a run,
//! a person mends it and continues from that phase. [`step()`] decides what happens next and does
//! nothing itself; running phases, asking people and keeping files is its caller's job.

mod report;
pub mod signal;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, FromRepr, IntoEnumIterator as _};

pub use self::report::{Report, Row, Verdict};
pub use self::step::{Answer, Command, Event, Work, step};
use crate::pipeline::signal::{Signal, Source};

/// The phases of the built-in pipeline, in order. Their numbers are those of the command line.
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
pub enum Phase {
    /// The story is written.
    Generate = 1,
    /// It is worked out in detail.
    Elaborate = 2,
    /// It is built.
    Implement = 3,
    /// The code is reviewed.
    CodeReview = 4,
    /// The result is verified.
    Qa = 5,
    /// The story's status is brought up to date.
    Done = 6,
}

impl Phase {
    /// Its number, from 1.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The phase of a number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::from_repr(number)
    }

    /// Its name for people.
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

    /// The agent's command, if the phase is an agent's work.
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

    /// The line that makes it complete.
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
        Self::numbered(self.number() + 1)
    }
}

/// What a person asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The folder of the feature, from the root of the repository.
    pub feature_dir: String,
    /// The story.
    pub story_id: String,
    /// The first phase to run.
    pub from: Phase,
    /// The last phase to run.
    pub to: Phase,
    /// The phases that wait for a person before they start.
    #[serde(default)]
    pub approve: BTreeSet<Phase>,
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A range that ends before it begins.
    #[error("phase {to} comes before phase {from}: give --from and --to in order", from = .from.number(), to = .to.number())]
    Range {
        /// The first phase asked for.
        from: Phase,
        /// The last phase asked for.
        to: Phase,
    },
    /// A gate that nobody would ever be asked at.
    #[error("phase {number} is outside the range, so its gate would never be asked", number = .0.number())]
    GateOutsideRange(Phase),
    /// Something that cannot happen at this point, such as the end of a phase that does not run.
    #[error("a run that is {state} cannot take `{event}`")]
    Untimely {
        /// Where the run is.
        state: State,
        /// What came.
        event: &'static str,
    },
    /// A run that has not ended, or that has nothing left to do, is continued.
    #[error("a run that is {0} cannot be continued")]
    NothingToContinue(State),
}

/// How a phase ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// It gave its success signal.
    Complete,
    /// It said that it failed, or gave no clear signal, or crashed, or ran out of time.
    Failed,
    /// It needs a person.
    Blocked,
    /// It was outside the range, or a person skipped it.
    Skipped,
}

/// What is kept of a phase that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How it ended.
    pub status: Status,
    /// The signal it gave, as a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How the signal came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Why it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where its output is kept, and what it took.
    #[serde(default)]
    pub work: Work,
}

impl Record {
    fn skipped(reason: String) -> Self {
        Self {
            status: Status::Skipped,
            signal: None,
            source: None,
            reason: Some(reason),
            work: Work::default(),
        }
    }

    fn of_signal(phase: Phase, signal: &Signal, source: Source, work: Work) -> Self {
        let (status, reason) = match signal {
            Signal::Success => (Status::Complete, None),
            Signal::Blocked(reason) => (Status::Blocked, Some(reason.clone())),
            Signal::Failed(reason) => (Status::Failed, Some(reason.clone())),
            Signal::Unclear(_) => (Status::Failed, Some("no clear signal".to_owned())),
        };
        Self { status, signal: signal.line(phase), source: Some(source), reason, work }
    }
}

/// Where a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing has happened yet.
    Ready,
    /// A person is asked whether a phase may start.
    AtGate(Phase),
    /// A phase runs.
    Running(Phase),
    /// Every phase of the range is over.
    Complete,
    /// A phase did not complete, or a person stopped at its gate. The run continues from there.
    Stopped {
        /// Where.
        phase: Phase,
        /// What kind of stop it is.
        verdict: Verdict,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for State {
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

/// One run of the pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// What was asked for.
    pub order: Order,
    /// Where it is.
    pub state: State,
    /// The phases that are over.
    pub records: BTreeMap<Phase, Record>,
}

impl Run {
    /// A run that has yet to start.
    pub fn new(order: Order) -> Result<Self, Refusal> {
        let Order { from, to, .. } = order;
        if to < from {
            return Err(Refusal::Range { from, to });
        }
        if let Some(outside) = order.approve.iter().find(|phase| !(from..=to).contains(*phase)) {
            return Err(Refusal::GateOutsideRange(*outside));
        }
        Ok(Self { order, state: State::Ready, records: BTreeMap::new() })
    }

    /// The run that goes on where this one stopped, or from wherever the new order says.
    ///
    /// What is known of earlier phases is kept.
    pub fn continued(&self, order: Order) -> Result<Self, Refusal> {
        if !matches!(self.state, State::Stopped { .. }) {
            return Err(Refusal::NothingToContinue(self.state.clone()));
        }
        let mut run = Self::new(order)?;
        run.records = self.records.clone();
        run.records.retain(|phase, _| *phase < run.order.from);
        Ok(run)
    }

    /// The run as the outputs of its phases tell it, by the phases' numbers, for when its own
    /// state is lost or damaged.
    ///
    /// The rebuilt run is over: complete, or stopped at the first phase that is not known to have
    /// succeeded. Outputs after that one are left from an earlier attempt and are not believed.
    /// Tokens and times are lost.
    pub fn rebuild(order: Order, outputs: &BTreeMap<u8, String>) -> Result<Self, Refusal> {
        let mut run = Self::new(order)?;
        run.state = State::Complete;
        let last = run.order.to;
        for phase in Phase::iter().filter(|phase| *phase <= last) {
            let record = match outputs.get(&phase.number()) {
                Some(output) => {
                    let signal = signal::parse(output, phase);
                    Record::of_signal(phase, &signal, Source::LastLine, Work::default())
                }
                None if outputs.range(phase.number()..=last.number()).next().is_some() => {
                    Record::skipped("no output is kept".to_owned())
                }
                None => {
                    run.stop(phase, Verdict::Blocked, "the state was lost".to_owned());
                    break;
                }
            };
            run.close(phase, record);
            if run.state != State::Complete {
                break;
            }
        }
        Ok(run)
    }

    /// Keeps the record of a phase, and stops the run if the phase did not go well.
    fn close(&mut self, phase: Phase, record: Record) {
        let verdict = match record.status {
            Status::Complete | Status::Skipped => None,
            Status::Failed => Some(Verdict::Failed),
            Status::Blocked => Some(Verdict::Blocked),
        };
        if let Some(verdict) = verdict {
            self.stop(phase, verdict, record.reason.clone().unwrap_or_default());
        }
        self.records.insert(phase, record);
    }

    fn stop(&mut self, phase: Phase, verdict: Verdict, reason: String) {
        self.state = State::Stopped { phase, verdict, reason };
    }
}
