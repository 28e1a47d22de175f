//! Every activity fails at every step, then runs twice more. The task must end like one without
//! failures.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use tamma_core::actor::Actor;
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{
    Command, EventKind, JobKind, JobUsage, State, StepRecord, TaskEvent, TaskReceived, begin, step,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_engine::process::ProcessRecords;
use tamma_flow::RunStarted;
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps, TaskSubmission};
use tamma_testkit::sample::sample_script;
use tamma_worker::{Activities, AnnounceStart, Error, FaultInjection};
use tokio_util::sync::CancellationToken;

use crate::stage::{Stage, person};

/// Number of steps before the worker fails; negative for never.
type Fuse = Arc<AtomicI64>;

/// Task loop without Temporal, so that a test can fail a job at any step.
struct Drive<'a> {
    stage: &'a Stage,
    hands: Activities,
    fuse: Fuse,
}

/// Result of a task.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    state: State,
    names: Vec<EntryName>,
    commits: usize,
    plans: bool,
}

impl Drive<'_> {
    /// Runs a task to its end, and returns whether the worker failed. It fails in a job of this
    /// kind after a number of steps; the job then runs twice more.
    #[expect(clippy::too_many_lines, reason = "one task, job by job")]
    async fn go(&self, number: u32, fail: Option<(JobKind, i64)>) -> (Came, bool) {
        let (task, rules) = (self.stage.task(number), self.stage.rules());
        let (id, project) = (task.id, task.project);
        let received = TaskReceived {
            task: id,
            project,
            priority: task.priority,
            at: chrono::Utc::now(),
            by: person("Ann"),
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let mut failed = false;
        let first = StepRecord::new(0, received.at, begin(&received, &rules));
        let mut due = first.commands.clone();
        let mut memory = first.next.clone();
        let mut diary = PendingSteps {
            task: id,
            project,
            policy: rules.version(),
            submission: Some(Box::new(TaskSubmission { task, rules: rules.clone() })),
            steps: vec![first],
        };
        let start = |due: &mut Vec<Command>| {
            due.drain(..).find_map(|command| match command {
                Command::StartJob { job_number: ticket, job, .. } => Some((ticket, job)),
                _ => None,
            })
        };
        while let Some((ticket, job)) = start(&mut due) {
            let kind = job.kind();
            let begun = Arc::new(Mutex::new(None));
            let heard = begun.clone();
            let announce: AnnounceStart = Arc::new(move |told: RunStarted| {
                *heard.lock().unwrap() = Some(told);
                Box::pin(async { Ok(()) })
            });
            let errand = JobRequest { job_number: ticket, job, pending: diary.clone() };
            let run = async |attempt| {
                let stop = CancellationToken::new();
                self.hands.run_job(errand.clone(), attempt, stop, announce.clone()).await
            };
            let after = fail.filter(|(failing, _)| *failing == kind).map_or(-1, |(_, after)| after);
            self.fuse.store(after, Ordering::SeqCst);
            let mut answer = run(1).await;
            self.fuse.store(-1, Ordering::SeqCst);
            if let Err(Error::InjectedFault(_)) = answer {
                failed = true;
                answer = run(2).await;
            }
            let answer = answer.unwrap();
            // Another attempt returns the same result and does nothing.
            assert_eq!(answered(&run(3).await.unwrap()), answered(&answer));
            diary.submission = None;
            diary.steps.clear();
            let JobResult::Finished { outcome, usage, report: None } = answer else {
                panic!("{kind} has to wait, or has a report for the history")
            };
            let mut events = Vec::new();
            if let Some(RunStarted { at, job_number: ticket, agent: engine }) =
                begun.lock().unwrap().take()
            {
                events.push((at, EventKind::RunStarted { job_number: ticket, agent: engine }));
            }
            events.push((
                chrono::Utc::now(),
                EventKind::JobFinished { job_number: ticket, usage, outcome },
            ));
            for (at, what) in events {
                let event = TaskEvent { format: FormatVersion, at, by: Actor::Tamma, kind: what };
                let taken = step(&memory, &event, &rules).unwrap();
                memory = taken.next.clone();
                due.extend(taken.commands.iter().cloned());
                let done = matches!(event.kind, EventKind::JobFinished { .. });
                diary.steps.push(StepRecord {
                    step: diary.steps.last().map_or(self.written(id).await, |last| last.step) + 1,
                    at,
                    next: taken.next,
                    entries: taken.entries,
                    commands: taken.commands,
                    job_usage: usage.filter(|_| done).map(|usage| JobUsage {
                        job_number: ticket,
                        job: kind,
                        usage,
                    }),
                });
            }
        }
        self.hands.save_steps(&diary).await.unwrap();
        self.hands.save_steps(&diary).await.unwrap();
        let range = format!("main..tamma/{id}");
        let commits = self.stage.project.repository.git(&["rev-list", &range]).unwrap();
        let came = Came {
            state: memory.state,
            names: self.stage.names(id).await,
            commits: commits.lines().count(),
            plans: self.stage.cluster.store.plan(id, 2).await.is_err(),
        };
        assert_eq!(self.stage.machine(id).await, memory);
        let sequences: Vec<_> =
            self.stage.log(id).await.into_iter().map(|entry| entry.sequence).collect();
        assert_eq!(sequences, (1..=memory.entry_count).collect::<Vec<_>>());
        (came, failed)
    }

    /// Returns the last saved step.
    async fn written(&self, task: TaskId) -> u64 {
        self.stage.cluster.store.task_position(task).await.unwrap().0
    }
}

/// Removes the usage from a result, because it is unknown after a crash.
fn answered(answer: &JobResult) -> JobResult {
    match answer {
        JobResult::Finished { outcome, .. } => JobResult::finished(outcome.clone()),
        later @ JobResult::RetryAfter { .. } => later.clone(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_activity_can_fail_at_every_step_and_run_again() {
    let stage = Stage::set(&sample_script(1)).await;
    let fuse: Fuse = Arc::new(AtomicI64::new(-1));
    let burning = fuse.clone();
    let mut config = stage.config();
    config.fault_injection =
        FaultInjection::when(move |_| burning.fetch_sub(1, Ordering::SeqCst) == 0);
    let records = ProcessRecords::open(&config.data_dir).await.unwrap();
    let hands = Activities::new(config, stage.cluster.store.clone(), records).await.unwrap();
    let drive = Drive { stage: &stage, hands, fuse };

    let (undisturbed, _) = Box::pin(drive.go(1, None)).await;
    assert_eq!(undisturbed.state, State::Completed);
    assert_eq!((undisturbed.commits, undisturbed.plans), (1, true));
    let mut number = 2;
    let mut places = BTreeSet::new();
    for kind in [
        JobKind::Admit,
        JobKind::Prepare,
        JobKind::Plan,
        JobKind::Check,
        JobKind::Implement,
        JobKind::Test,
        JobKind::Review,
        JobKind::AwaitDelivery,
        JobKind::Deliver,
        JobKind::Learn,
    ] {
        for after in 0.. {
            let (came, failed) = Box::pin(drive.go(number, Some((kind, after)))).await;
            number += 1;
            assert_eq!(came, undisturbed, "{kind} failed after {after} steps");
            if !failed {
                break;
            }
            places.insert((kind, after));
        }
        assert!(places.iter().any(|(failed, _)| *failed == kind), "{kind} never failed");
    }
    println!("{} points of failure", places.len());
}
