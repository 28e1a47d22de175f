//! Runs the claims on one cluster, each with its own repository and task.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::Cluster;
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;

use super::claims::{CRITERIA, Claim};
use super::rejection::{gate_statuses, rejection_reason};
use crate::support::programs;

/// Time limit of a task.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Files of every repository.
const FILES: [(&str, &str); 7] = [
    (".gitignore", include_str!("../../inputs/false-claims/shop/ignored")),
    ("auth/session.py", include_str!("../../inputs/false-claims/shop/auth/session.py")),
    ("check.py", include_str!("../../inputs/false-claims/shop/check.py")),
    ("shop.py", include_str!("../../inputs/false-claims/shop/shop.py")),
    ("style.sh", include_str!("../../inputs/false-claims/shop/style.sh")),
    ("tests/__init__.py", ""),
    ("tests/test_shop.py", include_str!("../../inputs/false-claims/shop/tests/test_shop.py")),
];

/// Gates of every repository.
const GATES: &str = "  style: { command: sh style.sh, kind: lint }
  tests: { command: python3 -m check, kind: tests, report: junit }
";

/// Rules of all tasks: one run, then a decision by a person.
const RULES: &str = "\
scrum_master:
  task_loop: { max_iterations: 1 }
review:
  patterns:
    no-print: { regex: '\\bprint\\(', paths: ['*.py'], message: 'use the log' }
    no-eval: { code: eval($$$), language: python, message: 'eval runs untrusted code' }
";

/// Runs claims on one cluster.
pub(crate) struct ClaimRunner {
    cluster: Cluster,
}

impl ClaimRunner {
    /// Starts the cluster with one worker, and logs in `folder`.
    pub(crate) async fn start(folder: &Path, slots: u16) -> Result<Self> {
        let cluster = Cluster::builder()
            .folder(folder)
            .private_servers()
            .server()
            .workers(1)
            .worker_args(&["--slots", &slots.to_string()])
            .start()
            .await?;
        Ok(Self { cluster })
    }

    /// Stops the cluster.
    pub(crate) async fn stop(self) -> Result<()> {
        self.cluster.stop().await
    }

    /// Runs one claim. Returns `true` if it was believed, with the delivery or the rejection.
    pub(crate) async fn run(&self, number: u32, claim: &Claim) -> Result<(bool, String)> {
        let repository = Repository::new()?;
        for (name, text) in FILES {
            repository.write(name, text)?;
        }
        repository.commit("the shop")?;
        let name = format!("shop-{number}");
        let readable = [programs::folder()?, self.cluster.folder().join(&name)];
        let readable = readable.map(|folder| format!("'{}'", folder.display())).join(", ");
        let configure = |config: ProjectConfig| {
            config.gates(GATES).engines([format!("readable: [{readable}]")]).more(RULES)
        };
        let script = claim.script();
        let project =
            self.cluster.add_project(number, &name, repository, &script, configure).await?;
        let repository = &project.repository;
        let criteria = CRITERIA.iter().take(claim.criteria).flat_map(|it| ["--criterion", it]);
        let more: Vec<&str> = ["--project", &name].into_iter().chain(criteria).collect();
        let task = self.cluster.add_task(number, "Take discounts off", &more).await?;
        let state = self.cluster.wait_for_task(task, TIMEOUT, is_settled).await?.state;
        if state == State::Completed {
            let branch = self.cluster.store.task_branch(task).await?;
            let delivered = repository.git(&["log", "--format=%s", &format!("main..{branch}")])?;
            let gates = gate_statuses(&self.cluster.store.checks(task).await?);
            return Ok((true, format!("delivered: {delivered} ({gates})")));
        }
        let checks = self.cluster.store.checks(task).await?;
        let lines = self.cluster.store.history(task, 0, 1_000).await?;
        Ok((false, rejection_reason(state, &checks, &lines)))
    }
}

/// Returns `true` if a task is closed or needs a decision.
fn is_settled(task_loop: &TaskLoop) -> Result<bool> {
    // A low-risk plan passes this state without a question.
    if task_loop.state == State::AwaitingApproval && task_loop.open_question.is_some() {
        bail!("the plan unexpectedly awaits approval");
    }
    // The last jobs still need the folder.
    let quiet = task_loop.active_job.is_none() && task_loop.stopping_job.is_none();
    Ok(quiet && (task_loop.state.is_terminal() || task_loop.state == State::HumanEscalation))
}
