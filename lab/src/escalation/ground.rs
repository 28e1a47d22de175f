//! Where the ways are gone: a Temporal, a PostgreSQL, a server, a worker, and a repository for each way.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::agent::SCRIPT_VARIABLE;
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::repository::Repository;

use super::way::{GATE, Way};
use crate::support::stage::Stage;

/// How long a way may take.
const PATIENCE: Duration = Duration::from_mins(15);

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
    pub(crate) stage: Stage,
    agent: Agent,
}

/// What came of a way.
pub(crate) struct Gone {
    pub(crate) task: TaskId,
    pub(crate) machine: TaskLoop,
    pub(crate) log: Vec<HistoryEntry>,
    /// Whether what was made is on the branch that was pushed.
    pub(crate) pushed: bool,
    /// The models that were called, if there were any.
    pub(crate) models: BTreeSet<String>,
}

impl Ground {
    /// Starts everything, with logs in a folder.
    pub(crate) async fn prepare(folder: &Path, agent: Agent) -> Result<Self> {
        let mut stage = Stage::start(folder).await?;
        let mut worker = stage.worker("work", &[]);
        if let Agent::Real { programs, key, .. } = &agent {
            let path = std::env::var("PATH").unwrap_or_default();
            worker = worker
                .with_env("PATH", format!("{}:{path}", programs.display()))
                .with_env(*key, "a-key-that-only-the-gateway-knows");
        }
        stage.employ(worker).await?;
        Ok(Self { stage, agent })
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
        let project = way.to_string();
        self.stage.register(number, &project, &repository).await?;
        let task = self.stage.add(number, way.title(), &["--project", &project]).await?;
        let machine = self.ended(task).await?;
        let log = self.stage.log(task).await?;
        let shown = format!("tamma/{task}:{}", way.left());
        let pushed = repository.git(&["show", &shown]).is_ok();
        let requests = model.iter().flat_map(ScriptedModel::requests);
        let models = requests.filter_map(|request| request.model).collect();
        Ok(Gone { task, machine, log, pushed, models })
    }

    /// The agent of a way as the configuration has it, and the model that it talks to.
    async fn agent(&self, way: Way) -> Result<(String, Option<ScriptedModel>)> {
        match &self.agent {
            Agent::Real { name, .. } => {
                let model = ScriptedModel::start(way.model()).await?;
                Ok((format!("  {name}:\n    upstream: {}\n", model.url()), Some(model)))
            }
            Agent::Scripted(program) => {
                let script = self.stage.folder.join(format!("{way}.json"));
                way.agent().write(&script)?;
                let (program, script) = (program.display(), script.display());
                let text = format!(
                    "  scripted:\n    command: {program}\n    env:\n      {SCRIPT_VARIABLE}: {script}\n"
                );
                Ok((text, None))
            }
        }
    }

    /// Waits until a task has ended, or is with a person and its work is landed.
    async fn ended(&self, task: TaskId) -> Result<TaskLoop> {
        let is_over = |machine: &TaskLoop| {
            if machine.state == State::AwaitingApproval && machine.open_question.is_some() {
                bail!("its plan waits for an approval");
            }
            let landed = machine.state == State::HumanEscalation
                && !machine.must_save_work
                && machine.active_job.is_none();
            Ok(landed || machine.state.is_terminal())
        };
        let machine = self.stage.until(task, PATIENCE, is_over).await?;
        if machine.state == State::HumanEscalation {
            let log = self.stage.log(task).await?;
            let reasons: Vec<_> = log.iter().filter_map(|entry| entry.reason.as_deref()).collect();
            ensure!(
                log.iter().any(|entry| entry.name == EntryName::SmWorkLanded),
                "its work is not landed: {}",
                reasons.join("; ")
            );
        }
        Ok(machine)
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
