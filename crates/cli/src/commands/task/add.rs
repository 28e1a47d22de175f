//! `tamma task add`.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tamma_core::task::{Priority, TaskType};
use tamma_server::shape::{Added, NewTask, Projects};
use uuid::Uuid;

use crate::client::{self, Asker, Client, Target};
use crate::output::{self, plain};
use crate::repository::Repository;
use crate::watch::{self, Options};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What is wanted, in one line.
    title: String,
    /// As much as you have to say.
    #[arg(long, value_name = "TEXT", conflicts_with = "description_file")]
    description: Option<String>,
    /// A file with as much as you have to say; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    description_file: Option<PathBuf>,
    /// What kind of work it is: feature, bugfix, refactor, test, docs or chore.
    #[arg(long, default_value = "feature")]
    r#type: TaskType,
    /// How urgent it is: low, medium, high or critical.
    #[arg(long, default_value = "medium")]
    priority: Priority,
    /// Something that must be true at the end. Can be given several times.
    #[arg(long = "criterion", value_name = "TEXT")]
    criteria: Vec<String>,
    /// A word to find it by. Can be given several times.
    #[arg(long = "label", value_name = "WORD")]
    labels: Vec<String>,
    /// A task that must be completed first. Can be given several times.
    #[arg(long = "depends-on", value_name = "ID")]
    depends_on: Vec<String>,
    /// The agent you would choose.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The issue it comes from.
    #[arg(long, value_name = "URL")]
    issue: Option<String>,
    /// A plan to start from, as JSON. It is reviewed before it is believed.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// The project: its name or id. By default that of the repository you are in, or the only one.
    #[arg(long)]
    project: Option<String>,
    /// The id of the task, a UUID of version 7. Adding it twice then adds it once.
    #[arg(long, value_name = "UUID")]
    id: Option<Uuid>,
    /// Follows the task until it has ended.
    #[arg(long)]
    watch: bool,
    /// With --watch: ends as soon as the task waits for a person, with exit code 3.
    #[arg(long, requires = "watch")]
    until_asked: bool,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let description = match (&arguments.description, &arguments.description_file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read(path)?,
        (None, None) => String::new(),
    };
    let plan = arguments.plan.as_deref().map(read).transpose()?;
    let plan = plan
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .context("the plan is not valid JSON")?;
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.asker.name()?;
        let mut depends_on = Vec::new();
        for said in &arguments.depends_on {
            depends_on.push(client.which(said).await?);
        }
        let project = match &arguments.project {
            Some(project) => Some(project.clone()),
            None => project_here(&client).await?,
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
            metadata: std::collections::BTreeMap::new(),
            plan,
        };
        let added: Added = client.post("/tasks", &by, id, &task).await?;
        match (arguments.target.json, arguments.watch) {
            (true, true) => {}
            (true, false) => output::json(&added)?,
            (false, _) => {
                let said = told(&added, &by, arguments.watch);
                writeln!(anstream::stdout().lock(), "{said}")?;
            }
        }
        if !arguments.watch {
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options { until_asked: arguments.until_asked, json: arguments.target.json };
        watch::watch(&client, id, options).await
    })
}

/// The project of the repository we are in, if it is one.
///
/// In a repository that is not, nothing is guessed where all projects are on this machine: the task
/// would be for another one. Elsewhere the server knows its projects by other paths than we do.
pub(crate) async fn project_here(client: &Client) -> Result<Option<String>> {
    let Ok(here) = Repository::of(Path::new(".")) else { return Ok(None) };
    let Projects { projects } = client.get("/projects", &[]).await?;
    let here = here.root;
    if let Some(project) = projects.iter().find(|it| Path::new(&it.repository) == here) {
        return Ok(Some(project.id.to_string()));
    }
    if !projects.is_empty() && projects.iter().all(|it| Path::new(&it.repository).is_dir()) {
        let names: Vec<_> = projects.iter().map(|it| plain(&it.name)).collect();
        bail!(
            "{} is not a project yet: register it with `tamma up` in that folder, or name another \
             project with `--project` ({})",
            here.display(),
            names.join(", ")
        );
    }
    Ok(None)
}

/// What came of it, in words.
fn told(added: &Added, by: &str, watch: bool) -> String {
    let (short, title) = (&added.task.short, plain(&added.task.title));
    let done = if added.new { format!("added by {}", plain(by)) } else { "there already".into() };
    let follow =
        if watch { String::new() } else { format!("\nFollow it with `tamma task watch {short}`.") };
    format!("{short} {done}: {title}{follow}")
}

/// The text of a file, or of standard input.
fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
