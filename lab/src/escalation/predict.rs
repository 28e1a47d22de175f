//! Replays recorded results with `core` alone.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tamma_core::actor::Actor;
use tamma_core::approval::PlanAssessment;
use tamma_core::cost::Usage;
use tamma_core::escalation::EscalationDecision;
use tamma_core::history::{EntryData, HistoryEntry};
use tamma_core::ids::{Name, TaskId};
use tamma_core::task_loop::{
    Command, EventKind, Job, Outcome, State, TaskEvent, TaskLoop, TaskReceived, Timestamp,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_core::{begin, step};
use tamma_store::Store;

/// Limit against endless replays.
const MAX_EVENTS: usize = 1000;

/// States and decisions of a task, in order.
#[derive(Debug, PartialEq)]
pub(crate) struct StateTrace {
    pub(crate) states: Vec<State>,
    pub(crate) decisions: Vec<EscalationDecision>,
}

impl StateTrace {
    /// Extracts the trace from a history.
    pub(crate) fn of(history: &[HistoryEntry]) -> Self {
        let moves = history.iter().filter(|entry| entry.trigger.is_some()).map(|entry| entry.to);
        let decisions = history.iter().filter_map(|entry| match entry.data {
            EntryData::Decision(decision) => Some(decision),
            _ => None,
        });
        Self {
            states: [State::Pending].into_iter().chain(moves).collect(),
            decisions: decisions.collect(),
        }
    }
}

/// Replays the recorded results of a task with `core` alone and returns the trace.
pub(crate) async fn predict(
    store: &Store,
    id: TaskId,
    history: &[HistoryEntry],
) -> Result<StateTrace> {
    let stored = store.task(id).await?;
    let task_loop: TaskLoop = stored.task_loop?;
    let pin = task_loop.pin.context("the task was never pinned")?;
    let rules = store.rules(pin.policy).await?;
    let first = history.first().context("the history is empty")?;
    let received = TaskReceived {
        task: id,
        project: stored.task.project,
        priority: stored.task.priority,
        at: first.at,
        by: first.actor.clone(),
        auth: first.auth,
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    let mut results = RecordedResults::read(store, id, history).await?;
    let start = begin(&received, &rules);
    let (mut it, mut due, mut entries) =
        (start.next, VecDeque::from(start.commands), start.entries);
    for _ in 0..MAX_EVENTS {
        let job = loop {
            match due.pop_front() {
                Some(Command::StartJob { job_number, job, .. }) => break Some((job_number, job)),
                Some(_) => {}
                None => break None,
            }
        };
        let Some((job_number, job)) = job else { return Ok(StateTrace::of(&entries)) };
        for what in results.of(job_number, &job, pin)? {
            if it.state.is_terminal() {
                break;
            }
            let event = TaskEvent {
                format: FormatVersion,
                at: results.at,
                by: Actor::Tamma,
                auth: None,
                kind: what,
            };
            let next = step(&it, &event, &rules)
                .map_err(|refusal| anyhow::anyhow!("core refuses {job:?}: {refusal}"))?;
            it = next.next;
            due.extend(next.commands);
            entries.extend(next.entries);
        }
    }
    bail!("the replay does not end")
}

/// Recorded results of a task's jobs.
struct RecordedResults {
    at: Timestamp,
    answers: BTreeMap<u32, (Outcome, Option<Usage>)>,
    checks: VecDeque<PlanAssessment>,
    agents: VecDeque<Name>,
    lessons: VecDeque<u16>,
}

impl RecordedResults {
    async fn read(store: &Store, id: TaskId, history: &[HistoryEntry]) -> Result<Self> {
        let mut answers = BTreeMap::new();
        for (job_number, stored) in store.job_results::<Value>(id).await? {
            let ended = &stored["ended"];
            let outcome = serde_json::from_value(ended["outcome"].clone())?;
            answers.insert(job_number, (outcome, serde_json::from_value(ended["usage"].clone())?));
        }
        ensure!(!answers.is_empty(), "no job results are stored");
        let (mut checks, mut agents, mut lessons) =
            (VecDeque::new(), VecDeque::new(), VecDeque::new());
        for entry in history {
            match &entry.data {
                EntryData::Check(check) => checks.push_back(check.clone()),
                EntryData::Agent(agent) => agents.push_back(agent.clone()),
                EntryData::Lessons(count) => lessons.push_back(*count),
                _ => {}
            }
        }
        let at = history.last().context("the history is empty")?.at;
        Ok(Self { at, answers, checks, agents, lessons })
    }

    /// Returns the events that a job causes.
    fn of(
        &mut self,
        job_number: u32,
        job: &Job,
        pin: tamma_core::approval::Pin,
    ) -> Result<Vec<EventKind>> {
        let unrecorded = match job {
            Job::Admit => Some(Outcome::Admitted),
            Job::Prepare => Some(Outcome::Prepared(pin)),
            Job::Check { .. } => {
                let check =
                    self.checks.pop_front().context("core runs an additional plan check")?;
                let PlanAssessment { blockers, warnings, .. } = check;
                Some(Outcome::Checked { blockers, warnings })
            }
            Job::AwaitDelivery => Some(Outcome::DeliveryReady),
            Job::Learn { .. } => Some(Outcome::Learned(self.lessons.pop_front().unwrap_or(0))),
            _ => None,
        };
        if let Some(outcome) = unrecorded {
            return Ok(vec![EventKind::JobFinished { job_number, usage: None, outcome }]);
        }
        let answer = self.answers.get(&job_number).cloned();
        let (outcome, usage) =
            answer.with_context(|| format!("core starts {job:?}, which has no recorded result"))?;
        let mut events = Vec::new();
        if matches!(job, Job::Implement(_)) {
            let agent = self.agents.pop_front().context("core starts an additional run")?;
            events.push(EventKind::RunStarted { job_number, agent });
        }
        events.push(EventKind::JobFinished { job_number, usage, outcome });
        Ok(events)
    }
}
