//! What `core` alone makes of the results that were recorded.

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

/// More events than any of these tasks has.
const MOST: usize = 1000;

/// What a task went through: the states, and the decisions.
#[derive(Debug, PartialEq)]
pub(crate) struct Trail {
    pub(crate) states: Vec<State>,
    pub(crate) decisions: Vec<EscalationDecision>,
}

impl Trail {
    /// What a log says.
    pub(crate) fn of(log: &[HistoryEntry]) -> Self {
        let moves = log.iter().filter(|entry| entry.trigger.is_some()).map(|entry| entry.to);
        let decisions = log.iter().filter_map(|entry| match entry.data {
            EntryData::Decision(decision) => Some(decision),
            _ => None,
        });
        Self {
            states: [State::Pending].into_iter().chain(moves).collect(),
            decisions: decisions.collect(),
        }
    }
}

/// Plays the recorded results of a task with `core` alone, and says what it makes of them.
pub(crate) async fn predict(store: &Store, id: TaskId, log: &[HistoryEntry]) -> Result<Trail> {
    let whole = store.task(id).await?;
    let machine: TaskLoop = whole.task_loop?;
    let pin = machine.pin.context("the task was never pinned")?;
    let rules = store.rules(pin.policy).await?;
    let first = log.first().context("the log is empty")?;
    let received = TaskReceived {
        task: id,
        project: whole.task.project,
        priority: whole.task.priority,
        at: first.at,
        by: first.actor.clone(),
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    let mut results = Results::read(store, id, log).await?;
    let start = begin(&received, &rules);
    let (mut it, mut due, mut entries) =
        (start.next, VecDeque::from(start.commands), start.entries);
    for _ in 0..MOST {
        let job = loop {
            match due.pop_front() {
                Some(Command::StartJob { job_number, job, .. }) => break Some((job_number, job)),
                Some(_) => {}
                None => break None,
            }
        };
        let Some((job_number, job)) = job else { return Ok(Trail::of(&entries)) };
        for what in results.of(job_number, &job, pin)? {
            if it.state.is_terminal() {
                break;
            }
            let event =
                TaskEvent { format: FormatVersion, at: results.at, by: Actor::Tamma, kind: what };
            let next = step(&it, &event, &rules)
                .map_err(|refusal| anyhow::anyhow!("core refuses {job:?}: {refusal}"))?;
            it = next.next;
            due.extend(next.commands);
            entries.extend(next.entries);
        }
    }
    bail!("core does not come to an end")
}

/// The results of a task's jobs, as they were recorded.
struct Results {
    at: Timestamp,
    answers: BTreeMap<u32, (Outcome, Option<Usage>)>,
    checks: VecDeque<PlanAssessment>,
    engines: VecDeque<Name>,
    lessons: VecDeque<u16>,
}

impl Results {
    async fn read(store: &Store, id: TaskId, log: &[HistoryEntry]) -> Result<Self> {
        let mut answers = BTreeMap::new();
        for (job_number, told) in store.job_results::<Value>(id).await? {
            let ended = &told["ended"];
            let outcome = serde_json::from_value(ended["outcome"].clone())?;
            answers.insert(job_number, (outcome, serde_json::from_value(ended["usage"].clone())?));
        }
        ensure!(!answers.is_empty(), "no job has answered");
        let (mut checks, mut engines, mut lessons) =
            (VecDeque::new(), VecDeque::new(), VecDeque::new());
        for entry in log {
            match &entry.data {
                EntryData::Check(check) => checks.push_back(check.clone()),
                EntryData::Agent(engine) => engines.push_back(engine.clone()),
                EntryData::Lessons(count) => lessons.push_back(*count),
                _ => {}
            }
        }
        let at = log.last().context("the log is empty")?.at;
        Ok(Self { at, answers, checks, engines, lessons })
    }

    /// What happens for a job.
    fn of(
        &mut self,
        job_number: u32,
        job: &Job,
        pin: tamma_core::approval::Pin,
    ) -> Result<Vec<EventKind>> {
        let light = match job {
            Job::Admit => Some(Outcome::Admitted),
            Job::Prepare => Some(Outcome::Prepared(pin)),
            Job::Check { .. } => {
                let check = self.checks.pop_front().context("core checks once more")?;
                let PlanAssessment { blockers, warnings, .. } = check;
                Some(Outcome::Checked { blockers, warnings })
            }
            Job::AwaitDelivery => Some(Outcome::DeliveryReady),
            Job::Learn { .. } => Some(Outcome::Learned(self.lessons.pop_front().unwrap_or(0))),
            _ => None,
        };
        if let Some(outcome) = light {
            return Ok(vec![EventKind::JobFinished { job_number, usage: None, outcome }]);
        }
        let answer = self.answers.get(&job_number).cloned();
        let (outcome, usage) =
            answer.with_context(|| format!("core orders {job:?}, which nobody has done"))?;
        let mut happens = Vec::new();
        if matches!(job, Job::Implement(_)) {
            let engine = self.engines.pop_front().context("core runs once more")?;
            happens.push(EventKind::RunStarted { job_number, agent: engine });
        }
        happens.push(EventKind::JobFinished { job_number, usage, outcome });
        Ok(happens)
    }
}
