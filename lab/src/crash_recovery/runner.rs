//! Runs the kills on one cluster, with workers that each have their own disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tamma_core::ids::TaskId;
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::project::ScriptedProject;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{sample_change, task_id};
use tamma_testkit::tamma_process::TammaProcess;
use tamma_testkit::wait::wait_until_true;
use tamma_testkit::{Cluster, sample_plan, wait_until};
use tokio::time::sleep;

use super::journal::{Journal, RecoveryOutcome};
use super::schedule::{Kill, Victim, now};
use crate::support::leftover;

/// File that the agent writes.
const FILE: &str = "journal.txt";

/// Number of lines, and the pause between them in milliseconds.
const LINES: u32 = 200;
const PAUSE: u32 = 30;

/// Time limit of each step.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Runs kills on one cluster.
pub(crate) struct RecoveryRunner {
    cluster: Cluster,
    interval: u32,
    hosts: u32,
}

/// Worker with its own disk.
struct WorkerHost {
    process: TammaProcess,
    data: PathBuf,
}

/// Task of one kill.
struct JournalTask {
    number: u32,
    task: TaskId,
    project: ScriptedProject,
    /// File to which each agent appends the number of lines it found.
    counts: PathBuf,
}

impl RecoveryRunner {
    /// Starts the cluster without workers, with logs in `folder`.
    pub(crate) async fn start(folder: &Path, interval: u32) -> Result<Self> {
        let cluster = Cluster::builder().folder(folder).private_servers().server().start().await?;
        Ok(Self { cluster, interval, hosts: 0 })
    }

    /// Makes one kill, and compares the lines that the next agent finds with those written.
    pub(crate) async fn trial(&mut self, number: u32, kill: Kill) -> Result<RecoveryOutcome> {
        let case = self.case(number).await?;
        let mut host = self.host().await?;
        self.add(&case).await?;
        let file = host.worktree(case.task).join(FILE);
        wait_until_true("the first line", TIMEOUT, || file.exists()).await?;
        // The experiment is about random times, so there is no event to wait for.
        sleep(kill.after).await;
        let agents = runs_of(case.task);
        ensure!(!agents.is_empty(), "no agent is running at the time of the kill");
        let at = now();
        if kill.victim != Victim::Worker {
            leftover::kill_all(&agents).await?;
        }
        let before = if kill.victim == Victim::Agent {
            // The worktree survives, and the next agent continues in it.
            Journal::read(&fs::read_to_string(&file)?)
        } else {
            host.process.kill().await?;
            // The agent ends with its worker. Its disk is removed only after that.
            let exited = || runs_of(case.task).is_empty();
            wait_until_true("the end of the agent", TIMEOUT, exited).await?;
            let lost = self.cluster.folder().join(format!("lost-{number}"));
            fs::rename(&host.data, &lost)?;
            let file = lost.join("work/worktrees").join(case.task.to_string()).join(FILE);
            let before = Journal::read(&fs::read_to_string(file)?);
            host = self.host().await?;
            before
        };
        let found_lines = wait_until("the next agent", TIMEOUT, async || {
            let text = fs::read_to_string(&case.counts).unwrap_or_default();
            Ok(text.lines().nth(1).and_then(|line| line.parse().ok()))
        })
        .await?;
        self.completed(case.task).await?;
        let took = now().saturating_sub(at);
        host.process.kill().await?;
        let branch = self.cluster.store.task_branch(case.task).await?;
        let shown = format!("{branch}:{FILE}");
        let delivered = case.project.repository.git(&["show", &shown])?;
        Ok(RecoveryOutcome {
            kill,
            at,
            interval: Duration::from_secs(self.interval.into()),
            before,
            found_lines,
            delivered: Journal::read(&format!("{delivered}\n")),
            lines: LINES as usize,
            took,
        })
    }

    /// Starts a worker with an empty disk.
    async fn host(&mut self) -> Result<WorkerHost> {
        self.hosts += 1;
        let name = format!("host-{}", self.hosts);
        let mut process = self.cluster.new_worker(&name)?;
        process.start().await?;
        Ok(WorkerHost { process, data: self.cluster.folder().join(name) })
    }

    async fn case(&self, number: u32) -> Result<JournalTask> {
        let name = format!("journal-{number}");
        let counts = self.cluster.folder().join(format!("found-{number}"));
        let engines = [format!("salvage_seconds: {}", self.interval), "sandbox: off".to_owned()];
        let (repository, script) = (Repository::new()?, script_of(&counts));
        let project = self
            .cluster
            .add_project(number, &name, repository, &script, |config| config.engines(engines))
            .await?;
        Ok(JournalTask { number, task: task_id(number), project, counts })
    }

    async fn add(&self, case: &JournalTask) -> Result<()> {
        let more = ["--project", &case.project.name];
        self.cluster.add_task(case.number, "Keep a journal", &more).await?;
        Ok(())
    }

    async fn completed(&self, task: TaskId) -> Result<()> {
        let is_completed = |task_loop: &TaskLoop| match task_loop.state {
            State::Completed => Ok(true),
            State::Failed | State::Cancelled | State::HumanEscalation => {
                bail!("the task is {}", task_loop.state)
            }
            _ => Ok(false),
        };
        self.cluster.wait_for_task(task, TIMEOUT, is_completed).await?;
        Ok(())
    }
}

impl WorkerHost {
    fn worktree(&self, task: TaskId) -> PathBuf {
        self.data.join("work/worktrees").join(task.to_string())
    }
}

/// Returns the script of an agent that plans a journal and writes it line by line.
fn script_of(counts: &Path) -> Script {
    let change = sample_change(FILE, FileAction::Create);
    let plan = Plan {
        summary: "A journal is kept".to_owned(),
        file_changes: vec![FileChange { estimated_lines: LINES, ..change }],
        ..sample_plan(1)
    };
    let write = AgentStep::Journal {
        path: FILE.into(),
        lines: LINES,
        pause: PAUSE,
        found: counts.to_owned(),
    };
    Script::planned(plan, [write])
}

/// Returns the processes of a task's runs.
fn runs_of(task: TaskId) -> Vec<u32> {
    let task = task.to_string();
    leftover::runs().into_iter().filter(|run| run.task == task).map(|run| run.pid).collect()
}
