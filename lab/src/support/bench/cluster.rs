//! Cluster of a measurement: private Temporal and PostgreSQL, a project, and worker processes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::rules::{self, Rules};
use tamma_core::task::{Priority, Task, TaskType};
use tamma_store::{RegisteredProject, Store};
use tamma_testkit::agent::{AgentStep, PromptCase, SCRIPT_VARIABLE, Script, program};
use tamma_testkit::postgres;
use tamma_testkit::repository::Repository;
use tamma_testkit::temporal::TemporalServer;
use tempfile::TempDir;
use temporalio_client::{Client, ClientOptions, Connection, ConnectionOptions, Url};
use uuid::Uuid;

use super::meter;
use crate::support::programs::beside;

/// Durability of database writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Writes survive a power failure, as with `tamma up`.
    Durable,
    /// Nothing waits for the disk, as in tests.
    Fast,
}

/// Private PostgreSQL.
#[derive(Debug)]
pub(crate) struct Postgres {
    folder: TempDir,
    child: Child,
    server: String,
}

impl Postgres {
    fn start(durability: Durability) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (script, home) = (folder.path().join("postgres.sh"), folder.path().join("home"));
        std::fs::write(&script, postgres::SCRIPT)?;
        // The server may run as another user, who needs access.
        open(folder.path())?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut settings = vec!["shared_preload_libraries=pg_stat_statements"];
        if durability == Durability::Durable {
            settings.extend(["fsync=on", "synchronous_commit=on", "full_page_writes=on"]);
        }
        let mut child = child("bash")
            .arg(&script)
            .arg(&home)
            .args([std::process::id().to_string(), port.to_string()])
            .args(settings)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start `bash`")?;
        let server = first_line(&mut child)?;
        Ok(Self { folder, child, server })
    }

    /// Returns the PID of the main server process.
    pub(crate) fn process(&self) -> Result<u32> {
        let path = self.folder.path().join("home/server/data/postmaster.pid");
        let text = std::fs::read_to_string(&path)?;
        Ok(text.lines().next().context("postmaster.pid is empty")?.trim().parse()?)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The script stops the server.
        terminate(&mut self.child);
    }
}

fn open(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?)
}

#[expect(clippy::disallowed_methods, reason = "starts the measured processes")]
fn child(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn first_line(child: &mut Child) -> Result<String> {
    let out = child.stdout.take().context("the process has no standard output")?;
    let mut line = String::new();
    let mut lines = BufReader::new(out);
    lines.read_line(&mut line)?;
    if line.trim().is_empty() {
        bail!("a process exited at startup with {}", child.wait()?);
    }
    // Drain the rest of the output, so that the process does not block.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    Ok(line.trim().to_owned())
}

/// Stops a process with SIGTERM and waits for it.
fn terminate(child: &mut Child) {
    drop(child_of("kill", &child.id().to_string()));
    drop(child.wait());
}

fn child_of(program: &str, argument: &str) -> std::io::Result<std::process::ExitStatus> {
    child(program).arg(argument).stderr(Stdio::null()).status()
}

/// Measured process. Dropping it stops the process.
#[derive(Debug)]
pub(crate) struct MeasuredProcess(Child);

impl MeasuredProcess {
    /// Returns the PID.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        terminate(&mut self.0);
    }
}

/// Cluster of a measurement.
pub(crate) struct BenchCluster {
    /// Temporal server.
    pub(crate) temporal: TemporalServer,
    /// PostgreSQL server.
    pub(crate) postgres: Postgres,
    /// Database URL.
    pub(crate) database: String,
    /// Connection to the database.
    pub(crate) store: Store,
    /// Temporal client.
    pub(crate) client: Client,
    /// Repository of the project.
    pub(crate) repository: Repository,
    /// Folder of the workers' data.
    pub(crate) folder: TempDir,
    /// Project ID.
    pub(crate) project: ProjectId,
    /// Rules of all tasks.
    pub(crate) rules: Rules,
}

impl BenchCluster {
    /// Starts the servers and registers a project. Its agent changes `files` files per task.
    pub(crate) async fn start(durability: Durability, files: usize) -> Result<Self> {
        let postgres = Postgres::start(durability)?;
        tamma_store::create_database(&postgres.server, "bench", None).await?;
        let database = format!("{}/bench", postgres.server.trim_end_matches("/postgres"));
        meter::sql(&database, "CREATE EXTENSION pg_stat_statements").await?;
        let store = Store::connect(&database).await?;
        store.migrate().await?;
        store.ensure_partitions(today(), 3).await?;
        let temporal = TemporalServer::start().await?;
        let client = client(&temporal.address()).await?;
        let (folder, repository) = (tempfile::tempdir()?, Repository::new()?);
        let project = ProjectId(Uuid::from_u128(1));
        let (script, agent) = (folder.path().join("script.json"), program()?);
        script_of(files, None).write(&script)?;
        let configuration = format!(
            "engines:\n  sandbox: off\nagents:\n  scripted:\n    command: {}\n    env:\n      {SCRIPT_VARIABLE}: {}\n\
             tiers:\n  simple: {{ agent: scripted }}\n  moderate: {{ agent: scripted }}\n  \
             complex: {{ agent: scripted }}\n\
             gates:\n  check: {{ command: sh check.sh, kind: tests }}\n",
            agent.display(),
            script.display(),
        );
        repository.write("tamma.yaml", &configuration)?;
        let file = rules::ConfigFile { name: "tamma.yaml", text: &configuration };
        let rules = rules::load(Some(file), &BTreeMap::new())
            .map_err(|problems| anyhow::anyhow!("{problems}"))?
            .rules
            .without_secrets();
        let place = repository.path().display().to_string();
        store
            .register_project(&RegisteredProject {
                id: project,
                name: "greeter".to_owned(),
                repository: place,
            })
            .await?;
        Ok(Self { temporal, postgres, database, store, client, repository, folder, project, rules })
    }

    /// Starts Tamma's worker.
    pub(crate) fn start_worker(&self) -> Result<MeasuredProcess> {
        self.spawn_worker(self.tamma("work")?.env("TAMMA_LOG", "error"))
    }

    /// Starts Tamma's worker with a number of slots.
    pub(crate) fn start_worker_with_slots(&self, slots: usize) -> Result<MeasuredProcess> {
        let slots = slots.to_string();
        self.spawn_worker(self.tamma("work")?.args(["--slots", &slots]).env("TAMMA_LOG", "error"))
    }

    /// Makes new agents wait during their work until a file exists; `None` ends this.
    ///
    /// Before an agent waits, it appends a line to `held` in the folder of that file.
    pub(crate) fn hold(&self, until: Option<&Path>) -> Result<()> {
        script_of(1, until).write(&self.folder.path().join("script.json"))
    }

    /// Starts Tamma's server and returns its URL.
    pub(crate) fn start_server(&self) -> Result<(MeasuredProcess, String)> {
        let mut command = self.tamma("serve")?;
        command.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let line = first_line(&mut child)?;
        let url = line.strip_prefix("serving at ").context("the server printed no URL")?.to_owned();
        Ok((MeasuredProcess(child), url))
    }

    /// Returns a `tamma` command with the addresses of the servers.
    pub(crate) fn tamma(&self, verb: &str) -> Result<Command> {
        let mut command = child(beside("tamma")?);
        command
            .arg(verb)
            .env("TAMMA_DATABASE_URL", &self.database)
            .env("TAMMA_TEMPORAL_ADDRESS", self.temporal.address())
            .env("TAMMA_DATA", self.folder.path().join("data"))
            .env_remove("TAMMA_TOKEN")
            .current_dir(self.repository.path())
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Starts this program as a worker in another role.
    pub(crate) fn start_lab_worker(&self, role: &str) -> Result<MeasuredProcess> {
        let mut command = child(std::env::current_exe()?);
        command.args(["bench-worker", role, &self.temporal.address(), &self.database]);
        command.arg(self.folder.path());
        self.spawn_worker(&mut command)
    }

    #[expect(clippy::unused_self, reason = "a worker needs a cluster")]
    fn spawn_worker(&self, command: &mut Command) -> Result<MeasuredProcess> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let line = first_line(&mut child)?;
        if line != "working" {
            bail!("unexpected output of a worker: `{line}`");
        }
        Ok(MeasuredProcess(child))
    }

    /// Returns the task with a number.
    pub(crate) fn task(&self, number: u64) -> Task {
        Task {
            id: id(number),
            project: self.project,
            title: "Greet Cy".to_owned(),
            description: "Cy should be greeted too.".to_owned(),
            r#type: TaskType::Feature,
            priority: Priority::Medium,
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            metadata: BTreeMap::new(),
        }
    }
}

/// Returns the ID of a numbered task. The first digits differ, as in real IDs.
pub(crate) fn id(number: u64) -> TaskId {
    let first = u128::from(number) << 80;
    TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 | first))
}

/// Connects to Temporal.
pub(crate) async fn client(address: &str) -> Result<Client> {
    let url: Url = format!("http://{address}").parse()?;
    let options = ConnectionOptions::new(url)
        .identity(format!("bench-{}", std::process::id()))
        .connect_timeout(Duration::from_secs(10))
        .build();
    let connection = Connection::connect(options).await?;
    Ok(Client::new(connection, ClientOptions::new("default").build())?)
}

/// Returns a plan that changes `files` files.
pub(crate) fn plan(files: usize) -> Plan {
    let change = |number| FileChange {
        path: if number == 0 { "names.txt".to_owned() } else { format!("names/{number}.txt") },
        action: if number == 0 { FileAction::Modify } else { FileAction::Create },
        description: "one more name".to_owned(),
        estimated_lines: 1,
    };
    Plan {
        summary: "Cy is greeted".to_owned(),
        approach: "Add the name to the list.".to_owned(),
        file_changes: (0..files).map(change).collect(),
        testing_strategy: "The check counts the greetings.".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

/// Returns the script of an agent that responds at once and reports its cost, so that nothing waits for
/// it. It optionally waits for a file during its work.
fn script_of(files: usize, until: Option<&Path>) -> Script {
    let usage = || AgentStep::Usage { cost: "0.01".to_owned() };
    let case = |when: &str, steps: Vec<AgentStep>| PromptCase {
        when: when.to_owned(),
        unless: None,
        steps,
    };
    let plan = plan(files);
    let write = |change: &FileChange| AgentStep::Write {
        path: change.path.clone().into(),
        content: "ann\nbo\ncy\n".to_owned(),
    };
    let wait = until.into_iter().flat_map(|file| {
        let (path, line) = (file.with_file_name("held"), "waits".to_owned());
        [AgentStep::Append { path, line }, AgentStep::AwaitFile(file.to_owned())]
    });
    let work = plan.file_changes.iter().map(write).chain(wait).chain([usage()]).collect();
    Script {
        cases: vec![
            case("You are the planner", vec![usage(), AgentStep::Plan(Box::new(plan))]),
            case("You are implementing", work),
        ],
        ..Script::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "the history has a partition per month")]
fn today() -> chrono::NaiveDate {
    chrono::Utc::now().date_naive()
}
