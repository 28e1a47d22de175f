//! Installs Tamma from its packages on a minimal system, and takes the first task to its end.
//!
//! The experiment is a Python script, because it runs inside the minimal system too, which has no other
//! program of the lab.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these cases, separated by commas: archive, wheel, npm, debian or upgrade
    #[arg(long, value_name = "CASES")]
    only: Option<String>,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let mut command = Command::new("python3");
    command.arg(programs::input("first-minute").join("run.py")).arg(programs::folder()?);
    command.args(quick.then_some("--quick"));
    if let Some(only) = &arguments.only {
        command.args(["--only", only]);
    }
    external::run("first-minute", &mut command).await
}
