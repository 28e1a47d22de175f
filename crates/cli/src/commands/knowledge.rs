//! `tamma knowledge`: what the team knows, from writing it down to trying it on a plan.

mod import;
pub(super) mod show;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use chrono::{DateTime, NaiveDate, Utc};
use clap::{Args, Subcommand, ValueEnum};
use strum::IntoEnumIterator;
use tamma_core::knowledge::{Kind, Severity, Status, markdown};
use tamma_core::plan::{Action, Plan};
use tamma_core::task::TaskType;
use tamma_server::shape::{
    Knowledge, KnowledgeAnswer, KnowledgeDecision, KnowledgeEdit, KnowledgeList, KnowledgeQuestion,
    NewKnowledge,
};

use super::task::add::project_here;
use crate::client::{self, Asker, Client, Target};
use crate::output;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Writes something down. It has no effect until a person approves it.
    Add(Box<Add>),
    /// Lists what there is, the oldest first; or what could be retired (`--offers`).
    List(List),
    /// Shows an entry, with how it came to be what it is and what it did to tasks.
    Show(One),
    /// Finds what has the most to do with some words.
    Search(Search),
    /// Says an entry in other words. It has no effect until it is approved again.
    Edit(Box<Edit>),
    /// Lets an entry have effect.
    ///
    /// A prohibition then stops plans, everything else is told to agents where it is relevant.
    Approve(Approve),
    /// Turns an entry down. A task that proposes it again finds it here.
    Reject(Decide),
    /// Takes an entry out of force.
    Retire(Decide),
    /// Proposes what was turned down or retired once more.
    Reopen(Decide),
    /// Reads what is in files: an export, or what a repository already says.
    ///
    /// An export (`tamma knowledge export`) is taken as it is. From AGENTS.md, CLAUDE.md,
    /// CONTRIBUTING.md, .cursor/rules and lint configurations, conventions are proposed. Without a
    /// file, those of the repository here are read.
    Import(import::Arguments),
    /// Writes everything as Markdown that can live in the repository.
    Export(Export),
    /// Holds a plan against what the team knows, and changes nothing.
    ///
    /// Exits with 1 if a prohibition stands in its way.
    Check(Check),
}

/// Reads one of some words, and names them all where it is none.
fn one_of<T: FromStr + IntoEnumIterator + ToString>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| {
        let all: Vec<_> = T::iter().map(|it| it.to_string()).collect();
        format!("it is one of {}", all.join(", "))
    })
}

/// What an entry is about.
#[derive(Debug, Args)]
struct About {
    /// A path that it is about, as a glob from the root. May be given several times.
    #[arg(long = "glob", value_name = "GLOB")]
    globs: Vec<String>,
    /// A kind of task that it is about: feature, bugfix, refactor, test, docs or chore.
    #[arg(long = "type", value_name = "TYPE", value_parser = one_of::<TaskType>)]
    task_types: Vec<TaskType>,
    /// A word, or words in a row, that it is about.
    #[arg(long = "keyword", value_name = "WORDS")]
    keywords: Vec<String>,
    /// What is planned to happen to files under its globs: create, modify or delete.
    #[arg(long = "action", value_name = "ACTION")]
    actions: Vec<Action>,
    /// The code that it is about, as a regular expression.
    #[arg(long, value_name = "REGEX")]
    pattern: Option<String>,
    /// How bad it is to ignore it: low, medium, high or critical. A critical prohibition blocks.
    #[arg(long, value_name = "SEVERITY", value_parser = one_of::<Severity>)]
    severity: Option<Severity>,
    /// Who answers questions about it.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// What it is based on, such as a commit or an address.
    #[arg(long = "evidence", value_name = "REFERENCE")]
    evidence: Vec<String>,
    /// The day on which it stops counting, such as 2027-01-31.
    #[arg(long, value_name = "DAY")]
    expires: Option<NaiveDate>,
}

/// What can be taken away from an entry.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Glob,
    Type,
    Keyword,
    Action,
    Pattern,
    Evidence,
    Expires,
}

impl About {
    fn expires_at(&self) -> Option<DateTime<Utc>> {
        self.expires.map(|day| day.and_time(chrono::NaiveTime::MIN).and_utc())
    }
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// recommendation, prohibition, convention or learning.
    #[arg(value_parser = one_of::<Kind>)]
    kind: Kind,
    /// What it says.
    text: String,
    #[command(flatten)]
    about: About,
    /// The project. By default that of the repository you are in, or the only one.
    #[arg(long, value_name = "NAME", conflicts_with = "organisation")]
    project: Option<String>,
    /// It holds in every project.
    #[arg(long)]
    organisation: bool,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Only those of a project, and of every project.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Only of this kind.
    #[arg(long, value_name = "KIND", value_parser = one_of::<Kind>)]
    kind: Option<Kind>,
    /// Only of this status: pending, approved, rejected or retired.
    #[arg(long, value_name = "STATUS", value_parser = one_of::<Status>)]
    status: Option<Status>,
    /// Only what could be retired, with why: expired, never matched, does not help, or about paths or
    /// based on evidence that are gone.
    #[arg(long)]
    offers: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// The entry: its id, or at least four digits of its beginning or end.
    id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Search {
    /// The words.
    text: String,
    /// Only in a project, and in what holds in every project.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Edit {
    /// The entry: its id, or at least four digits of its beginning or end.
    id: String,
    /// What it says.
    #[arg(long)]
    text: Option<String>,
    /// What follows replaces what is there; evidence is added to it. What is not named stays.
    #[command(flatten)]
    about: About,
    /// A condition to be taken away. May be given several times.
    #[arg(long, value_name = "PART")]
    clear: Vec<Part>,
    /// Why, for its history.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Decide {
    /// The entry: its id, or at least four digits of its beginning or end.
    id: String,
    /// Why, for its history.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Approve {
    #[command(flatten)]
    decide: Decide,
    /// Approves it although there is something to look at twice.
    #[arg(long)]
    despite: bool,
}

#[derive(Debug, Args)]
pub(super) struct Export {
    /// Only of a project, and of every project.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Only of this status: pending, approved, rejected or retired.
    #[arg(long, value_name = "STATUS", value_parser = one_of::<Status>)]
    status: Option<Status>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The plan, as JSON.
    #[arg(value_name = "FILE")]
    plan: PathBuf,
    /// The title of the task.
    #[arg(long, value_name = "TEXT", default_value = "")]
    title: String,
    /// What kind of work it is.
    #[arg(long = "type", value_name = "TYPE", default_value = "feature")]
    #[arg(value_parser = one_of::<TaskType>)]
    task_type: TaskType,
    /// An entry to be tried as if it were approved.
    #[arg(long, value_name = "ENTRY")]
    with: Option<String>,
    /// The project. By default that of the repository you are in, or the only one.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => client::run(&arguments.target, add(arguments)),
        Command::List(arguments) => client::run(&arguments.target, list(arguments)),
        Command::Show(One { id, target }) => client::run(target, async {
            let client = Client::new(target)?;
            let found: Knowledge = client.get(&format!("/knowledge/{id}"), &[]).await?;
            show::one(&found, &client.get("/projects", &[]).await?, target.json)
        }),
        Command::Search(arguments) => client::run(&arguments.target, search(arguments)),
        Command::Edit(arguments) => client::run(&arguments.target, edit(arguments)),
        Command::Approve(Approve { decide: arguments, despite }) => {
            decide(arguments, Status::Approved, *despite)
        }
        Command::Reject(arguments) => decide(arguments, Status::Rejected, false),
        Command::Retire(arguments) => decide(arguments, Status::Retired, false),
        Command::Reopen(arguments) => decide(arguments, Status::Pending, false),
        Command::Import(arguments) => import::run(arguments),
        Command::Export(arguments) => client::run(&arguments.target, export(arguments)),
        Command::Check(arguments) => client::run(&arguments.target, check(arguments)),
    }
}

/// The project that is meant: the one that is named, or that of the repository here.
async fn meant(client: &Client, named: Option<&str>) -> Result<Option<String>> {
    match named {
        Some(project) => Ok(Some(project.to_owned())),
        None => project_here(client).await,
    }
}

async fn add(arguments: &Add) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let about = &arguments.about;
    let id = client::new_id();
    let project = if arguments.organisation {
        None
    } else {
        meant(&client, arguments.project.as_deref()).await?
    };
    let new = NewKnowledge {
        id: Some(id),
        kind: arguments.kind,
        text: arguments.text.clone(),
        project,
        organisation: arguments.organisation,
        globs: about.globs.clone(),
        task_types: about.task_types.clone(),
        keywords: about.keywords.clone(),
        actions: about.actions.clone(),
        pattern: about.pattern.clone(),
        severity: about.severity.unwrap_or(Severity::Medium),
        owner: about.owner.clone(),
        evidence: about.evidence.clone(),
        expires_at: about.expires_at(),
        imported: false,
    };
    let by = arguments.asker.name()?;
    let added: Knowledge = client.post("/knowledge", &by, id, &new).await?;
    show::changed(&added, "added, and waits for approval", arguments.target.json)
}

async fn list(arguments: &List) -> Result<ExitCode> {
    let List { project, kind, status, offers, target } = arguments;
    let (kind, status) = (kind.map(|kind| kind.to_string()), status.map(|it| it.to_string()));
    let offers = offers.then(|| "true".to_owned());
    let query = [("project", project), ("kind", &kind), ("status", &status), ("offers", &offers)];
    let query: Vec<(&str, &str)> =
        query.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect();
    let list: KnowledgeList = Client::new(target)?.get("/knowledge", &query).await?;
    let nothing = match (offers.is_some(), query.is_empty()) {
        (true, _) => "Nothing is offered for retirement.",
        (false, false) => "Nothing of that kind is known.",
        (false, true) => show::NOTHING,
    };
    show::list(&list, nothing, target.json)
}

async fn search(arguments: &Search) -> Result<ExitCode> {
    let mut query = vec![("search", arguments.text.as_str())];
    query.extend(arguments.project.as_deref().map(|project| ("project", project)));
    let list: KnowledgeList = Client::new(&arguments.target)?.get("/knowledge", &query).await?;
    show::list(&list, "Nothing that is known has to do with that.", arguments.target.json)
}

/// Replaces a list, where there is something to replace it with.
fn replace<T: Clone>(it: &mut Vec<T>, with: &[T]) {
    if !with.is_empty() {
        *it = with.to_vec();
    }
}

async fn edit(arguments: &Edit) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let path = format!("/knowledge/{}", arguments.id);
    let Knowledge { mut entry, revision, short, .. } = client.get(&path, &[]).await?;
    let before = entry.clone();
    let about = &arguments.about;
    if let Some(text) = &arguments.text {
        entry.text.clone_from(text);
    }
    replace(&mut entry.globs, &about.globs);
    replace(&mut entry.task_types, &about.task_types);
    replace(&mut entry.keywords, &about.keywords);
    replace(&mut entry.actions, &about.actions);
    if about.pattern.is_some() {
        entry.pattern.clone_from(&about.pattern);
    }
    if let Some(severity) = about.severity {
        entry.severity = severity;
    }
    if let Some(owner) = &about.owner {
        entry.owner = Some(owner.parse().context("that is not a name")?);
    }
    for evidence in &about.evidence {
        entry.evidence.push(evidence.parse().context("that is too long to be evidence")?);
    }
    if let Some(expires_at) = about.expires_at() {
        entry.expires_at = Some(expires_at);
    }
    for part in &arguments.clear {
        match part {
            Part::Glob => entry.globs.clear(),
            Part::Type => entry.task_types.clear(),
            Part::Keyword => entry.keywords.clear(),
            Part::Action => entry.actions.clear(),
            Part::Pattern => entry.pattern = None,
            Part::Evidence => entry.evidence.clear(),
            Part::Expires => entry.expires_at = None,
        }
    }
    if entry == before {
        bail!(
            "nothing of {short} would change: say what, with --text, --glob, --keyword, --clear or \
             another option (`tamma knowledge edit --help`)"
        );
    }
    let change = KnowledgeEdit { revision, entry, reason: arguments.reason.clone() };
    let by = arguments.asker.name()?;
    let edited: Knowledge = client.put(&path, &by, &change).await?;
    show::changed(&edited, "changed, and waits for approval", arguments.target.json)
}

fn decide(arguments: &Decide, status: Status, despite: bool) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let path = format!("/knowledge/{}", arguments.id);
        let seen: Knowledge = client.get(&path, &[]).await?;
        if status == Status::Approved && !seen.hazards.is_empty() && !despite {
            show::hazards(&seen, arguments.target.json)?;
            return Ok(ExitCode::FAILURE);
        }
        let decision = KnowledgeDecision {
            status,
            revision: seen.revision,
            reason: arguments.reason.clone(),
            despite,
        };
        let by = arguments.asker.name()?;
        let path = format!("{path}/decision");
        let decided: Knowledge = client.post(&path, &by, client::new_id(), &decision).await?;
        let what = match status {
            Status::Approved => "approved: it counts from now on",
            Status::Rejected => "turned down",
            Status::Retired => "retired: it no longer counts",
            Status::Pending => "proposed again, and waits for approval",
        };
        show::changed(&decided, what, arguments.target.json)
    })
}

async fn export(arguments: &Export) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let (project, status) = (&arguments.project, arguments.status.map(|it| it.to_string()));
    let query: Vec<(&str, &str)> = [("project", project), ("status", &status)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect();
    let list: KnowledgeList = client.get("/knowledge", &query).await?;
    if arguments.target.json {
        output::json(&list)?;
    } else {
        // To the letter: a terminal's colours are no matter here.
        let file = markdown::write(list.entries.iter().map(|known| &known.entry));
        std::io::stdout().lock().write_all(file.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(arguments: &Check) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&arguments.plan)
        .with_context(|| format!("{} cannot be read", arguments.plan.display()))?;
    let plan: Plan = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a plan", arguments.plan.display()))?;
    let client = Client::new(&arguments.target)?;
    let with = match &arguments.with {
        Some(with) => {
            let tried: Knowledge = client.get(&format!("/knowledge/{with}"), &[]).await?;
            Some(tried.entry.id.0)
        }
        None => None,
    };
    let question = KnowledgeQuestion {
        project: meant(&client, arguments.project.as_deref()).await?,
        title: arguments.title.clone(),
        description: String::new(),
        r#type: arguments.task_type,
        plan,
        with,
    };
    // Nothing is changed, so nobody has to be named; the header is there for all that is sent.
    let answer: KnowledgeAnswer =
        client.post("/knowledge/check", "anybody", client::new_id(), &question).await?;
    show::answer(&answer, arguments.target.json)?;
    Ok(if answer.can_proceed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
