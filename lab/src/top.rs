//! `tamma top` in a real terminal of 80 × 24, driven by tmux, with a capture of every screen.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the captured screens to docs/top.md
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let mut command = Command::new("python3");
    command
        .arg(programs::input("top").join("run.py"))
        .arg(programs::folder()?)
        .arg(programs::target()?.join("pictures").join("top"))
        .args(arguments.write.then_some("--write"));
    external::run("top", &mut command).await
}
