//! Runs the cases on one cluster, each with its own repository.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::Cluster;
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::repository::Repository;

use super::case::{EscalationCase, GATE};
use crate::support::agent_setup::AgentSetup;
use crate::support::scripts::PRICES;

/// Time limit of a case.
const TIMEOUT: Duration = Duration::from_mins(15);

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
    /// Pushed branch that the work is on.
    pub(crate) pushed: Option<String>,
    /// Models that were requested.
    pub(crate) models: BTreeSet<String>,
}

impl EscalationRunner {
    /// Starts the cluster with one worker, and logs in `folder`.
    pub(crate) async fn start(folder: &Path, agent: AgentSetup) -> Result<Self> {
        let cluster = Cluster::builder().folder(folder).private_servers().server().workers(1);
        let cluster = agent.add_to(cluster).start().await?;
        Ok(Self { cluster, agent })
    }

    /// Runs one case until its task is closed or needs a decision.
    pub(crate) async fn run(&self, number: u32, case: EscalationCase) -> Result<CaseOutcome> {
        let repository = Repository::new()?;
        repository.write("gate.sh", GATE)?;
        let script = self.cluster.folder().join(format!("{case}.json"));
        // Dropping the model stops it.
        let (config, model) = self.agent.configure(&script, case.script_cases()).await?;
        let budget = format!("budget: {{ task_usd: {} }}\n", case.budget());
        let configuration = config.gates(case.gates()).more(&budget).more(PRICES).to_string();
        repository.write("tamma.yaml", &configuration)?;
        repository.commit("gates")?;
        let project = case.to_string();
        self.cluster.register_project(number, &project, &repository).await?;
        let task = self.cluster.add_task(number, case.title(), &["--project", &project]).await?;
        let task_loop = self.wait_until_settled(task).await?;
        let history = self.cluster.history(task).await?;
        let branch = self.cluster.store.task_branch(task).await?;
        let shown = format!("{branch}:{}", case.result_file());
        let pushed = repository.git(&["show", &shown]).is_ok().then_some(branch);
        let requests = model.iter().flat_map(ScriptedModel::requests);
        let models = requests.filter_map(|request| request.model).collect();
        Ok(CaseOutcome { task, task_loop, history, pushed, models })
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
        let task_loop = self.cluster.wait_for_task(task, TIMEOUT, is_settled).await?;
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
