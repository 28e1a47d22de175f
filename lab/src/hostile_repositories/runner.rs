//! Runs the kit on one cluster with one worker. Each repository has its own project and task.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::Cluster;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::hostile::{HostileRepository, SHELL_FUNCTIONS};
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{sample_plan, sample_work};
use tamma_testkit::tamma_process::TammaProcess;
use tokio::process::Command;

use crate::support::components::output_text;
use crate::support::programs;

/// Time limit of a task.
const TIMEOUT: Duration = Duration::from_mins(6);

/// Files of every repository before its author's script.
const FILES: [(&str, &str); 4] = [
    ("README.md", "# Greeter\n"),
    ("names.txt", "ann\nbo\n"),
    ("check.sh", "test -s names.txt\n"),
    ("src/old.txt", "old\n"),
];

/// Rules of all tasks: a person after one run, one failure, or one job that takes long. Errors
/// of git that its content did not cause are retried until then.
const RULES: &str = "\
scrum_master:
  task_loop: { max_iterations: 1, max_failures_per_state: 1, max_councils: 0, timeout_ms: 90000 }
";

/// Result of one repository.
pub(crate) struct KitOutcome {
    /// A command ran outside the sandbox.
    pub(crate) escaped: bool,
    /// `true` if the change was delivered, with the end of the task.
    pub(crate) result: Result<(bool, String)>,
}

/// State of the worker after all tasks.
pub(crate) struct WorkerState {
    /// Number of workers that ended by themselves.
    pub(crate) lost: usize,
    /// Largest resident memory, in megabytes.
    pub(crate) peak_mb: u64,
}

/// Runs the kit on one cluster.
pub(crate) struct KitRunner {
    cluster: Cluster,
    worker: TammaProcess,
}

impl KitRunner {
    /// Starts the cluster and its worker, with logs in `folder`.
    pub(crate) async fn start(folder: &Path, slots: u16) -> Result<Self> {
        let cluster = Cluster::builder().folder(folder).private_servers().server().start().await?;
        let slots = slots.to_string();
        let mut worker = cluster.new_worker("work")?.with_args(&["--slots", &slots]);
        worker.start().await?;
        Ok(Self { cluster, worker })
    }

    /// Reads the state of the worker, which nothing restarts.
    pub(crate) fn worker_state(&mut self) -> Result<WorkerState> {
        match self.worker.pid() {
            Some(pid) if self.worker.is_running()? => {
                Ok(WorkerState { lost: 0, peak_mb: peak_memory_kb(pid)? / 1024 })
            }
            _ => Ok(WorkerState { lost: 1, peak_mb: 0 }),
        }
    }

    /// Stops the worker and the cluster.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.worker.kill().await?;
        self.cluster.stop().await
    }

    /// Takes one repository through the product.
    pub(crate) async fn run(&self, number: u32, hostile: &HostileRepository) -> KitOutcome {
        let folder = self.cluster.folder().join(format!("hostile-{number}"));
        let result = self.take(number, hostile, &folder).await;
        KitOutcome { escaped: folder.join("loot").exists(), result }
    }

    async fn take(
        &self,
        number: u32,
        hostile: &HostileRepository,
        folder: &Path,
    ) -> Result<(bool, String)> {
        let repository = create_repository(hostile, folder).await?;
        let agent = write_script(folder, "agent.sh", hostile.agent, "")?;
        let gate = write_script(folder, "gate.sh", hostile.gate, "sh check.sh\n")?;
        let plan = sample_plan(1);
        let work: Vec<_> = sample_work(&plan).chain([AgentStep::Run(agent)]).collect();
        let script = Script::planned(plan, work);
        let readable = [programs::folder()?, folder.to_owned()];
        let readable = readable.map(|folder| format!("'{}'", folder.display())).join(", ");
        let configure = |config: ProjectConfig| {
            config
                .gates(format!("  check: {{ command: {gate}, kind: tests }}\n"))
                .engines([format!("readable: [{readable}]"), "salvage_seconds: 1".to_owned()])
                .more(RULES)
        };
        let name = format!("hostile-{number}");
        let project =
            self.cluster.add_project(number, &name, repository, &script, configure).await?;
        let added = self.cluster.add_task(number, "Greet Cy", &["--project", &name]).await;
        let task = match added {
            Ok(task) => task,
            Err(error) => return Ok((false, format!("refused: {error:#}"))),
        };
        let settled = self.cluster.wait_for_task(task, TIMEOUT, is_settled).await?;
        let state = settled.state;
        if state == State::Completed {
            // Git is not used here, because it would read the settings of the repository.
            let branch = self.cluster.store.task_branch(task).await?;
            let file = project.repository.path().join(".git/refs/heads").join(&branch);
            ensure!(file.exists(), "there is no branch");
            return Ok((true, branch));
        }
        let entries = self.cluster.history(task).await?;
        let reason = entries.iter().rev().find_map(|entry| entry.reason.as_ref());
        let cause = settled.open_question.map(|question| question.cause.to_string());
        let reason = reason.map(ToString::to_string).or(cause);
        let reason = reason.with_context(|| format!("the task is {state} without a reason"))?;
        let first = reason.lines().next().unwrap_or_default();
        Ok((false, format!("{state}: {first}")))
    }
}

/// Creates a repository. Its author works on their own machine, where commands may run.
async fn create_repository(hostile: &HostileRepository, folder: &Path) -> Result<Repository> {
    let repository = Repository::create(&folder.join("repository"), &FILES)?;
    let loot = folder.join("loot");
    let script = format!("{SHELL_FUNCTIONS}\n{}", hostile.repository);
    let created = Command::new("sh")
        .args(["-c", &script])
        .current_dir(repository.path())
        .env("LOOT", &loot)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(created.status.success(), "cannot create it: {}", output_text(&created));
    if loot.exists() {
        fs::remove_file(&loot)?;
    }
    Ok(repository)
}

/// Writes a hostile script, followed by `last`, and returns the command that runs it. The folder is
/// readable in the sandbox.
fn write_script(folder: &Path, name: &str, hostile: &str, last: &str) -> Result<String> {
    let (file, loot) = (folder.join(name), folder.join("loot"));
    let text = format!(
        "LOOT='{}'\nexport LOOT\n(\n{SHELL_FUNCTIONS}\n{hostile}\n) > /dev/null 2>&1\n{last}",
        loot.display()
    );
    fs::write(&file, text)?;
    Ok(format!("sh {}", file.display()))
}

/// Returns the largest resident memory of a process so far.
fn peak_memory_kb(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let line = line.context("the kernel does not report the peak memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Returns `true` if a task is closed or needs a person.
fn is_settled(task_loop: &TaskLoop) -> Result<bool> {
    // A low-risk plan passes this state without a question.
    if task_loop.state == State::AwaitingApproval && task_loop.open_question.is_some() {
        bail!("the plan unexpectedly awaits approval");
    }
    // The last jobs still need the folder.
    let quiet = task_loop.active_job.is_none() && task_loop.stopping_job.is_none();
    Ok(quiet && (task_loop.state.is_terminal() || task_loop.state == State::HumanEscalation))
}
