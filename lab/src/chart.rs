//! Installs the Helm chart with every values file on a recording API server, and checks what it gets.
//!
//! Needs Helm and the schemas of custom resources, which `TAMMA_TOOLS=helm bash .ci/tools` installs. The
//! experiment is a Python script, because the schemas of Kubernetes are a Python package.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs, tools};

pub(crate) async fn run() -> Result<Verdict> {
    let folder = programs::input("chart");
    let environment = tools::python_venv(&folder.join("requirements.txt")).await?;
    let mut command = Command::new(environment.join("bin/python"));
    command.arg(folder.join("run.py"));
    external::run("chart", &mut command).await
}
