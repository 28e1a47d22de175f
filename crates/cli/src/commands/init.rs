//! `tamma init`: inspects a repository and writes a first `tamma.yaml`.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::agents::{self, BUILT_IN_AGENTS, DetectedAgents};
use crate::config_draft::draft_config;
use crate::output;
use crate::repository::Repository;
use crate::services::ProgramSearch;
use crate::survey::{self, Survey};

const NAME: &str = "tamma.yaml";
const MESSAGE: &str = "chore: set up Tamma";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long, help = "Folder in the repository [default: the current folder]")]
    folder: Option<PathBuf>,
    /// Replace an existing `tamma.yaml`
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Findings and results of `tamma init`.
pub(super) struct InitOutcome {
    file: PathBuf,
    survey: Survey,
    agents: DetectedAgents,
    /// Short hash of the first commit; `None` if the repository already had one.
    commit: Option<String>,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let folder = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => env::current_dir().context("cannot determine the current folder")?,
    };
    let done = set_up(&Repository::containing(&folder)?, arguments.force)?;
    let mut out = anstream::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&summary_json(&done))?)?;
    } else {
        print_summary(&mut out, &done)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes `tamma.yaml`, and commits it if the repository has no commit.
pub(super) fn set_up(repository: &Repository, force: bool) -> Result<InitOutcome> {
    let survey = survey::survey_root(&repository.root_files()?);
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let search = ProgramSearch::from_environment();
    let agents = agents::detect(|name| search.find_program(name), is_set);
    let file = repository.root.join(NAME);
    write_config(&file, &draft_config(&survey, &agents), force)?;
    let commit = if repository.has_commit()? {
        None
    } else {
        let commit = repository.commit(NAME, MESSAGE).with_context(|| {
            format!(
                "wrote {}, but cannot commit it (a task needs a commit to start from; fix the cause, \
                 then run `git add {NAME}` and `git commit`)",
                file.display()
            )
        })?;
        Some(commit)
    };
    Ok(InitOutcome { file, survey, agents, commit })
}

/// Prints the results in a few lines, for a command that goes on.
pub(super) fn print_short_summary(out: &mut impl Write, done: &InitOutcome) -> io::Result<()> {
    output::write_done(out, &format!("wrote {}", done.file.display()))?;
    let gates: Vec<_> = done.survey.gates.iter().map(|gate| gate.command.as_str()).collect();
    let gates = match gates.as_slice() {
        [] => format!("none; list the checks for changes under `gates` in {NAME}"),
        gates => gates.join(", "),
    };
    writeln!(out, "  gates: {}", output::sanitize(&gates))
}

/// Writes the file. Replaces an existing one only with `force`.
fn write_config(file: &Path, text: &str, force: bool) -> Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    if force {
        return fs::write(file, text).with_context(cannot);
    }
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(mut new) => new.write_all(text.as_bytes()).with_context(cannot),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
            "{} already exists; nothing was changed\n  help: check it with `tamma config check`, or \
             replace it with `tamma init --force`",
            file.display()
        ),
        Err(error) => Err(error).with_context(cannot),
    }
}

fn print_summary(out: &mut impl Write, done: &InitOutcome) -> io::Result<()> {
    let InitOutcome { file, survey, agents, commit } = done;
    output::write_heading(out, "Found")?;
    let mut rows: Vec<(&str, String, String)> = Vec::new();
    for language in &survey.languages {
        rows.push(("language", language.name.to_owned(), language.reason.clone()));
    }
    if let Some(setup) = &survey.setup {
        rows.push(("setup", setup.command.clone(), String::new()));
    }
    for check in &survey.gates {
        rows.push(("gate", check.name.clone(), check.command.clone()));
    }
    for agent in &agents.installed {
        rows.push(("agent", agent.name.to_owned(), agent.program.display().to_string()));
    }
    if survey.languages.is_empty() {
        rows.insert(0, ("language", "none detected".to_owned(), String::new()));
    }
    if survey.gates.is_empty() {
        let purpose = "changes are checked by review only".to_owned();
        rows.push(("gate", "none".to_owned(), purpose));
    }
    if agents.installed.is_empty() {
        rows.push(("agent", "none".to_owned(), "tasks cannot run yet".to_owned()));
    }
    output::write_rows(out, &rows)?;

    output::write_heading(out, "Done")?;
    output::write_done(out, &format!("wrote {}", file.display()))?;
    if let Some(commit) = commit {
        let first = format!("committed it as the first commit, {commit}");
        output::write_done(out, &format!("{first}; a task needs a commit to start from"))?;
    }

    writeln!(out)?;
    output::write_heading(out, "Next")?;
    output::write_next_steps(out, &next_steps(done))
}

/// Returns the suggested next commands with their purpose.
fn next_steps(done: &InitOutcome) -> Vec<(String, String)> {
    let InitOutcome { survey, agents, commit, .. } = done;
    let mut next: Vec<(String, String)> = Vec::new();
    let mut add = |command: &str, purpose: String| next.push((command.to_owned(), purpose));
    for known in &agents.missing_adapter {
        let bare = known.native_program.unwrap_or(known.name);
        add(known.install, format!("adapter for `{bare}`, which is installed"));
    }
    if agents.installed.is_empty() && agents.missing_adapter.is_empty() {
        for (index, known) in BUILT_IN_AGENTS.iter().enumerate() {
            let or = if index == 0 { "install an agent:" } else { "or" };
            add(known.install, format!("{or} {}", known.name));
        }
    }
    if survey.gates.is_empty() {
        add(&format!("edit {NAME}"), "list the checks for changes under `gates`".to_owned());
    }
    if commit.is_none() {
        let command = format!("git add {NAME} && git commit -m \"{MESSAGE}\"");
        add(&command, "share it with your team".to_owned());
    }
    add("tamma up --detach", "start everything in the background".to_owned());
    add("tamma \"…\"", "do a first task: add it, follow it and decide".to_owned());
    next
}

fn summary_json(done: &InitOutcome) -> Value {
    let InitOutcome { file, survey, agents, commit } = done;
    let languages: Vec<Value> = survey
        .languages
        .iter()
        .map(|one| json!({ "name": one.name, "because": one.reason }))
        .collect();
    let gates: Vec<Value> = survey
        .gates
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "kind": one.kind,
                "command": one.command,
                "because": one.reason,
                "report": one.report,
            })
        })
        .collect();
    let installed: Vec<Value> = agents
        .installed
        .iter()
        .map(
            |one| json!({ "name": one.name, "program": one.program, "variables": one.extra_variables }),
        )
        .collect();
    let missing: Vec<Value> = BUILT_IN_AGENTS
        .iter()
        .filter(|known| agents.installed.iter().all(|one| one.name != known.name))
        .map(|known| json!({ "name": known.name, "install": known.install }))
        .collect();
    json!({
        "file": file,
        "languages": languages,
        "setup": survey.setup.as_ref().map(|one| json!({ "command": one.command, "because": one.reason })),
        "gates": gates,
        "agent": agents.installed.first().map(|one| one.name),
        "agents": installed,
        "missing": missing,
        "commit": commit,
    })
}
