//! `tamma config`: finds, checks and shows `tamma.yaml`.
//!
//! `tamma_core::rules` parses and validates it. This module reads the file and the environment, and
//! prints the result.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tamma_core::operator::OperatorConfig;
use tamma_core::rules::{
    self, ConfigFault, ConfigProblem, ConfigProblems, LoadedRules, Setting, ValueOrigin,
};
use tamma_core::tier::Tier;
use tamma_server::dto::{AppliedRules, short_id};

use super::backend_args::PromptArgs;
use super::task::add::current_project;
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, DisplayedSetting};
use crate::{operator_file, style};

const NAME: &str = "tamma.yaml";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check the configuration
    ///
    /// Prints every problem with its line, column and fix. Checks environment variables, the project's
    /// own prompts and the `operator.yaml` of this machine too. Exits with 1 if there is a problem.
    Check(CheckArgs),
    /// Show every value and its source
    ///
    /// Marks values that are not defaults. Prints variables by name, because their values can be secrets.
    Show(ConfigArgs),
    /// Apply the configuration to open tasks
    ///
    /// A task keeps the rules it started with. This command applies the current rules to the open tasks
    /// of the project. Approvals under the old rules are void: plans are checked and approved again, and
    /// runs stop.
    Apply(ApplyArgs),
    /// Print the JSON schema of `tamma.yaml`, for editors
    Schema,
    /// Print the reference of `tamma.yaml` as Markdown
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[arg(
        help = "Configuration file [default: the nearest tamma.yaml, from this folder up to the root of the repository]"
    )]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    target: ConfigArgs,
    #[command(flatten)]
    prompts: PromptArgs,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    #[arg(long, help = "Project name or ID [default: the project of this repository]")]
    project: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

/// Applies the rules on the server to open tasks.
fn apply(arguments: &ApplyArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let project = match &arguments.project {
            Some(project) => Some(project.clone()),
            None => current_project(&client).await?,
        };
        let project = project.context("no project: name it with --project")?;
        let path = format!("/projects/{project}/rules");
        let applied: AppliedRules =
            client.post(&path, &by, client::new_id(), &serde_json::json!({})).await?;
        if arguments.target.json {
            output::print_json(&applied)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut out = anstream::stdout().lock();
        let policy = applied.policy.get(..12).unwrap_or(&applied.policy);
        writeln!(out, "Rules {policy} of {}", output::sanitize(&applied.project))?;
        if applied.tasks.is_empty() && applied.damaged.is_empty() {
            writeln!(out, "All open tasks already use them.")?;
        }
        for task in &applied.tasks {
            let (id, title) = (short_id(task.task), output::sanitize(&task.title));
            match &task.error {
                None => {
                    writeln!(out, "{id} {title}: now {}", style::humanize(&task.state))?;
                }
                Some(error) => {
                    writeln!(out, "{id} {title}: unchanged, {}", output::sanitize(error))?;
                }
            }
        }
        for task in &applied.damaged {
            let (id, title) = (short_id(task.id), output::sanitize(&task.title));
            writeln!(out, "{id} {title}: unchanged, {}", output::sanitize(&task.error))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Apply(arguments) => apply(arguments),
        Command::Check(arguments) => check(arguments),
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

/// Status of the nearest configuration.
pub(super) enum ConfigStatus {
    /// No file, and no problem in the environment.
    None,
    /// Valid file, with its name.
    Valid(String),
    /// Problems in the file or in the environment.
    Invalid {
        /// Name of the file, or `the environment`.
        name: String,
        /// Number of problems.
        problems: usize,
    },
}

/// Checks the nearest configuration and returns its status without printing anything.
pub(super) fn check_nearest(operator: &OperatorConfig) -> Result<ConfigStatus> {
    let file = find_file(None)?;
    let loaded = load(file.as_ref(), operator);
    let name = file.map(|file| file.name);
    Ok(match (loaded, name) {
        (Ok(_), None) => ConfigStatus::None,
        (Ok(_), Some(name)) => ConfigStatus::Valid(name),
        (Err(problems), name) => ConfigStatus::Invalid {
            name: name.unwrap_or_else(|| "the environment".to_owned()),
            problems: problems.len(),
        },
    })
}

/// Loads the nearest rules; `None` if they cannot be read or are invalid.
pub(super) fn load_nearest(operator: &OperatorConfig) -> Option<rules::Rules> {
    Some(load(find_file(None).ok()?.as_ref(), operator).ok()?.rules)
}

/// Returns warnings about valid settings without full effect: a validator that is not independent, and
/// code patterns that cannot be enforced.
pub(super) fn config_warnings(rules: &rules::Rules) -> Vec<String> {
    let tiers = [Tier::Simple, Tier::Moderate, Tier::Complex];
    let affected =
        tiers.into_iter().filter(|tier| !rules.has_independent_validator(&(*tier).into()));
    let affected: Vec<_> = affected.map(|tier| format!("`{tier}`")).collect();
    let mut notes = Vec::new();
    if !affected.is_empty() {
        notes.push(format!(
            "no tier has a different {} from {}, so `{}` still validates: add such a tier, or \
             remove `roles.validator_apart`",
            rules.roles.validator_apart,
            affected.join(" and "),
            rules.roles.validator.max(Tier::VALIDATOR_MINIMUM),
        ));
    }
    if rules.roles.validator < Tier::VALIDATOR_MINIMUM {
        notes.push(format!(
            "`roles.validator` is `{}`, and a validator needs at least `{minimum}`: `{minimum}` \
             validates instead",
            rules.roles.validator,
            minimum = Tier::VALIDATOR_MINIMUM,
        ));
    }
    let patterns = tamma_engine::patterns::CodePatterns::from_rules(&rules.review);
    notes.extend(patterns.invalid().iter().map(|issue| issue.message.clone()));
    notes
}

/// Checks the prompts that the project replaces. They are read from the folder of the configuration;
/// workers read them at the base commit of each task.
fn prompt_problems(
    loaded: &LoadedRules,
    file: Option<&ConfigFile>,
    allowed: bool,
) -> Option<ConfigProblems> {
    let folder = file.and_then(|file| Path::new(&file.name).parent()).unwrap_or(Path::new(""));
    let reason = |name: &str, path: &str| {
        if !allowed {
            return Some(
                "only the operator of the workers can allow other prompts: remove the key, or use \
                 `--allow-project-prompts`, here and with `tamma work` or `tamma up`"
                    .to_owned(),
            );
        }
        let text = match std::fs::read_to_string(folder.join(path)) {
            Ok(text) => text,
            Err(error) => return Some(format!("cannot read {path}: {error}")),
        };
        let problem = tamma_worker::check_prompt(name, &text).err()?;
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        Some(format!("{path}{line}: {problem}"))
    };
    let problem = |(name, path): (&str, &str)| {
        let key = format!("prompts.{name}");
        let origin = loaded.origin(&key).clone();
        let fault = ConfigFault::Refused { path: key, reason: reason(name, path)? };
        Some(ConfigProblem { fault, origin })
    };
    ConfigProblems::new(loaded.rules.prompts.paths().filter_map(problem).collect())
}

/// Configuration file with its content.
struct ConfigFile {
    name: String,
    text: String,
}

fn check(arguments: &CheckArgs) -> Result<ExitCode> {
    let target = &arguments.target;
    let file = find_file(target.file.as_deref())?;
    let loaded = load(file.as_ref(), &operator_file::read_default()?);
    let loaded = loaded.and_then(|loaded| {
        match prompt_problems(&loaded, file.as_ref(), arguments.prompts.allow_project_prompts) {
            Some(problems) => Err(problems),
            None => Ok(loaded),
        }
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(problems) => return fail_with_problems(target, file.as_ref(), &problems),
    };
    let mut out = anstream::stdout().lock();
    let notes = config_warnings(&loaded.rules);
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
    let defaults = settings.iter().filter(|setting| setting.origin == ValueOrigin::Default).count();
    let set = output::pluralize(settings.len() - defaults, "value");
    let defaults = output::pluralize(defaults, "default");
    match file {
        Some(file) => writeln!(out, "{} is valid: {set} set, {defaults}", file.name)?,
        None => writeln!(out, "no {NAME}; using defaults: {set} set, {defaults}")?,
    }
    for note in notes {
        writeln!(out, "warning: {note}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(target: &ConfigArgs) -> Result<ExitCode> {
    let file = find_file(target.file.as_deref())?;
    let loaded = match load(file.as_ref(), &operator_file::read_default()?) {
        Ok(loaded) => loaded,
        Err(problems) => return fail_with_problems(target, file.as_ref(), &problems),
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
        let displayed = json!({ "file": file, "values": values });
        writeln!(out, "{}", serde_json::to_string_pretty(&displayed)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let displayed: Vec<DisplayedSetting> =
        settings.into_iter().map(|setting| displayed_setting(setting, name)).collect();
    output::write_settings(&mut out, &displayed)?;
    Ok(ExitCode::SUCCESS)
}

/// Converts a setting for display. `file` is the display name of the file.
fn displayed_setting(setting: Setting, file: &str) -> DisplayedSetting {
    let Setting { path, value, origin } = setting;
    // The largest section is displayed as its subsections.
    let names = if path.starts_with("scrum_master.") { 2 } else { 1 };
    let end = path.match_indices('.').nth(names - 1).map_or(path.len(), |(at, _)| at);
    DisplayedSetting {
        section: path[..end].to_owned(),
        key: path[end..].trim_start_matches('.').to_owned(),
        value,
        origin: match origin {
            ValueOrigin::Default => None,
            ValueOrigin::File(at) => Some(format!("{file}:{}:{}", at.line, at.column)),
            ValueOrigin::Variable { name } => Some(name),
        },
    }
}

/// Prints the problems, on standard error or as JSON on standard output, and returns exit code 1.
fn fail_with_problems(
    target: &ConfigArgs,
    file: Option<&ConfigFile>,
    problems: &ConfigProblems,
) -> Result<ExitCode> {
    match print_problems(target, file, problems) {
        // A closed pipe does not make the configuration valid.
        Err(error) if !output::is_broken_pipe(&error) => Err(error),
        _ => Ok(ExitCode::FAILURE),
    }
}

fn print_problems(
    target: &ConfigArgs,
    file: Option<&ConfigFile>,
    problems: &ConfigProblems,
) -> Result<()> {
    let (name, text) = file.map_or((NAME, ""), |file| (&file.name, &file.text));
    if target.json {
        let problems: Vec<Value> = problems.iter().map(problem_json).collect();
        let answer = json!({ "valid": false, "file": file.map(|_| name), "problems": problems });
        writeln!(anstream::stdout().lock(), "{}", serde_json::to_string_pretty(&answer)?)?;
        return Ok(());
    }
    let mut err = anstream::stderr().lock();
    for problem in problems.iter() {
        output::write_problem(&mut err, problem, name, text)?;
    }
    output::write_problem_count(&mut err, problems.len())?;
    Ok(())
}

fn problem_json(problem: &ConfigProblem) -> Value {
    json!({
        "code": problem.fault.code(),
        "message": problem.to_string(),
        "help": problem.fault.help(),
        "line": problem.location().map(|at| at.line),
        "column": problem.location().map(|at| at.column),
        "variable": problem.variable(),
    })
}

fn load(
    file: Option<&ConfigFile>,
    operator: &OperatorConfig,
) -> Result<LoadedRules, ConfigProblems> {
    // Variables that are not UTF-8 cannot be referenced.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    rules::load(
        file.map(|file| rules::ConfigFile { name: &file.name, text: &file.text }),
        &variables,
        operator,
    )
}

/// Reads the named file, or the nearest one. Returns `None` if there is none.
fn find_file(named: Option<&Path>) -> Result<Option<ConfigFile>> {
    let path = match named {
        Some(path) => Some(path.to_owned()),
        None => {
            nearest_file(&std::env::current_dir().context("cannot determine the current folder")?)
        }
    };
    let Some(path) = path else {
        return Ok(None);
    };
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes)
        .with_context(|| format!("cannot read {}: it is not UTF-8 text", path.display()))?;
    Ok(Some(ConfigFile { name: path.display().to_string(), text }))
}

/// Searches a folder and its parents, up to the root of the repository.
fn nearest_file(folder: &Path) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for folder in folder.ancestors() {
        if folder.join(NAME).is_file() {
            return Some(relative.join(NAME));
        }
        // In a linked work tree, `.git` is a file.
        if folder.join(".git").exists() {
            return None;
        }
        relative.push("..");
    }
    None
}
