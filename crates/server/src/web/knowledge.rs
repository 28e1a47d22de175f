//! Knowledge base: list, entry and decisions.

mod form;

use askama::Template;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::format::{capitalize, format_usd, humanize, pluralize};
use tamma_core::ids::Reference;
use tamma_core::knowledge::{EntryKind, EntryScope, EntrySeverity, EntryStatus};
use tamma_core::rules::Permission;
use tamma_store::{KnowledgeAction, KnowledgeFilter, RegisteredProject};
use uuid::Uuid;

use super::board::serialized_name;
use super::form_fields::FormFields;
use super::layout::{DisplayTime, Layout, Notice, SelectField, SelectOption, Tab};
use super::permissions::PagePermissions;
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::Error;
use crate::clock;
use crate::dto::{KnowledgeDecision, KnowledgeEntryDetail, KnowledgeTaskStats};

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
    text: String,
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
    fn new(known: &KnowledgeEntryDetail, projects: &[RegisteredProject], may: bool) -> Self {
        let entry = &known.entry;
        let name = |id| projects.iter().find(|it| it.id == id).map(|it| it.name.as_str());
        let scope = match entry.scope {
            EntryScope::Organisation => "Applies to every project".to_owned(),
            EntryScope::Project(id) => format!("Applies to {}", name(id).unwrap_or("a project")),
        };
        let is_pending = entry.status == EntryStatus::Pending;
        let matched = known.effect.as_ref().map_or(0, |effect| effect.matched);
        Self {
            id: entry.id.0,
            short_id: known.short.clone(),
            text: entry.text.clone(),
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
                format!("Matched {}.", pluralize(matched, "task"))
            },
            effect: match &known.effect {
                Some(effect) => effect.verdict_text.clone(),
                None if is_pending => "No effect until approved.".to_owned(),
                None => String::new(),
            },
            content_warnings: known.warnings.clone(),
            retirement_suggestion: known.retirement_suggestions.join("; "),
            is_pending,
            can_approve: may && known.warnings.is_empty(),
            consequence: match (entry.kind, entry.severity) {
                _ if !may => "Needs an approver's decision.",
                _ if !known.warnings.is_empty() => "Open the entry to approve it.",
                (EntryKind::Prohibition, EntrySeverity::Critical) => {
                    "Plans that violate it will need a person's decision."
                }
                (EntryKind::Prohibition, _) => "Plans that violate it will get a warning.",
                _ => "It will be included in the prompts of matching tasks.",
            },
            revision: known.revision,
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
    State(hall): State<WebState>,
    visitor: Session,
    Query(wanted): Query<KnowledgePageQuery>,
) -> PageResult {
    let shell = Layout::for_page(&hall, &visitor, "knowledge").await?;
    let mut rights = PagePermissions::for_session(&hall.app, &visitor);
    let made = load_page(&hall, shell, wanted, &mut rights).await;
    render(&made.map_err(|error| PageError::new(Layout::for_session(&visitor), error))?)
}

async fn load_page(
    hall: &WebState,
    shell: Layout,
    wanted: KnowledgePageQuery,
    rights: &mut PagePermissions,
) -> Result<KnowledgePage, Error> {
    let app = &hall.app;
    let projects = app.store.projects().await?;
    let project = match wanted.project.as_str() {
        "" => None,
        name => Some(app.resolve_project(Some(name)).await?.id),
    };
    let kind = serde_json::from_value(serde_json::Value::String(wanted.kind.clone())).ok();
    let filter = KnowledgeFilter { project, kind, status: None };
    let search = Some(wanted.text.trim()).filter(|text| !text.is_empty());
    let all = app.list_knowledge(&filter, search).await?.entries;
    let of = |status: EntryStatus| all.iter().filter(|it| it.entry.status == status).count() as u64;
    let (pending, approved) = (of(EntryStatus::Pending), of(EntryStatus::Approved));
    let offers = all.iter().filter(|it| !it.retirement_suggestions.is_empty()).count() as u64;
    let usual = if pending > 0 { "pending" } else { "approved" };
    let status = if wanted.status.is_empty() { usual.to_owned() } else { wanted.status.clone() };
    let wanted_here = |it: &&KnowledgeEntryDetail| match status.as_str() {
        "all" => true,
        "offers" => !it.retirement_suggestions.is_empty(),
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
        tab("Suggested for retirement", "offers", offers),
        tab("Rejected", "rejected", of(EntryStatus::Rejected)),
        tab("Retired", "retired", of(EntryStatus::Retired)),
        tab("All", "all", all.len() as u64),
    ];
    let any = |text: &str, chosen: &str| SelectOption::new("", text, chosen);
    let kinds = EntryKind::iter()
        .map(|kind| SelectOption::new(serialized_name(&kind), kind.to_string(), &wanted.kind));
    let names = projects.iter().map(|it| SelectOption::new(&it.name, &it.name, &wanted.project));
    let active = !(wanted.text.is_empty() && wanted.kind.is_empty() && wanted.project.is_empty());
    let ids: Vec<_> = projects.iter().map(|project| project.id.0).collect();
    let may = rights.allows_in_any(&ids, Permission::Decide).await;
    let entries = all.iter().filter(wanted_here).take(MAX_ENTRIES);
    Ok(KnowledgePage {
        layout: shell,
        summary: format!("{} approved, {pending} to review", pluralize(approved, "entry")),
        tabs,
        entries: entries.map(|it| EntryView::new(it, &projects, may)).collect(),
        empty_state: if active {
            EmptyState {
                title: "No matching entries",
                text: "Try another search or fewer filters.",
            }
        } else {
            EmptyState {
                title: "No entries yet",
                text: "Tamma checks every plan against the knowledge base before a run. Lessons \
                       from tasks appear here and take effect after approval.",
            }
        },
        filters: KnowledgeFilters {
            text: wanted.text.clone(),
            status,
            is_active: active,
            selects: vec![
                SelectField {
                    name: "kind",
                    label: "Type",
                    options: std::iter::once(any("any", &wanted.kind)).chain(kinds).collect(),
                },
                SelectField {
                    name: "project",
                    label: "Project",
                    options: std::iter::once(any("all", &wanted.project)).chain(names).collect(),
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
    State(hall): State<WebState>,
    visitor: Session,
    Path(id): Path<String>,
) -> PageResult {
    let shell = Layout::for_page(&hall, &visitor, "knowledge").await?;
    let read = async {
        let projects = hall.app.store.projects().await?;
        let known = hall.app.knowledge_entry(&id).await?;
        let met = hall.app.store.recently_matched_tasks(known.entry.id, RECENT_TASKS).await?;
        Ok::<_, Error>((known, projects, met))
    };
    let (known, projects, met) =
        read.await.map_err(|error| PageError::new(Layout::for_session(&visitor), error))?;
    let mut rights = PagePermissions::for_session(&hall.app, &visitor);
    let ids: Vec<_> = match known.entry.scope {
        EntryScope::Organisation => projects.iter().map(|project| project.id.0).collect(),
        EntryScope::Project(project) => vec![project.0],
    };
    let may = rights.allows_in_any(&ids, Permission::Decide).await;
    let entry = EntryView::new(&known, &projects, may);
    render(&EntryPage {
        layout: shell,
        decisions: if may { decision_forms(&known) } else { DecisionForms::none() },
        evidence: known.entry.evidence.iter().map(evidence_link).collect(),
        effect: effect_view(&known),
        matched_tasks: met.into_iter().map(matched_task).collect(),
        facts: entry_facts(&known, &entry.scope),
        changes: known.changes.iter().map(entry_change_row).collect(),
        entry,
    })
}

fn matched_task(met: tamma_store::MatchedTask) -> MatchedTaskView {
    let (role, state) = (met.role, labels::state_label(met.state));
    let at = labels::format_time(met.at, clock::now());
    MatchedTaskView {
        id: met.task.0,
        title: met.title,
        status: format!("matched as {role} at {at}; now {state}"),
    }
}

fn decision_forms(known: &KnowledgeEntryDetail) -> DecisionForms {
    let doubtful = !known.warnings.is_empty();
    let reject = DecisionForm {
        name: "Reject",
        status: "rejected",
        consequence: "It will have no effect. If it is proposed again, it stays rejected.",
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
        consequence: "It applies to the knowledge check and the prompts of matching tasks.",
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
        consequence: "It will have no effect. Its history stays, and it can be reopened.",
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
        consequence: "It becomes pending and takes effect after approval.",
        button: "Reopen",
        style: "",
        is_open: true,
        is_reason_required: false,
        confirms_warnings: false,
        scope_note: "",
    };
    let (title, list) = match known.entry.status {
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

fn effect_view(known: &KnowledgeEntryDetail) -> EffectView {
    let Some(effect) = &known.effect else {
        let words = "Measured once the entry is approved.".to_owned();
        return EffectView { summary: words, any: false, rows: Vec::new() };
    };
    let row = |name, tally: &KnowledgeTaskStats| {
        let tasks = tally.tasks.max(1);
        EffectRow {
            name,
            tasks: tally.tasks,
            first_pass: format!("{} of {}", tally.first_pass, tally.tasks),
            percent: tally.first_pass * 100 / tasks,
            iterations: format!("{:.1} per task", mean_iterations(tally)),
            cost: tally.cost_usd.checked_div(tasks.into()).map(format_usd).unwrap_or_default(),
        }
    };
    EffectView {
        summary: capitalize(&effect.verdict_text),
        any: effect.with.tasks + effect.without.tasks > 0,
        rows: vec![row("With this entry", &effect.with), row("Without it", &effect.without)],
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people")]
fn mean_iterations(tally: &KnowledgeTaskStats) -> f64 {
    tally.iterations as f64 / f64::from(tally.tasks.max(1))
}

fn entry_facts(known: &KnowledgeEntryDetail, scope: &str) -> Vec<EntryFact> {
    let entry = &known.entry;
    let any = |text: String| if text.is_empty() { "any".to_owned() } else { text };
    let list = |texts: Vec<String>| any(texts.join(", "));
    let fact = |name, value: String| EntryFact { name, value, is_code: false };
    let mut facts = vec![
        fact("Scope", scope.trim_end_matches(", in").to_owned()),
        EntryFact {
            name: "Paths",
            value: any(entry.globs.join(" ")),
            is_code: !entry.globs.is_empty(),
        },
        fact("Keywords", list(entry.keywords.clone())),
        fact("Task types", list(entry.task_types.iter().map(ToString::to_string).collect())),
        fact("Actions", list(entry.actions.iter().map(ToString::to_string).collect())),
    ];
    if let Some(pattern) = &entry.pattern {
        facts.push(EntryFact { name: "Pattern", value: pattern.clone(), is_code: true });
    }
    let owner = entry.owner.as_ref().map(ToString::to_string);
    facts.push(fact("Owner", owner.unwrap_or_else(|| "none until approved".to_owned())));
    let now = clock::now();
    let expires = entry.expires_at.map(|at| labels::format_time(at, now));
    facts.push(fact("Expires", expires.unwrap_or_else(|| "never".to_owned())));
    facts.push(fact("Added", labels::format_time(known.created_at, now)));
    facts
}

fn entry_change_row(change: &crate::dto::KnowledgeChange) -> EntryChangeRow {
    EntryChangeRow {
        at: DisplayTime::absolute(change.at),
        by: change.by.clone().unwrap_or_else(|| "a task".to_owned()),
        action: match change.action {
            KnowledgeAction::Merged => "added evidence".to_owned(),
            deed => format!("{} it", humanize(&deed)),
        },
        reason: change.reason.clone().unwrap_or_default(),
    }
}

/// Decides about an entry.
pub(super) async fn decide(
    State(hall): State<WebState>,
    visitor: Session,
    Path(id): Path<String>,
    fields: FormFields,
) -> PageResult {
    let decided = async {
        let odd = |what: &str| {
            Error::invalid(format!("The field `{what}` is not valid."), "Reload the page.")
        };
        let status = serde_json::Value::String(fields.text("status"));
        let decision = KnowledgeDecision {
            status: serde_json::from_value(status).map_err(|_| odd("status"))?,
            revision: fields.text("revision").parse().map_err(|_| odd("revision"))?,
            reason: fields.non_empty("reason"),
            ignore_warnings: fields.text("despite") == "yes",
        };
        hall.app.decide_knowledge(&id, decision, &visitor.acting_person()?).await
    };
    let known = decided.await.map_err(|error: Error| {
        PageError::new(Layout::for_session(&visitor), error).with_unsent_text(fields.user_text())
    })?;
    let notice = Notice::success(format!("Entry {} is now {}.", known.short, known.entry.status));
    redirect_with_notice("/knowledge", &notice)
}
