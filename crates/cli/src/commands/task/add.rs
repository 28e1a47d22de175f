//! `tamma task add`: submits a task.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tamma_core::task::{Priority, TaskType};
use tamma_server::dto::{AddedTask, NewTask, ProjectList};
use uuid::Uuid;

use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::repository::Repository;
use crate::watch::{self, WatchOptions};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One-line title
    title: String,
    /// Task description
    #[arg(long, value_name = "TEXT", conflicts_with = "description_file")]
    description: Option<String>,
    /// Read the description from a file (- for standard input)
    #[arg(long, value_name = "FILE")]
    description_file: Option<PathBuf>,
    /// Acceptance criterion (repeatable)
    #[arg(long = "criterion", value_name = "TEXT")]
    criteria: Vec<String>,
    /// feature, bugfix, refactor, test, docs or chore
    #[arg(long, default_value = "feature")]
    r#type: TaskType,
    /// low, medium, high or critical
    #[arg(long, default_value = "medium")]
    priority: Priority,
    /// Label (repeatable)
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Task that must be completed first (repeatable)
    #[arg(long = "depends-on", value_name = "TASK")]
    depends_on: Vec<String>,
    /// Configured agent that implements the task [default: the tier's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Issue that the task comes from
    #[arg(long, value_name = "URL")]
    issue: Option<String>,
    /// Number of that issue
    #[arg(long, value_name = "NUMBER")]
    issue_number: Option<u64>,
    /// Additional value for other tools (repeatable)
    #[arg(long = "metadata", value_name = "KEY=VALUE", value_parser = parse_metadata)]
    metadata: Vec<(String, String)>,
    /// Start from this plan (JSON); it is checked like any other
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    #[arg(long, help = "Project name or ID [default: the project of this repository]")]
    project: Option<String>,
    #[arg(
        long,
        value_name = "UUID",
        help = "Task ID (UUIDv7); adding the same ID twice adds one task"
    )]
    id: Option<Uuid>,
    /// Follow the task until it is closed
    #[arg(long)]
    watch: bool,
    /// With --watch, exit with code 3 when the task needs a person
    #[arg(long, requires = "watch")]
    until_asked: bool,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

/// Parses `KEY=VALUE`.
fn parse_metadata(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err(format!("expected KEY=VALUE, such as `sprint=12`, not `{text}`")),
    }
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let description = match (&arguments.description, &arguments.description_file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read_file_or_stdin(path)?,
        (None, None) => String::new(),
    };
    let plan = arguments.plan.as_deref().map(read_file_or_stdin).transpose()?;
    let plan = plan
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .context("cannot parse the plan as JSON")?;
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let mut depends_on = Vec::new();
        for id in &arguments.depends_on {
            depends_on.push(client.resolve_task(id).await?);
        }
        let project = match &arguments.project {
            Some(project) => Some(project.clone()),
            None => current_project(&client).await?,
        };
        let id = arguments.id.unwrap_or_else(client::new_id);
        let task = NewTask {
            id: Some(id),
            project,
            title: arguments.title.clone(),
            description,
            r#type: arguments.r#type,
            priority: arguments.priority,
            acceptance_criteria: arguments.criteria.clone(),
            labels: arguments.labels.clone(),
            depends_on,
            suggested_agent: arguments.agent.clone(),
            issue_url: arguments.issue.clone(),
            issue_number: arguments.issue_number,
            metadata: arguments.metadata.iter().cloned().collect(),
            plan,
        };
        let added: AddedTask = client.post("/tasks", &by, id, &task).await?;
        match (arguments.target.json, arguments.watch) {
            (true, true) => {}
            (true, false) => output::print_json(&added)?,
            (false, _) => {
                let message = added_message(&added, client.url(), arguments.watch);
                writeln!(anstream::stdout().lock(), "{message}")?;
            }
        }
        if !arguments.watch {
            return Ok(ExitCode::SUCCESS);
        }
        let (until_asked, json) = (arguments.until_asked, arguments.target.json);
        let options = WatchOptions { until_asked, json, asks_inline: false };
        watch::watch(&client, id, options).await
    })
}

/// Returns the ID of the project that the current repository belongs to, if any.
///
/// Fails in an unregistered repository if all projects are on this machine: the task would go to
/// another repository. A remote server can have other paths, so there the server decides.
pub(crate) async fn current_project(client: &Client) -> Result<Option<String>> {
    let Ok(here) = Repository::containing(Path::new(".")) else { return Ok(None) };
    let ProjectList { projects } = client.get("/projects", &[]).await?;
    let here = here.root;
    if let Some(project) = projects.iter().find(|it| Path::new(&it.repository) == here) {
        return Ok(Some(project.id.to_string()));
    }
    if !projects.is_empty() && projects.iter().all(|it| Path::new(&it.repository).is_dir()) {
        let names: Vec<_> = projects.iter().map(|it| sanitize(&it.name)).collect();
        bail!(
            "{} is not a project yet\n  help: register it by running `tamma up` there, or name another \
             project with `--project` ({})",
            here.display(),
            names.join(", ")
        );
    }
    Ok(None)
}

/// Confirmation that a person sees after adding a task, with the address of its page.
pub(crate) fn added_message(added: &AddedTask, server: &str, watch: bool) -> String {
    let (short, title) = (&added.task.short, sanitize(&added.task.title));
    let done = if added.created { "Added" } else { "Already added" };
    let follow =
        if watch { String::new() } else { format!("\nFollow it with `tamma task watch {short}`") };
    format!("{done} {short}: {title}\n{server}/tasks/{}{follow}", added.task.id)
}

/// Reads a file, or standard input for `-`.
fn read_file_or_stdin(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
