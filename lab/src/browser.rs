//! Working day of a person in a real browser, with a screenshot of every page.

use anyhow::Result;
use tokio::process::Command;

use crate::support::verdict::Verdict;
use crate::support::{external, programs, tools};

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let folder = programs::input("browser");
    tools::npm_install(&folder).await?;
    let mut command = Command::new("node");
    command
        .arg(folder.join("day.mjs"))
        .arg(programs::folder()?)
        .arg(programs::target()?.join("pictures"))
        .args(quick.then_some("--quick"));
    external::run("browser", &mut command).await
}
