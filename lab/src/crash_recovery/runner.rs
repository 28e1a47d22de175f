//! Runs the kills on one cluster, with workers that each have their own disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use tamma_core::ids::TaskId;
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::task_loop::State;
use tamma_testkit::agent::{AgentStep, PromptCase, SCRIPT_VARIABLE, Script};
use tamma_testkit::repository::Repository;
use tamma_testkit::tamma_process::TammaProcess;
use tokio::process::Command;
use tokio::time::sleep;

use super::journal::{Journal, RecoveryOutcome};
use super::schedule::{Kill, Victim, now};
use crate::support::cluster::{self, Cluster};
use crate::support::programs::beside;

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
    agent: PathBuf,
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
    repository: Repository,
    /// File to which each agent appends the number of lines it found.
    counts: PathBuf,
}

impl RecoveryRunner {
    /// Starts the cluster without workers, with logs in `folder`.
    pub(crate) async fn start(folder: &Path, interval: u32) -> Result<Self> {
        let agent = beside("scripted-agent")?;
        Ok(Self { cluster: Cluster::start(folder).await?, agent, interval, hosts: 0 })
    }

    /// Makes one kill, and compares the lines that the next agent finds with those written.
    pub(crate) async fn trial(&mut self, number: u32, kill: Kill) -> Result<RecoveryOutcome> {
        let case = self.case(number).await?;
        let mut host = self.host().await?;
        self.add(&case).await?;
        let file = host.worktree(case.task).join(FILE);
        wait("the first line", async || Ok(file.exists().then_some(()))).await?;
        // The experiment is about random times, so there is no event to wait for.
        sleep(kill.after).await;
        let agents = runs_of(case.task);
        ensure!(!agents.is_empty(), "no agent is running at the time of the kill");
        let at = now();
        if kill.victim != Victim::Worker {
            kill_all(&agents).await?;
        }
        let before = if kill.victim == Victim::Agent {
            // The worktree survives, and the next agent continues in it.
            Journal::read(&fs::read_to_string(&file)?)
        } else {
            host.process.kill().await?;
            // The agent ends with its worker. Its disk is removed only after that.
            wait("the end of the agent", async || Ok(runs_of(case.task).is_empty().then_some(())))
                .await?;
            let lost = self.cluster.folder.join(format!("lost-{number}"));
            fs::rename(&host.data, &lost)?;
            let file = lost.join("work/worktrees").join(case.task.to_string()).join(FILE);
            let before = Journal::read(&fs::read_to_string(file)?);
            host = self.host().await?;
            before
        };
        let found_lines = wait("the next agent", async || {
            let text = fs::read_to_string(&case.counts).unwrap_or_default();
            Ok(text.lines().nth(1).and_then(|line| line.parse().ok()))
        })
        .await?;
        self.completed(case.task).await?;
        let took = now().saturating_sub(at);
        host.process.kill().await?;
        let shown = format!("tamma/{}:{FILE}", case.task);
        let delivered = case.repository.git(&["show", &shown])?;
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
        let mut process = self.cluster.worker(&name, &[]);
        process.start().await?;
        Ok(WorkerHost { process, data: self.cluster.folder.join(name) })
    }

    async fn case(&self, number: u32) -> Result<JournalTask> {
        let folder = self.cluster.folder.join(format!("task-{number}"));
        fs::create_dir_all(&folder)?;
        let (script, counts) = (folder.join("script.json"), folder.join("found"));
        script_of(&counts).write(&script)?;
        let repository = Repository::new()?;
        repository.write(
            "tamma.yaml",
            &format!(
                "agents:\n  scripted:\n    command: {}\n    env:\n      {SCRIPT_VARIABLE}: {}\n\
                 tiers:\n  simple: {{ agent: scripted }}\n  moderate: {{ agent: scripted }}\n  \
                 complex: {{ agent: scripted }}\n\
                 gates:\n  check: {{ command: sh check.sh, kind: tests }}\n\
                 engines: {{ salvage_seconds: {}, sandbox: off }}\n",
                self.agent.display(),
                script.display(),
                self.interval,
            ),
        )?;
        self.cluster.register_project(number, &format!("journal-{number}"), &repository).await?;
        Ok(JournalTask { number, task: TaskId(cluster::id(2, number)), repository, counts })
    }

    async fn add(&self, case: &JournalTask) -> Result<()> {
        let project = format!("journal-{}", case.number);
        self.cluster.add_task(case.number, "Keep a journal", &["--project", &project]).await?;
        Ok(())
    }

    async fn completed(&self, task: TaskId) -> Result<()> {
        wait("the end of the task", async || {
            let task_loop = self.cluster.store.task(task).await?.task_loop?;
            match task_loop.state {
                State::Completed => Ok(Some(Ok(()))),
                State::Failed | State::Cancelled | State::HumanEscalation => {
                    Ok(Some(Err(anyhow::anyhow!("the task is {}", task_loop.state))))
                }
                _ => Ok(None),
            }
        })
        .await?
    }
}

impl WorkerHost {
    fn worktree(&self, task: TaskId) -> PathBuf {
        self.data.join("work/worktrees").join(task.to_string())
    }
}

/// Returns the script of an agent that plans a journal and writes it line by line.
fn script_of(counts: &Path) -> Script {
    let case = |when: &str, steps| PromptCase { when: when.to_owned(), unless: None, steps };
    let plan = Plan {
        summary: "A journal is kept".to_owned(),
        approach: "Write it line by line.".to_owned(),
        file_changes: vec![FileChange {
            path: FILE.to_owned(),
            action: FileAction::Create,
            description: "the journal".to_owned(),
            estimated_lines: LINES,
        }],
        testing_strategy: "Count the lines.".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    };
    let write = AgentStep::Journal {
        path: FILE.into(),
        lines: LINES,
        pause: PAUSE,
        found: counts.to_owned(),
    };
    Script {
        cases: vec![
            case("You are the planner", vec![AgentStep::Plan(Box::new(plan))]),
            case("You are implementing", vec![write]),
        ],
        ..Script::default()
    }
}

/// Returns the processes of a task's runs, found by Tamma's mark.
fn runs_of(task: TaskId) -> Vec<u32> {
    let mark = format!("TAMMA_RUN={task}/");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).split('\0').any(|it| it.starts_with(&mark))
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Kills processes with SIGKILL.
async fn kill_all(pids: &[u32]) -> Result<()> {
    let pids = pids.iter().map(ToString::to_string);
    Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status().await?;
    Ok(())
}

/// Polls until a value is available.
async fn wait<T>(what: &str, poll: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    cluster::wait(what, TIMEOUT, poll).await
}
