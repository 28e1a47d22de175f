//! Every activity is made to fail at every step, and is run again, and once more. The task comes to
//! the same end as one that nothing happened to.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use tamma_core::actor::Actor;
use tamma_core::ids::TaskId;
use tamma_core::log::EntryName;
use tamma_core::task_loop::{
    Command, Event, JobKind, Received, State, Step as Taken, What, begin, step,
};
use tamma_core::version::{Edition, Format};
use tamma_engine::process::Records;
use tamma_flow::Begun;
use tamma_flow::port::{Answer, Arrival, Diary, Errand, Recorded, Used};
use tamma_worker::{Activities, Announce, Call, Error, Faults};
use tokio_util::sync::CancellationToken;

use crate::stage::{Stage, person, script};

/// How many steps are passed before the worker fails; negative for never.
type Fuse = Arc<AtomicI64>;

/// A task that is driven without the durable engine, so that a job can be failed where a test wants.
struct Drive<'a> {
    stage: &'a Stage,
    hands: Activities,
    fuse: Fuse,
}

/// What a drive came to.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    state: State,
    names: Vec<EntryName>,
    commits: usize,
    plans: bool,
}

impl Drive<'_> {
    /// Drives a task to its end. The worker fails in a job of this kind after so many steps; the
    /// job is then run again, and once more. Returns also whether it failed.
    async fn go(&self, number: u128, fail: Option<(JobKind, i64)>) -> (Came, bool) {
        let (task, rules) = (self.stage.task(number), self.stage.rules());
        let (id, project) = (task.id, task.project);
        let received = Received {
            task: id,
            project,
            priority: task.priority,
            at: chrono::Utc::now(),
            by: person("Ann"),
            plan: None,
            edition: Edition::NEWEST,
        };
        let mut failed = false;
        let Taken { next, commands, entries } = begin(&received, &rules);
        let mut due = commands.clone();
        let mut memory = next.clone();
        let first = Recorded { step: 0, at: received.at, next, entries, commands, used: None };
        let mut diary = Diary {
            task: id,
            project,
            policy: rules.version(),
            arrival: Some(Box::new(Arrival { task, rules: rules.clone() })),
            steps: vec![first],
        };
        let start = |due: &mut Vec<Command>| {
            due.drain(..).find_map(|command| match command {
                Command::Start { ticket, job, .. } => Some((ticket, job)),
                _ => None,
            })
        };
        while let Some((ticket, job)) = start(&mut due) {
            let kind = job.kind();
            let begun = Arc::new(Mutex::new(None));
            let heard = begun.clone();
            let announce: Announce = Arc::new(move |told: Begun| {
                *heard.lock().unwrap() = Some(told);
                Box::pin(async { Ok(()) })
            });
            let errand = Errand { ticket, job, diary: diary.clone() };
            let call = |attempt| Call {
                errand: errand.clone(),
                attempt,
                stop: CancellationToken::new(),
                announce: announce.clone(),
            };
            let after = fail.filter(|(failing, _)| *failing == kind).map_or(-1, |(_, after)| after);
            self.fuse.store(after, Ordering::SeqCst);
            let mut answer = self.hands.perform(call(1)).await;
            self.fuse.store(-1, Ordering::SeqCst);
            if let Err(Error::Fault(_)) = answer {
                failed = true;
                answer = self.hands.perform(call(2)).await;
            }
            let answer = answer.unwrap();
            // Asked once more, it says the same and does nothing.
            assert_eq!(answered(&self.hands.perform(call(3)).await.unwrap()), answered(&answer));
            diary.arrival = None;
            diary.steps.clear();
            let Answer::Ended { outcome, usage } = answer else { panic!("{kind} has to wait") };
            let mut events = Vec::new();
            if let Some(Begun { at, ticket, engine }) = begun.lock().unwrap().take() {
                events.push((at, What::Started { ticket, engine }));
            }
            events.push((chrono::Utc::now(), What::Done { ticket, usage, outcome }));
            for (at, what) in events {
                let event = Event { format: Format, at, by: Actor::Tamma, what };
                let taken = step(&memory, &event, &rules).unwrap();
                memory = taken.next.clone();
                due.extend(taken.commands.iter().cloned());
                let done = matches!(event.what, What::Done { .. });
                diary.steps.push(Recorded {
                    step: diary.steps.last().map_or(self.written(id).await, |last| last.step) + 1,
                    at,
                    next: taken.next,
                    entries: taken.entries,
                    commands: taken.commands,
                    used: usage.filter(|_| done).map(|usage| Used { ticket, job: kind, usage }),
                });
            }
        }
        self.hands.write_down(&diary).await.unwrap();
        self.hands.write_down(&diary).await.unwrap();
        let range = format!("main..tamma/{id}");
        let commits = self.stage.repository.git(&["rev-list", &range]).unwrap();
        let came = Came {
            state: memory.state,
            names: self.stage.names(id).await,
            commits: commits.lines().count(),
            plans: self.stage.store.plan(id, 2).await.is_err(),
        };
        assert_eq!(self.stage.machine(id).await, memory);
        let sequences: Vec<_> =
            self.stage.log(id).await.into_iter().map(|entry| entry.sequence).collect();
        assert_eq!(sequences, (1..=memory.entries).collect::<Vec<_>>());
        (came, failed)
    }

    /// The last step that is written down.
    async fn written(&self, task: TaskId) -> u64 {
        self.stage.store.position(task).await.unwrap().0
    }
}

/// An answer without what it used, which nobody knows any more after a crash.
fn answered(answer: &Answer) -> Answer {
    match answer {
        Answer::Ended { outcome, .. } => Answer::ended(outcome.clone()),
        later @ Answer::Later { .. } => later.clone(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_activity_can_fail_at_every_step_and_be_run_again() {
    let stage = Stage::set(&script(1)).await;
    let fuse: Fuse = Arc::new(AtomicI64::new(-1));
    let burning = fuse.clone();
    let mut config = stage.config();
    config.faults = Faults::when(move |_| burning.fetch_sub(1, Ordering::SeqCst) == 0);
    let records = Records::open(&config.data).await.unwrap();
    let hands = Activities::new(config, stage.store.clone(), records).await.unwrap();
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
        JobKind::AwaitTurn,
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
    println!("{} places to fail at", places.len());
}
