//! What is measured on: a private Temporal, a private PostgreSQL, a project, and worker processes.

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

/// Whether the database keeps what it says it has written when the machine loses its power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// As `tamma up` runs it.
    Durable,
    /// As tests run it: nothing waits for the disk.
    Fast,
}

/// A PostgreSQL of our own.
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
        // Whoever the server runs as must come through.
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
            .context("`bash` does not start")?;
        let server = first_line(&mut child)?;
        Ok(Self { folder, child, server })
    }

    /// The first process of the server.
    pub(crate) fn process(&self) -> Result<u32> {
        let path = self.folder.path().join("home/server/data/postmaster.pid");
        let text = std::fs::read_to_string(&path)?;
        Ok(text.lines().next().context("a number")?.trim().parse()?)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its script takes the server with it.
        end(&mut self.child);
    }
}

fn open(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?)
}

#[expect(clippy::disallowed_methods, reason = "what is measured is started here")]
fn child(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn first_line(child: &mut Child) -> Result<String> {
    let out = child.stdout.take().context("it has a standard output")?;
    let mut line = String::new();
    let mut lines = BufReader::new(out);
    lines.read_line(&mut line)?;
    if line.trim().is_empty() {
        bail!("a process did not start: it ended with {}", child.wait()?);
    }
    // What else it says is nothing to us, and must not stop it.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    Ok(line.trim().to_owned())
}

/// Asks a process to end, and waits until it has.
fn end(child: &mut Child) {
    drop(child_of("kill", &child.id().to_string()));
    drop(child.wait());
}

fn child_of(program: &str, argument: &str) -> std::io::Result<std::process::ExitStatus> {
    child(program).arg(argument).stderr(Stdio::null()).status()
}

/// A process that is measured. It ends with this guard.
#[derive(Debug)]
pub(crate) struct MeasuredProcess(Child);

impl MeasuredProcess {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Everything.
pub(crate) struct BenchCluster {
    /// Temporal.
    pub(crate) temporal: TemporalServer,
    /// PostgreSQL.
    pub(crate) postgres: Postgres,
    /// The URL of the database.
    pub(crate) database: String,
    /// The store on it.
    pub(crate) store: Store,
    /// A way to Temporal.
    pub(crate) client: Client,
    /// The project's repository.
    pub(crate) repository: Repository,
    /// Where workers have their data.
    pub(crate) folder: TempDir,
    /// The project.
    pub(crate) project: ProjectId,
    /// The rules of its tasks.
    pub(crate) rules: Rules,
}

impl BenchCluster {
    /// Starts all of it. The agent plans a change of so many files and makes it.
    pub(crate) async fn set(durability: Durability, files: usize) -> Result<Self> {
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

    /// A worker of the product.
    pub(crate) fn tamma_work(&self) -> Result<MeasuredProcess> {
        self.started(self.tamma("work")?.env("TAMMA_LOG", "error"))
    }

    /// A worker of the product with so many slots.
    pub(crate) fn tamma_work_with(&self, slots: usize) -> Result<MeasuredProcess> {
        let slots = slots.to_string();
        self.started(self.tamma("work")?.args(["--slots", &slots]).env("TAMMA_LOG", "error"))
    }

    /// Lets every agent that is started from now on wait in the middle of its work until a file is
    /// there, or none. Before it waits, it adds a line to that file's neighbour `held`.
    pub(crate) fn hold(&self, until: Option<&Path>) -> Result<()> {
        script_of(1, until).write(&self.folder.path().join("script.json"))
    }

    /// A server of the product, and where it is.
    pub(crate) fn tamma_serve(&self) -> Result<(MeasuredProcess, String)> {
        let mut command = self.tamma("serve")?;
        command.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let said = first_line(&mut child)?;
        let url = said.strip_prefix("serving at ").context("it says where it serves")?.to_owned();
        Ok((MeasuredProcess(child), url))
    }

    /// The command of the product, with where everything is.
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

    /// A worker of the measurement: this program again, in another role.
    pub(crate) fn own_work(&self, role: &str) -> Result<MeasuredProcess> {
        let mut command = child(std::env::current_exe()?);
        command.args(["bench-worker", role, &self.temporal.address(), &self.database]);
        command.arg(self.folder.path());
        self.started(&mut command)
    }

    #[expect(clippy::unused_self, reason = "a worker needs a cluster")]
    fn started(&self, command: &mut Command) -> Result<MeasuredProcess> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let said = first_line(&mut child)?;
        if said != "working" {
            bail!("a worker says `{said}`");
        }
        Ok(MeasuredProcess(child))
    }

    /// A task, by its number in this run.
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

/// The id of a task, by its number. Their first digits differ, as those of people's tasks do.
pub(crate) fn id(number: u64) -> TaskId {
    let first = u128::from(number) << 80;
    TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 | first))
}

/// A way to Temporal.
pub(crate) async fn client(address: &str) -> Result<Client> {
    let url: Url = format!("http://{address}").parse()?;
    let options = ConnectionOptions::new(url)
        .identity(format!("bench-{}", std::process::id()))
        .connect_timeout(Duration::from_secs(10))
        .build();
    let connection = Connection::connect(options).await?;
    Ok(Client::new(connection, ClientOptions::new("default").build())?)
}

/// A plan that touches so many files.
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

/// An agent that answers at once, and says what it cost so that nobody waits for that. When it works,
/// it may have to wait for a file.
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

#[expect(clippy::disallowed_methods, reason = "the log has a place for every month")]
fn today() -> chrono::NaiveDate {
    chrono::Utc::now().date_naive()
}
