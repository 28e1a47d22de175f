//! Runs the cases on one cluster, each with its own repository.

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

/// Time limit of a case.
const TIMEOUT: Duration = Duration::from_mins(15);

/// Agent of the experiment.
#[derive(Debug, Clone)]
pub(crate) enum AgentSetup {
    /// Real agent with a scripted model.
    Real { name: String, programs: PathBuf, key: &'static str },
    /// Scripted agent without a model, at this path.
    Scripted(PathBuf),
}

/// Runs cases on one cluster.
pub(crate) struct EscalationRunner {
    pub(crate) cluster: Cluster,
    agent: AgentSetup,
}

/// Outcome of a case.
pub(crate) struct CaseOutcome {
    pub(crate) task: TaskId,
    pub(crate) task_loop: TaskLoop,
    pub(crate) history: Vec<HistoryEntry>,
    /// `true` if the work is on the pushed branch.
    pub(crate) pushed: bool,
    /// Models that were requested.
    pub(crate) models: BTreeSet<String>,
}

impl EscalationRunner {
    /// Starts the cluster with one worker, and logs in `folder`.
    pub(crate) async fn start(folder: &Path, agent: AgentSetup) -> Result<Self> {
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

    /// Runs one case until its task is closed or needs a decision.
    pub(crate) async fn run(&self, number: u32, case: EscalationCase) -> Result<CaseOutcome> {
        let repository = Repository::new()?;
        repository.write("gate.sh", GATE)?;
        // Dropping the model stops it.
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
        let task_loop = self.wait_until_settled(task).await?;
        let history = self.cluster.history(task).await?;
        let shown = format!("tamma/{task}:{}", case.result_file());
        let pushed = repository.git(&["show", &shown]).is_ok();
        let requests = model.iter().flat_map(ScriptedModel::requests);
        let models = requests.filter_map(|request| request.model).collect();
        Ok(CaseOutcome { task, task_loop, history, pushed, models })
    }

    /// Returns the `agents` section of the configuration, and the model of a real agent.
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

    /// Waits until a task is closed, or needs a decision and its work is saved.
    async fn wait_until_settled(&self, task: TaskId) -> Result<TaskLoop> {
        let is_settled = |task_loop: &TaskLoop| {
            if task_loop.state == State::AwaitingApproval && task_loop.open_question.is_some() {
                bail!("the plan unexpectedly awaits approval");
            }
            let saved = task_loop.state == State::HumanEscalation
                && !task_loop.must_save_work
                && task_loop.active_job.is_none();
            Ok(saved || task_loop.state.is_terminal())
        };
        let task_loop = self.cluster.until(task, TIMEOUT, is_settled).await?;
        if task_loop.state == State::HumanEscalation {
            let history = self.cluster.history(task).await?;
            let reasons: Vec<_> =
                history.iter().filter_map(|entry| entry.reason.as_deref()).collect();
            ensure!(
                history.iter().any(|entry| entry.name == EntryName::SmWorkLanded),
                "the work was not saved: {}",
                reasons.join("; ")
            );
        }
        Ok(task_loop)
    }
}

/// Agent with the models haiku, sonnet and opus, one per tier.
const CLAUDE: &str = "claude-code";

/// Invented prices of the requested models.
const PRICES: &str = "prices:\n  \
    claude-haiku-5-5: { input: 3.0, cached: 0.3, output: 15.0 }\n  \
    claude-sonnet-5-5: { input: 6.0, cached: 0.6, output: 30.0 }\n  \
    claude-opus-5-5: { input: 12.0, cached: 1.2, output: 60.0 }\n  \
    gpt-5.5: { input: 3.0, cached: 0.3, output: 15.0 }\n";
