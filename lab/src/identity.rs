//! Sign-in with two real identity providers: oidc-provider and canaille.
//!
//! The experiment is a Python script, so that neither our client nor our server checks itself.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs, tools};

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let folder = programs::input("identity");
    tools::npm_install(&folder).await?;
    let environment = tools::python_venv(&folder.join("requirements.txt")).await?;
    let mut command = Command::new(environment.join("bin/python"));
    command.arg(folder.join("run.py")).arg(programs::folder()?);
    if quick {
        command.arg("--quick");
    }
    external::run("identity", &mut command).await
}
