//! `tamma try`: an example project, a demo agent and a plan that waits for an approval.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tamma_core::rules::SandboxMode;
use tamma_engine::sandbox;
use uuid::Uuid;

use super::{do_task, sign_in, up};
use crate::client::{Client, IdentityArgs};
use crate::repository::Repository;
use crate::services::ProgramSearch;
use crate::watch::{self, WatchEnd, WatchOptions, WatchPosition};
use crate::{background, data_folder, example_project, output};

/// Time limit for the plan, which the demo agent makes at once.
const PLAN_TIMEOUT: Duration = Duration::from_mins(2);

/// Variable that selects the sandbox of all agents.
const SANDBOX_VARIABLE: &str = "TAMMA_ENGINES_SANDBOX";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(help = "New or empty folder for the example [default: the current folder]")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(try_out(arguments))
}

/// Runs the demo agent on standard input and output.
pub(super) fn run_agent() -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let role = tamma_eval::ScriptedRole::Demo;
    runtime.block_on(tamma_eval::serve(role, example_project::script))?;
    Ok(ExitCode::SUCCESS)
}

async fn try_out(arguments: &Args) -> Result<ExitCode> {
    let folder = empty_folder(arguments.folder.as_deref())?;
    check_requirements()?;
    let by = arguments.identity.resolve_name()?;
    let data = std::env::var_os("TAMMA_DATA").filter(|data| !data.is_empty()).map(PathBuf::from);
    let data = data_folder::resolve(data.as_deref())?;
    // First, because this can fail: nothing is left in the folder then. In the data folder, because an
    // outer repository should not become a project.
    background::prepare(&data).with_context(|| format!("cannot create {}", data.display()))?;
    let endpoint = up::ensure_running(&data, &data).await?;
    let client = Client::for_endpoint(endpoint)?;
    let program = std::env::current_exe().context("cannot find the program `tamma`")?;
    let repository = example_project::create(&folder, &program)?;
    let done = format!("made an example repository in {}", repository.root.display());
    output::write_done(&mut anstream::stdout().lock(), &done)?;
    let task = add_example(&client, &repository, &by).await?;
    let options = WatchOptions { until_asked: true, json: false, asks_inline: true };
    let mut position = WatchPosition::default();
    let watching = watch::watch_from(&client, task, options, &mut position);
    let Ok(end) = tokio::time::timeout(PLAN_TIMEOUT, watching).await else {
        let short = tamma_server::dto::short_id(task);
        bail!(
            "there is no plan after {} s\n  help: `tamma task show {short}` and `tamma logs` say why",
            PLAN_TIMEOUT.as_secs()
        );
    };
    let end = end?;
    if end != WatchEnd::NeedsPerson {
        return Ok(end.exit_code());
    }
    let link = sign_in::create_link(&client, &by).await?;
    print_next(&folder, &data, &link, task)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder as an absolute path, and creates it if it does not exist. Fails if it has content.
fn empty_folder(named: Option<&Path>) -> Result<PathBuf> {
    let folder = std::path::absolute(named.unwrap_or(Path::new(".")));
    let folder = folder.context("cannot determine the current folder")?;
    let failed = || format!("cannot use the folder {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(failed)?;
    if std::fs::read_dir(&folder).with_context(failed)?.next().is_some() {
        bail!(
            "{} is not empty\n  help: name a new folder, such as `tamma try tamma-example`; for a task \
             in your own repository, run `tamma \"…\"` there",
            folder.display()
        );
    }
    // Git reports paths without links.
    folder.canonicalize().with_context(failed)
}

/// Checks what the example needs besides the servers of `tamma up`.
fn check_requirements() -> Result<()> {
    if ProgramSearch::from_environment().find_program("git").is_none() {
        bail!("git is not installed: run `apt install git` or `brew install git`");
    }
    let is_chosen = std::env::var_os(SANDBOX_VARIABLE).is_some_and(|value| !value.is_empty());
    match sandbox::choose(SandboxMode::Auto) {
        Err(error) if !is_chosen => bail!(
            "agents cannot start: {error}\n  help: the demo agent needs no isolation, so you can also \
             run `{SANDBOX_VARIABLE}=off tamma try`; stop Tamma with `tamma down` before you use a real \
             agent"
        ),
        _ => Ok(()),
    }
}

/// Registers the example and adds its task.
async fn add_example(client: &Client, repository: &Repository, by: &str) -> Result<Uuid> {
    let (project, _) = up::ensure_registered(client, repository, by).await?;
    let criteria = example_project::CRITERIA.map(str::to_owned).to_vec();
    let (title, description) = (example_project::TITLE, example_project::DESCRIPTION);
    let project = Some(project.id.to_string());
    let task = do_task::new_task(project, title.to_owned(), description.to_owned(), criteria);
    Ok(do_task::add_task(client, by, &task, false).await?.task.id)
}

fn print_next(folder: &Path, data: &Path, link: &str, task: Uuid) -> Result<()> {
    let mut out = anstream::stdout().lock();
    let short = tamma_server::dto::short_id(task);
    writeln!(out)?;
    output::write_heading(&mut out, "The plan is waiting for your approval")?;
    writeln!(out, "  Open it (the link signs you in, once, within 10 min):")?;
    writeln!(out, "  {link}&to=/tasks/{task}")?;
    writeln!(out)?;
    let next = [
        (format!("tamma approve {short}"), "read the plan here and approve it".to_owned()),
        (
            format!("tamma task watch {short}"),
            "follow it: the first attempt fails a test".to_owned(),
        ),
        ("tamma down".to_owned(), "stop Tamma; its tasks resume at the next start".to_owned()),
    ];
    output::write_next_steps(&mut out, &next)?;
    writeln!(out)?;
    writeln!(out, "The agent in this example is a demo: it follows a script and uses no model.")?;
    writeln!(out, "In a repository of yours, with an agent of yours: tamma \"what to do\"")?;
    writeln!(out, "{}", removal_hint(folder, data))?;
    Ok(())
}

/// Says how to remove the example. The data folder may hold tasks of other projects.
fn removal_hint(folder: &Path, data: &Path) -> String {
    format!(
        "To remove the example: tamma down, then delete {}\nTasks and database of all projects are in \
         {}: delete it, too, if you have no others",
        folder.display(),
        data.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_everything_that_the_example_leaves() {
        let hint = removal_hint(Path::new("/home/ann/example"), Path::new("/home/ann/.tamma"));
        assert!(
            hint.contains("/home/ann/example\n") && hint.contains("/home/ann/.tamma:"),
            "{hint}"
        );
    }
}
