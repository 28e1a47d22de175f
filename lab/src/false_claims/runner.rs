//! Where the lies are outcomes: a Temporal, a PostgreSQL, a server and one worker, and for every lie a
//! repository and a task of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::agent::SCRIPT_VARIABLE;
use tamma_testkit::repository::Repository;

use super::claims::{CRITERIA, Claim};
use super::rejection::{gate_statuses, rejection_reason};
use crate::support::cluster::Cluster;
use crate::support::programs::beside;

/// How long a task may take.
const TIMEOUT: Duration = Duration::from_mins(3);

/// What every repository has in it.
const FILES: [(&str, &str); 7] = [
    (".gitignore", include_str!("../../inputs/false-claims/shop/ignored")),
    ("auth/session.py", include_str!("../../inputs/false-claims/shop/auth/session.py")),
    ("check.py", include_str!("../../inputs/false-claims/shop/check.py")),
    ("shop.py", include_str!("../../inputs/false-claims/shop/shop.py")),
    ("style.sh", include_str!("../../inputs/false-claims/shop/style.sh")),
    ("tests/__init__.py", ""),
    ("tests/test_shop.py", include_str!("../../inputs/false-claims/shop/tests/test_shop.py")),
];

/// The rules that all of them run under. One run, and then a person.
const RULES: &str = "\
tiers:
  simple: { agent: scripted }
  moderate: { agent: scripted }
  complex: { agent: scripted }
gates:
  style: { command: sh style.sh, kind: lint }
  tests: { command: python3 -m check, kind: tests, report: junit }
scrum_master:
  task_loop: { max_iterations: 1 }
review:
  patterns:
    no-print: { regex: '\\bprint\\(', paths: ['*.py'], message: 'nobody reads it' }
    no-eval: { code: eval($$$), language: python, message: 'it runs what others wrote' }
";

/// Everything that the lies share.
pub(crate) struct ClaimRunner {
    cluster: Cluster,
    agent: PathBuf,
}

impl ClaimRunner {
    /// Starts everything, with logs in a folder.
    pub(crate) async fn prepare(folder: &Path, slots: u16) -> Result<Self> {
        let agent = beside("scripted-agent")?;
        let mut cluster = Cluster::start(folder).await?;
        let worker = cluster.worker("work", &["--slots", &slots.to_string()]);
        cluster.start_worker(worker).await?;
        Ok(Self { cluster, agent })
    }

    /// Ends everything.
    pub(crate) async fn stop(self) -> Result<()> {
        self.cluster.stop().await
    }

    /// Plays one of them to its end: whether it was believed, and what rejection it.
    pub(crate) async fn play(&self, number: u32, claim: &Claim) -> Result<(bool, String)> {
        let folder = self.cluster.folder.join(format!("task-{number}"));
        fs::create_dir_all(&folder)?;
        let script = folder.join("script.json");
        claim.script().write(&script)?;
        let repository = Repository::new()?;
        for (name, text) in FILES {
            repository.write(name, text)?;
        }
        repository.commit("the shop")?;
        let own = format!(
            "agents:\n  scripted:\n    command: {agent}\n    env:\n      {SCRIPT_VARIABLE}: {script}\n\
             engines: {{ readable: ['{programs}', '{folder}'] }}\n{RULES}",
            agent = self.agent.display(),
            script = script.display(),
            programs = self.agent.parent().unwrap_or(Path::new("/")).display(),
            folder = folder.display(),
        );
        repository.write("tamma.yaml", &own)?;
        let name = format!("shop-{number}");
        self.cluster.register_project(number, &name, &repository).await?;
        let criteria = CRITERIA.iter().take(claim.criteria).flat_map(|it| ["--criterion", it]);
        let more: Vec<&str> = ["--project", &name].into_iter().chain(criteria).collect();
        let task = self.cluster.add_task(number, "Take discounts off", &more).await?;
        let state = self.cluster.until(task, TIMEOUT, is_over).await?.state;
        if state == State::Completed {
            let branch = format!("tamma/{task}");
            let delivered = repository.git(&["log", "--format=%s", &format!("main..{branch}")])?;
            let gates = gate_statuses(&self.cluster.store.checks(task).await?);
            return Ok((true, format!("delivered: {delivered} ({gates})")));
        }
        let checks = self.cluster.store.checks(task).await?;
        let lines = self.cluster.store.history(task, 0, 1_000).await?;
        Ok((false, rejection_reason(state, &checks, &lines)))
    }
}

/// Whether a task has ended or a person has to look.
fn is_over(machine: &TaskLoop) -> Result<bool> {
    // A plan of low risk only passes through here.
    if machine.state == State::AwaitingApproval && machine.open_question.is_some() {
        bail!("somebody is asked to approve the plan");
    }
    // What is landed or learned at the end is waited for: it needs the folder.
    let quiet = machine.active_job.is_none() && machine.stopping_job.is_none();
    Ok(quiet && (machine.state.is_terminal() || machine.state == State::HumanEscalation))
}
