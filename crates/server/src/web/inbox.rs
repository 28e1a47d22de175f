//! Inbox: decisions that wait on a person, oldest first.

use askama::Template;
use axum::extract::State;
use tamma_core::format::{capitalize, format_usd, pluralize};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{AlertSeverity, AnswerKind, NextStep};
use uuid::Uuid;

use super::layout::{DisplayTime, Layout};
use super::permissions::{PagePermissions, YOU};
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::{App, Error, PageRequest};
use crate::clock;
use crate::dto;

/// Maximum number of items.
const MAX_ITEMS: u32 = 200;

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage {
    layout: Layout,
    live_href: String,
    list: InboxList,
}

/// Content of the inbox.
#[derive(Template)]
#[template(path = "_inbox.html")]
pub(super) struct InboxList {
    layout: Layout,
    items: Vec<InboxItem>,
    lesson_count: u64,
    lessons_label: String,
    others: OtherItems,
}

/// Live update of one item.
#[derive(Template)]
#[template(path = "_inbox_item.html")]
pub(super) struct InboxItemFragment {
    layout: Layout,
    item: InboxItem,
}

/// Decisions that wait on other people.
struct OtherItems {
    any: bool,
    list: Vec<OtherItem>,
}

struct OtherItem {
    id: Uuid,
    title: String,
    status: String,
}

struct InboxItem {
    id: Uuid,
    short_id: String,
    href: String,
    title: String,
    cause: String,
    icon: &'static str,
    tone: &'static str,
    asked_at: DisplayTime,
    seen_by: String,
    project: String,
    risk: String,
    cost: String,
    lines: Vec<String>,
    agent_question: String,
    quick_action: QuickAction,
}

/// Approval of a low-risk plan, possible without opening the task.
#[derive(Default)]
struct QuickAction {
    any: bool,
    button: String,
    consequence: String,
    action: String,
    plan_hash: String,
    hash_field: &'static str,
    idempotency_key: String,
}

pub(super) async fn page(State(hall): State<WebState>, visitor: Session) -> PageResult {
    let shell = Layout::for_page(&hall, &visitor, "inbox").await?;
    let mut rights = PagePermissions::for_session(&hall.app, &visitor);
    let read = async {
        // Taken before the first read, so that live updates miss nothing.
        let since = hall.app.store.now().await?.timestamp_micros();
        Ok((since, InboxList::load(&hall.app, &shell, &mut rights).await?))
    };
    let (since, list) =
        read.await.map_err(|error: Error| PageError::new(Layout::for_session(&visitor), error))?;
    render(&InboxPage { layout: shell, live_href: format!("/live/inbox?since={since}"), list })
}

impl InboxList {
    pub(super) async fn load(
        app: &App,
        shell: &Layout,
        rights: &mut PagePermissions,
    ) -> Result<Self, Error> {
        let page = app.inbox(None, &PageRequest { after: None, limit: MAX_ITEMS }).await?;
        let (mut items, mut others) = (Vec::new(), Vec::new());
        for card in page.tasks.iter().filter(|card| card.waits_for_person) {
            let waits = rights.waiting_on(card).await;
            if waits == YOU {
                // The agent's question is shown here; other details are on the task page.
                let whole = app.task_detail(TaskId(card.id)).await?;
                items.push(inbox_item(&whole, project_name(app, card.project).await?));
            } else {
                let (id, title) = (card.id, card.title.clone());
                let words = format!("{} · waiting on {waits}", labels::next_step(card));
                others.push(OtherItem { id, title, status: words });
            }
        }
        let lessons = app.count_pending_knowledge().await?;
        Ok(Self {
            layout: shell.clone(),
            items,
            lesson_count: lessons,
            lessons_label: match lessons {
                1 => "1 lesson to review".to_owned(),
                count => format!("{count} lessons to review"),
            },
            others: OtherItems { any: !others.is_empty(), list: others },
        })
    }
}

impl InboxItemFragment {
    /// Loads the item of a task; `None` if it does not wait on the viewer.
    pub(super) async fn load(
        app: &App,
        shell: &Layout,
        rights: &mut PagePermissions,
        whole: &dto::TaskDetail,
    ) -> Result<Option<Self>, Error> {
        if rights.waiting_on(&whole.card).await != YOU {
            return Ok(None);
        }
        let item = inbox_item(whole, project_name(app, whole.card.project).await?);
        Ok(Some(Self { layout: shell.clone(), item }))
    }
}

async fn project_name(app: &App, id: Uuid) -> Result<String, Error> {
    Ok(app.project_by_id(ProjectId(id)).await?.name)
}

fn inbox_item(whole: &dto::TaskDetail, project: String) -> InboxItem {
    let card = &whole.card;
    let question = whole.question.as_ref();
    let severity = whole.alerts.last().map_or(AlertSeverity::Warning, |alert| alert.severity);
    let tone = if severity == AlertSeverity::Critical { "bad" } else { "wait" };
    let cause = match &card.next {
        Some(NextStep::Answer { cause, .. }) => capitalize(&cause.to_string()),
        _ => labels::next_step(card),
    };
    InboxItem {
        id: card.id,
        short_id: card.short.clone(),
        href: format!("/tasks/{}", card.id),
        title: card.title.clone(),
        cause,
        icon: tone,
        tone,
        asked_at: DisplayTime::ago(question.map_or(card.since, |question| question.asked_at)),
        seen_by: question.and_then(|question| question.seen_by.clone()).unwrap_or_default(),
        project,
        risk: card.risk.map(|risk| risk.to_string()).unwrap_or_default(),
        cost: labels::format_spend(&card.spend),
        lines: whole.plan.iter().map(plan_summary).collect(),
        agent_question: question
            .and_then(|question| question.agent_question.clone())
            .unwrap_or_default(),
        quick_action: quick_action(card, whole),
    }
}

/// Summarises a plan in one line.
fn plan_summary(plan: &dto::PlanVersion) -> String {
    let files = pluralize(plan.files, "file");
    let critical = match plan.critical_files {
        0 => String::new(),
        count => format!(" ({count} critical)"),
    };
    let cost = plan.estimated_cost.map(|usd| format!(", about {}", format_usd(usd)));
    format!(
        "Plan {}: {files}{critical}, complexity: {} ({} of 14){}",
        plan.version,
        tamma_core::complexity::ComplexityLevel::from_score(plan.complexity),
        plan.complexity,
        cost.unwrap_or_default()
    )
}

fn quick_action(card: &dto::TaskCard, whole: &dto::TaskDetail) -> QuickAction {
    let low = card.risk == Some(tamma_core::level::RiskLevel::Low);
    match &whole.plan {
        Some(plan) if low && card.answers.contains(&AnswerKind::Approve) => QuickAction {
            any: true,
            button: format!("Approve plan {}", plan.version),
            consequence: "An agent starts when a slot is free.".to_owned(),
            action: "approve".to_owned(),
            plan_hash: plan.hash.clone(),
            hash_field: "plan",
            idempotency_key: clock::new_id().to_string(),
        },
        _ => QuickAction { hash_field: "plan", ..QuickAction::default() },
    }
}
