//! Every activity fails at every step, then runs twice more. The task must end like one without
//! failures. So must a task whose agent still runs when another attempt starts on the same worker, one whose
//! agent crashes while it is stopped, and one whose plan was saved by an attempt that no longer counts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use tamma_core::actor::Actor;
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::plan::Plan;
use tamma_core::task_loop::{
    Command, EventKind, JobKind, JobUsage, Placement, State, StepRecord, TaskEvent, TaskLoop,
    TaskReceived, begin, step,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_engine::process::ProcessRecords;
use tamma_flow::RunStarted;
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps, TaskSubmission};
use tamma_store::RunEnd;
use tamma_testkit::agent::{AgentStep, PromptCase};
use tamma_testkit::sample::{sample_plan, sample_script};
use tamma_worker::{Activities, AnnounceStart, Error, FaultInjection};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, person, until};

/// Number of steps before the worker fails; negative for never.
type FaultCountdown = Arc<AtomicI64>;

/// Task loop without Temporal, so that a test can fail a job at any step.
struct TaskDriver<'a> {
    cluster: &'a Cluster,
    activities: Activities,
    fault_countdown: FaultCountdown,
    disturbance: Disturbance,
}

/// What happens during the first attempt at planning or implementing, besides failures of the worker.
enum Disturbance {
    None,
    /// The agent never ends. Another attempt starts on the same worker.
    Endless(EndlessAgent),
    /// Another attempt has saved this plan.
    SavedPlan {
        plan: Box<Plan>,
        is_of_earlier_job: bool,
    },
    /// The agent crashes, and the attempt is stopped. Later agents finish if this file exists.
    StoppedCrash(PathBuf, StopAtEnd),
}

/// Token of the attempt that must be stopped at its end, if there is one.
type StopAtEnd = Arc<Mutex<Option<CancellationToken>>>;

/// Implementing agent that waits until it is stopped, unless a file exists.
struct EndlessAgent {
    /// File that it writes when it starts.
    started: PathBuf,
    /// File that lets later agents finish.
    proceed: PathBuf,
}

/// Result of a task.
#[derive(Debug, PartialEq, Eq)]
struct TaskOutcome {
    state: State,
    names: Vec<EntryName>,
    commits: usize,
    plans: bool,
}

impl TaskDriver<'_> {
    /// Runs a task to its end, and returns whether the worker failed. It fails in a job of this
    /// kind after a number of steps; the job then runs twice more.
    async fn run(&self, number: u32, fail: Option<(JobKind, i64)>) -> (TaskOutcome, bool) {
        let (task, rules) = (self.cluster.task(number), self.cluster.rules());
        let (id, project) = (task.id, task.project);
        let received = TaskReceived {
            task: id,
            project,
            priority: task.priority,
            at: chrono::Utc::now(),
            by: person("Ann"),
            auth: None,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let mut failed = false;
        let first = StepRecord::new(0, received.at, begin(&received, &rules));
        let mut commands = first.commands.clone();
        let mut task_loop = first.next.clone();
        let mut pending = PendingSteps {
            task: id,
            project,
            policy: rules.version(),
            submission: Some(Box::new(TaskSubmission { task, rules: rules.clone() })),
            steps: vec![first],
        };
        let start = |commands: &mut Vec<Command>| {
            commands.drain(..).find_map(|command| match command {
                Command::StartJob { job_number, job, .. } => Some((job_number, job)),
                _ => None,
            })
        };
        let mut previous: Option<(JobRequest, JobResult)> = None;
        while let Some((job_number, job)) = start(&mut commands) {
            let kind = job.kind();
            let started = Arc::new(Mutex::new(None));
            let announced = started.clone();
            let announce: AnnounceStart = Arc::new(move |run_started: RunStarted| {
                *announced.lock().unwrap() = Some(run_started);
                Box::pin(async { Ok(()) })
            });
            let request =
                JobRequest { job_number, job, earlier_attempts: 0, pending: pending.clone() };
            let run = async |attempt| self.attempt(&request, attempt, &announce).await;
            let after = fail.filter(|(failing, _)| *failing == kind).map_or(-1, |(_, after)| after);
            self.fault_countdown.store(after, Ordering::SeqCst);
            let mut result = self.first_attempt(&request, &announce).await;
            self.fault_countdown.store(-1, Ordering::SeqCst);
            if let Err(Error::InjectedFault(_)) = result {
                failed = true;
                result = run(2).await;
            }
            let result = result.unwrap();
            // Another attempt returns the same result and does nothing.
            assert_eq!(without_usage(&run(3).await.unwrap()), without_usage(&result));
            let past = previous.replace((request.clone(), result.clone()));
            self.repeat_past_job(past.filter(|_| fail.is_none())).await;
            pending.submission = None;
            pending.steps.clear();
            let JobResult::Finished { outcome, usage, report: None, claims: None } = result else {
                panic!("{kind} has to wait, or has a report for the history")
            };
            let mut events = Vec::new();
            if let Some(RunStarted { at, job_number, agent }) = started.lock().unwrap().take() {
                events.push((at, EventKind::RunStarted { job_number, agent }));
            }
            let finished = EventKind::JobFinished { job_number, usage, outcome };
            events.push((chrono::Utc::now(), finished));
            for (at, event_kind) in events {
                let event = TaskEvent {
                    format: FormatVersion,
                    at,
                    by: Actor::Tamma,
                    auth: None,
                    kind: event_kind,
                };
                let step_result = step(&task_loop, &event, &rules).unwrap();
                task_loop = step_result.next.clone();
                commands.extend(step_result.commands.iter().cloned());
                let done = matches!(event.kind, EventKind::JobFinished { .. });
                let usage = usage.filter(|_| done);
                pending.steps.push(StepRecord {
                    step: pending.steps.last().map_or(self.written(id).await, |last| last.step) + 1,
                    at,
                    next: step_result.next,
                    entries: step_result.entries,
                    commands: step_result.commands,
                    job_usage: usage.map(|usage| JobUsage { job_number, job: kind, usage }),
                });
            }
        }
        self.activities.save_steps(&pending).await.unwrap();
        self.activities.save_steps(&pending).await.unwrap();
        let outcome = self.outcome(&task_loop).await;
        assert_eq!(self.cluster.task_loop(id).await, task_loop);
        let sequences: Vec<_> =
            self.cluster.history(id).await.into_iter().map(|entry| entry.sequence).collect();
        assert_eq!(sequences, (1..=task_loop.entry_count).collect::<Vec<_>>());
        (outcome, failed)
    }

    /// Runs an attempt at a job.
    async fn attempt(
        &self,
        request: &JobRequest,
        attempt: u32,
        announce: &AnnounceStart,
    ) -> Result<JobResult, Error> {
        let stop = CancellationToken::new();
        self.activities.run_job(request.clone(), attempt, stop, announce.clone()).await
    }

    /// Runs the first attempt at a job. If it is disturbed, it returns the result of the second one.
    async fn first_attempt(
        &self,
        request: &JobRequest,
        announce: &AnnounceStart,
    ) -> Result<JobResult, Error> {
        match &self.disturbance {
            Disturbance::StoppedCrash(proceed, stop_at_end)
                if request.job.kind() == JobKind::Implement =>
            {
                let stop = CancellationToken::new();
                *stop_at_end.lock().unwrap() = Some(stop.clone());
                let run_job = self.activities.run_job(request.clone(), 1, stop, announce.clone());
                let stopped = run_job.await;
                assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
                std::fs::write(proceed, "").unwrap();
                self.attempt(request, 2, announce).await
            }
            Disturbance::Endless(EndlessAgent { started, proceed })
                if request.job.kind() == JobKind::Implement =>
            {
                let later = async {
                    until(async || started.exists().then_some(())).await;
                    std::fs::write(proceed, "").unwrap();
                    self.attempt(request, 2, announce).await
                };
                let (earlier, later) = tokio::join!(self.attempt(request, 1, announce), later);
                assert!(matches!(earlier, Err(Error::Stopped)), "{earlier:?}");
                later
            }
            // The first attempt does not look for a plan.
            Disturbance::SavedPlan { plan, is_of_earlier_job }
                if request.job.kind() == JobKind::Plan =>
            {
                let job_number = request.job_number - u32::from(*is_of_earlier_job);
                let at = (1, Some(job_number));
                self.cluster.store.save_plan(request.pending.task, at, plan).await.unwrap();
                self.attempt(request, 1, announce).await
            }
            _ => self.attempt(request, 1, announce).await,
        }
    }

    /// Repeats a job that the database has passed. A lost workflow task repeats the jobs inside it; no
    /// other job is repeated.
    async fn repeat_past_job(&self, past: Option<(JobRequest, JobResult)>) {
        let Some((request, expected)) = past else { return };
        let announce: AnnounceStart = Arc::new(|_| Box::pin(async { Ok(()) }));
        let (kind, placement) = (request.job.kind(), request.job.placement());
        let stop = CancellationToken::new();
        let again = self.activities.run_job(request, 1, stop, announce).await;
        match (placement, again) {
            (Placement::Inline, Ok(again)) => {
                assert_eq!(without_usage(&again), without_usage(&expected), "{kind}");
            }
            (Placement::Worker | Placement::AgentPool, Err(Error::Diverged(_))) => {}
            (_, again) => panic!("{kind} was repeated with {again:?}"),
        }
    }

    /// Returns the stored outcome of a closed task.
    async fn outcome(&self, task_loop: &TaskLoop) -> TaskOutcome {
        let id = task_loop.task;
        let range = format!("main..{}", self.cluster.store.task_branch(id).await.unwrap());
        let commits = self.cluster.project.repository.git(&["rev-list", &range]).unwrap();
        TaskOutcome {
            state: task_loop.state,
            names: self.cluster.entry_names(id).await,
            commits: commits.lines().count(),
            plans: self.cluster.store.plan(id, 2).await.is_err(),
        }
    }

    /// Returns the last saved step.
    async fn written(&self, task: TaskId) -> u64 {
        self.cluster.store.task_position(task).await.unwrap().0
    }
}

/// Removes the usage from a result, because it is unknown after a crash.
fn without_usage(result: &JobResult) -> JobResult {
    match result {
        JobResult::Finished { outcome, .. } => JobResult::finished(outcome.clone()),
        later @ JobResult::RetryAfter { .. } => later.clone(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_activity_can_fail_at_every_step_and_run_again() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let fault_countdown: FaultCountdown = Arc::new(AtomicI64::new(-1));
    let countdown = fault_countdown.clone();
    let mut config = cluster.config();
    config.fault_injection =
        FaultInjection::when(move |_| countdown.fetch_sub(1, Ordering::SeqCst) == 0);
    let records = ProcessRecords::open(&config.data_dir).await.unwrap();
    let activities = Activities::new(config, cluster.store.clone(), records).await.unwrap();
    let disturbance = Disturbance::None;
    let driver = TaskDriver { cluster: &cluster, activities, fault_countdown, disturbance };

    let (undisturbed, _) = Box::pin(driver.run(1, None)).await;
    assert_eq!(undisturbed.state, State::Completed);
    assert_eq!((undisturbed.commits, undisturbed.plans), (1, true));
    let mut number = 2;
    let mut fault_points = BTreeSet::new();
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
            let (outcome, failed) = Box::pin(driver.run(number, Some((kind, after)))).await;
            number += 1;
            assert_eq!(outcome, undisturbed, "{kind} failed after {after} steps");
            if !failed {
                break;
            }
            fault_points.insert((kind, after));
        }
        assert!(fault_points.iter().any(|(failed, _)| *failed == kind), "{kind} never failed");
    }
    println!("{} points of failure", fault_points.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_attempt_on_the_same_worker_is_not_the_failure_of_an_earlier_one() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let endless = EndlessAgent {
        started: cluster.scratch_file("begun"),
        proceed: cluster.scratch_file("go"),
    };
    let mut script = sample_script(1);
    let steps = vec![
        AgentStep::WriteUnasked { path: endless.started.clone(), content: String::new() },
        AgentStep::Hang,
    ];
    let when = "You are implementing".to_owned();
    script.cases.insert(0, PromptCase { when, unless: Some(endless.proceed.clone()), steps });
    cluster.replace_script(&script);
    let config = cluster.config();
    let records = ProcessRecords::open(&config.data_dir).await.unwrap();
    let activities = Activities::new(config, cluster.store.clone(), records).await.unwrap();
    let fault_countdown: FaultCountdown = Arc::new(AtomicI64::new(-1));
    let disturbance = Disturbance::Endless(endless);
    let driver = TaskDriver { cluster: &cluster, activities, fault_countdown, disturbance };
    let (outcome, _) = Box::pin(driver.run(1, None)).await;
    assert_eq!((outcome.state, outcome.commits), (State::Completed, 1));
    let runs = cluster.store.runs(cluster.task(1).id).await.unwrap();
    let mut ends: Vec<_> = runs
        .iter()
        .filter(|run| run.mode == "implement")
        .map(|run| (run.number.attempt, run.end))
        .collect();
    ends.sort_unstable_by_key(|(attempt, _)| *attempt);
    assert_eq!(ends, [(1, Some(RunEnd::Cancelled)), (2, Some(RunEnd::Finished))]);
}

/// Runs a task whose first version of the plan is saved while its planner runs. Returns the summary of the
/// plan that is used.
async fn plan_used_beside(saved: &Plan, is_of_earlier_job: bool) -> String {
    let cluster = Cluster::start(&sample_script(1)).await;
    let config = cluster.config();
    let records = ProcessRecords::open(&config.data_dir).await.unwrap();
    let activities = Activities::new(config, cluster.store.clone(), records).await.unwrap();
    let fault_countdown: FaultCountdown = Arc::new(AtomicI64::new(-1));
    let disturbance = Disturbance::SavedPlan { plan: Box::new(saved.clone()), is_of_earlier_job };
    let driver = TaskDriver { cluster: &cluster, activities, fault_countdown, disturbance };
    let (outcome, _) = Box::pin(driver.run(1, None)).await;
    assert_eq!((outcome.state, outcome.commits), (State::Completed, 1));
    let runs = cluster.store.runs(cluster.task(1).id).await.unwrap();
    assert_eq!(runs.iter().filter(|run| run.mode == "plan").count(), 1, "no planner runs again");
    cluster.store.plan(cluster.task(1).id, 1).await.unwrap().summary
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_a_faster_attempt_is_used() {
    let faster = Plan { summary: "Of a faster attempt".to_owned(), ..sample_plan(1) };
    assert_eq!(plan_used_beside(&faster, false).await, faster.summary);
}

/// A person changed the task after that planner had finished, so its plan is for another request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_an_earlier_job_is_not_used() {
    let earlier = Plan { summary: "For the earlier request".to_owned(), ..sample_plan(1) };
    assert_eq!(plan_used_beside(&earlier, true).await, sample_plan(1).summary);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crash_of_a_stopped_agent_is_not_the_result_of_its_job() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let proceed = cluster.scratch_file("go");
    let mut script = sample_script(1);
    let when = "You are implementing".to_owned();
    let steps = vec![AgentStep::Exit(1)];
    script.cases.insert(0, PromptCase { when, unless: Some(proceed.clone()), steps });
    cluster.replace_script(&script);
    let mut config = cluster.config();
    let stop_at_end = StopAtEnd::default();
    let stops = stop_at_end.clone();
    config.fault_injection = FaultInjection::when(move |step| {
        if let Some(stop) = stops.lock().unwrap().take_if(|_| step == "done") {
            stop.cancel();
        }
        false
    });
    let records = ProcessRecords::open(&config.data_dir).await.unwrap();
    let activities = Activities::new(config, cluster.store.clone(), records).await.unwrap();
    let fault_countdown: FaultCountdown = Arc::new(AtomicI64::new(-1));
    let disturbance = Disturbance::StoppedCrash(proceed, stop_at_end);
    let driver = TaskDriver { cluster: &cluster, activities, fault_countdown, disturbance };
    let (outcome, _) = Box::pin(driver.run(1, None)).await;
    assert_eq!((outcome.state, outcome.commits), (State::Completed, 1));
}
