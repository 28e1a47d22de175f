//! Knowledge base: list, entry and decisions.

mod bulk;
mod form;

use askama::Template;
use axum::extract::{Path, Query};
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::format::{capitalize, format_usd, humanize, pluralize};
use tamma_core::ids::Reference;
use tamma_core::knowledge::{EntryKind, EntryScope, EntrySeverity, EntryStatus};
use tamma_core::learning::{LessonEvidence, LessonTrigger};
use tamma_store::{KnowledgeAction, KnowledgeFilter, RegisteredProject};
use uuid::Uuid;

use super::board::serialized_name;
use super::form_fields::FormFields;
use super::html::SafeHtml;
use super::layout::{DisplayTime, Layout, Notice, SelectField, SelectOption, Tab};
use super::permissions::PagePermissions;
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, labels, markdown, render};
use crate::app::{Error, decision_consequence};
use crate::clock;
use crate::dto::{KnowledgeDecision, KnowledgeEntryDetail, KnowledgeTaskStats, short_id};

pub(super) use bulk::decide_several;
pub(super) use form::{add, edit_form, new_form, update};

/// Number of recent matches shown for an entry.
const RECENT_TASKS: u32 = 10;

/// Maximum number of entries shown.
const MAX_ENTRIES: usize = 200;

#[derive(Template)]
#[template(path = "knowledge.html")]
struct KnowledgePage {
    layout: Layout,
    summary: String,
    tabs: Vec<Tab>,
    filters: KnowledgeFilters,
    entries: Vec<EntryView>,
    /// Set if several entries can be decided at once.
    can_decide_several: bool,
    empty_state: EmptyState,
    more_href: String,
}

struct KnowledgeFilters {
    text: String,
    status: String,
    is_active: bool,
    selects: Vec<SelectField>,
}

struct EmptyState {
    title: &'static str,
    text: &'static str,
}

struct EntryView {
    id: Uuid,
    short_id: String,
    text: SafeHtml,
    kind: String,
    icon: &'static str,
    severity: String,
    tone: &'static str,
    status: String,
    scope: String,
    globs: Vec<String>,
    keywords: Vec<String>,
    match_summary: String,
    effect: String,
    content_warnings: Vec<String>,
    retirement_suggestion: String,
    is_pending: bool,
    can_approve: bool,
    consequence: &'static str,
    revision: u64,
}

impl EntryView {
    fn new(
        detail: &KnowledgeEntryDetail,
        projects: &[RegisteredProject],
        can_decide: bool,
    ) -> Self {
        let entry = &detail.entry;
        let name = |id| projects.iter().find(|it| it.id == id).map(|it| it.name.as_str());
        let scope = match entry.scope {
            EntryScope::Organisation => "Applies to every project".to_owned(),
            EntryScope::Project(id) => format!("Applies to {}", name(id).unwrap_or("a project")),
        };
        let is_pending = entry.status == EntryStatus::Pending;
        Self {
            id: entry.id.0,
            short_id: detail.short.clone(),
            text: markdown::code_spans_to_html(&entry.text),
            kind: entry.kind.to_string(),
            icon: match entry.kind {
                EntryKind::Prohibition => "block",
                EntryKind::Recommendation => "good",
                EntryKind::Convention => "file",
                EntryKind::Learning => "book",
            },
            severity: entry.severity.to_string(),
            tone: if entry.severity >= EntrySeverity::High { "bad" } else { "none" },
            status: entry.status.to_string(),
            scope: if entry.globs.is_empty() { scope } else { format!("{scope}, in") },
            globs: entry.globs.clone(),
            keywords: entry.keywords.clone(),
            match_summary: if is_pending {
                match entry.evidence.len() as u64 {
                    0 => String::new(),
                    count => format!("Evidence: {}.", pluralize(count, "reference")),
                }
            } else {
                // Lists have no effects.
                let matched = detail.effect.as_ref().map(|effect| effect.matched);
                let tasks = matched.map(|count| format!("Matched {}.", pluralize(count, "task")));
                tasks.unwrap_or_default()
            },
            effect: match &detail.effect {
                Some(effect) => effect.verdict_text.clone(),
                None if is_pending => "No effect until approved.".to_owned(),
                None => String::new(),
            },
            content_warnings: detail.warnings.clone(),
            retirement_suggestion: detail.retirement_suggestions.join("; ").replace('`', ""),
            is_pending,
            can_approve: can_decide && detail.warnings.is_empty(),
            consequence: match (entry.kind, entry.severity) {
                _ if !can_decide && entry.scope == EntryScope::Organisation => {
                    "Needs an operator's decision."
                }
                _ if !can_decide => "Needs an approver's decision.",
                _ if !detail.warnings.is_empty() => "Open the entry to approve it.",
                (EntryKind::Prohibition, EntrySeverity::Critical) => {
                    "Plans that violate it will need a person's decision."
                }
                (EntryKind::Prohibition, _) => "Plans that violate it will get a warning.",
                _ => "It will be included in the prompts of matching tasks.",
            },
            revision: detail.revision,
        }
    }
}

/// Query parameters of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KnowledgePageQuery {
    status: String,
    text: String,
    kind: String,
    project: String,
}

pub(super) async fn list(
    state: WebState,
    session: Session,
    Query(query): Query<KnowledgePageQuery>,
) -> PageResult {
    let layout = Layout::for_page(&state, &session, "knowledge").await?;
    let permissions = PagePermissions::for_session(&state.app, &session);
    let page = load_page(&state, layout, query, &permissions).await;
    render(&page.map_err(|error| PageError::new(Layout::for_session(&session), error))?)
}

async fn load_page(
    state: &WebState,
    layout: Layout,
    query: KnowledgePageQuery,
    permissions: &PagePermissions,
) -> Result<KnowledgePage, Error> {
    let app = &state.app;
    let projects = app.store.projects().await?;
    let project = match query.project.as_str() {
        "" => None,
        name => Some(app.resolve_project(Some(name)).await?.id),
    };
    let kind = serde_json::from_value(serde_json::Value::String(query.kind.clone())).ok();
    let filter = KnowledgeFilter { project, kind, status: None };
    let search = Some(query.text.trim()).filter(|text| !text.is_empty());
    let all = app.list_knowledge(&filter, search).await?.entries;
    let of = |status: EntryStatus| all.iter().filter(|it| it.entry.status == status).count() as u64;
    let (pending, approved) = (of(EntryStatus::Pending), of(EntryStatus::Approved));
    let default_status = if pending > 0 { "pending" } else { "approved" };
    let status =
        if query.status.is_empty() { default_status.to_owned() } else { query.status.clone() };
    // Suggestions need the repository and the history of tasks, so other tabs do without them.
    let mut suggested = match status.as_str() {
        "offers" => app.retirement_suggestions(&filter).await?.entries,
        _ => Vec::new(),
    };
    suggested.retain(|one| all.iter().any(|it| it.entry.id == one.entry.id));
    let in_tab = |it: &&KnowledgeEntryDetail| match status.as_str() {
        "all" | "offers" => true,
        status => serialized_name(&it.entry.status) == status,
    };
    let tab = |name: &'static str, key: &str, count: u64| Tab {
        href: format!("/knowledge?status={key}"),
        name,
        note: if count == 0 { String::new() } else { count.to_string() },
        tone: if key == "pending" && count > 0 { "wait" } else { "" },
        is_current: key == status,
    };
    let tabs = vec![
        tab("Pending", "pending", pending),
        tab("Approved", "approved", approved),
        tab("Suggested for retirement", "offers", suggested.len() as u64),
        tab("Rejected", "rejected", of(EntryStatus::Rejected)),
        tab("Retired", "retired", of(EntryStatus::Retired)),
        tab("All", "all", all.len() as u64),
    ];
    let any_option = |text: &str, chosen: &str| SelectOption::new("", text, chosen);
    let kinds = EntryKind::iter()
        .map(|kind| SelectOption::new(serialized_name(&kind), kind.to_string(), &query.kind));
    let names = projects.iter().map(|it| SelectOption::new(&it.name, &it.name, &query.project));
    let active = !(query.text.is_empty() && query.kind.is_empty() && query.project.is_empty());
    let listed = if status == "offers" { &suggested } else { &all };
    let entries = listed.iter().filter(in_tab).take(MAX_ENTRIES);
    let entries: Vec<EntryView> = entries
        .map(|it| EntryView::new(it, &projects, permissions.can_decide_on(it.entry.scope)))
        .collect();
    Ok(KnowledgePage {
        layout,
        summary: format!("{} approved, {pending} to review", pluralize(approved, "entry")),
        tabs,
        can_decide_several: entries.iter().filter(|it| it.is_pending && it.can_approve).count() > 1,
        entries,
        empty_state: if active {
            EmptyState {
                title: "No matching entries",
                text: "Try another search or fewer filters.",
            }
        } else if status == "offers" {
            EmptyState {
                title: "Nothing to retire",
                text: "Entries that no longer help, match or have evidence appear here.",
            }
        } else if !all.is_empty() {
            EmptyState { title: "No entries in this tab", text: "Choose another tab." }
        } else {
            EmptyState {
                title: "No entries yet",
                text: "Tamma checks every plan against the knowledge base before a run. Lessons \
                       from tasks appear here and take effect after approval.",
            }
        },
        filters: KnowledgeFilters {
            text: query.text.clone(),
            status,
            is_active: active,
            selects: vec![
                SelectField {
                    name: "kind",
                    label: "Kind",
                    options: std::iter::once(any_option("Any", &query.kind)).chain(kinds).collect(),
                },
                SelectField {
                    name: "project",
                    label: "Project",
                    options: std::iter::once(any_option("All", &query.project))
                        .chain(names)
                        .collect(),
                },
            ],
        },
        more_href: String::new(),
    })
}

#[derive(Template)]
#[template(path = "knowledge_entry.html")]
struct EntryPage {
    layout: Layout,
    entry: EntryView,
    decisions: DecisionForms,
    evidence: Vec<EvidenceLink>,
    effect: EffectView,
    matched_tasks: Vec<MatchedTaskView>,
    facts: Vec<EntryFact>,
    changes: Vec<EntryChangeRow>,
}

struct DecisionForms {
    any: bool,
    title: &'static str,
    list: Vec<DecisionForm>,
}

impl DecisionForms {
    /// Returns no decisions, for people who cannot decide.
    fn none() -> Self {
        Self { any: false, title: "", list: Vec::new() }
    }
}

struct DecisionForm {
    name: &'static str,
    status: &'static str,
    consequence: &'static str,
    button: &'static str,
    style: &'static str,
    is_open: bool,
    is_reason_required: bool,
    confirms_warnings: bool,
    scope_note: &'static str,
}

struct EvidenceLink {
    href: String,
    text: String,
    note: String,
}

struct EffectView {
    summary: String,
    any: bool,
    rows: Vec<EffectRow>,
}

struct EffectRow {
    name: &'static str,
    tasks: u32,
    first_pass: String,
    percent: u32,
    iterations: String,
    cost: String,
}

/// Task that an entry matched.
struct MatchedTaskView {
    id: Uuid,
    title: String,
    status: String,
}

struct EntryFact {
    name: &'static str,
    value: String,
    is_code: bool,
}

struct EntryChangeRow {
    at: DisplayTime,
    by: String,
    action: String,
    reason: String,
}

pub(super) async fn entry_page(
    state: WebState,
    session: Session,
    Path(id): Path<String>,
) -> PageResult {
    let layout = Layout::for_page(&state, &session, "knowledge").await?;
    let read = async {
        let projects = state.app.store.projects().await?;
        let detail = state.app.knowledge_entry(&id).await?;
        let matches = state.app.store.recently_matched_tasks(detail.entry.id, RECENT_TASKS).await?;
        Ok::<_, Error>((detail, projects, matches))
    };
    let (detail, projects, matches) =
        read.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let can_decide =
        PagePermissions::for_session(&state.app, &session).can_decide_on(detail.entry.scope);
    let entry = EntryView::new(&detail, &projects, can_decide);
    render(&EntryPage {
        layout,
        decisions: if can_decide { decision_forms(&detail) } else { DecisionForms::none() },
        evidence: detail.entry.evidence.iter().map(evidence_link).collect(),
        effect: effect_view(&detail),
        matched_tasks: matches.into_iter().map(matched_task).collect(),
        facts: entry_facts(&detail, &entry.scope),
        changes: detail.changes.iter().map(entry_change_row).collect(),
        entry,
    })
}

fn matched_task(matched: tamma_store::MatchedTask) -> MatchedTaskView {
    let (role, state) = (matched.role, labels::state_label(matched.state));
    let at = labels::format_time(matched.at, clock::now());
    MatchedTaskView {
        id: matched.task.0,
        title: matched.title,
        status: format!("matched as {role} at {at}; now {state}"),
    }
}

fn decision_forms(detail: &KnowledgeEntryDetail) -> DecisionForms {
    let doubtful = !detail.warnings.is_empty();
    let reject = DecisionForm {
        name: "Reject",
        status: "rejected",
        consequence: decision_consequence(EntryStatus::Rejected),
        button: "Reject",
        style: "danger",
        is_open: doubtful,
        is_reason_required: true,
        confirms_warnings: false,
        scope_note: "",
    };
    let approve = DecisionForm {
        name: "Approve",
        status: "approved",
        consequence: decision_consequence(EntryStatus::Approved),
        button: if doubtful { "Approve despite warnings" } else { "Approve" },
        style: if doubtful { "danger" } else { "primary" },
        is_open: !doubtful,
        is_reason_required: doubtful,
        confirms_warnings: doubtful,
        scope_note: "Covers this version only. An edited entry needs approval again.",
    };
    let retire = DecisionForm {
        name: "Retire",
        status: "retired",
        consequence: decision_consequence(EntryStatus::Retired),
        button: "Retire",
        style: "",
        is_open: true,
        is_reason_required: true,
        confirms_warnings: false,
        scope_note: "",
    };
    let reopen = DecisionForm {
        name: "Reopen",
        status: "pending",
        consequence: decision_consequence(EntryStatus::Pending),
        button: "Reopen",
        style: "",
        is_open: true,
        is_reason_required: false,
        confirms_warnings: false,
        scope_note: "",
    };
    let (title, list) = match detail.entry.status {
        EntryStatus::Pending if doubtful => ("Review this entry", vec![reject, approve]),
        EntryStatus::Pending => ("Review this entry", vec![approve, reject]),
        EntryStatus::Approved => ("In effect", vec![retire]),
        EntryStatus::Rejected | EntryStatus::Retired => ("Not in effect", vec![reopen]),
    };
    DecisionForms { any: true, title, list }
}

/// Builds the view of a piece of evidence, with a link if it names a task or a URL.
fn evidence_link(reference: &Reference) -> EvidenceLink {
    let text = reference.to_string();
    if let Ok(evidence) = text.parse() {
        return task_evidence_link(evidence);
    }
    // `task/<id>/event/<number>`, `task/<id>/commit/<hash>`, or free text.
    let mut parts = text.split(['/', ':', ' ', '#']).map(str::to_owned);
    let task = parts.find_map(|part| part.parse::<Uuid>().ok());
    let numbers: Vec<_> = parts.collect();
    let href = match (task, numbers.as_slice()) {
        (Some(task), [.., what, number]) if what == "event" => {
            format!("/tasks/{task}/events#e{number}")
        }
        (Some(task), _) => format!("/tasks/{task}"),
        (None, _) if text.starts_with("https://") => text.clone(),
        (None, _) => String::new(),
    };
    EvidenceLink { href, text, note: String::new() }
}

/// Builds the view of evidence from a task.
fn task_evidence_link(evidence: LessonEvidence) -> EvidenceLink {
    let (task, part, what) = match evidence {
        LessonEvidence::Event(task, number) => {
            (task, format!("events#e{number}"), format!("Event {number}"))
        }
        LessonEvidence::Plan(task, version) => (task, "plan".to_owned(), format!("Plan {version}")),
        LessonEvidence::Check(task, _) => (task, "review".to_owned(), "Review".to_owned()),
        LessonEvidence::Commit(task, commit) => {
            (task, "change".to_owned(), format!("Commit {}", labels::short_hash(&commit)))
        }
    };
    EvidenceLink {
        href: format!("/tasks/{}/{part}", task.0),
        text: format!("{what} of task {}", short_id(task.0)),
        note: String::new(),
    }
}

fn effect_view(detail: &KnowledgeEntryDetail) -> EffectView {
    let Some(effect) = &detail.effect else {
        let summary = "Measured once the entry is approved.".to_owned();
        return EffectView { summary, any: false, rows: Vec::new() };
    };
    let row = |name, stats: &KnowledgeTaskStats| {
        let tasks = stats.tasks.max(1);
        let no_data = || "no data".to_owned();
        let mean = |text: String| if stats.tasks == 0 { no_data() } else { text };
        EffectRow {
            name,
            tasks: stats.tasks,
            first_pass: mean(format!("{} of {}", stats.first_pass, stats.tasks)),
            percent: stats.first_pass * 100 / tasks,
            iterations: mean(format!("{:.1} per task", mean_iterations(stats))),
            cost: stats
                .cost_usd
                .checked_div(tasks.into())
                .map_or_else(no_data, |usd| mean(format!("{} per task", format_usd(usd)))),
        }
    };
    EffectView {
        summary: capitalize(&effect.verdict_text),
        any: effect.with.tasks + effect.without.tasks > 0,
        rows: vec![row("With this entry", &effect.with), row("Without it", &effect.without)],
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people")]
fn mean_iterations(stats: &KnowledgeTaskStats) -> f64 {
    stats.iterations as f64 / f64::from(stats.tasks.max(1))
}

fn entry_facts(detail: &KnowledgeEntryDetail, scope: &str) -> Vec<EntryFact> {
    let entry = &detail.entry;
    let any = |text: String| if text.is_empty() { "any".to_owned() } else { text };
    let list = |texts: Vec<String>| any(texts.join(", "));
    let fact = |name, value: String| EntryFact { name, value, is_code: false };
    let mut facts = Vec::new();
    if let Some(origin) = &entry.origin {
        facts.push(fact("Title", origin.title.clone()));
        let occasion = match origin.occasion {
            LessonTrigger::Success => "a success",
            LessonTrigger::Failure => "a failure",
            LessonTrigger::Improvement => "a success after failures",
        };
        facts.push(fact("Learned from", occasion.to_owned()));
    }
    facts.extend([
        fact("Scope", scope.trim_end_matches(", in").to_owned()),
        EntryFact {
            name: "Paths",
            value: any(entry.globs.join(" ")),
            is_code: !entry.globs.is_empty(),
        },
        fact("Keywords", list(entry.keywords.clone())),
        fact("Task types", list(entry.task_types.iter().map(ToString::to_string).collect())),
        fact("Actions", list(entry.actions.iter().map(ToString::to_string).collect())),
    ]);
    if let Some(pattern) = &entry.pattern {
        facts.push(EntryFact { name: "Pattern", value: pattern.clone(), is_code: true });
    }
    let owner = entry.owner.as_ref().map(ToString::to_string);
    facts.push(fact("Owner", owner.unwrap_or_else(|| "none until approved".to_owned())));
    let now = clock::now();
    let expires = entry.expires_at.map(|at| labels::format_time(at, now));
    facts.push(fact("Expires", expires.unwrap_or_else(|| "never".to_owned())));
    facts.push(fact("Added", labels::format_time(detail.created_at, now)));
    facts
}

fn entry_change_row(change: &crate::dto::KnowledgeChange) -> EntryChangeRow {
    EntryChangeRow {
        at: DisplayTime::absolute(change.at),
        by: change.by.clone().unwrap_or_else(|| "a task".to_owned()),
        action: match change.action {
            KnowledgeAction::Merged => "added evidence".to_owned(),
            action => format!("{} it", humanize(&action)),
        },
        reason: change.reason.clone().unwrap_or_default(),
    }
}

/// Decides about an entry.
pub(super) async fn decide(
    state: WebState,
    session: Session,
    Path(id): Path<String>,
    fields: FormFields,
) -> PageResult {
    let decided = async {
        let invalid_field = |what: &str| {
            Error::invalid(format!("The field `{what}` is not valid."), "Reload the page.")
        };
        let status = serde_json::Value::String(fields.text("status"));
        let decision = KnowledgeDecision {
            status: serde_json::from_value(status).map_err(|_| invalid_field("status"))?,
            revision: fields.text("revision").parse().map_err(|_| invalid_field("revision"))?,
            reason: fields.non_empty("reason"),
            ignore_warnings: fields.text("despite") == "yes",
        };
        state.app.decide_knowledge(&id, decision, &session.acting_person()?).await
    };
    let detail = decided.await.map_err(|error: Error| {
        PageError::new(Layout::for_session(&session), error).with_unsent_text(fields.user_text())
    })?;
    let notice = Notice::success(format!("Entry {} is now {}.", detail.short, detail.entry.status));
    redirect_with_notice("/knowledge", &notice)
}
