//! `tamma pipeline`: takes stories through ordered phases.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use tamma_server::dto::{
    NewPipelineRun, PhaseOutput, PipelineAction, PipelineActionBody, PipelineList, PipelineView,
};

use super::task::add::current_project;
use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::repository::Repository;
use crate::style;

/// Exit code of a run that waits for a person.
const NEEDS_PERSON: u8 = 3;

/// Path of the command file in a repository.
const COMMAND_FILE: &str = ".claude/commands/scrum-master.md";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a story's pipeline
    ///
    /// Takes the story through its phases in order, each with an agent of its own. The files of the
    /// run are in `_workflow` beside the story, on the story's branch. Nothing is retried: fix the
    /// problem on that branch, then continue with --from or `tamma pipeline resume`.
    Run(RunArgs),
    /// List pipelines, last changed first
    List(ListArgs),
    /// Show a pipeline: phases, signals, tasks and report
    Show(ShowArgs),
    /// Follow a pipeline until its run ends
    ///
    /// Exits with 0 if the run is complete, and with 1 if it stopped. With --until-asked, exits with 3
    /// when it needs a person.
    Watch(WatchArgs),
    /// Answer at an approval gate
    Answer(AnswerArgs),
    /// Continue a stopped run at the phase where it stopped
    Resume(StoryArgs),
    /// Cancel a run
    ///
    /// Stops the running phase, and cancels the tasks of the story that are open. The run ends when
    /// they have.
    Cancel(StoryArgs),
    /// Remove a stopped run from the inbox
    Dismiss(StoryArgs),
    /// Write the /scrum-master command for coding agents
    ///
    /// Writes `.claude/commands/scrum-master.md` in the current repository.
    Install(InstallArgs),
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Folder of the feature, from the root of the repository
    feature_dir: String,
    /// Story ID
    story: String,
    /// First phase
    #[arg(long, value_name = "N")]
    from: Option<u8>,
    /// Last phase
    #[arg(long, value_name = "N")]
    to: Option<u8>,
    /// Phases that need approval before they start, such as 2,4
    #[arg(long, value_name = "N", value_delimiter = ',')]
    approve: Vec<u8>,
    /// Pipeline from tamma.yaml [default: story]
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    #[arg(long, help = "Project name or ID [default: the project of this repository]")]
    project: Option<String>,
    /// Follow the run until it ends
    #[arg(long)]
    watch: bool,
    /// With --watch, exit with code 3 when the run needs a person
    #[arg(long, requires = "watch")]
    until_asked: bool,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Project name or ID
    #[arg(long)]
    project: Option<String>,
    /// Only runs that have not ended
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Story ID, pipeline ID, or the end of the pipeline ID
    #[arg(value_name = "STORY")]
    id: String,
    /// Print the report of the run as YAML
    #[arg(long, conflicts_with = "output")]
    yaml: bool,
    /// Print the output of a phase
    #[arg(long, value_name = "N")]
    output: Option<u8>,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Story ID, pipeline ID, or the end of the pipeline ID
    #[arg(value_name = "STORY")]
    id: String,
    /// Exit with code 3 when the run needs a person
    #[arg(long)]
    until_asked: bool,
    #[command(flatten)]
    target: ClientArgs,
}

/// Answer at a gate.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum GateAnswerArg {
    /// Run the phase, or start its tasks
    Continue,
    /// Skip the phase
    Skip,
    /// Stop the run
    Stop,
}

#[derive(Debug, Args)]
pub(super) struct AnswerArgs {
    /// Story ID, pipeline ID, or the end of the pipeline ID
    #[arg(value_name = "STORY")]
    id: String,
    /// Answer
    answer: GateAnswerArg,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct StoryArgs {
    /// Story ID, pipeline ID, or the end of the pipeline ID
    #[arg(value_name = "STORY")]
    id: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => start(arguments),
        Command::List(arguments) => list(arguments),
        Command::Show(arguments) => show(arguments),
        Command::Watch(arguments) => client::block_on(&arguments.target, async {
            let client = Client::new(&arguments.target)?;
            let view = fetch(&client, &arguments.id).await?;
            watch(&client, view, arguments.until_asked, arguments.target.json).await
        }),
        Command::Answer(arguments) => {
            let action = match arguments.answer {
                GateAnswerArg::Continue => PipelineAction::Continue,
                GateAnswerArg::Skip => PipelineAction::Skip,
                GateAnswerArg::Stop => PipelineAction::Stop,
            };
            act(&arguments.target, &arguments.identity, &arguments.id, action)
        }
        Command::Resume(StoryArgs { id, identity, target }) => {
            act(target, identity, id, PipelineAction::Resume)
        }
        Command::Cancel(StoryArgs { id, identity, target }) => {
            act(target, identity, id, PipelineAction::Cancel)
        }
        Command::Dismiss(StoryArgs { id, identity, target }) => {
            act(target, identity, id, PipelineAction::Dismiss)
        }
        Command::Install(arguments) => install(arguments, Path::new(".")),
    }
}

fn start(arguments: &RunArgs) -> Result<ExitCode> {
    let RunArgs { feature_dir, story, target, .. } = arguments;
    client::block_on(target, async {
        let client = Client::new(target)?;
        let by = arguments.identity.resolve_name()?;
        let project = match &arguments.project {
            Some(project) => Some(project.clone()),
            None => current_project(&client).await?,
        };
        let new = NewPipelineRun {
            project,
            feature_dir: feature_dir.clone(),
            story_id: story.clone(),
            pipeline: arguments.pipeline.clone(),
            from: arguments.from,
            to: arguments.to,
            approve: arguments.approve.clone(),
        };
        let view: PipelineView = client.post("/pipelines", &by, client::new_id(), &new).await?;
        if arguments.watch {
            return watch(&client, view, arguments.until_asked, target.json).await;
        }
        print_view(&view, target.json)?;
        Ok(ExitCode::SUCCESS)
    })
}

fn list(arguments: &ListArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let mut query = Vec::new();
        if let Some(project) = &arguments.project {
            query.push(("project", project.as_str()));
        }
        if arguments.live {
            query.push(("live", "true"));
        }
        let list: PipelineList = client.get("/pipelines", &query).await?;
        if arguments.target.json {
            output::print_json(&list)?;
        } else {
            let text = format_list(&list.pipelines, style::now());
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn show(arguments: &ShowArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        if let Some(phase) = arguments.output {
            let path = format!("/pipelines/{}/phases/{phase}/output", arguments.id);
            let output: PhaseOutput = client.get(&path, &[]).await?;
            if arguments.target.json {
                output::print_json(&output)?;
            } else {
                writeln!(anstream::stdout().lock(), "{}", sanitize(&output.text).trim_end())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let view = fetch(&client, &arguments.id).await?;
        if arguments.yaml {
            write!(anstream::stdout().lock(), "{}", view.report.to_yaml())?;
        } else {
            print_view(&view, arguments.target.json)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn act(
    target: &ClientArgs,
    identity: &IdentityArgs,
    id: &str,
    action: PipelineAction,
) -> Result<ExitCode> {
    client::block_on(target, async {
        let client = Client::new(target)?;
        let by = identity.resolve_name()?;
        let body = PipelineActionBody { action };
        let path = format!("/pipelines/{id}/actions");
        let view: PipelineView = client.post(&path, &by, client::new_id(), &body).await?;
        print_view(&view, target.json)?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn fetch(client: &Client, id: &str) -> Result<PipelineView> {
    Ok(client.get(&format!("/pipelines/{id}"), &[]).await?)
}

/// Follows a run until it ends, or needs a person.
async fn watch(
    client: &Client,
    first: PipelineView,
    until_asked: bool,
    json: bool,
) -> Result<ExitCode> {
    let mut shown: Option<PipelineView> = None;
    let mut view = first;
    loop {
        let is_news = shown.as_ref().is_none_or(|shown| shown.version < view.version);
        if is_news && json {
            output::print_json(&view)?;
        } else if is_news {
            let mut out = anstream::stdout().lock();
            for line in news(shown.as_ref(), &view) {
                writeln!(out, "{line}")?;
            }
        }
        if view.over {
            if !json {
                let report = sanitize_lines(&view.report.to_string());
                writeln!(anstream::stdout().lock(), "\n{report}{}", ending(&view))?;
            }
            let complete = view.state == "complete";
            return Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        if until_asked && view.question.is_some() {
            return Ok(ExitCode::from(NEEDS_PERSON));
        }
        let (path, version) = (format!("/pipelines/{}", view.id), view.version.to_string());
        shown = Some(view);
        view = client.get(&path, &[("newer_than", version.as_str())]).await?;
    }
}

/// Returns a line for everything that has changed.
fn news(before: Option<&PipelineView>, now: &PipelineView) -> Vec<String> {
    let mut lines = Vec::new();
    for phase in &now.phases {
        let old = before.and_then(|it| it.phases.iter().find(|it| it.number == phase.number));
        let is_new = old.map(|it| &it.status) != Some(&phase.status);
        if !is_new || phase.status == "pending" {
            continue;
        }
        let mut line = format!("{}. {}: {}", phase.number, phase.title, phase.status);
        if let Some(signal) = &phase.signal {
            style::push_fmt(&mut line, format_args!(" ({})", sanitize(signal)));
        } else if let Some(reason) = &phase.reason {
            style::push_fmt(&mut line, format_args!(" ({})", sanitize(reason)));
        }
        lines.push(line);
    }
    for task in &now.tasks {
        let old = before.and_then(|it| {
            it.tasks.iter().find(|it| (it.phase, &it.key) == (task.phase, &task.key))
        });
        if old.map(|it| &it.status) != Some(&task.status) {
            lines.push(format!("   {} {}: {}", task.key, sanitize(&task.title), task.status));
        }
    }
    let is_asked = |view: &PipelineView| view.question.is_some();
    if let Some(question) = &now.question
        && !before.is_some_and(is_asked)
    {
        lines.push(format!("\n{}\n", sanitize_lines(question)));
        lines.push(format!(
            "Answer with `tamma pipeline answer {} continue`, `skip` or `stop`.",
            now.story_id
        ));
    }
    lines
}

fn ending(view: &PipelineView) -> String {
    let mut text = String::new();
    if let Some(branch) = &view.branch {
        style::push_fmt(&mut text, format_args!("**Branch**: {branch}\n"));
    }
    if let Some(error) = &view.delivery_error {
        style::push_fmt(&mut text, format_args!("**Not delivered**: {}\n", sanitize(error)));
    }
    if let Some(signal) = &view.signal {
        style::push_fmt(&mut text, format_args!("\n{}", sanitize(signal)));
    }
    text
}

fn print_view(view: &PipelineView, json: bool) -> Result<()> {
    if json {
        return output::print_json(view);
    }
    let mut out = anstream::stdout().lock();
    let PipelineView { short, story_id, feature_dir, state_text, run, .. } = view;
    writeln!(out, "{short} {story_id} ({feature_dir}), run {run}: {state_text}\n")?;
    write!(out, "{}", sanitize_lines(&view.report.to_string()))?;
    for task in &view.tasks {
        let after = if task.depends_on.is_empty() {
            String::new()
        } else {
            format!(", after {}", task.depends_on.join(", "))
        };
        let reason = task.reason.as_ref().map(|it| format!(", {}", sanitize(it)));
        let reason = reason.unwrap_or_default();
        let (key, title) = (&task.key, sanitize(&task.title));
        writeln!(out, "- {key} {title}: {}{after}{reason}", task.status)?;
    }
    for it in view.earlier_phases.iter().filter(|it| it.status != "skipped") {
        let note = it.signal.as_ref().or(it.reason.as_ref()).map(|it| sanitize(it));
        let note = note.unwrap_or_default();
        writeln!(out, "- run {}, phase {} {}: {} {note}", it.run, it.phase, it.id, it.status)?;
    }
    if let Some(question) = &view.question {
        writeln!(out, "\n{}\n", sanitize_lines(question))?;
        writeln!(
            out,
            "Answer with `tamma pipeline answer {story_id} continue`, `skip` or `stop`."
        )?;
    }
    writeln!(out, "{}", ending(view))?;
    Ok(())
}

fn sanitize_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(sanitize).collect();
    lines.join("\n")
}

fn format_list(pipelines: &[PipelineView], now: chrono::DateTime<chrono::Utc>) -> String {
    if pipelines.is_empty() {
        return "No pipelines. Start one with `tamma pipeline run FEATURE_DIR STORY`.".to_owned();
    }
    let mut table = new_table(&["ID", "STORY", "FEATURE", "PIPELINE", "STATE", "CHANGED"]);
    for view in pipelines {
        table.add_row([
            view.short.clone(),
            view.story_id.clone(),
            view.feature_dir.clone(),
            view.pipeline.clone(),
            view.state_text.clone(),
            style::format_ago(view.updated_at, now),
        ]);
    }
    render_table(&table)
}

/// Writes the command file for coding agents.
fn install(arguments: &InstallArgs, folder: &Path) -> Result<ExitCode> {
    let path: PathBuf = Repository::containing(folder)?.root.join(COMMAND_FILE);
    if path.exists() && !arguments.force {
        bail!("{COMMAND_FILE} exists\n  help: replace it with --force");
    }
    let parent = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(parent)
        .with_context(|| format!("cannot create {}", parent.display()))?;
    std::fs::write(&path, tamma_server::SCRUM_MASTER_COMMAND)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = anstream::stdout().lock();
    writeln!(out, "Wrote {COMMAND_FILE}. Agents that read it offer /scrum-master.")?;
    Ok(ExitCode::SUCCESS)
}
