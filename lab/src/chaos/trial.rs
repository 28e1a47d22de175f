//! Single trial: holds a task at a point, kills and restarts a component, releases the task and checks
//! that it finishes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::State;
use tamma_flow::workflow_id;
use tamma_testkit::sample::task_id;
use tamma_testkit::tamma_process::TammaProcess;
use tamma_testkit::wait::{wait_until, wait_until_true};
use tokio::task::JoinHandle;

use super::examination::{Baseline, Examiner, RunRule, TaskCase, approve_arguments};
use super::finding::Findings;
use super::fixture::Fixture;
use super::point::{Moment, Point};
use crate::support::components::{Components, Victim, output_text};
use crate::support::database_hold::{self as hold, DatabaseHold};
use crate::support::leftover;

/// Time limit for a task to reach its point, and to finish.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for the processes of a task to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of files of a plan that is approved automatically, and of a medium-risk plan.
const FILES: (usize, usize) = (1, 7);

/// Result of a trial.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) point: Point,
    pub(crate) victim: Victim,
    /// Time from the kill to the end of the task.
    pub(crate) took: Duration,
    /// Findings, or the reason why the task did not finish.
    pub(crate) result: Result<Findings>,
}

/// Runs trials on one set of components.
pub(crate) struct TrialRunner {
    pub(crate) components: Components,
    baseline: Baseline,
    /// Number of tasks so far.
    tasks: u32,
}

impl TrialRunner {
    /// Starts all components and records two undisturbed tasks as the baseline.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let components = Components::start(folder, |worker| worker).await?;
        let mut runner = Self { components, baseline: Baseline::default(), tasks: 0 };
        for needs_person in [false, true] {
            let case = runner.case(needs_person).await?;
            runner.add(&case, None).await??;
            if needs_person {
                runner.until(case.task, State::AwaitingApproval).await?;
                runner.approve(case.task).await?;
            }
            runner.until(case.task, State::Completed).await?;
            let findings = runner.examiner().examine(&case, RunRule::Once).await?;
            ensure!(findings.is_clean(), "an undisturbed task has findings: {findings:?}");
            let names = Some(runner.names(case.task).await?);
            *runner.baseline.of_mut(needs_person) = names;
        }
        Ok(runner)
    }

    /// Kills a component at a point and judges the result.
    #[expect(clippy::disallowed_methods, reason = "measures a duration")]
    pub(crate) async fn trial(&mut self, point: Point, victim: Victim) -> Trial {
        let mut killed = Instant::now();
        let mut result = self.attempt(point, victim, &mut killed).await;
        let took = killed.elapsed();
        match (self.components.restart_exited().await, &mut result) {
            (Ok(exited), Ok(findings)) => {
                for name in exited {
                    findings.add_lost(format!("{name}, which exited"));
                }
            }
            (Err(error), result @ Ok(_)) => *result = Err(error),
            (_, Err(_)) => {}
        }
        Trial { point, victim, took, result }
    }

    #[expect(clippy::disallowed_methods, reason = "measures a duration")]
    async fn attempt(
        &mut self,
        point: Point,
        victim: Victim,
        killed: &mut Instant,
    ) -> Result<Findings> {
        let other = match point.moment {
            Moment::WaitsForTask => {
                let other = self.case(true).await?;
                self.add(&other, None).await??;
                self.until(other.task, State::AwaitingApproval).await?;
                Some(other)
            }
            _ => None,
        };
        let case = self.case(point.needs_person()).await?;
        let mut hold = None;
        if let Some(name) = point.database_hold() {
            hold = Some(DatabaseHold::at(self.components.cluster.postgres()?, &name).await?);
        } else if point.moment == Moment::Works {
            case.fixture.hold(point.activity)?;
        }
        let adding = self.add(&case, other.as_ref().map(|other| other.task));
        let mut approving = None;
        if point.moment == Moment::Answers {
            self.until(case.task, State::AwaitingApproval).await?;
            approving = Some(self.send_approval(case.task).await?);
        }
        self.reach(&case, point)
            .await
            .with_context(|| format!("the task does not reach {point}"))?;
        let plan = self
            .components
            .cluster
            .store
            .task(case.task)
            .await
            .ok()
            .and_then(|it| it.task_loop.ok()?.plan);
        let running = self.examiner().leftovers(&case);

        *killed = Instant::now();
        self.components.kill(victim).await?;
        if victim == Victim::Worker && point.moment == Moment::SavesResult {
            // Otherwise PostgreSQL would complete the statement of the dead worker on release, which
            // makes this case easier.
            hold::cancel_waiting(self.components.cluster.postgres()?, "worker").await?;
        }
        self.components.restart(victim).await?;

        let mut findings = Findings::default();
        if victim == Victim::Worker {
            // A surviving agent would finish a run that is started again.
            let exited = || {
                let left = self.examiner().leftovers(&case);
                let is_same = |it: &&leftover::LeftoverProcess| {
                    it.is_run_of(&case.task.to_string()) && running.contains(it)
                };
                !left.iter().any(|it| is_same(&it))
            };
            if wait_until_true("the killed run", EXIT_TIMEOUT, exited).await.is_err() {
                findings.orphaned.push("a run of the killed worker".to_owned());
            }
        }
        if point.moment == Moment::WaitsForPerson {
            self.check_waiting(&case, plan.map(|plan| plan.hash.to_string()), &mut findings)
                .await?;
        }
        if let Some(hold) = hold {
            hold.release(self.components.cluster.postgres()?).await?;
        } else if point.moment == Moment::Works {
            case.fixture.release(point.activity)?;
        }
        adding.await?.context("cannot add the task")?;
        if let Some(approving) = approving {
            // The request may have failed; the approval below repeats it.
            drop(approving.await?);
        }
        if let Some(other) = &other {
            self.approve(other.task).await?;
            self.until(other.task, State::Completed).await?;
            self.judge(other, &mut findings).await?;
        }
        if case.needs_person {
            self.approve(case.task).await?;
        }
        self.until(case.task, State::Completed).await?;
        self.judge(&case, &mut findings).await?;
        Ok(findings)
    }

    /// Creates the fixture of a new task and registers its project.
    async fn case(&mut self, needs_person: bool) -> Result<TaskCase> {
        self.tasks += 1;
        let number = self.tasks;
        let files = if needs_person { FILES.1 } else { FILES.0 };
        let fixture = Fixture::new(&self.components.cluster, number, files).await?;
        Ok(TaskCase { task: task_id(number), fixture, needs_person })
    }

    /// Adds a task. Retries until the server responds.
    fn add(&self, case: &TaskCase, after: Option<TaskId>) -> JoinHandle<Result<()>> {
        let mut arguments = case.add_arguments();
        if let Some(after) = after {
            arguments.extend(["--depends-on".to_owned(), after.to_string()]);
        }
        let person = self.components.cluster.cli.clone();
        tokio::spawn(wait_until("the server", TIMEOUT, async move || {
            let output = person.command(&arguments).output().await?;
            ensure!(output.status.success(), "{}", output_text(&output));
            Ok(Some(()))
        }))
    }

    /// Sends an approval of the current plan.
    async fn send_approval(
        &self,
        task: TaskId,
    ) -> Result<JoinHandle<Result<std::process::Output>>> {
        let arguments = approve_arguments(&self.components.cluster, task).await?;
        let mut command = self.components.cluster.cli.command(&arguments);
        Ok(tokio::spawn(async move { Ok(command.output().await?) }))
    }

    /// Approves the plan of a task. Retries until the server responds.
    async fn approve(&self, task: TaskId) -> Result<()> {
        wait_until("the server", TIMEOUT, async || {
            if !self.components.cluster.store.decisions(task).await?.is_empty() {
                return Ok(Some(()));
            }
            let output = self.send_approval(task).await?.await??;
            if !output.status.success() {
                bail!("{}", output_text(&output));
            }
            Ok(Some(()))
        })
        .await
        .context("cannot approve the plan")
    }

    /// Waits until a task reaches a point.
    async fn reach(&self, case: &TaskCase, point: Point) -> Result<()> {
        let cluster = &self.components.cluster;
        let (postgres, store) = (cluster.postgres()?, &cluster.store);
        wait_until("the task", TIMEOUT, async || {
            let is_reached = match point.moment {
                Moment::Writes(State::Pending) => {
                    let users = ["server", "worker"].map(str::to_owned);
                    return Ok((hold::held(postgres).await? == users.into()).then_some(()));
                }
                Moment::Writes(_) | Moment::SavesResult | Moment::Answers => {
                    hold::held(postgres).await?.contains("worker")
                }
                Moment::Works => case.fixture.started(point.activity) > 0,
                Moment::WaitsForTask => {
                    let history = self.components.workflow_history(&workflow_id(case.task)).await?;
                    has_event(&history, "EVENT_TYPE_TIMER_STARTED")
                }
                Moment::WaitsForPerson => true,
            };
            let state = store.task(case.task).await?.task_loop?.state;
            Ok((is_reached && state == point.state).then_some(()))
        })
        .await
    }

    /// Waits until a task is in a state. Fails at once if it is closed or needs a decision.
    async fn until(&self, task: TaskId, state: State) -> Result<()> {
        let mut last = None;
        let arrived = wait_until("the task", TIMEOUT, async || {
            let task_loop = self.components.cluster.store.task(task).await?.task_loop?;
            last = Some(task_loop.state);
            if task_loop.state == state {
                return Ok(Some(Ok(())));
            }
            let stuck = task_loop.state.is_terminal() || task_loop.state == State::HumanEscalation;
            Ok(stuck.then(|| Err(anyhow::anyhow!("task {task} is {}", task_loop.state))))
        })
        .await;
        match arrived {
            Ok(arrived) => arrived,
            Err(error) => {
                let last = last.map_or("not stored".to_owned(), |state: State| state.to_string());
                Err(error.context(format!("task {task} is {last} instead of {state}")))
            }
        }
    }

    /// Checks that a task still waits for approval of the same plan, and that nothing has started.
    async fn check_waiting(
        &self,
        case: &TaskCase,
        plan: Option<String>,
        findings: &mut Findings,
    ) -> Result<()> {
        let id = case.task.to_string();
        let inbox = wait_until("the inbox", TIMEOUT, async || {
            let output = self.components.cluster.cli.command(&["inbox", "--json"]).output().await?;
            ensure!(output.status.success(), "{}", output_text(&output));
            Ok(Some(output_text(&output)))
        })
        .await?;
        let task_loop = self.components.cluster.store.task(case.task).await?.task_loop?;
        let same = plan.is_some() && task_loop.plan.map(|plan| plan.hash.to_string()) == plan;
        if task_loop.state != State::AwaitingApproval || !inbox.contains(&id) || !same {
            findings.add_lost("the open decision");
        }
        if case.fixture.started(tamma_flow::activities::names::IMPLEMENT) > 0 {
            findings.add_duplicate("a run before the approval");
        }
        Ok(())
    }

    async fn judge(&self, case: &TaskCase, findings: &mut Findings) -> Result<()> {
        let new = self.examiner().examine(case, RunRule::Once).await?;
        findings.extend(new);
        Ok(())
    }

    fn examiner(&self) -> Examiner<'_> {
        let server = self.components.cluster.server().ok().and_then(TammaProcess::pid);
        let known = [server, self.components.worker.pid()].into_iter().flatten();
        Examiner::new(&self.components.cluster, &self.baseline, known)
    }

    async fn names(&self, task: TaskId) -> Result<Vec<EntryName>> {
        let entries = self.components.cluster.history(task).await?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }
}

/// Returns `true` if a workflow history has an event of a type.
fn has_event(history: &Value, kind: &str) -> bool {
    let events = history["events"].as_array();
    events.is_some_and(|events| events.iter().any(|event| event["eventType"] == kind))
}
