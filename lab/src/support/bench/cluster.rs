//! Cluster of a measurement: private Temporal and PostgreSQL, a project, and worker processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tamma_core::ids::TaskId;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_store::Store;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script, VALIDATOR};
use tamma_testkit::project::ScriptedProject;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{sample_task, sample_work};
use tamma_testkit::tamma_process::TammaProcess;
use tamma_testkit::{Cluster, sample_plan, temporal};
use temporalio_client::Client;
use tokio::process::Command;
use uuid::Uuid;

use super::children::ChildRecorder;
use super::git_log::GitLog;
use super::meter;
use super::temporal::TemporalArgs;

/// Durability of database writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Writes survive a power failure, as with `tamma up`.
    Durable,
    /// Nothing waits for the disk, as in tests.
    Fast,
}

/// Settings of the database for all measurements.
const SETTINGS: [&str; 3] =
    ["shared_preload_libraries=pg_stat_statements", "max_connections=400", "max_wal_size=1GB"];

/// Settings of a database that does not wait for the disk.
const FAST: [&str; 3] = ["fsync=off", "synchronous_commit=off", "full_page_writes=off"];

/// Cluster with a project and a Temporal client.
pub(crate) struct BenchCluster {
    /// Servers and database.
    pub(crate) cluster: Cluster,
    /// Project of all tasks.
    pub(crate) project: ScriptedProject,
    /// Database URL.
    pub(crate) database: String,
    /// Temporal client.
    pub(crate) client: Client,
    /// Rules of all tasks.
    pub(crate) rules: Rules,
    /// Records the child processes of Tamma's worker.
    pub(crate) recorder: ChildRecorder,
    temporal: TemporalArgs,
}

impl BenchCluster {
    /// Starts the servers and registers a project. Its agent changes `files` files per task.
    pub(crate) async fn start(durability: Durability, files: usize) -> Result<Self> {
        Self::start_with(durability, files, TemporalArgs::default()).await
    }

    /// Starts the servers with a chosen Temporal, and registers a project.
    pub(crate) async fn start_with(
        durability: Durability,
        files: usize,
        choice: TemporalArgs,
    ) -> Result<Self> {
        let fast = if durability == Durability::Fast { &FAST[..] } else { &[] };
        let cluster = choice
            .add_to(Cluster::builder())?
            .database_settings(&SETTINGS)
            .database_settings(fast)
            .start()
            .await?;
        let database = cluster.database_url();
        meter::sql(&database, "CREATE EXTENSION pg_stat_statements").await?;
        cluster.store.ensure_partitions(today(), 3).await?;
        let client = temporal::connect(&cluster.temporal_address()?).await?;
        let (repository, script) = (Repository::new()?, script_of(files, None));
        let recorder = ChildRecorder::create(cluster.folder(), &tamma_testkit::agent::program()?)?;
        let agent = recorder.agent().display().to_string();
        let project = cluster
            .add_project(1, "greeter", repository, &script, |config| config.command(&agent))
            .await?;
        let rules = project.rules(&BTreeMap::new())?;
        Ok(Self { cluster, project, database, client, rules, recorder, temporal: choice })
    }

    /// Returns the connection to the database.
    pub(crate) fn store(&self) -> &Store {
        &self.cluster.store
    }

    /// Returns the folder of the workers' data.
    pub(crate) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// Starts Tamma's worker.
    pub(crate) async fn start_worker(&self) -> Result<TammaProcess> {
        self.start_worker_with(&[]).await
    }

    /// Starts a number of Tamma's workers. Each has its own folder, as on its own machine.
    pub(crate) async fn start_workers(&self, count: usize) -> Result<Vec<TammaProcess>> {
        let mut workers = Vec::new();
        for number in 1..=count {
            let name = if number == 1 { "work".to_owned() } else { format!("work-{number}") };
            let worker = self.cluster.new_worker(&name)?;
            workers.push(self.started(worker.with_env("TAMMA_LOG", "error")).await?);
        }
        Ok(workers)
    }

    /// Starts Tamma's worker with a number of slots.
    pub(crate) async fn start_worker_with_slots(&self, slots: usize) -> Result<TammaProcess> {
        self.start_worker_with(&["--slots", &slots.to_string()]).await
    }

    /// Starts Tamma's worker, and counts its git processes.
    pub(crate) async fn start_worker_with_git_log(&self, log: &GitLog) -> Result<TammaProcess> {
        let worker = self.cluster.new_worker("work")?.with_env("PATH", log.search_path()?);
        self.started(worker.with_env("TAMMA_LOG", "error")).await
    }

    async fn start_worker_with(&self, arguments: &[&str]) -> Result<TammaProcess> {
        let worker = self.cluster.new_worker("work")?.with_args(arguments);
        self.started(worker.with_env("TAMMA_LOG", "error")).await
    }

    /// Starts Tamma's worker, with the recording programs before the real ones.
    pub(crate) async fn start_recorded_worker(&self) -> Result<TammaProcess> {
        let worker = self.cluster.new_worker("work")?.with_env("PATH", self.recorder.start()?);
        self.started(worker.with_env("TAMMA_LOG", "error")).await
    }

    /// Deletes the branches of earlier tasks, so that no variant pays for those of the others.
    pub(crate) async fn delete_task_branches(&self) -> Result<()> {
        let mut repositories = vec![self.project.repository.path().to_owned()];
        let entries = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(|path| path.is_dir())
        };
        let workers = entries(self.folder());
        let mirrors = workers.flat_map(|worker| entries(&worker.join("work/mirrors")));
        repositories.extend(mirrors);
        // A command without a shell would need its own pipe.
        let script = "git for-each-ref --format='delete %(refname)' refs/heads/tamma refs/tamma \
                      | git update-ref --stdin";
        for repository in repositories {
            let output = Command::new("sh")
                .args(["-c", script])
                .current_dir(&repository)
                .stdin(Stdio::null())
                .output()
                .await?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "cannot delete task branches: {}", stderr.trim());
        }
        Ok(())
    }

    /// Returns the IDs of the main processes of Temporal.
    pub(crate) fn temporal_pids(&self) -> Result<Vec<u32>> {
        self.temporal.pids(&self.cluster)
    }

    /// Starts Tamma's server.
    pub(crate) async fn start_server(&self) -> Result<TammaProcess> {
        self.started(self.cluster.new_server()?).await
    }

    /// Starts this program as a worker in another role.
    pub(crate) async fn start_lab_worker(&self, role: &str) -> Result<TammaProcess> {
        let folder = self.folder().display().to_string();
        let arguments =
            ["bench-worker", role, &self.cluster.temporal_address()?, &self.database, &folder]
                .map(str::to_owned);
        let log = self.folder().join(format!("{role}.log"));
        self.started(TammaProcess::new(&std::env::current_exe()?, arguments, log)).await
    }

    async fn started(&self, process: TammaProcess) -> Result<TammaProcess> {
        let mut process = process.as_released(self.project.repository.path());
        process.start().await?;
        Ok(process)
    }

    /// Makes new agents wait during their work until a file exists; `None` ends this.
    ///
    /// Before an agent waits, it appends a line to `held` in the folder of that file.
    pub(crate) fn hold(&self, until: Option<&Path>) -> Result<()> {
        self.project.write_script(&script_of(1, until))
    }

    /// Makes new agents plan and change another number of files.
    pub(crate) fn plan_files(&self, files: usize) -> Result<()> {
        self.project.write_script(&script_of(files, None))
    }

    /// Returns the task with a number.
    pub(crate) fn task(&self, number: u64) -> Task {
        sample_task(id(number), self.project.id)
    }

    /// Returns the IDs of the main processes of a Temporal dev server and PostgreSQL.
    pub(crate) fn server_pids(&self) -> Result<[u32; 2]> {
        let temporal = self.cluster.temporal()?.pid().context("Temporal does not run")?;
        Ok([temporal, self.postgres_pid()?])
    }

    /// Returns the ID of the main process of PostgreSQL.
    pub(crate) fn postgres_pid(&self) -> Result<u32> {
        self.cluster.postgres()?.pid().context("PostgreSQL does not run")
    }
}

/// Returns the ID of a running process.
pub(crate) fn pid(process: &TammaProcess) -> Result<u32> {
    process.pid().context("a measured process has exited")
}

/// Returns the ID of a numbered task. The first digits differ, as in real IDs, and so do the last ones,
/// which name its branch.
pub(crate) fn id(number: u64) -> TaskId {
    let number = u128::from(number);
    TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 | (number << 80) | number))
}

/// Returns the script of an agent that responds at once and reports its cost, so that nothing waits for
/// it. It optionally waits for a file during its work.
fn script_of(files: usize, until: Option<&Path>) -> Script {
    let usage = || AgentStep::Usage { cost: "0.01".to_owned() };
    let plan = sample_plan(files);
    let wait = until.into_iter().flat_map(|file| {
        let (path, line) = (file.with_file_name("held"), "waits".to_owned());
        [AgentStep::Append { path, line }, AgentStep::AwaitFile(file.to_owned())]
    });
    let work: Vec<_> = sample_work(&plan).chain(wait).chain([usage()]).collect();
    Script::from_cases([
        PromptCase::new(PLANNER, [usage(), AgentStep::Plan(Box::new(plan))]),
        PromptCase::new(IMPLEMENTER, work),
        PromptCase::new(VALIDATOR, [usage(), AgentStep::Approve]),
    ])
}

#[expect(clippy::disallowed_methods, reason = "the history has a partition per month")]
fn today() -> chrono::NaiveDate {
    chrono::Utc::now().date_naive()
}
