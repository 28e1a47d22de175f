//! What the team knows, and what waits to be read.

mod form;

use askama::Template;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use strum::IntoEnumIterator as _;
use tamma_core::ids::Reference;
use tamma_core::knowledge::{Kind, Scope, Severity, Status};
use tamma_core::rules::Right;
use tamma_store::{Deed, KnowledgeFilter, Project};
use uuid::Uuid;

use super::board::word;
use super::door::{Visitor, done};
use super::fields::Fields;
use super::rights::Rights;
use super::shell::{Choice, Notice, Select, Shell, Tab, When};
use super::{Hall, Oops, Page, render, words};
use crate::app::Error;
use crate::clock;
use crate::shape::{Knowledge, KnowledgeDecision, KnowledgeTally};

pub(super) use form::{add, change, edit, new};

/// How many of the tasks that an entry met are shown.
const LATELY: u32 = 10;

/// How many are shown at once.
const MOST: usize = 200;

#[derive(Template)]
#[template(path = "knowledge.html")]
struct List {
    shell: Shell,
    summary: String,
    tabs: Vec<Tab>,
    query: Asked,
    entries: Vec<Entry>,
    nothing: Nothing,
    more_href: String,
}

struct Asked {
    text: String,
    status: String,
    active: bool,
    selects: Vec<Select>,
}

struct Nothing {
    title: &'static str,
    text: &'static str,
}

struct Entry {
    id: Uuid,
    short: String,
    text: String,
    kind: String,
    icon: &'static str,
    severity: String,
    tone: &'static str,
    status: String,
    scope: String,
    globs: Vec<String>,
    keywords: Vec<String>,
    matched: String,
    effect: String,
    hazards: Vec<String>,
    offer: String,
    pending: bool,
    safe: bool,
    consequence: &'static str,
    revision: u64,
}

impl Entry {
    fn new(known: &Knowledge, projects: &[Project], may: bool) -> Self {
        let entry = &known.entry;
        let name = |id| projects.iter().find(|it| it.id == id).map(|it| it.name.as_str());
        let scope = match entry.scope {
            Scope::Organisation => "Holds in every project".to_owned(),
            Scope::Project(id) => format!("Holds in {}", name(id).unwrap_or("a project")),
        };
        let pending = entry.status == Status::Pending;
        let matched = known.effect.as_ref().map_or(0, |effect| effect.matched);
        Self {
            id: entry.id.0,
            short: known.short.clone(),
            text: entry.text.clone(),
            kind: entry.kind.to_string(),
            icon: match entry.kind {
                Kind::Prohibition => "block",
                Kind::Recommendation => "good",
                Kind::Convention => "file",
                Kind::Learning => "book",
            },
            severity: entry.severity.to_string(),
            tone: if entry.severity >= Severity::High { "bad" } else { "none" },
            status: entry.status.to_string(),
            scope: if entry.globs.is_empty() { scope } else { format!("{scope}, under") },
            globs: entry.globs.clone(),
            keywords: entry.keywords.clone(),
            matched: if pending {
                match entry.evidence.len() as u64 {
                    0 => String::new(),
                    count => format!("Evidence: {}.", words::counted(count, "reference")),
                }
            } else {
                format!("Met {}.", words::counted(matched.into(), "task"))
            },
            effect: match &known.effect {
                Some(effect) => effect.in_words.clone(),
                None if pending => "Inert until approved.".to_owned(),
                None => String::new(),
            },
            hazards: known.hazards.clone(),
            offer: known.offers.join(" "),
            pending,
            safe: may && known.hazards.is_empty(),
            consequence: match (entry.kind, entry.severity) {
                _ if !may => "An approver decides about it.",
                _ if !known.hazards.is_empty() => "It can be approved only on its own page.",
                (Kind::Prohibition, Severity::Critical) => {
                    "From then on a plan that does this goes to a person."
                }
                (Kind::Prohibition, _) => "From then on a plan that does this gets a warning.",
                _ => "From then on it stands in the prompt of every task that it fits.",
            },
            revision: known.revision,
        }
    }
}

/// Which entries are wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    status: String,
    text: String,
    kind: String,
    project: String,
}

pub(super) async fn list(
    State(hall): State<Hall>,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Page {
    let shell = Shell::at(&hall, &visitor, "knowledge").await?;
    let mut rights = Rights::of(&hall.app, &visitor);
    let made = listed(&hall, shell, wanted, &mut rights).await;
    render(&made.map_err(|error| Oops::new(Shell::of(&visitor), error))?)
}

async fn listed(
    hall: &Hall,
    shell: Shell,
    wanted: Wanted,
    rights: &mut Rights,
) -> Result<List, Error> {
    let app = &hall.app;
    let projects = app.store.projects().await?;
    let project = match wanted.project.as_str() {
        "" => None,
        name => Some(app.project(Some(name)).await?.id),
    };
    let kind = serde_json::from_value(serde_json::Value::String(wanted.kind.clone())).ok();
    let filter = KnowledgeFilter { project, kind, status: None };
    let search = Some(wanted.text.trim()).filter(|text| !text.is_empty());
    let all = app.knowledge_list(&filter, search).await?.entries;
    let of = |status: Status| all.iter().filter(|it| it.entry.status == status).count() as u64;
    let (pending, approved) = (of(Status::Pending), of(Status::Approved));
    let offers = all.iter().filter(|it| !it.offers.is_empty()).count() as u64;
    let usual = if pending > 0 { "pending" } else { "approved" };
    let status = if wanted.status.is_empty() { usual.to_owned() } else { wanted.status.clone() };
    let wanted_here = |it: &&Knowledge| match status.as_str() {
        "all" => true,
        "offers" => !it.offers.is_empty(),
        status => word(&it.entry.status) == status,
    };
    let tab = |name: &'static str, key: &str, count: u64| Tab {
        href: format!("/knowledge?status={key}"),
        name,
        note: if count == 0 { String::new() } else { count.to_string() },
        tone: if key == "pending" && count > 0 { "wait" } else { "" },
        here: key == status,
    };
    let tabs = vec![
        tab("Pending", "pending", pending),
        tab("Approved", "approved", approved),
        tab("Offered for retirement", "offers", offers),
        tab("Rejected", "rejected", of(Status::Rejected)),
        tab("Retired", "retired", of(Status::Retired)),
        tab("All", "all", all.len() as u64),
    ];
    let any = |text: &str, chosen: &str| Choice::new("", text, chosen);
    let kinds = Kind::iter().map(|kind| Choice::new(word(&kind), kind.to_string(), &wanted.kind));
    let names = projects.iter().map(|it| Choice::new(&it.name, &it.name, &wanted.project));
    let active = !(wanted.text.is_empty() && wanted.kind.is_empty() && wanted.project.is_empty());
    let ids: Vec<_> = projects.iter().map(|project| project.id.0).collect();
    let may = rights.may_in_any(&ids, Right::Decide).await;
    let entries = all.iter().filter(wanted_here).take(MOST);
    Ok(List {
        shell,
        summary: format!("{} in force, {pending} to be read", words::counted(approved, "entry")),
        tabs,
        entries: entries.map(|it| Entry::new(it, &projects, may)).collect(),
        nothing: if active {
            Nothing { title: "No entry fits", text: "Nothing here matches what you asked for." }
        } else {
            Nothing {
                title: "Nothing is here",
                text: "What the team knows is held against every plan before anything runs. Lessons \
                       come from tasks and wait here until somebody approves them.",
            }
        },
        query: Asked {
            text: wanted.text.clone(),
            status,
            active,
            selects: vec![
                Select {
                    name: "kind",
                    label: "Kind",
                    options: std::iter::once(any("any", &wanted.kind)).chain(kinds).collect(),
                },
                Select {
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
struct OnePage {
    shell: Shell,
    entry: Entry,
    deeds: Deeds,
    evidence: Vec<Evidence>,
    effect: Effect,
    matched: Vec<Met>,
    facts: Vec<Fact>,
    changes: Vec<Change>,
}

struct Deeds {
    any: bool,
    title: &'static str,
    list: Vec<Decision>,
}

impl Deeds {
    /// For somebody who may not decide.
    fn none() -> Self {
        Self { any: false, title: "", list: Vec::new() }
    }
}

struct Decision {
    name: &'static str,
    status: &'static str,
    what: &'static str,
    button: &'static str,
    weight: &'static str,
    open: bool,
    required: bool,
    despite: bool,
    bound: &'static str,
}

struct Evidence {
    href: String,
    text: String,
    words: String,
}

struct Effect {
    words: String,
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

/// A task that it met.
struct Met {
    id: Uuid,
    title: String,
    words: String,
}

struct Fact {
    name: &'static str,
    value: String,
    code: bool,
}

struct Change {
    at: When,
    by: String,
    deed: String,
    reason: String,
}

pub(super) async fn one(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Page {
    let shell = Shell::at(&hall, &visitor, "knowledge").await?;
    let read = async {
        let projects = hall.app.store.projects().await?;
        let known = hall.app.knowledge_one(&id).await?;
        let met = hall.app.store.met_lately(known.entry.id, LATELY).await?;
        Ok::<_, Error>((known, projects, met))
    };
    let (known, projects, met) =
        read.await.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let mut rights = Rights::of(&hall.app, &visitor);
    let ids: Vec<_> = match known.entry.scope {
        Scope::Organisation => projects.iter().map(|project| project.id.0).collect(),
        Scope::Project(project) => vec![project.0],
    };
    let may = rights.may_in_any(&ids, Right::Decide).await;
    let entry = Entry::new(&known, &projects, may);
    render(&OnePage {
        shell,
        deeds: if may { deeds(&known) } else { Deeds::none() },
        evidence: known.entry.evidence.iter().map(evidence).collect(),
        effect: effect(&known),
        matched: met.into_iter().map(met_task).collect(),
        facts: facts(&known, &entry.scope),
        changes: known.changes.iter().map(changed).collect(),
        entry,
    })
}

fn met_task(met: tamma_store::Met) -> Met {
    let (role, state) = (met.role, words::state(met.state));
    let at = words::moment(met.at, clock::now());
    Met { id: met.task.0, title: met.title, words: format!("{role} at {at}; now {state}") }
}

fn deeds(known: &Knowledge) -> Deeds {
    let doubtful = !known.hazards.is_empty();
    let reject = Decision {
        name: "Reject",
        status: "rejected",
        what: "It has no effect, and proposing it again finds it here.",
        button: "Reject",
        weight: "danger",
        open: doubtful,
        required: true,
        despite: false,
        bound: "",
    };
    let approve = Decision {
        name: "Approve",
        status: "approved",
        what: "It counts from now on: in the check of every plan it fits, and in its prompts.",
        button: if doubtful { "Approve it despite the warnings" } else { "Approve" },
        weight: if doubtful { "danger" } else { "primary" },
        open: !doubtful,
        required: doubtful,
        despite: doubtful,
        bound: "Bound to this wording: another one asks again.",
    };
    let retire = Decision {
        name: "Retire",
        status: "retired",
        what: "It no longer counts. Its history stays, and it can be taken up again.",
        button: "Retire",
        weight: "",
        open: true,
        required: true,
        despite: false,
        bound: "",
    };
    let reopen = Decision {
        name: "Take up again",
        status: "pending",
        what: "It is pending again, and has no effect until somebody approves it.",
        button: "Take it up again",
        weight: "",
        open: true,
        required: false,
        despite: false,
        bound: "",
    };
    let (title, list) = match known.entry.status {
        Status::Pending if doubtful => ("What is to become of it?", vec![reject, approve]),
        Status::Pending => ("What is to become of it?", vec![approve, reject]),
        Status::Approved => ("It counts", vec![retire]),
        Status::Rejected | Status::Retired => ("It does not count", vec![reopen]),
    };
    Deeds { any: true, title, list }
}

/// What an entry is based on, with a way there where there is one.
fn evidence(reference: &Reference) -> Evidence {
    let text = reference.to_string();
    // `task/<id>/event/<number>`, `task/<id>/commit/<hash>`, and whatever people write.
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
    Evidence { href, text, words: String::new() }
}

fn effect(known: &Knowledge) -> Effect {
    let Some(effect) = &known.effect else {
        let words = "Not known yet: it is inert until it is approved.".to_owned();
        return Effect { words, any: false, rows: Vec::new() };
    };
    let row = |name, tally: &KnowledgeTally| {
        let tasks = tally.tasks.max(1);
        EffectRow {
            name,
            tasks: tally.tasks,
            first_pass: format!("{} of {}", tally.first_pass, tally.tasks),
            percent: tally.first_pass * 100 / tasks,
            iterations: format!("{:.1} each", runs_each(tally)),
            cost: tally.cost_usd.shared_by(tasks.into()).map(words::dollars).unwrap_or_default(),
        }
    };
    Effect {
        words: super::words::capital(&effect.in_words),
        any: effect.with.tasks + effect.without.tasks > 0,
        rows: vec![row("With it", &effect.with), row("Without it", &effect.without)],
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people")]
fn runs_each(tally: &KnowledgeTally) -> f64 {
    tally.iterations as f64 / f64::from(tally.tasks.max(1))
}

fn facts(known: &Knowledge, scope: &str) -> Vec<Fact> {
    let entry = &known.entry;
    let any = |text: String| if text.is_empty() { "any".to_owned() } else { text };
    let list = |texts: Vec<String>| any(texts.join(", "));
    let fact = |name, value: String| Fact { name, value, code: false };
    let mut facts = vec![
        fact("Scope", scope.trim_end_matches(", under").to_owned()),
        Fact { name: "Paths", value: any(entry.globs.join(" ")), code: !entry.globs.is_empty() },
        fact("Words", list(entry.keywords.clone())),
        fact("Task types", list(entry.task_types.iter().map(ToString::to_string).collect())),
        fact("Actions", list(entry.actions.iter().map(ToString::to_string).collect())),
    ];
    if let Some(pattern) = &entry.pattern {
        facts.push(Fact { name: "Pattern", value: pattern.clone(), code: true });
    }
    let owner = entry.owner.as_ref().map(ToString::to_string);
    facts.push(fact("Owner", owner.unwrap_or_else(|| "nobody until approved".to_owned())));
    let now = clock::now();
    let expires = entry.expires_at.map(|at| words::moment(at, now));
    facts.push(fact("Expires", expires.unwrap_or_else(|| "never".to_owned())));
    facts.push(fact("Came in", words::moment(known.created_at, now)));
    facts
}

fn changed(change: &crate::shape::KnowledgeChange) -> Change {
    Change {
        at: When::clock(change.at),
        by: change.by.clone().unwrap_or_else(|| "a task".to_owned()),
        deed: match change.deed {
            Deed::Merged => "added evidence".to_owned(),
            deed => format!("{} it", words::plain(&deed)),
        },
        reason: change.reason.clone().unwrap_or_default(),
    }
}

/// Takes a decision about an entry.
pub(super) async fn decide(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<String>,
    fields: Fields,
) -> Page {
    let decided = async {
        let odd = |what: &str| {
            Error::invalid(format!("`{what}` cannot be read."), "Load the page again.")
        };
        let status = serde_json::Value::String(fields.text("status"));
        let decision = KnowledgeDecision {
            status: serde_json::from_value(status).map_err(|_| odd("status"))?,
            revision: fields.text("revision").parse().map_err(|_| odd("revision"))?,
            reason: fields.given("reason"),
            despite: fields.text("despite") == "yes",
        };
        hall.app.decide_knowledge(&id, decision, &visitor.name()?).await
    };
    let known = decided
        .await
        .map_err(|error: Error| Oops::new(Shell::of(&visitor), error).keeping(fields.written()))?;
    let notice = Notice::good(format!("The entry {} is {} now.", known.short, known.entry.status));
    done("/knowledge", &notice)
}
