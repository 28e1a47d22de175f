//! `tamma config`: finding `tamma.yaml`, and telling what is in it.
//!
//! Reading and judging it is `tamma_core::rules`; here are only the file, the environment and the
//! words for the terminal.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tamma_core::rules::{self, Loaded, Origin, Problem, Problems, Setting, Source};
use tamma_core::tier::Tier;

use crate::output::{self, Shown};

const NAME: &str = "tamma.yaml";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Finds everything that is wrong with the configuration.
    ///
    /// Tells the line and column of each mistake and what would be right. The environment is
    /// checked with the file. Exits with 1 if anything is wrong.
    Check(Target),
    /// Shows every value and where it came from.
    ///
    /// What is not a default is marked. A value that came out of a variable is shown as the variable, since it may be a secret.
    Show(Target),
    /// Writes the JSON schema of `tamma.yaml`, for editors.
    Schema,
    /// Writes the reference of `tamma.yaml` as Markdown.
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub(super) struct Target {
    /// The file. By default `tamma.yaml` here, or in a folder above up to the root of the
    /// repository.
    file: Option<PathBuf>,
    /// Writes JSON to standard output, for programs.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Check(target) => check(target),
        Command::Show(target) => show(target),
        Command::Schema => {
            let mut out = anstream::stdout().lock();
            writeln!(out, "{}", serde_json::to_string_pretty(&rules::schema())?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Reference => {
            write!(anstream::stdout().lock(), "{}", rules::reference())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What there is of a configuration where we are.
pub(super) enum Found {
    /// No file, and nothing wrong with the environment.
    None,
    /// A file without a mistake.
    Valid(String),
    /// Mistakes, in a file or in the environment.
    Wrong {
        /// Where they are.
        name: String,
        /// How many.
        problems: usize,
    },
}

/// Looks at the nearest configuration, without telling what is in it.
pub(super) fn examine() -> Result<Found> {
    let file = find(None)?;
    let loaded = load(file.as_ref());
    let name = file.map(|file| file.name);
    Ok(match (loaded, name) {
        (Ok(_), None) => Found::None,
        (Ok(_), Some(name)) => Found::Valid(name),
        (Err(problems), name) => Found::Wrong {
            name: name.unwrap_or_else(|| "the environment".to_owned()),
            problems: problems.len(),
        },
    })
}

/// The rules that hold here, if they can be read.
pub(super) fn load_here() -> Option<rules::Rules> {
    Some(load(find(None).ok()?.as_ref()).ok()?.rules)
}

/// What is allowed and does less than it says: a validator that is too near, and patterns for code
/// that only a parser can refuse.
pub(super) fn notes(rules: &rules::Rules) -> Vec<String> {
    let tiers = [Tier::Simple, Tier::Moderate, Tier::Complex];
    let near = tiers.into_iter().filter(|tier| !rules.is_judged_apart(*tier));
    let near: Vec<_> = near.map(|tier| format!("`{tier}`")).collect();
    let mut notes = Vec::new();
    if !near.is_empty() {
        notes.push(format!(
            "no tier has another {} than {}, so `{}` judges all the same: give it one, or \
             take `roles.validator_apart` back",
            rules.roles.validator_apart,
            near.join(" and "),
            rules.roles.validator,
        ));
    }
    let patterns = tamma_engine::patterns::Rules::of(&rules.review);
    notes.extend(patterns.undecidable().iter().map(|issue| issue.message.clone()));
    notes
}

/// A file with its text.
struct File {
    name: String,
    text: String,
}

fn check(target: &Target) -> Result<ExitCode> {
    let file = find(target.file.as_deref())?;
    let loaded = match load(file.as_ref()) {
        Ok(loaded) => loaded,
        Err(problems) => return refuse(target, file.as_ref(), &problems),
    };
    let mut out = anstream::stdout().lock();
    let notes = notes(&loaded.rules);
    if target.json {
        let file = file.map(|file| file.name);
        let mut answer = json!({ "valid": true, "file": file, "problems": [] });
        if !notes.is_empty() {
            answer["notes"] = json!(notes);
        }
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = loaded.settings();
    let defaults = settings.iter().filter(|setting| setting.origin == Origin::Default).count();
    let set = output::counted(settings.len() - defaults, "value");
    let defaults = output::counted(defaults, "default");
    match file {
        Some(file) => writeln!(out, "{} is valid: {set} set, {defaults}", file.name)?,
        None => writeln!(out, "there is no {NAME}, so the defaults hold: {set} set, {defaults}")?,
    }
    for note in notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(target: &Target) -> Result<ExitCode> {
    let file = find(target.file.as_deref())?;
    let loaded = match load(file.as_ref()) {
        Ok(loaded) => loaded,
        Err(problems) => return refuse(target, file.as_ref(), &problems),
    };
    let name = file.as_ref().map_or(NAME, |file| &file.name);
    let settings = loaded.settings();
    let mut out = anstream::stdout().lock();
    if target.json {
        let values: BTreeMap<&str, Value> = settings
            .iter()
            .map(|setting| {
                let mut value = json!(setting.origin);
                value["value"] = setting.value.clone();
                (setting.path.as_str(), value)
            })
            .collect();
        let file = file.map(|file| file.name);
        let shown = json!({ "file": file, "values": values });
        writeln!(out, "{}", serde_json::to_string_pretty(&shown)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown: Vec<Shown> = settings.into_iter().map(|setting| shown(setting, name)).collect();
    output::settings(&mut out, &shown)?;
    Ok(ExitCode::SUCCESS)
}

/// A value for the terminal. `file` is what the file is called.
fn shown(setting: Setting, file: &str) -> Shown {
    let Setting { path, value, origin } = setting;
    // Our largest section is shown as the sections in it.
    let names = if path.starts_with("scrum_master.") { 2 } else { 1 };
    let end = path.match_indices('.').nth(names - 1).map_or(path.len(), |(at, _)| at);
    Shown {
        section: path[..end].to_owned(),
        key: path[end..].trim_start_matches('.').to_owned(),
        value,
        from: match origin {
            Origin::Default => None,
            Origin::File(at) => Some(format!("{file}:{}:{}", at.line, at.column)),
            Origin::Variable { name } => Some(name),
        },
    }
}

/// Tells what is wrong, to people on standard error, to programs on standard output.
fn refuse(target: &Target, file: Option<&File>, problems: &Problems) -> Result<ExitCode> {
    match tell(target, file, problems) {
        // Nobody reads any further, but what is wrong is still wrong.
        Err(error) if !output::is_broken_pipe(&error) => Err(error),
        _ => Ok(ExitCode::FAILURE),
    }
}

fn tell(target: &Target, file: Option<&File>, problems: &Problems) -> Result<()> {
    let (name, text) = file.map_or((NAME, ""), |file| (&file.name, &file.text));
    if target.json {
        let problems: Vec<Value> = problems.iter().map(as_json).collect();
        let answer = json!({ "valid": false, "file": file.map(|_| name), "problems": problems });
        writeln!(anstream::stdout().lock(), "{}", serde_json::to_string_pretty(&answer)?)?;
        return Ok(());
    }
    let mut err = anstream::stderr().lock();
    for problem in problems.iter() {
        output::problem(&mut err, problem, name, text)?;
    }
    output::count(&mut err, problems.len())?;
    Ok(())
}

fn as_json(problem: &Problem) -> Value {
    json!({
        "code": problem.fault.code(),
        "message": problem.to_string(),
        "help": problem.fault.help(),
        "line": problem.place().map(|at| at.line),
        "column": problem.place().map(|at| at.column),
        "variable": problem.variable(),
    })
}

fn load(file: Option<&File>) -> Result<Loaded, Problems> {
    // A variable that is not text cannot be one of ours, nor can a file name it.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    rules::load(file.map(|file| Source { name: &file.name, text: &file.text }), &variables)
}

/// The file that was named, or the one that is nearest, if there is any.
fn find(named: Option<&Path>) -> Result<Option<File>> {
    let path = match named {
        Some(path) => Some(path.to_owned()),
        None => nearest(&std::env::current_dir().context("cannot tell the current folder")?),
    };
    let Some(path) = path else {
        return Ok(None);
    };
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes)
        .with_context(|| format!("cannot read {}: it is not UTF-8 text", path.display()))?;
    Ok(Some(File { name: path.display().to_string(), text }))
}

/// Looks in a folder and those above it, up to the root of the repository.
fn nearest(folder: &Path) -> Option<PathBuf> {
    let mut shown = PathBuf::new();
    for folder in folder.ancestors() {
        if folder.join(NAME).is_file() {
            return Some(shown.join(NAME));
        }
        // In a work tree `.git` is a file, so its kind is not asked.
        if folder.join(".git").exists() {
            return None;
        }
        shown.push("..");
    }
    None
}
