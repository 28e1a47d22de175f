//! Working day of a person in a real browser, with a screenshot of every page.

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs, tools};

/// Screenshots that documents show.
const DOCUMENTED: [&str; 2] = ["board", "task"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace the screenshots of the board and of a task in docs/pictures
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let folder = programs::input("browser");
    tools::npm_install(&folder).await?;
    let pictures = programs::target()?.join("pictures");
    let mut command = Command::new("node");
    command
        .arg(folder.join("day.mjs"))
        .arg(programs::folder()?)
        .arg(&pictures)
        .args(quick.then_some("--quick"));
    let verdict = external::run("browser", &mut command).await?;
    if arguments.write && verdict.passed {
        for name in DOCUMENTED {
            let taken = pictures.join(format!("readme-{name}.png"));
            let to = programs::documents().join("pictures").join(format!("{name}.png"));
            std::fs::copy(&taken, to).with_context(|| taken.display().to_string())?;
        }
    }
    Ok(verdict)
}
