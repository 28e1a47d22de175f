//! Single trial: brings a task to a point, injures it, waits until both sides agree again, and brings
//! the task to its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_flow::activities::names;
use tamma_flow::{TaskWorkflow, workflow_id};
use tamma_testkit::Cluster;
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::sample::task_id;
use tamma_testkit::temporal;
use tamma_testkit::wait::wait_until;
use temporalio_client::{
    Client, WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowQueryOptions,
};
use tokio::process::Command;

use super::injury::{Hold, Injury, Point};
use crate::chaos::fixture::{CRITERION, Fixture};
use crate::support::components::{Components, Victim, output_text};
use crate::support::database_hold::{self as hold, DatabaseHold};

/// Time limit for a task to reach its point, and to reach its end.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Number of files of a plan that is approved automatically, and of a medium-risk plan.
const FILES: (usize, usize) = (1, 7);

/// Name of the copy of the database.
const COPY: &str = "tamma_copy";

/// Files of Temporal's database.
const TEMPORAL_FILES: [&str; 3] = ["temporal.db", "temporal.db-wal", "temporal.db-shm"];

/// Recovered task.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Explanations in its history.
    pub(crate) reasons: Vec<String>,
}

/// Result of a trial.
pub(crate) struct Trial {
    /// Time from the injury to the end of the task.
    pub(crate) took: Duration,
    /// Recovery, or the reason why the task is in limbo.
    pub(crate) result: Result<Recovery>,
}

/// Runs trials on one set of components.
pub(crate) struct InjuryRunner {
    components: Components,
    tasks: u32,
}

/// Task of a trial.
struct InjuredTask {
    task: TaskId,
    fixture: Fixture,
}

impl InjuryRunner {
    /// Starts all components. The server compares both sides every second.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let cluster = Cluster::builder()
            .folder(folder)
            .private_servers()
            .user_per_role()
            .server()
            .server_env("TAMMA_RECONCILE_SECONDS", "1")
            .start()
            .await?;
        hold::prepare(cluster.postgres()?).await?;
        let mut worker = cluster.new_worker("work")?;
        worker.start().await?;
        Ok(Self { components: Components { worker, cluster }, tasks: 0 })
    }

    /// Makes an injury at a point.
    #[expect(clippy::disallowed_methods, reason = "measures a duration")]
    pub(crate) async fn trial(&mut self, point: Point, injury: Injury) -> Trial {
        let mut injured = Instant::now();
        let result = self.attempt(point, injury, &mut injured).await;
        let took = injured.elapsed();
        // The next trial needs everything.
        let restarted = self.components.restart_exited().await.map(drop);
        Trial { took, result: restarted.and(result) }
    }

    #[expect(clippy::disallowed_methods, reason = "measures a duration")]
    async fn attempt(
        &mut self,
        point: Point,
        injury: Injury,
        injured: &mut Instant,
    ) -> Result<Recovery> {
        let other = match point.hold() {
            Hold::Dependency => {
                let other = self.new_task(true).await?;
                self.add(&other, None).await?;
                self.until(other.task, State::AwaitingApproval).await?;
                Some(other)
            }
            _ => None,
        };
        let case = self.new_task(point.needs_person()).await?;
        let held = self
            .reach(&case, point, other.as_ref().map(|other| other.task))
            .await
            .with_context(|| format!("the task does not reach `{point}`"))?;
        if injury.is_restore() {
            self.restore_older(&case, point, injury, held).await?;
            *injured = Instant::now();
        } else {
            *injured = Instant::now();
            self.injure(case.task, injury).await?;
            self.release(&case, point, held).await?;
        }
        if let Some(other) = &other {
            self.finish(other).await.context("the task that it waits for")?;
        }
        self.finish(&case).await?;
        let reasons = self.examine(&case, point, injury).await?;
        Ok(Recovery { reasons })
    }

    /// Creates the fixture of a new task.
    async fn new_task(&mut self, needs_person: bool) -> Result<InjuredTask> {
        self.tasks += 1;
        let number = self.tasks;
        let files = if needs_person { FILES.1 } else { FILES.0 };
        let fixture = Fixture::new(&self.components.cluster, number, files).await?;
        Ok(InjuredTask { task: task_id(number), fixture })
    }

    async fn add(&self, case: &InjuredTask, after: Option<TaskId>) -> Result<()> {
        let (id, project) = (case.task.to_string(), case.fixture.project.name.clone());
        let mut arguments = vec!["task", "add", "Greet Cy", "--criterion", CRITERION, "--json"];
        arguments.extend(["--project", &project, "--id", &id]);
        let after = after.map(|task| task.to_string());
        arguments.extend(after.iter().flat_map(|task| ["--depends-on", task.as_str()]));
        self.components.cluster.cli.run(&arguments).await.map(drop)
    }

    /// Adds a task and brings it to a point.
    async fn reach(
        &self,
        case: &InjuredTask,
        point: Point,
        after: Option<TaskId>,
    ) -> Result<Option<DatabaseHold>> {
        let postgres = self.components.cluster.postgres()?;
        let (task, id) = (case.task, case.task.to_string());
        let cli = &self.components.cluster.cli;
        let mut held = None;
        match point.hold() {
            Hold::Job(job) => case.fixture.hold(job)?,
            Hold::Write(_) if point.0 == State::Adjusting => {
                // The gate fails on the change only, because a failure of the base does not count.
                let gate = case.fixture.project.folder.join("gate.sh");
                std::fs::write(&gate, "if grep -q cy names.txt; then exit 1; fi\n")?;
                case.fixture.hold(names::IMPLEMENT)?;
            }
            Hold::Write(to) => {
                held = Some(DatabaseHold::at(postgres, &format!("tasks {to}")).await?);
            }
            Hold::Dependency | Hold::Person | Hold::Closed => {}
        }
        self.add(case, after).await?;
        match point.0 {
            State::Adjusting => {
                self.until(task, State::InProgress).await?;
                held = Some(DatabaseHold::at(postgres, "tasks validated").await?);
                case.fixture.release(names::IMPLEMENT)?;
            }
            State::CtoIntervention => {
                self.until(task, State::AwaitingApproval).await?;
                self.question(task).await?;
                cli.run(&["council", &id, "Is this the right way?"]).await?;
            }
            State::HumanEscalation => {
                self.until(task, State::AwaitingApproval).await?;
                self.question(task).await?;
                cli.run(&["reject", &id, "--reason", "not like this"]).await?;
            }
            State::AwaitingApproval => drop(self.question(task).await?),
            State::Cancelled => {
                cli.run(&["cancel", &id, "--reason", "not needed"]).await?;
            }
            _ => {}
        }
        self.until(task, point.0).await?;
        wait_until("the hold", TIMEOUT, async || {
            let is_held = match point.hold() {
                Hold::Job(job) => case.fixture.started(job) > 0,
                Hold::Write(_) => hold::held(postgres).await?.contains("worker"),
                Hold::Closed => self.is_closed(task).await?,
                Hold::Dependency | Hold::Person => true,
            };
            Ok(is_held.then_some(()))
        })
        .await?;
        Ok(held)
    }

    /// Releases a task from its point.
    async fn release(
        &self,
        case: &InjuredTask,
        point: Point,
        held: Option<DatabaseHold>,
    ) -> Result<()> {
        if let Some(held) = held {
            held.release(self.components.cluster.postgres()?).await?;
        }
        if point.0 == State::Adjusting {
            std::fs::write(case.fixture.project.folder.join("gate.sh"), "sh check.sh\n")?;
        }
        match point.hold() {
            Hold::Job(job) => case.fixture.release(job),
            Hold::Write(_) | Hold::Dependency | Hold::Person | Hold::Closed => Ok(()),
        }
    }

    /// Injures the workflow of a task with the program `temporal`.
    async fn injure(&self, task: TaskId, injury: Injury) -> Result<()> {
        let id = workflow_id(task);
        let arguments: &[&str] = match injury {
            Injury::Terminate => &["terminate", "--reason", "runaway"],
            Injury::Reset => &["reset", "--type", "FirstWorkflowTask", "--reason", "try again"],
            Injury::Delete => &["delete", "--yes"],
            Injury::OlderDatabase | Injury::OlderTemporal => bail!("not a workflow command"),
        };
        let output = Command::new("temporal")
            .arg("workflow")
            .args(arguments)
            .args(["--workflow-id", &id])
            .args(["--address", &self.components.cluster.temporal_address()?])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        // A closed workflow cannot be terminated.
        let is_closed = injury == Injury::Terminate && self.is_closed(task).await?;
        ensure!(output.status.success() || is_closed, "{}", output_text(&output));
        Ok(())
    }

    /// Copies one side, lets the task go on, and restores the copy.
    async fn restore_older(
        &mut self,
        case: &InjuredTask,
        point: Point,
        injury: Injury,
        held: Option<DatabaseHold>,
    ) -> Result<()> {
        self.stop_tamma().await?;
        if let Some(held) = held {
            let postgres = self.components.cluster.postgres()?;
            // Otherwise PostgreSQL would complete the statement of the dead worker.
            hold::cancel_waiting(postgres, "worker").await?;
            held.release(postgres).await?;
        }
        self.copy(injury).await?;
        if let Some(job) = point.next_job() {
            case.fixture.hold(job)?;
        }
        self.start_tamma().await?;
        let before = self.components.cluster.store.task(case.task).await?.step;
        self.release(case, point, None).await?;
        self.advance(case).await?;
        wait_until("a later step", TIMEOUT, async || {
            let step = self.components.cluster.store.task(case.task).await?.step;
            Ok((step > before).then_some(()))
        })
        .await?;
        self.stop_tamma().await?;
        self.restore(injury).await?;
        if let Some(job) = point.next_job() {
            case.fixture.release(job)?;
        }
        self.start_tamma().await
    }

    /// Gives a task that waits for a person one more step.
    async fn advance(&self, case: &InjuredTask) -> Result<()> {
        let task_loop = self.task_loop(case.task).await?;
        let id = case.task.to_string();
        let cli = &self.components.cluster.cli;
        match task_loop.state {
            State::AwaitingApproval => self.approve(case.task, &task_loop).await,
            State::Pending | State::CtoIntervention => cli.run(&["pause", &id]).await.map(drop),
            State::HumanEscalation => cli.run(&["answer", &id, "retry"]).await.map(drop),
            _ => Ok(()),
        }
    }

    async fn stop_tamma(&mut self) -> Result<()> {
        self.components.kill(Victim::Worker).await?;
        self.components.kill(Victim::Server).await
    }

    async fn start_tamma(&mut self) -> Result<()> {
        self.components.restart(Victim::Server).await?;
        self.components.restart(Victim::Worker).await
    }

    async fn copy(&mut self, injury: Injury) -> Result<()> {
        if injury == Injury::OlderTemporal {
            return self.copy_temporal(false).await;
        }
        self.without_connections().await?;
        let postgres = self.components.cluster.postgres()?;
        postgres.query("postgres", &format!("CREATE DATABASE {COPY} TEMPLATE {DATABASE}")).await?;
        self.components.cluster.reconnect().await
    }

    async fn restore(&mut self, injury: Injury) -> Result<()> {
        if injury == Injury::OlderTemporal {
            return self.copy_temporal(true).await;
        }
        self.without_connections().await?;
        let postgres = self.components.cluster.postgres()?;
        postgres.query("postgres", &format!("DROP DATABASE {DATABASE}")).await?;
        let rename = format!("ALTER DATABASE {COPY} RENAME TO {DATABASE}");
        postgres.query("postgres", &rename).await?;
        self.components.cluster.reconnect().await
    }

    /// Closes all connections to the database. Those of killed processes end a little later.
    async fn without_connections(&self) -> Result<()> {
        self.components.cluster.store.close().await;
        let postgres = self.components.cluster.postgres()?;
        let terminate = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{DATABASE}'"
        );
        wait_until("the connections", TIMEOUT, async || {
            let open = postgres.query("postgres", &terminate).await?;
            Ok((open.trim() == "0").then_some(()))
        })
        .await
    }

    /// Copies the files of Temporal while it is stopped, or restores the copy.
    async fn copy_temporal(&mut self, back: bool) -> Result<()> {
        let server = self.components.cluster.temporal_mut()?;
        server.kill();
        let folder = server.folder().to_owned();
        for name in TEMPORAL_FILES {
            let (file, copy) = (folder.join(name), folder.join(format!("{name}.copy")));
            let (from, to): (PathBuf, PathBuf) = if back { (copy, file) } else { (file, copy) };
            if from.exists() {
                std::fs::copy(&from, &to)?;
            } else if to.exists() {
                std::fs::remove_file(&to)?;
            }
        }
        server.restart().await
    }

    /// Brings a task to its end: answers its questions, as a person would.
    async fn finish(&self, case: &InjuredTask) -> Result<()> {
        let task = case.task;
        wait_until("the end of the task", TIMEOUT, async || {
            let task_loop = self.task_loop(task).await?;
            let id = task.to_string();
            let cli = &self.components.cluster.cli;
            if task_loop.state.is_terminal() {
                return Ok(Some(()));
            }
            if task_loop.paused.is_some() {
                cli.run(&["resume", &id]).await?;
                return Ok(None);
            }
            if task_loop.open_question.is_none() && task_loop.state != State::CtoIntervention {
                return Ok(None);
            }
            match task_loop.state {
                State::AwaitingApproval => self.approve(task, &task_loop).await?,
                State::HumanEscalation => drop(cli.run(&["answer", &id, "retry"]).await?),
                // The script has no council.
                State::CtoIntervention => {
                    drop(cli.run(&["cancel", &id, "--reason", "no council"]).await?);
                }
                _ => {}
            }
            Ok(None)
        })
        .await
        .with_context(|| format!("{task} is in limbo"))
    }

    async fn approve(&self, task: TaskId, task_loop: &TaskLoop) -> Result<()> {
        let plan = task_loop.plan.as_ref().context("the task has no plan")?.hash.to_string();
        let approve = ["approve", &task.to_string(), "--plan", &plan, "--json"];
        self.components.cluster.cli.run(&approve).await.map(drop)
    }

    /// Checks that both sides agree about a closed task, and returns the explanations.
    async fn examine(
        &self,
        case: &InjuredTask,
        point: Point,
        injury: Injury,
    ) -> Result<Vec<String>> {
        let task = case.task;
        let agreed = wait_until("agreement", TIMEOUT, async || self.agree(task).await);
        agreed.await.context("PostgreSQL and Temporal disagree")?;
        let entries = self.components.cluster.history(task).await?;
        for (number, entry) in (1..).zip(&entries) {
            ensure!(entry.sequence == number, "entry {number} of the history is missing");
        }
        let recovered = entries.iter().filter(|entry| entry.name == EntryName::SmTaskReconciled);
        let reasons: Vec<_> =
            recovered.filter_map(|entry| entry.reason.as_ref().map(ToString::to_string)).collect();
        // A transaction that closes the task when it is released leaves nothing to reconcile.
        let closes = match point.hold() {
            Hold::Closed => true,
            Hold::Write(to) => to.is_terminal(),
            Hold::Job(_) | Hold::Dependency | Hold::Person => false,
        };
        if !closes && matches!(injury, Injury::Terminate | Injury::Delete) {
            ensure!(!reasons.is_empty(), "nothing in the history explains what happened");
        }
        let shown =
            self.components.cluster.cli.run(&["task", "history", &task.to_string()]).await?;
        ensure!(
            reasons.is_empty() || shown.contains("reconciled with Temporal"),
            "`tamma task history` does not show what happened"
        );
        self.components.cluster.cli.run(&["audit", "verify", &task.to_string()]).await?;
        Ok(reasons)
    }

    /// Returns `Some` if no workflow of a closed task runs, or it is at the stored step.
    async fn agree(&self, task: TaskId) -> Result<Option<()>> {
        let stored = self.components.cluster.store.task(task).await?;
        let task_loop = stored.task_loop?;
        let client = temporal::connect(&self.components.cluster.temporal_address()?).await?;
        if !is_running(&client, task).await? {
            let is_over = task_loop.state.is_terminal() && task_loop.active_job.is_none();
            return Ok(is_over.then_some(()));
        }
        if task_loop.state.is_terminal() {
            return Ok(None);
        }
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let options = WorkflowQueryOptions::default();
        let status = handle.query(TaskWorkflow::current_status, (), options).await?;
        Ok((status.step == stored.step).then_some(()))
    }

    async fn is_closed(&self, task: TaskId) -> Result<bool> {
        let client = temporal::connect(&self.components.cluster.temporal_address()?).await?;
        let is_over = self.task_loop(task).await?.state.is_terminal();
        Ok(is_over && !is_running(&client, task).await?)
    }

    async fn task_loop(&self, task: TaskId) -> Result<TaskLoop> {
        Ok(self.components.cluster.store.task(task).await?.task_loop?)
    }

    async fn until(&self, task: TaskId, state: State) -> Result<TaskLoop> {
        let is_there = |task_loop: &TaskLoop| Ok(task_loop.state == state);
        self.components.cluster.wait_for_task(task, TIMEOUT, is_there).await
    }

    async fn question(&self, task: TaskId) -> Result<TaskLoop> {
        let is_asked = |task_loop: &TaskLoop| Ok(task_loop.open_question.is_some());
        self.components.cluster.wait_for_task(task, TIMEOUT, is_asked).await
    }
}

async fn is_running(client: &Client, task: TaskId) -> Result<bool> {
    let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
    match handle.describe(WorkflowDescribeOptions::default()).await {
        Ok(described) => Ok(described.status() == WorkflowExecutionStatus::Running),
        Err(temporalio_client::errors::WorkflowInteractionError::NotFound(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
