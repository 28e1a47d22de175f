//! Where the ways are gone: a Temporal, a PostgreSQL, a server, a worker, and a repository for each way.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::log::{Entry, EntryName};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_store::{Project, Store};
use tamma_testkit::agent::SCRIPT;
use tamma_testkit::model::Model;
use tamma_testkit::repository::Repository;
use tamma_testkit::role::Role;
use tamma_testkit::{postgres, temporal};
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::way::{GATE, Way};

/// How long a way may take.
const PATIENCE: Duration = Duration::from_mins(15);

/// How often is looked how far a task is, which tells nobody here.
const LOOK: Duration = Duration::from_millis(100);

/// How many entries of a log are read.
const ENTRIES: u32 = 10_000;

/// Who does the work.
#[derive(Debug, Clone)]
pub(crate) enum Agent {
    /// A real agent, installed there, with a scripted model.
    Real { name: String, programs: PathBuf, key: &'static str },
    /// One that follows a script, without a model.
    Scripted(PathBuf),
}

/// Everything that the ways share.
pub(crate) struct Ground {
    _postgres: postgres::Server,
    _temporal: temporal::Server,
    _roles: [Role; 2],
    pub(crate) store: Store,
    tamma: PathBuf,
    folder: PathBuf,
    url: String,
    agent: Agent,
}

/// What came of a way.
pub(crate) struct Gone {
    pub(crate) task: TaskId,
    pub(crate) machine: TaskLoop,
    pub(crate) log: Vec<Entry>,
    /// Whether what was made is on the branch that was pushed.
    pub(crate) pushed: bool,
    /// The models that were called, if there were any.
    pub(crate) models: BTreeSet<String>,
}

impl Ground {
    /// Starts everything, with logs in a folder.
    pub(crate) async fn prepare(tamma: &Path, folder: &Path, agent: Agent) -> Result<Self> {
        let (postgres, temporal) =
            tokio::try_join!(postgres::Server::start(), temporal::Server::start())?;
        postgres.ask("postgres", "CREATE DATABASE tamma").await?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let (database, address) = (postgres.url("postgres", "tamma"), temporal.address());
        let role = |name: &str, more: &[&str]| {
            let data = folder.join(name).display().to_string();
            let given = [name, "--database", &database, "--temporal", &address, "--data", &data];
            let arguments = given.iter().chain(more).map(|word| (*word).to_owned());
            Role::new(tamma, arguments, folder.join(format!("{name}.log")))
        };
        let mut server = role("serve", &["--listen", &listen]);
        server.start().await?;
        let mut worker = role("work", &[]);
        if let Agent::Real { programs, key, .. } = &agent {
            let path = std::env::var("PATH").unwrap_or_default();
            worker = worker
                .with("PATH", format!("{}:{path}", programs.display()))
                .with(*key, "a-key-that-only-the-gateway-knows");
        }
        worker.start().await?;
        Ok(Self {
            store: Store::connect(&database).await?,
            _postgres: postgres,
            _temporal: temporal,
            _roles: [server, worker],
            tamma: tamma.to_owned(),
            folder: folder.to_owned(),
            url: format!("http://{listen}"),
            agent,
        })
    }

    /// Goes one way to its end.
    pub(crate) async fn go(&self, number: u32, way: Way) -> Result<Gone> {
        let repository = Repository::new()?;
        repository.write("gate.sh", GATE)?;
        // The model listens for as long as this lives.
        let (agent, model) = self.agent(way).await?;
        let tier = |model: &str| match &self.agent {
            Agent::Real { name, .. } if name == CLAUDE => {
                format!("{{ agent: {name}, model: {model} }}")
            }
            Agent::Real { name, .. } => format!("{{ agent: {name}, model: default }}"),
            Agent::Scripted(_) => "{ agent: scripted }".to_owned(),
        };
        let (simple, moderate, complex) = (tier("haiku"), tier("sonnet"), tier("opus"));
        let configuration = format!(
            "agents:\n{agent}tiers:\n  simple: {simple}\n  moderate: {moderate}\n  \
             complex: {complex}\n\
             gates:\n{}budget: {{ task_usd: {} }}\n{}\
             engines: {{ sandbox: {} }}\n",
            way.gates(),
            way.budget(),
            PRICES,
            if matches!(self.agent, Agent::Scripted(_)) { "off" } else { "auto" },
        );
        repository.write("tamma.yaml", &configuration)?;
        repository.commit("gates")?;
        let id = |kind: u128| {
            let number = (kind << 32) + u128::from(number);
            Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + number)
        };
        let (project, task) = (way.to_string(), TaskId(id(2)));
        self.store
            .register(&Project {
                id: ProjectId(id(1)),
                name: project.clone(),
                repository: repository.path().display().to_string(),
            })
            .await?;
        self.add(way, &project, task).await?;
        let machine = self.ended(task).await?;
        let log = self.log(task).await?;
        let shown = format!("tamma/{task}:{}", way.left());
        let pushed = repository.git(&["show", &shown]).is_ok();
        let requests = model.iter().flat_map(Model::requests);
        let models = requests.filter_map(|request| request.model).collect();
        Ok(Gone { task, machine, log, pushed, models })
    }

    /// The agent of a way as the configuration has it, and the model that it talks to.
    async fn agent(&self, way: Way) -> Result<(String, Option<Model>)> {
        match &self.agent {
            Agent::Real { name, .. } => {
                let model = Model::start(way.model()).await?;
                Ok((format!("  {name}:\n    upstream: {}\n", model.url()), Some(model)))
            }
            Agent::Scripted(program) => {
                let script = self.folder.join(format!("{way}.json"));
                way.agent().write(&script)?;
                let (program, script) = (program.display(), script.display());
                let text = format!(
                    "  scripted:\n    command: {program}\n    env:\n      {SCRIPT}: {script}\n"
                );
                Ok((text, None))
            }
        }
    }

    async fn add(&self, way: Way, project: &str, task: TaskId) -> Result<()> {
        let output = Command::new(&self.tamma)
            .args(["task", "add", way.title(), "--project", project, "--id", &task.to_string()])
            .args(["--server", &self.url, "--json"])
            .env("TAMMA_PERSON", "Ann")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(output.status.success(), "the task cannot be added: {said}");
        Ok(())
    }

    /// Waits until a task has ended, or is with a person and its work is landed.
    async fn ended(&self, task: TaskId) -> Result<TaskLoop> {
        let looking = async {
            loop {
                let machine = self.store.task(task).await?.machine?;
                let landed = machine.state == State::HumanEscalation
                    && !machine.to_land
                    && machine.work.is_none();
                if landed || machine.state.is_terminal() {
                    return anyhow::Ok(machine);
                }
                if machine.state == State::AwaitingApproval && machine.question.is_some() {
                    bail!("its plan waits for an approval");
                }
                sleep(LOOK).await;
            }
        };
        let machine = timeout(PATIENCE, looking).await;
        let machine = machine.with_context(|| {
            format!("it has not ended within {} minutes", PATIENCE.as_secs() / 60)
        })??;
        if machine.state == State::HumanEscalation {
            let log = self.log(task).await?;
            let reasons: Vec<_> = log.iter().filter_map(|entry| entry.reason.as_deref()).collect();
            ensure!(
                log.iter().any(|entry| entry.name == EntryName::SmWorkLanded),
                "its work is not landed: {}",
                reasons.join("; ")
            );
        }
        Ok(machine)
    }

    async fn log(&self, task: TaskId) -> Result<Vec<Entry>> {
        let lines = self.store.history(task, 0, ENTRIES).await?;
        Ok(lines.into_iter().map(|line| line.entry).collect())
    }
}

/// The agent whose models are called haiku, sonnet and opus, one for each tier.
const CLAUDE: &str = "claude-code";

/// What the models cost that the agents then ask for. The prices are made up.
const PRICES: &str = "prices:\n  \
    claude-haiku-5-5: { input: 3.0, cached: 0.3, output: 15.0 }\n  \
    claude-sonnet-5-5: { input: 6.0, cached: 0.6, output: 30.0 }\n  \
    claude-opus-5-5: { input: 12.0, cached: 1.2, output: 60.0 }\n  \
    gpt-5.5: { input: 3.0, cached: 0.3, output: 15.0 }\n";
