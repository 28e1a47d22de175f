//! `tamma init`: looks at a repository and writes a first `tamma.yaml` for it.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::agents::{self, Agents, KNOWN};
use crate::draft::draft;
use crate::output;
use crate::repository::Repository;
use crate::services::Search;
use crate::survey::{self, Survey};

const NAME: &str = "tamma.yaml";
const MESSAGE: &str = "chore: set up Tamma";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A folder of the repository. By default the current one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Replaces a `tamma.yaml` that is there.
    #[arg(long)]
    force: bool,
    /// Writes JSON to standard output, for programs.
    #[arg(long)]
    json: bool,
}

/// What was found and done.
struct Done {
    file: PathBuf,
    survey: Survey,
    agents: Agents,
    /// The repository's first commit, if it is ours.
    commit: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => env::current_dir().context("cannot tell the current folder")?,
    };
    let repository = Repository::of(&folder)?;
    let survey = survey::look(&repository.listing()?);
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let search = Search::environment();
    let agents = agents::look(|name| search.program(name), is_set);
    let file = repository.root.join(NAME);
    write(&file, &draft(&survey, &agents), arguments.force)?;
    let commit = if repository.has_commit()? {
        None
    } else {
        let commit = repository.commit(NAME, MESSAGE).with_context(|| {
            format!(
                "wrote {}, but could not commit it. A task needs a commit to start from: mend this, \
                 then run `git add {NAME}` and `git commit`",
                file.display()
            )
        })?;
        Some(commit)
    };
    let done = Done { file, survey, agents, commit };
    let mut out = anstream::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&as_json(&done))?)?;
    } else {
        tell(&mut out, &done)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the file, and replaces one only if told to.
fn write(file: &Path, text: &str, force: bool) -> Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    if force {
        return fs::write(file, text).with_context(cannot);
    }
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(mut new) => new.write_all(text.as_bytes()).with_context(cannot),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
            "{} is there already, and nothing was changed. `tamma config check` says whether it is \
             right; `tamma init --force` replaces it",
            file.display()
        ),
        Err(error) => Err(error).with_context(cannot),
    }
}

fn tell(out: &mut impl Write, done: &Done) -> io::Result<()> {
    let Done { file, survey, agents, commit } = done;
    output::heading(out, "Found")?;
    let mut rows: Vec<(&str, String, String)> = Vec::new();
    for language in &survey.languages {
        rows.push(("language", language.name.to_owned(), language.because.clone()));
    }
    for check in &survey.checks {
        rows.push(("gate", check.name.clone(), check.command.clone()));
    }
    for agent in &agents.installed {
        rows.push(("agent", agent.known.name.to_owned(), agent.program.display().to_string()));
    }
    if survey.languages.is_empty() {
        rows.insert(0, ("language", "none that Tamma knows".to_owned(), String::new()));
    }
    if survey.checks.is_empty() {
        let why = "nothing but the review will judge a change".to_owned();
        rows.push(("gate", "none".to_owned(), why));
    }
    if agents.installed.is_empty() {
        rows.push(("agent", "none".to_owned(), "nothing can work on a task yet".to_owned()));
    }
    output::rows(out, &rows)?;

    output::heading(out, "Done")?;
    output::done(out, &format!("wrote {}", file.display()))?;
    if let Some(commit) = commit {
        let first = format!("committed it as the first commit, {commit}");
        output::done(out, &format!("{first}: a task needs a commit to start from"))?;
    }

    writeln!(out)?;
    output::heading(out, "Next")?;
    output::next(out, &next(done))
}

/// What a person may do now, and what for.
fn next(done: &Done) -> Vec<(String, String)> {
    let Done { survey, agents, commit, .. } = done;
    let mut next: Vec<(String, String)> = Vec::new();
    let mut add = |command: &str, why: String| next.push((command.to_owned(), why));
    for known in &agents.half {
        let bare = known.bare.unwrap_or(known.name);
        add(known.install, format!("`{bare}` is here; this lets Tamma talk to it"));
    }
    if agents.installed.is_empty() && agents.half.is_empty() {
        for (index, known) in KNOWN.iter().enumerate() {
            let or = if index == 0 { "an agent:" } else { "or" };
            add(known.install, format!("{or} {}", known.name));
        }
    }
    if survey.checks.is_empty() {
        add(&format!("edit {NAME}"), "say under `gates` what a change has to pass".to_owned());
    }
    if commit.is_none() {
        let command = format!("git add {NAME} && git commit -m \"{MESSAGE}\"");
        add(&command, "so that others have it too".to_owned());
    }
    add("tamma up", "starts everything; leave it running".to_owned());
    add("tamma task add \"…\" --watch", "in another terminal: the first task".to_owned());
    next
}

fn as_json(done: &Done) -> Value {
    let Done { file, survey, agents, commit } = done;
    let languages: Vec<Value> = survey
        .languages
        .iter()
        .map(|one| json!({ "name": one.name, "because": one.because }))
        .collect();
    let gates: Vec<Value> = survey
        .checks
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "kind": one.kind,
                "command": one.command,
                "because": one.because,
                "report": one.report,
                "network": one.network,
            })
        })
        .collect();
    let installed: Vec<Value> = agents
        .installed
        .iter()
        .map(
            |one| json!({ "name": one.known.name, "program": one.program, "variables": one.needs }),
        )
        .collect();
    let missing: Vec<Value> = KNOWN
        .iter()
        .filter(|known| agents.installed.iter().all(|one| one.known.name != known.name))
        .map(|known| json!({ "name": known.name, "install": known.install }))
        .collect();
    json!({
        "file": file,
        "languages": languages,
        "gates": gates,
        "agent": agents.installed.first().map(|one| one.known.name),
        "agents": installed,
        "missing": missing,
        "commit": commit,
    })
}
