//! Step function of the pipeline: from a run and an event to the next state and commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::Display;

use super::signal::{PhaseSignal, SignalSource};
use super::{
    AnsweredGate, GateApproval, NodeStatus, PhaseDefinition, PhaseRecord, PhaseRunner, PhaseStatus,
    PipelineRefusal, PipelineRun, PipelineState, PipelineVerdict, TaskGraph,
};
use crate::cost::Usage;
use crate::ids::{CommitId, Name, Reference, TaskId};
use crate::time::Timestamp;

/// Output and resource use of a phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseWork {
    /// Stored output, complete or partial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Reference>,
    /// Tokens and cost; `None` without model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Set if the agent reported the usage, and nobody metered it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_estimated: bool,
    /// Duration, in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
    /// Commit with the phase's changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
}

impl PhaseWork {
    /// Returns the tokens used.
    pub fn tokens(&self) -> u64 {
        self.usage.map_or(0, |usage| usage.tokens.total())
    }
}

/// Person's answer at an approval gate.
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
    /// Run could not be prepared, so no phase can start.
    NotPrepared {
        /// Error message.
        error: String,
    },
    /// Person answered at an approval gate, or about the tasks of a phase.
    GateAnswered {
        /// Answer.
        answer: GateAnswer,
        /// Person's name.
        by: Name,
    },
    /// Phase ended.
    PhaseEnded {
        /// Phase that ended.
        phase: u8,
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
        phase: u8,
        /// Error message.
        error: String,
        /// Output and resource use so far.
        work: PhaseWork,
    },
    /// Phase was stopped at its time limit.
    PhaseTimedOut {
        /// Phase that was stopped.
        phase: u8,
        /// Output and resource use so far.
        work: PhaseWork,
    },
    /// Planner has split the story.
    SplitProposed {
        /// Phase of the tasks.
        phase: u8,
        /// Proposed tasks.
        graph: TaskGraph,
        /// Output and resource use of the planner.
        work: PhaseWork,
    },
    /// Tasks were started.
    TasksStarted {
        /// Phase of the tasks.
        phase: u8,
        /// IDs of the started tasks, by key.
        tasks: BTreeMap<String, TaskId>,
    },
    /// Task ended.
    TaskEnded {
        /// Phase of the task.
        phase: u8,
        /// Task that ended.
        task: TaskId,
        /// `true` if it was completed and merged, `false` if it failed or was cancelled.
        completed: bool,
        /// Reason why a completed task could not be merged into the story's branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Person cancelled the run.
    Cancelled {
        /// Person's name.
        by: Name,
    },
    /// Workflow of the run was lost, so nothing of it runs any more except its tasks.
    WorkflowLost {
        /// Explanation for people.
        reason: String,
    },
}

impl PipelineEvent {
    fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::NotPrepared { .. } => "not_prepared",
            Self::GateAnswered { .. } => "gate_answered",
            Self::PhaseEnded { .. } => "phase_ended",
            Self::PhaseCrashed { .. } => "phase_crashed",
            Self::PhaseTimedOut { .. } => "phase_timed_out",
            Self::SplitProposed { .. } => "split_proposed",
            Self::TasksStarted { .. } => "tasks_started",
            Self::TaskEnded { .. } => "task_ended",
            Self::Cancelled { .. } => "cancelled",
            Self::WorkflowLost { .. } => "workflow_lost",
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
        phase: u8,
        /// Number of the job.
        job_number: u32,
    },
    /// Stop the running phase.
    StopPhase {
        /// Phase to stop.
        phase: u8,
    },
    /// Start tasks, and report their IDs.
    StartTasks {
        /// Phase of the tasks.
        phase: u8,
        /// Keys of the tasks.
        keys: Vec<String>,
    },
    /// Cancel tasks, and report their ends.
    CancelTasks {
        /// Phase of the tasks.
        phase: u8,
        /// IDs of the tasks.
        tasks: Vec<TaskId>,
        /// Person who cancelled the run.
        by: Name,
    },
    /// Write the story's files, deliver the branch and report the end of the run.
    Finish {
        /// Number of the job.
        job_number: u32,
    },
}

/// Applies one event to a run.
pub fn step(
    run: &PipelineRun,
    at: Timestamp,
    event: PipelineEvent,
) -> Result<(PipelineRun, Vec<PipelineCommand>), PipelineRefusal> {
    let mut next = run.clone();
    let name = event.name();
    let commands = match (&run.state, event) {
        (PipelineState::Ready, PipelineEvent::Start) => {
            for phase in 1..run.request.from {
                let skipped = || PhaseRecord::skipped("before the range".to_owned(), Some(at));
                next.records.entry(phase).or_insert_with(skipped);
            }
            next.start_phase(run.request.from)
        }
        (PipelineState::Ready, PipelineEvent::NotPrepared { error }) => {
            next.stop(run.request.from, PipelineVerdict::Failed, error);
            Vec::new()
        }
        (PipelineState::AtGate(phase), PipelineEvent::GateAnswered { answer, by }) => {
            next.last_answer = Some(AnsweredGate { phase: *phase, answer, by: by.clone() });
            next.answer_gate(*phase, answer, &by, at)
        }
        (PipelineState::AtSplit(phase), PipelineEvent::GateAnswered { answer, by }) => {
            next.last_answer = Some(AnsweredGate { phase: *phase, answer, by: by.clone() });
            next.answer_split(*phase, answer, &by, at)
        }
        (
            PipelineState::Running(running),
            PipelineEvent::PhaseEnded { phase, signal, source, work },
        ) if *running == phase => {
            let Some(definition) = run.request.phase(phase).cloned() else {
                return Err(unexpected(run, name));
            };
            let record = PhaseRecord::from_signal(&definition, &signal, source, Some(at), work);
            next.finish_phase(phase, record)
        }
        (PipelineState::Running(running), PipelineEvent::PhaseCrashed { phase, error, work })
            if *running == phase =>
        {
            next.finish_phase(phase, failed_record(format!("crashed: {error}"), at, work))
        }
        (PipelineState::Running(running), PipelineEvent::PhaseTimedOut { phase, work })
            if *running == phase =>
        {
            next.finish_phase(phase, failed_record("timed out".to_owned(), at, work))
        }
        (PipelineState::Running(running), PipelineEvent::SplitProposed { phase, graph, work })
            if *running == phase && run.is_tasks_phase(phase) =>
        {
            next.graphs.insert(phase, graph);
            next.planning.insert(phase, work);
            next.state = PipelineState::AtSplit(phase);
            Vec::new()
        }
        (PipelineState::RunningTasks(running), PipelineEvent::TasksStarted { phase, tasks })
            if *running == phase =>
        {
            if let Some(graph) = next.graphs.get_mut(&phase) {
                graph.start(&tasks);
            }
            Vec::new()
        }
        (
            PipelineState::RunningTasks(running),
            PipelineEvent::TaskEnded { phase, task, completed, reason },
        ) if *running == phase => {
            let graph = next.graphs.get_mut(&phase);
            if !graph.is_some_and(|graph| graph.end(task, completed, reason)) {
                return Err(unexpected(run, name));
            }
            next.continue_tasks(phase, at)
        }
        (state, PipelineEvent::Cancelled { by })
            if !state.is_over() && run.cancelled_by.is_none() =>
        {
            next.cancel(&by, at)
        }
        (state, PipelineEvent::WorkflowLost { reason }) if !state.is_over() => {
            let phase = state.phase().unwrap_or(run.request.from);
            if matches!(state, PipelineState::Running(_) | PipelineState::RunningTasks(_)) {
                let work = run.planning.get(&phase).cloned().unwrap_or_default();
                next.records.insert(phase, failed_record(reason.clone(), at, work));
            }
            next.stop(phase, PipelineVerdict::Failed, reason);
            Vec::new()
        }
        (_, PipelineEvent::GateAnswered { .. }) => return Err(run.refuse_answer()),
        _ => return Err(unexpected(run, name)),
    };
    Ok((next, commands))
}

fn unexpected(run: &PipelineRun, event: &'static str) -> PipelineRefusal {
    PipelineRefusal::UnexpectedEvent { state: run.describe_state(), event }
}

fn failed_record(reason: String, at: Timestamp, work: PhaseWork) -> PhaseRecord {
    PhaseRecord {
        status: PhaseStatus::Failed,
        signal: None,
        source: None,
        reason: Some(reason),
        completed_at: Some(at),
        work,
    }
}

impl PipelineRun {
    fn is_tasks_phase(&self, phase: u8) -> bool {
        self.request.phase(phase).is_some_and(|it| it.runner == PhaseRunner::Tasks)
    }

    fn start_phase(&mut self, phase: u8) -> Vec<PipelineCommand> {
        let is_approval =
            self.request.phase(phase).is_some_and(|it| it.runner == PhaseRunner::Approval);
        if is_approval || self.request.approve.contains(&phase) {
            self.state = PipelineState::AtGate(phase);
            Vec::new()
        } else {
            self.run_phase(phase)
        }
    }

    fn run_phase(&mut self, phase: u8) -> Vec<PipelineCommand> {
        // The split of an earlier run is approved again instead of planned again.
        if self.graphs.contains_key(&phase) {
            self.state = PipelineState::AtSplit(phase);
            return Vec::new();
        }
        self.state = PipelineState::Running(phase);
        vec![PipelineCommand::RunPhase { phase, job_number: self.next_job() }]
    }

    fn next_job(&mut self) -> u32 {
        self.last_job_number = self.last_job_number.saturating_add(1);
        self.last_job_number
    }

    fn finish(&mut self) -> Vec<PipelineCommand> {
        vec![PipelineCommand::Finish { job_number: self.next_job() }]
    }

    fn finish_phase(&mut self, phase: u8, record: PhaseRecord) -> Vec<PipelineCommand> {
        self.state = PipelineState::Complete;
        self.record_phase(phase, record);
        if self.state == PipelineState::Complete && phase < self.request.to {
            self.start_phase(phase + 1)
        } else {
            self.finish()
        }
    }

    fn answer_gate(
        &mut self,
        phase: u8,
        answer: GateAnswer,
        by: &Name,
        at: Timestamp,
    ) -> Vec<PipelineCommand> {
        if answer == GateAnswer::Continue {
            self.approvals.insert(phase, GateApproval { by: by.clone(), at });
        }
        let definition = self.request.phase(phase).cloned();
        match (answer, definition) {
            (GateAnswer::Continue, Some(definition))
                if definition.runner == PhaseRunner::Approval =>
            {
                let record = approved_record(&definition, by, at);
                self.finish_phase(phase, record)
            }
            (GateAnswer::Continue, _) => self.run_phase(phase),
            (GateAnswer::Skip, _) => self.skip_phase(phase, by, at),
            (GateAnswer::Stop, _) => self.stop_at(phase, by),
        }
    }

    fn answer_split(
        &mut self,
        phase: u8,
        answer: GateAnswer,
        by: &Name,
        at: Timestamp,
    ) -> Vec<PipelineCommand> {
        match answer {
            GateAnswer::Continue => {
                self.approvals.insert(phase, GateApproval { by: by.clone(), at });
                self.state = PipelineState::RunningTasks(phase);
                self.continue_tasks(phase, at)
            }
            GateAnswer::Skip => self.skip_phase(phase, by, at),
            GateAnswer::Stop => {
                // A refused split is planned again by the next run, unless tasks are complete.
                let is_new = |graph: &TaskGraph| graph.keys(NodeStatus::Complete).is_empty();
                if self.graphs.get(&phase).is_some_and(is_new) {
                    self.graphs.remove(&phase);
                }
                self.stop_at(phase, by)
            }
        }
    }

    fn skip_phase(&mut self, phase: u8, by: &Name, at: Timestamp) -> Vec<PipelineCommand> {
        self.finish_phase(phase, PhaseRecord::skipped(format!("skipped by {by}"), Some(at)))
    }

    fn stop_at(&mut self, phase: u8, by: &Name) -> Vec<PipelineCommand> {
        self.stop_by(phase, by, format!("stopped by {by}"));
        self.finish()
    }

    /// Starts the tasks that can start, or ends the phase if none runs any more.
    fn continue_tasks(&mut self, phase: u8, at: Timestamp) -> Vec<PipelineCommand> {
        let definition = self.request.phase(phase).cloned().unwrap_or_default();
        let Some(graph) = self.graphs.get(&phase) else { return Vec::new() };
        if let Some(by) = self.cancelled_by.clone() {
            return if graph.is_over() { self.end_cancelled(phase, &by, at) } else { Vec::new() };
        }
        if !graph.is_over() {
            let keys = graph.ready(definition.parallel);
            return if keys.is_empty() {
                Vec::new()
            } else {
                vec![PipelineCommand::StartTasks { phase, keys }]
            };
        }
        let (failed, skipped) = (graph.keys(NodeStatus::Failed), graph.keys(NodeStatus::Skipped));
        let signal = if failed.is_empty() {
            PhaseSignal::Success
        } else {
            let mut reason = format!(
                "{} of {} tasks failed: {}",
                failed.len(),
                graph.nodes.len(),
                failed.join(", ")
            );
            if !skipped.is_empty() {
                reason = format!("{reason}; not started: {}", skipped.join(", "));
            }
            PhaseSignal::Failed(reason)
        };
        let work = self.planning.get(&phase).cloned().unwrap_or_default();
        let source = SignalSource::Structured;
        let record = PhaseRecord::from_signal(&definition, &signal, source, Some(at), work);
        self.finish_phase(phase, record)
    }

    /// Cancels the run. Tasks that run are cancelled first, and the run stops when they have ended.
    fn cancel(&mut self, by: &Name, at: Timestamp) -> Vec<PipelineCommand> {
        let phase = self.state.phase().unwrap_or(self.request.from);
        match self.state {
            PipelineState::RunningTasks(phase) => {
                let tasks = self.graphs.get_mut(&phase).map(TaskGraph::cancel).unwrap_or_default();
                self.cancelled_by = Some(by.clone());
                if tasks.is_empty() {
                    return self.end_cancelled(phase, by, at);
                }
                vec![PipelineCommand::CancelTasks { phase, tasks, by: by.clone() }]
            }
            PipelineState::Running(_) => {
                let mut commands = vec![PipelineCommand::StopPhase { phase }];
                commands.extend(self.end_cancelled(phase, by, at));
                commands
            }
            _ => {
                self.stop_by(phase, by, format!("cancelled by {by}"));
                self.finish()
            }
        }
    }

    /// Records a phase that was cancelled, and stops the run.
    fn end_cancelled(&mut self, phase: u8, by: &Name, at: Timestamp) -> Vec<PipelineCommand> {
        let reason = format!("cancelled by {by}");
        let work = self.planning.get(&phase).cloned().unwrap_or_default();
        let record =
            PhaseRecord { status: PhaseStatus::Blocked, ..failed_record(reason.clone(), at, work) };
        self.records.insert(phase, record);
        self.stop_by(phase, by, reason);
        self.finish()
    }
}

fn approved_record(phase: &PhaseDefinition, by: &Name, at: Timestamp) -> PhaseRecord {
    let work = PhaseWork::default();
    let source = SignalSource::Structured;
    let mut record = PhaseRecord::from_signal(phase, &PhaseSignal::Success, source, Some(at), work);
    record.reason = Some(format!("approved by {by}"));
    record
}
