//! `tamma knowledge`: manages the knowledge base and checks plans against it.

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
use tamma_core::knowledge::{EntryKind, EntrySeverity, EntryStatus, markdown};
use tamma_core::plan::{FileAction, Plan};
use tamma_core::task::TaskType;
use tamma_server::dto::{
    KnowledgeCheckRequest, KnowledgeCheckResult, KnowledgeDecision, KnowledgeEdit,
    KnowledgeEntryDetail, KnowledgeList, NewKnowledgeEntry,
};

use super::task::add::current_project;
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Propose an entry; it takes effect once a person approves it
    Add(Box<AddEntryArgs>),
    /// List entries, oldest first
    List(ListEntriesArgs),
    /// Show an entry with its history and its effect on tasks
    Show(ShowEntryArgs),
    /// Search entries by relevance
    Search(SearchEntriesArgs),
    /// Edit an entry; it must be approved again
    Edit(Box<EditEntryArgs>),
    /// Approve an entry
    ///
    /// A critical prohibition then blocks plans. Other entries are given to agents where they are relevant.
    Approve(ApproveEntryArgs),
    /// Reject an entry; the same lesson is not proposed again
    Reject(DecideEntryArgs),
    /// Retire an entry
    Retire(DecideEntryArgs),
    /// Propose a rejected or retired entry again
    Reopen(DecideEntryArgs),
    /// Import entries from an export or from project documents
    ///
    /// Imports an export (`tamma knowledge export`) unchanged. Proposes conventions from AGENTS.md,
    /// CLAUDE.md, CONTRIBUTING.md, .cursor/rules and lint configurations. Without arguments, reads those
    /// files of the current repository.
    Import(import::Args),
    /// Export entries as Markdown
    Export(ExportEntriesArgs),
    /// Check a plan against the knowledge base
    ///
    /// Changes nothing. Exits with 1 if a prohibition blocks the plan.
    Check(CheckPlanArgs),
}

/// Parses an enum value. The error lists all values.
fn parse_variant<T: FromStr + IntoEnumIterator + ToString>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| {
        let all: Vec<_> = T::iter().map(|it| it.to_string()).collect();
        format!("use one of {}", all.join(", "))
    })
}

/// Scope and details of an entry.
#[derive(Debug, Args)]
struct EntryFieldArgs {
    /// Path that the entry applies to, as a glob from the root (repeatable)
    #[arg(long = "glob", value_name = "GLOB")]
    globs: Vec<String>,
    /// Task type that it applies to: feature, bugfix, refactor, test, docs or chore (repeatable)
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_variant::<TaskType>)]
    task_types: Vec<TaskType>,
    /// Keyword or phrase that it applies to (repeatable)
    #[arg(long = "keyword", value_name = "WORDS")]
    keywords: Vec<String>,
    /// Planned action on files under its globs: create, modify or delete (repeatable)
    #[arg(long = "action", value_name = "ACTION")]
    actions: Vec<FileAction>,
    /// Code that it applies to, as a regular expression
    #[arg(long, value_name = "REGEX")]
    pattern: Option<String>,
    /// low, medium, high or critical; a critical prohibition blocks plans
    #[arg(long, value_name = "SEVERITY", value_parser = parse_variant::<EntrySeverity>)]
    severity: Option<EntrySeverity>,
    /// Person to ask about it
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Evidence, such as a commit or a URL (repeatable)
    #[arg(long = "evidence", value_name = "REFERENCE")]
    evidence: Vec<String>,
    /// Expiry date, such as 2027-01-31
    #[arg(long, value_name = "DAY")]
    expires: Option<NaiveDate>,
}

/// Field of an entry that can be cleared.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClearableField {
    Glob,
    Type,
    Keyword,
    Action,
    Pattern,
    Evidence,
    Expires,
}

impl EntryFieldArgs {
    fn expires_at(&self) -> Option<DateTime<Utc>> {
        self.expires.map(|day| day.and_time(chrono::NaiveTime::MIN).and_utc())
    }
}

#[derive(Debug, Args)]
pub(super) struct AddEntryArgs {
    /// recommendation, prohibition, convention or learning
    #[arg(value_parser = parse_variant::<EntryKind>)]
    kind: EntryKind,
    /// Text of the entry
    text: String,
    #[command(flatten)]
    fields: EntryFieldArgs,
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "organisation",
        help = "Project name [default: the project of this repository]"
    )]
    project: Option<String>,
    /// Apply to every project
    #[arg(long)]
    organisation: bool,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListEntriesArgs {
    /// Show entries of this project and of all projects
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// recommendation, prohibition, convention or learning
    #[arg(long, value_name = "KIND", value_parser = parse_variant::<EntryKind>)]
    kind: Option<EntryKind>,
    /// pending, approved, rejected or retired
    #[arg(long, value_name = "STATUS", value_parser = parse_variant::<EntryStatus>)]
    status: Option<EntryStatus>,
    /// List entries suggested for retirement, with the reason: expired, never matched, no effect, or paths
    /// or evidence that no longer exist
    #[arg(long)]
    offers: bool,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct ShowEntryArgs {
    /// Entry ID, or at least four characters from its start or end
    #[arg(value_name = "ENTRY")]
    id: String,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct SearchEntriesArgs {
    /// Search text
    text: String,
    /// Search entries of this project and of all projects
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct EditEntryArgs {
    /// Entry ID, or at least four characters from its start or end
    #[arg(value_name = "ENTRY")]
    id: String,
    /// Text of the entry
    #[arg(long)]
    text: Option<String>,
    /// New values. They replace the current ones, except evidence, which is added. Others stay.
    #[command(flatten)]
    fields: EntryFieldArgs,
    /// Field to clear (repeatable)
    #[arg(long, value_name = "PART")]
    clear: Vec<ClearableField>,
    /// Reason, recorded in the history of the entry
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct DecideEntryArgs {
    /// Entry ID, or at least four characters from its start or end
    #[arg(value_name = "ENTRY")]
    id: String,
    /// Reason, recorded in the history of the entry
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct ApproveEntryArgs {
    #[command(flatten)]
    decision: DecideEntryArgs,
    /// Approve despite content warnings
    #[arg(long)]
    despite: bool,
}

#[derive(Debug, Args)]
pub(super) struct ExportEntriesArgs {
    /// Export entries of this project and of all projects
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// pending, approved, rejected or retired
    #[arg(long, value_name = "STATUS", value_parser = parse_variant::<EntryStatus>)]
    status: Option<EntryStatus>,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(super) struct CheckPlanArgs {
    /// Plan (JSON)
    #[arg(value_name = "FILE")]
    plan: PathBuf,
    /// Title of the task
    #[arg(long, value_name = "TEXT", default_value = "")]
    title: String,
    /// Type of the task
    #[arg(long = "type", value_name = "TYPE", default_value = "feature")]
    #[arg(value_parser = parse_variant::<TaskType>)]
    task_type: TaskType,
    /// Entry to include as if it were approved
    #[arg(long, value_name = "ENTRY")]
    with: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        help = "Project name [default: the project of this repository]"
    )]
    project: Option<String>,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Add(arguments) => client::block_on(&arguments.target, add(arguments)),
        Command::List(arguments) => client::block_on(&arguments.target, list(arguments)),
        Command::Show(ShowEntryArgs { id, target }) => client::block_on(target, async {
            let client = Client::new(target)?;
            let entry: KnowledgeEntryDetail = client.get(&format!("/knowledge/{id}"), &[]).await?;
            show::print_entry(&entry, &client.get("/projects", &[]).await?, target.json)
        }),
        Command::Search(arguments) => client::block_on(&arguments.target, search(arguments)),
        Command::Edit(arguments) => client::block_on(&arguments.target, edit(arguments)),
        Command::Approve(ApproveEntryArgs { decision: arguments, despite }) => {
            decide(arguments, EntryStatus::Approved, *despite)
        }
        Command::Reject(arguments) => decide(arguments, EntryStatus::Rejected, false),
        Command::Retire(arguments) => decide(arguments, EntryStatus::Retired, false),
        Command::Reopen(arguments) => decide(arguments, EntryStatus::Pending, false),
        Command::Import(arguments) => import::run(arguments),
        Command::Export(arguments) => client::block_on(&arguments.target, export(arguments)),
        Command::Check(arguments) => client::block_on(&arguments.target, check(arguments)),
    }
}

/// Returns the named project, or the project of the current repository.
async fn resolve_project(client: &Client, named: Option<&str>) -> Result<Option<String>> {
    match named {
        Some(project) => Ok(Some(project.to_owned())),
        None => current_project(client).await,
    }
}

async fn add(arguments: &AddEntryArgs) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let about = &arguments.fields;
    let id = client::new_id();
    let project = if arguments.organisation {
        None
    } else {
        resolve_project(&client, arguments.project.as_deref()).await?
    };
    let new = NewKnowledgeEntry {
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
        severity: about.severity.unwrap_or(EntrySeverity::Medium),
        owner: about.owner.clone(),
        evidence: about.evidence.clone(),
        expires_at: about.expires_at(),
        imported: false,
    };
    let by = arguments.identity.resolve_name()?;
    let added: KnowledgeEntryDetail = client.post("/knowledge", &by, id, &new).await?;
    show::print_change(&added, "added; it takes effect once approved", arguments.target.json)
}

async fn list(arguments: &ListEntriesArgs) -> Result<ExitCode> {
    let ListEntriesArgs { project, kind, status, offers, target } = arguments;
    let (kind, status) = (kind.map(|kind| kind.to_string()), status.map(|it| it.to_string()));
    let offers = offers.then(|| "true".to_owned());
    let query = [("project", project), ("kind", &kind), ("status", &status), ("offers", &offers)];
    let query: Vec<(&str, &str)> =
        query.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect();
    let list: KnowledgeList = Client::new(target)?.get("/knowledge", &query).await?;
    let nothing = match (offers.is_some(), query.is_empty()) {
        (true, _) => "No entries suggested for retirement.",
        (false, false) => "No matching entries.",
        (false, true) => show::EMPTY_MESSAGE,
    };
    show::print_list(&list, nothing, target.json)
}

async fn search(arguments: &SearchEntriesArgs) -> Result<ExitCode> {
    let mut query = vec![("search", arguments.text.as_str())];
    query.extend(arguments.project.as_deref().map(|project| ("project", project)));
    let list: KnowledgeList = Client::new(&arguments.target)?.get("/knowledge", &query).await?;
    show::print_list(&list, "No matching entries.", arguments.target.json)
}

/// Replaces a list, unless the new one is empty.
fn replace_if_given<T: Clone>(it: &mut Vec<T>, with: &[T]) {
    if !with.is_empty() {
        *it = with.to_vec();
    }
}

async fn edit(arguments: &EditEntryArgs) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let path = format!("/knowledge/{}", arguments.id);
    let KnowledgeEntryDetail { mut entry, revision, short, .. } = client.get(&path, &[]).await?;
    let before = entry.clone();
    let about = &arguments.fields;
    if let Some(text) = &arguments.text {
        entry.text.clone_from(text);
    }
    replace_if_given(&mut entry.globs, &about.globs);
    replace_if_given(&mut entry.task_types, &about.task_types);
    replace_if_given(&mut entry.keywords, &about.keywords);
    replace_if_given(&mut entry.actions, &about.actions);
    if about.pattern.is_some() {
        entry.pattern.clone_from(&about.pattern);
    }
    if let Some(severity) = about.severity {
        entry.severity = severity;
    }
    if let Some(owner) = &about.owner {
        entry.owner = Some(owner.parse().context("invalid owner name")?);
    }
    for evidence in &about.evidence {
        entry.evidence.push(evidence.parse().context("invalid evidence")?);
    }
    if let Some(expires_at) = about.expires_at() {
        entry.expires_at = Some(expires_at);
    }
    for part in &arguments.clear {
        match part {
            ClearableField::Glob => entry.globs.clear(),
            ClearableField::Type => entry.task_types.clear(),
            ClearableField::Keyword => entry.keywords.clear(),
            ClearableField::Action => entry.actions.clear(),
            ClearableField::Pattern => entry.pattern = None,
            ClearableField::Evidence => entry.evidence.clear(),
            ClearableField::Expires => entry.expires_at = None,
        }
    }
    if entry == before {
        bail!(
            "no changes to {short}\n  help: pass --text, --glob, --keyword, --clear or another option \
             (see `tamma knowledge edit --help`)"
        );
    }
    let change = KnowledgeEdit { revision, entry, reason: arguments.reason.clone() };
    let by = arguments.identity.resolve_name()?;
    let edited: KnowledgeEntryDetail = client.put(&path, &by, &change).await?;
    show::print_change(&edited, "changed; it takes effect once approved", arguments.target.json)
}

fn decide(arguments: &DecideEntryArgs, status: EntryStatus, despite: bool) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let path = format!("/knowledge/{}", arguments.id);
        let entry: KnowledgeEntryDetail = client.get(&path, &[]).await?;
        if status == EntryStatus::Approved && !entry.warnings.is_empty() && !despite {
            show::print_content_warnings(&entry, arguments.target.json)?;
            return Ok(ExitCode::FAILURE);
        }
        let decision = KnowledgeDecision {
            status,
            revision: entry.revision,
            reason: arguments.reason.clone(),
            ignore_warnings: despite,
        };
        let by = arguments.identity.resolve_name()?;
        let path = format!("{path}/decision");
        let decided: KnowledgeEntryDetail =
            client.post(&path, &by, client::new_id(), &decision).await?;
        let what = match status {
            EntryStatus::Approved => "approved; it is now in effect",
            EntryStatus::Rejected => "rejected",
            EntryStatus::Retired => "retired; it is no longer in effect",
            EntryStatus::Pending => "proposed again; it takes effect once approved",
        };
        show::print_change(&decided, what, arguments.target.json)
    })
}

async fn export(arguments: &ExportEntriesArgs) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let (project, status) = (&arguments.project, arguments.status.map(|it| it.to_string()));
    let query: Vec<(&str, &str)> = [("project", project), ("status", &status)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect();
    let list: KnowledgeList = client.get("/knowledge", &query).await?;
    if arguments.target.json {
        output::print_json(&list)?;
    } else {
        // Bypasses `anstream`, so that the export is written unchanged.
        let file = markdown::render(list.entries.iter().map(|detail| &detail.entry));
        std::io::stdout().lock().write_all(file.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(arguments: &CheckPlanArgs) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&arguments.plan)
        .with_context(|| format!("cannot read {}", arguments.plan.display()))?;
    let plan: Plan = serde_json::from_str(&text)
        .with_context(|| format!("cannot parse the plan {}", arguments.plan.display()))?;
    let client = Client::new(&arguments.target)?;
    let with = match &arguments.with {
        Some(with) => {
            let tried: KnowledgeEntryDetail =
                client.get(&format!("/knowledge/{with}"), &[]).await?;
            Some(tried.entry.id.0)
        }
        None => None,
    };
    let question = KnowledgeCheckRequest {
        project: resolve_project(&client, arguments.project.as_deref()).await?,
        title: arguments.title.clone(),
        description: String::new(),
        r#type: arguments.task_type,
        plan,
        assume_approved: with,
    };
    // A check changes nothing, so the required name header has a placeholder.
    let answer: KnowledgeCheckResult =
        client.post("/knowledge/check", "anybody", client::new_id(), &question).await?;
    show::print_check_result(&answer, arguments.target.json)?;
    Ok(if answer.can_proceed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
