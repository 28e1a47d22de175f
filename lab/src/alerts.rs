//! Alerts to real receivers: a webhook that is unreachable at first, a Slack-compatible endpoint and an
//! SMTP server.
//!
//! The experiment is a Python script, so that an independent implementation verifies the signatures.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs, tools};

pub(crate) async fn run() -> Result<Verdict> {
    let folder = programs::input("alerts");
    let environment = tools::python_venv(&folder.join("requirements.txt")).await?;
    let mut command = Command::new(environment.join("bin/python"));
    command.arg(folder.join("run.py")).arg(programs::folder()?);
    external::run("alerts", &mut command).await
}
