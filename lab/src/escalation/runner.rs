//! Where the cases are outcome: a Temporal, a PostgreSQL, a server, a worker, and a repository for each case.

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

use super::case::{EscalationCase, GATE};
use crate::support::cluster::Cluster;

/// How long a case may take.
const TIMEOUT: Duration = Duration::from_mins(15);

/// Who does the work.
#[derive(Debug, Clone)]
pub(crate) enum AgentSetup {
    /// A real agent, installed there, with a scripted model.
    Real { name: String, programs: PathBuf, key: &'static str },
    /// One that follows a script, without a model.
    Scripted(PathBuf),
}

/// Everything that the cases share.
pub(crate) struct EscalationRunner {
    pub(crate) cluster: Cluster,
    agent: AgentSetup,
}

/// What came of a case.
pub(crate) struct CaseOutcome {
    pub(crate) task: TaskId,
    pub(crate) machine: TaskLoop,
    pub(crate) log: Vec<HistoryEntry>,
    /// Whether what was made is on the branch that was pushed.
    pub(crate) pushed: bool,
    /// The models that were called, if there were any.
    pub(crate) models: BTreeSet<String>,
}

impl EscalationRunner {
    /// Starts everything, with logs in a folder.
    pub(crate) async fn prepare(folder: &Path, agent: AgentSetup) -> Result<Self> {
        let mut cluster = Cluster::start(folder).await?;
        let mut worker = cluster.worker("work", &[]);
        if let AgentSetup::Real { programs, key, .. } = &agent {
            let path = std::env::var("PATH").unwrap_or_default();
            worker = worker
                .with_env("PATH", format!("{}:{path}", programs.display()))
                .with_env(*key, "a-key-that-only-the-gateway-knows");
        }
        cluster.start_worker(worker).await?;
        Ok(Self { cluster, agent })
    }

    /// Goes one case to its end.
    pub(crate) async fn go(&self, number: u32, case: EscalationCase) -> Result<CaseOutcome> {
        let repository = Repository::new()?;
        repository.write("gate.sh", GATE)?;
        // The model listens for as long as this lives.
        let (agent, model) = self.agent(case).await?;
        let tier = |model: &str| match &self.agent {
            AgentSetup::Real { name, .. } if name == CLAUDE => {
                format!("{{ agent: {name}, model: {model} }}")
            }
            AgentSetup::Real { name, .. } => format!("{{ agent: {name}, model: default }}"),
            AgentSetup::Scripted(_) => "{ agent: scripted }".to_owned(),
        };
        let (simple, moderate, complex) = (tier("haiku"), tier("sonnet"), tier("opus"));
        let configuration = format!(
            "agents:\n{agent}tiers:\n  simple: {simple}\n  moderate: {moderate}\n  \
             complex: {complex}\n\
             gates:\n{}budget: {{ task_usd: {} }}\n{}\
             engines: {{ sandbox: {} }}\n",
            case.gates(),
            case.budget(),
            PRICES,
            if matches!(self.agent, AgentSetup::Scripted(_)) { "off" } else { "auto" },
        );
        repository.write("tamma.yaml", &configuration)?;
        repository.commit("gates")?;
        let project = case.to_string();
        self.cluster.register_project(number, &project, &repository).await?;
        let task = self.cluster.add_task(number, case.title(), &["--project", &project]).await?;
        let machine = self.ended(task).await?;
        let log = self.cluster.history(task).await?;
        let shown = format!("tamma/{task}:{}", case.left());
        let pushed = repository.git(&["show", &shown]).is_ok();
        let requests = model.iter().flat_map(ScriptedModel::requests);
        let models = requests.filter_map(|request| request.model).collect();
        Ok(CaseOutcome { task, machine, log, pushed, models })
    }

    /// The agent of a case as the configuration has it, and the model that it talks to.
    async fn agent(&self, case: EscalationCase) -> Result<(String, Option<ScriptedModel>)> {
        match &self.agent {
            AgentSetup::Real { name, .. } => {
                let model = ScriptedModel::start(case.model()).await?;
                Ok((format!("  {name}:\n    upstream: {}\n", model.url()), Some(model)))
            }
            AgentSetup::Scripted(program) => {
                let script = self.cluster.folder.join(format!("{case}.json"));
                case.agent().write(&script)?;
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
        let machine = self.cluster.until(task, TIMEOUT, is_over).await?;
        if machine.state == State::HumanEscalation {
            let log = self.cluster.history(task).await?;
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
