//! Where the lies are played: a Temporal, a PostgreSQL, a server and one worker, and for every lie a
//! repository and a task of its own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::State;
use tamma_store::{Project, Store};
use tamma_testkit::agent::SCRIPT;
use tamma_testkit::repository::Repository;
use tamma_testkit::role::Role;
use tamma_testkit::{postgres, temporal};
use tokio::process::Command;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::caught::{standings, what_caught};
use crate::ways::{CRITERIA, Way};

/// How long a task may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// How often is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// What every repository has in it.
const FILES: [(&str, &str); 7] = [
    (".gitignore", include_str!("shop/ignored")),
    ("auth/session.py", include_str!("shop/auth/session.py")),
    ("check.py", include_str!("shop/check.py")),
    ("shop.py", include_str!("shop/shop.py")),
    ("style.sh", include_str!("shop/style.sh")),
    ("tests/__init__.py", ""),
    ("tests/test_shop.py", include_str!("shop/tests/test_shop.py")),
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
    _postgres: postgres::Server,
    _temporal: temporal::Server,
    _roles: [Role; 2],
    store: Store,
    tamma: PathBuf,
    agent: PathBuf,
    folder: PathBuf,
    url: String,
}

impl Ground {
    /// Starts everything, with logs in a folder.
    pub(crate) async fn prepare(folder: &Path, slots: u16) -> Result<Self> {
        let (tamma, agent) = (beside("tamma")?, beside("scripted-agent")?);
        let (postgres, temporal) =
            tokio::try_join!(postgres::Server::start(), temporal::Server::start())?;
        postgres.ask("postgres", "CREATE DATABASE tamma").await?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let (database, address) = (postgres.url("postgres", "tamma"), temporal.address());
        let role = |name: &str, more: &[&str]| {
            let data = folder.join(name).display().to_string();
            let words = [name, "--database", &database, "--temporal", &address, "--data", &data];
            let words = words.iter().chain(more).map(|word| (*word).to_owned());
            Role::new(&tamma, words, folder.join(format!("{name}.log")))
        };
        let mut server = role("serve", &["--listen", &listen]);
        server.start().await?;
        let mut worker = role("work", &["--slots", &slots.to_string()]);
        worker.start().await?;
        Ok(Self {
            store: Store::connect(&database).await?,
            _postgres: postgres,
            _temporal: temporal,
            _roles: [server, worker],
            tamma,
            agent,
            folder: folder.to_owned(),
            url: format!("http://{listen}"),
        })
    }

    /// Plays one of them to its end: whether it was believed, and what caught it.
    pub(crate) async fn play(&self, number: u32, way: &Way) -> Result<(bool, String)> {
        let folder = self.folder.join(format!("task-{number}"));
        fs::create_dir_all(&folder)?;
        let script = folder.join("script.json");
        way.script().write(&script)?;
        let repository = Repository::new()?;
        for (name, text) in FILES {
            repository.write(name, text)?;
        }
        repository.commit("the shop")?;
        let own = format!(
            "agents:\n  scripted:\n    command: {agent}\n    env:\n      {SCRIPT}: {script}\n\
             engines: {{ readable: ['{programs}', '{folder}'] }}\n{RULES}",
            agent = self.agent.display(),
            script = script.display(),
            programs = self.agent.parent().unwrap_or(Path::new("/")).display(),
            folder = folder.display(),
        );
        repository.write("tamma.yaml", &own)?;
        let id = |kind: u128| {
            let number = (kind << 32) + u128::from(number);
            Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + number)
        };
        let (task, name) = (TaskId(id(2)), format!("shop-{number}"));
        let repository_path = repository.path().display().to_string();
        let project =
            Project { id: ProjectId(id(1)), name: name.clone(), repository: repository_path };
        self.store.register(&project).await?;
        self.add(&name, task, way.criteria).await?;
        let state = self.ended(task).await?;
        if state == State::Completed {
            let branch = format!("tamma/{task}");
            let delivered = repository.git(&["log", "--format=%s", &format!("main..{branch}")])?;
            let gates = standings(&self.store.checks(task).await?);
            return Ok((true, format!("delivered: {delivered} ({gates})")));
        }
        let checks = self.store.checks(task).await?;
        let lines = self.store.history(task, 0, 1_000).await?;
        Ok((false, what_caught(state, &checks, &lines)))
    }

    async fn add(&self, project: &str, task: TaskId, criteria: usize) -> Result<()> {
        let id = task.to_string();
        let criteria = CRITERIA.iter().take(criteria).flat_map(|it| ["--criterion", it]);
        let output = Command::new(&self.tamma)
            .args(["task", "add", "Take discounts off", "--project", project, "--id", &id])
            .args(criteria)
            .args(["--server", &self.url, "--json"])
            .env("TAMMA_PERSON", "Ann")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "the task cannot be added: {said}");
        Ok(())
    }

    /// Waits until a task has ended or a person has to look. Nothing tells when.
    async fn ended(&self, task: TaskId) -> Result<State> {
        let until = Instant::now() + PATIENCE;
        loop {
            let found =
                self.store.task(task).await.context("the task is not there").and_then(|whole| {
                    whole.machine.map_err(|damage| anyhow::anyhow!("it is damaged: {damage}"))
                });
            match found {
                Ok(machine) => match machine.state {
                    State::Completed
                    | State::Failed
                    | State::Cancelled
                    | State::HumanEscalation => return Ok(machine.state),
                    // A plan of low risk only passes through here.
                    State::AwaitingApproval if machine.question.is_some() => {
                        bail!("somebody is asked to approve the plan")
                    }
                    state if Instant::now() > until => {
                        bail!("it is still {state} after {} s", PATIENCE.as_secs())
                    }
                    _ => {}
                },
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => {}
            }
            sleep(LOOK).await;
        }
    }
}

/// A program that is built with this one.
fn beside(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let found = here.parent().unwrap_or(Path::new(".")).join(name);
    if !found.is_file() {
        bail!("`{}` is not built: run `cargo build --workspace --bins`", found.display());
    }
    Ok(found)
}
