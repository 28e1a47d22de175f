//! `tamma do`, and `tamma "…"`: from a request to a decision in one command.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use tamma_core::task::{MAX_TITLE_CHARS, Priority, TaskType};
use tamma_server::dto::{AddedTask, NewTask};
use uuid::Uuid;

use super::doctor::CheckStatus;
use super::task::add;
use super::{config, decide, init, up};
use crate::agents::{self, BUILT_IN_AGENTS};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::repository::Repository;
use crate::services::ProgramSearch;
use crate::watch::{self, WatchEnd, WatchOptions, WatchPosition};
use crate::{data_folder, operator_file, output};

/// Exit code after Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to do, in your words
    request: String,
    /// Acceptance criterion (repeatable)
    #[arg(long = "criterion", value_name = "TEXT")]
    criteria: Vec<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let by = arguments.identity.resolve_name()?;
        let (client, project) = if arguments.target.names_server() {
            let client = Client::new(&arguments.target)?;
            let project = add::current_project(&client).await?;
            (client, project)
        } else {
            let (client, project) = local_project(&by).await?;
            (client, Some(project.to_string()))
        };
        let (title, description) = split_request(&arguments.request);
        let criteria = arguments.criteria.clone();
        let task = new_task(project, title, description, criteria);
        let added = add_task(&client, &by, &task, arguments.target.json).await?;
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let json = arguments.target.json;
        let asks_inline = is_terminal && !json;
        let options = WatchOptions { until_asked: true, json, asks_inline };
        let task = added.task.id;
        tokio::select! {
            end = follow(&client, &by, task, options) => end,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                if !json {
                    print_way_back(task)?;
                }
                Ok(ExitCode::from(INTERRUPTED))
            }
        }
    })
}

/// Says after Ctrl-C that the task goes on, and how to return to it.
fn print_way_back(task: Uuid) -> Result<()> {
    let short = tamma_server::dto::short_id(task);
    let mut out = anstream::stdout().lock();
    writeln!(out, "\nNo longer watching; the task goes on. Return to it with one of")?;
    writeln!(out, "  tamma task watch {short}")?;
    writeln!(out, "  tamma task show {short}   # shows every answer")?;
    writeln!(out, "  tamma cancel {short} --reason TEXT")?;
    Ok(())
}

/// Returns the server of this machine and the project of the current repository. Sets up the repository
/// and starts Tamma in the background where that has not been done.
async fn local_project(by: &str) -> Result<(Client, Uuid)> {
    let repository = Repository::containing(Path::new("."))?;
    let data = std::env::var_os("TAMMA_DATA").filter(|data| !data.is_empty()).map(PathBuf::from);
    let data = data_folder::resolve(data.as_deref())?;
    let operator = operator_file::read(&data)?.unwrap_or_default();
    if let config::ConfigStatus::None = config::check_nearest(&operator)? {
        check_any_agent()?;
        let done = init::set_up(&repository, false)?;
        init::print_short_summary(&mut anstream::stderr().lock(), &done)?;
    }
    for (name, text) in up::setup_warnings(&repository, &operator) {
        output::write_check(&mut anstream::stderr().lock(), CheckStatus::Warning, name, &text)?;
    }
    let client = Client::for_endpoint(up::ensure_running(&data, &repository.root).await?)?;
    let (project, _) = up::ensure_registered(&client, &repository, by).await?;
    Ok((client, project.id))
}

/// Refuses to set up a repository on a machine without agents, because nothing could work on the task.
fn check_any_agent() -> Result<()> {
    let search = ProgramSearch::from_environment();
    let found = agents::detect(|name| search.find_program(name), |_| false);
    if !found.installed.is_empty() {
        return Ok(());
    }
    let mut lines = Vec::new();
    for known in BUILT_IN_AGENTS {
        lines.push(format!("\n  {:<12} {}, then {}", known.name, known.install, known.sign_in));
    }
    bail!(
        "no coding agent is installed, so nothing can work on the task\n  help: install one and sign in \
         (docs/first-real-run.md explains keys), or run `tamma try` to see Tamma without one:{}",
        lines.concat()
    );
}

/// Splits a request into a one-line title and a description, which is empty if the title says it all.
fn split_request(request: &str) -> (String, String) {
    let request = request.trim();
    let first = request.lines().next().unwrap_or_default().trim();
    if first == request && first.chars().count() <= MAX_TITLE_CHARS {
        return (first.to_owned(), String::new());
    }
    let mut title = String::new();
    for word in first.split_whitespace() {
        // One character is for the ellipsis.
        if title.chars().count() + 1 + word.chars().count() >= MAX_TITLE_CHARS {
            title.push('…');
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(word);
    }
    (title, request.to_owned())
}

/// Returns a task with default values.
pub(super) fn new_task(
    project: Option<String>,
    title: String,
    description: String,
    criteria: Vec<String>,
) -> NewTask {
    NewTask {
        id: Some(client::new_id()),
        project,
        title,
        description,
        r#type: TaskType::Feature,
        priority: Priority::Medium,
        acceptance_criteria: criteria,
        labels: Vec::new(),
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
        issue_number: None,
        metadata: BTreeMap::new(),
        plan: None,
    }
}

/// Adds a task, and says so unless the output is JSON.
pub(super) async fn add_task(
    client: &Client,
    by: &str,
    task: &NewTask,
    json: bool,
) -> Result<AddedTask> {
    let key = task.id.unwrap_or_else(client::new_id);
    let added: AddedTask = client.post("/tasks", by, key, task).await?;
    if !json {
        let message = add::added_message(&added, client.url(), true);
        writeln!(anstream::stdout().lock(), "{message}")?;
    }
    Ok(added)
}

/// Follows a task, and asks the person at the terminal for decisions. Without a terminal, ends with the
/// first question.
async fn follow(client: &Client, by: &str, task: Uuid, options: WatchOptions) -> Result<ExitCode> {
    let mut position = WatchPosition::default();
    loop {
        let end = watch::watch_from(client, task, options, &mut position).await?;
        if end != WatchEnd::NeedsPerson || !options.asks_inline {
            return Ok(end.exit_code());
        }
        match decide::decide(client, by, task).await {
            Ok(true) => position.mark_answered(),
            Ok(false) => {
                let short = tamma_server::dto::short_id(task);
                let mut out = anstream::stdout().lock();
                writeln!(out, "Nothing was decided; the task waits. Decide with one of")?;
                writeln!(out, "  tamma task show {short}   # shows every answer")?;
                writeln!(out, "  tamma inbox")?;
                return Ok(end.exit_code());
            }
            // The task may have changed while the person was reading: show it again.
            Err(error) => match error.downcast_ref::<client::Error>() {
                Some(client::Error::Problem(_)) => {
                    let _ = output::report_failure(&error);
                }
                _ => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_request_is_a_title_and_a_long_one_has_a_description() {
        let split = |text: &str| split_request(text);
        assert_eq!(split(" Fix the typo "), ("Fix the typo".to_owned(), String::new()));
        let (title, description) = split("Fix the typo\n\nIt is in README.md.");
        assert_eq!(title, "Fix the typo");
        assert_eq!(description, "Fix the typo\n\nIt is in README.md.");
        let long = "word ".repeat(100);
        let (title, description) = split(&long);
        assert!(title.chars().count() <= MAX_TITLE_CHARS && title.ends_with("word…"), "{title}");
        assert_eq!(description, long.trim());
        assert!(tamma_core::task::is_title(&title));
    }
}
