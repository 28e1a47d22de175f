//! The inbox: everything that waits for a person, the longest first.

use askama::Template;
use axum::extract::State;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{Answer, Next, Severity};
use uuid::Uuid;

use super::door::Visitor;
use super::rights::{Rights, YOU};
use super::shell::{Shell, When};
use super::words::capital;
use super::{Hall, Oops, Page, render, words};
use crate::app::{App, Error, Window};
use crate::clock;
use crate::shape;

/// How many are shown.
const MOST: u32 = 200;

#[derive(Template)]
#[template(path = "inbox.html")]
struct Inbox {
    shell: Shell,
    live: String,
    list: List,
}

/// Everything that waits.
#[derive(Template)]
#[template(path = "_inbox.html")]
pub(super) struct List {
    shell: Shell,
    items: Vec<Item>,
    lessons: u64,
    lessons_words: String,
    others: Others,
}

/// One thing that waits, as a live update sends it.
#[derive(Template)]
#[template(path = "_inbox_item.html")]
pub(super) struct Alone {
    shell: Shell,
    item: Item,
}

/// What waits for somebody else.
struct Others {
    any: bool,
    list: Vec<Other>,
}

struct Other {
    id: Uuid,
    title: String,
    words: String,
}

struct Item {
    id: Uuid,
    short: String,
    href: String,
    title: String,
    cause: String,
    icon: &'static str,
    tone: &'static str,
    asked: When,
    seen_by: String,
    project: String,
    risk: String,
    cost: String,
    lines: Vec<String>,
    asks: String,
    quick: Quick,
}

/// What can be decided without reading more: a plan of low risk.
#[derive(Default)]
struct Quick {
    any: bool,
    button: String,
    what: String,
    action: String,
    seen: String,
    seen_name: &'static str,
    key: String,
}

pub(super) async fn page(State(hall): State<Hall>, visitor: Visitor) -> Page {
    let shell = Shell::at(&hall, &visitor, "inbox").await?;
    let mut rights = Rights::of(&hall.app, &visitor);
    let read = async {
        // Before anything is read, so that nothing is missed between the page and what follows it.
        let since = hall.app.store.now().await?.timestamp_micros();
        Ok((since, List::read(&hall.app, &shell, &mut rights).await?))
    };
    let (since, list) = read.await.map_err(|error: Error| Oops::new(Shell::of(&visitor), error))?;
    render(&Inbox { shell, live: format!("/live/inbox?since={since}"), list })
}

impl List {
    pub(super) async fn read(app: &App, shell: &Shell, rights: &mut Rights) -> Result<Self, Error> {
        let page = app.inbox(None, &Window { after: None, limit: MOST }).await?;
        let (mut items, mut others) = (Vec::new(), Vec::new());
        for card in page.tasks.iter().filter(|card| card.waits_for_person) {
            let waits = rights.waits_for(card).await;
            if waits == YOU {
                // What an agent asks is worth reading here; the rest is on the task's own page.
                let whole = app.task(TaskId(card.id)).await?;
                items.push(item(&whole, project(app, card.project).await?));
            } else {
                let (id, title) = (card.id, card.title.clone());
                let words = format!("{} Waits for {waits}.", words::next(card));
                others.push(Other { id, title, words });
            }
        }
        let lessons = app.pending_knowledge().await?;
        Ok(Self {
            shell: shell.clone(),
            items,
            lessons,
            lessons_words: match lessons {
                1 => "1 lesson waits to be read.".to_owned(),
                count => format!("{count} lessons wait to be read."),
            },
            others: Others { any: !others.is_empty(), list: others },
        })
    }
}

impl Alone {
    /// What a task asks of somebody, if it does.
    pub(super) async fn read(
        app: &App,
        shell: &Shell,
        rights: &mut Rights,
        whole: &shape::Whole,
    ) -> Result<Option<Self>, Error> {
        if rights.waits_for(&whole.card).await != YOU {
            return Ok(None);
        }
        let item = item(whole, project(app, whole.card.project).await?);
        Ok(Some(Self { shell: shell.clone(), item }))
    }
}

async fn project(app: &App, id: Uuid) -> Result<String, Error> {
    Ok(app.project_by_id(ProjectId(id)).await?.name)
}

fn item(whole: &shape::Whole, project: String) -> Item {
    let card = &whole.card;
    let question = whole.question.as_ref();
    let severity = whole.alerts.last().map_or(Severity::Warning, |alert| alert.severity);
    let tone = if severity == Severity::Critical { "bad" } else { "wait" };
    let cause = match &card.next {
        Some(Next::Answer { cause, .. }) => capital(&cause.to_string()),
        _ => words::next(card),
    };
    Item {
        id: card.id,
        short: card.short.clone(),
        href: format!("/tasks/{}", card.id),
        title: card.title.clone(),
        cause,
        icon: tone,
        tone,
        asked: When::ago(question.map_or(card.since, |question| question.asked_at)),
        seen_by: question.and_then(|question| question.seen_by.clone()).unwrap_or_default(),
        project,
        risk: card.risk.map(|risk| risk.to_string()).unwrap_or_default(),
        cost: words::spent(&card.spend),
        lines: whole.plan.iter().map(outline).collect(),
        asks: question.and_then(|question| question.asks.clone()).unwrap_or_default(),
        quick: quick(card, whole),
    }
}

/// What a plan is, in a line.
fn outline(plan: &shape::PlanVersion) -> String {
    let files = words::counted(plan.files.into(), "file");
    let critical = match plan.critical_files {
        0 => String::new(),
        count => format!(", {count} of them critical"),
    };
    let cost = plan.estimated_cost.map(|usd| format!(", about {}", words::dollars(usd)));
    format!(
        "Plan {}: {files}{critical}, complexity {} of 14{}.",
        plan.version,
        plan.complexity,
        cost.unwrap_or_default()
    )
}

fn quick(card: &shape::Card, whole: &shape::Whole) -> Quick {
    let low = card.risk == Some(tamma_core::level::Level::Low);
    match &whole.plan {
        Some(plan) if low && card.answers.contains(&Answer::Approve) => Quick {
            any: true,
            button: format!("Approve plan {}", plan.version),
            what: "An engine starts as soon as a place is free.".to_owned(),
            action: "approve".to_owned(),
            seen: plan.hash.clone(),
            seen_name: "plan",
            key: clock::new_id().to_string(),
        },
        _ => Quick { seen_name: "plan", ..Quick::default() },
    }
}
