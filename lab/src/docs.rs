//! Every command of the documentation, in real repositories with a scripted agent.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs, tools};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only the pages whose path contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the real output of every command
    #[arg(long)]
    show: bool,
    /// Record the terminal and the browser, and replace the recordings in docs/pictures
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let mut command = Command::new("python3");
    command.arg(programs::input("docs").join("run.py")).arg(programs::folder()?);
    if let Some(only) = &arguments.only {
        command.args(["--only", only]);
    }
    command.args(arguments.show.then_some("--show"));
    if arguments.write {
        tools::npm_install(&programs::input("browser")).await?;
        command.arg("--write");
    }
    external::run("docs", &mut command).await
}
