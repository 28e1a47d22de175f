//! Where the lies are played: a Temporal, a PostgreSQL, a server and one worker, and for every lie a
//! repository and a task of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::agent::SCRIPT_VARIABLE;
use tamma_testkit::repository::Repository;

use super::caught::{standings, what_caught};
use super::ways::{CRITERIA, Way};
use crate::support::programs::beside;
use crate::support::stage::Stage;

/// How long a task may take.
const PATIENCE: Duration = Duration::from_mins(3);

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
pub(crate) struct Ground {
    stage: Stage,
    agent: PathBuf,
}

impl Ground {
    /// Starts everything, with logs in a folder.
    pub(crate) async fn prepare(folder: &Path, slots: u16) -> Result<Self> {
        let agent = beside("scripted-agent")?;
        let mut stage = Stage::start(folder).await?;
        let worker = stage.worker("work", &["--slots", &slots.to_string()]);
        stage.employ(worker).await?;
        Ok(Self { stage, agent })
    }

    /// Ends everything.
    pub(crate) async fn end(self) -> Result<()> {
        self.stage.end().await
    }

    /// Plays one of them to its end: whether it was believed, and what caught it.
    pub(crate) async fn play(&self, number: u32, way: &Way) -> Result<(bool, String)> {
        let folder = self.stage.folder.join(format!("task-{number}"));
        fs::create_dir_all(&folder)?;
        let script = folder.join("script.json");
        way.script().write(&script)?;
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
        self.stage.register(number, &name, &repository).await?;
        let criteria = CRITERIA.iter().take(way.criteria).flat_map(|it| ["--criterion", it]);
        let more: Vec<&str> = ["--project", &name].into_iter().chain(criteria).collect();
        let task = self.stage.add(number, "Take discounts off", &more).await?;
        let state = self.stage.until(task, PATIENCE, is_over).await?.state;
        if state == State::Completed {
            let branch = format!("tamma/{task}");
            let delivered = repository.git(&["log", "--format=%s", &format!("main..{branch}")])?;
            let gates = standings(&self.stage.store.checks(task).await?);
            return Ok((true, format!("delivered: {delivered} ({gates})")));
        }
        let checks = self.stage.store.checks(task).await?;
        let lines = self.stage.store.history(task, 0, 1_000).await?;
        Ok((false, what_caught(state, &checks, &lines)))
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
