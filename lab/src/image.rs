//! Builds the container image, and runs it hardened with `runc`, with and without the settings that the
//! sandbox of agents needs.
//!
//! The experiment is a Python script, as the one of the packages, whose browser it uses.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these cases, separated by commas: kubernetes, compose, masked-proc, default-seccomp or
    /// defaults
    #[arg(long, value_name = "CASES")]
    only: Option<String>,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let mut command = Command::new("python3");
    command.arg(programs::input("image").join("run.py")).arg(programs::folder()?);
    command.args(quick.then_some("--quick"));
    if let Some(only) = &arguments.only {
        command.args(["--only", only]);
    }
    external::run("image", &mut command).await
}
