//! Inbox: decisions that wait on a person, oldest first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use askama::Template;
use tamma_core::format::{format_duration, format_usd, pluralize};
use tamma_core::ids::{Name, ProjectId, TaskId};
use tamma_core::level::RiskLevel;
use tamma_core::merge_queue::QueueAddress;
use tamma_core::task_loop::{AlertSeverity, AnswerKind, Timestamp};
use uuid::Uuid;

use super::html::SafeHtml;
use super::layout::{DisplayTime, Layout};
use super::permissions::{PagePermissions, WaitingOn};
use super::session::Session;
use super::task::TaskData;
use super::task::actions::{ActionForm, ActionInput, ActionScope};
use super::task::question::{AnswerSection, QuestionView};
use super::{PageError, PageResult, WebState, labels, markdown, render};
use crate::app::{App, Error, PageRequest, WaitingTask};
use crate::clock;
use crate::dto;

/// Maximum number of items.
const MAX_ITEMS: u32 = 200;

/// Maximum number of items that can be decided in place. The others have a link.
const MAX_DECIDED_HERE: usize = 20;

/// Page that the forms return to.
const INBOX_HREF: &str = "/inbox";

/// Page on which a merge queue is resumed.
const QUEUES_HREF: &str = "/merge-queues";

/// Maximum number of overdue tasks, and of failing ones.
const MAX_TROUBLED: u32 = 20;

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
    /// Decisions that wait on other people.
    others: Vec<OtherItem>,
    /// Tasks that take longer than expected, most overdue first.
    overdue: Vec<TroubledTask>,
    /// Open tasks that have failed several times, most failures first.
    failing: Vec<TroubledTask>,
}

/// Live update of one item.
#[derive(Template)]
#[template(path = "_inbox_item.html")]
pub(super) struct InboxItemFragment {
    layout: Layout,
    item: InboxItem,
}

struct OtherItem {
    href: String,
    title: String,
    cause: String,
    people: String,
}

struct TroubledTask {
    id: Uuid,
    title: String,
    /// State, and the overdue time or the number of failures.
    note: String,
}

struct InboxItem {
    id: Uuid,
    /// `None` for stories and merge queues.
    short_id: Option<String>,
    href: String,
    title: String,
    cause: String,
    tone: &'static str,
    asked_at: DisplayTime,
    /// Person who marked the question as seen.
    seen_by: Option<String>,
    project: String,
    /// `None` before the first plan.
    risk: Option<RiskLevel>,
    cost: String,
    plan: Option<String>,
    agent_question: Option<SafeHtml>,
    quick_approval: Option<QuickApproval>,
    /// Identifies the question, so that live updates leave a form alone while it is filled in.
    question_key: String,
    decision: Option<DecisionHere>,
}

/// Decision that can be made without opening the task.
struct DecisionHere {
    /// Plan that the decision is about.
    plan: Option<PlanPeek>,
    /// Consequence of the quick approval.
    quick_consequence: Option<String>,
    forms: Vec<ActionForm>,
    /// Answer that the agent suggests.
    default_answer: Option<DefaultAnswer>,
}

struct PlanPeek {
    version: u32,
    summary: String,
    approach: SafeHtml,
    files: Vec<String>,
}

/// Reply with the answer that the agent suggests.
struct DefaultAnswer {
    text: String,
    idempotency_key: String,
}

impl DecisionHere {
    /// Loads the forms that the viewer can use; `None` without any.
    async fn load(
        app: &App,
        layout: &Layout,
        permissions: &mut PagePermissions,
        (id, is_quick): (TaskId, bool),
    ) -> Result<Option<Self>, Error> {
        let data = TaskData::load(app, id).await?;
        let person: Option<Name> = layout.person.parse().ok();
        let question = QuestionView::load(&data, "", permissions, person.as_ref()).await;
        let QuestionView::Full(question) = question else { return Ok(None) };
        let AnswerSection::Forms(forms) = question.answers else { return Ok(None) };
        // The quick approval has its own button.
        let approval = forms.iter().find(|form| is_quick && form.action == "approve");
        let quick_consequence = approval.map(|form| form.consequence.clone());
        let forms = forms.into_iter().filter(|form| !(is_quick && form.action == "approve"));
        let forms: Vec<ActionForm> = forms
            .map(|form| ActionForm {
                back: Some(INBOX_HREF),
                // Lines are commented where the change is shown.
                input: match form.input {
                    ActionInput::LineComments => ActionInput::Nothing,
                    input => input,
                },
                ..form
            })
            .collect();
        let can_reply = forms.iter().any(|form| form.action == "reply");
        let suggested = question.agent_question.and_then(|asked| asked.default_answer);
        let default_answer = suggested
            .filter(|_| can_reply)
            .map(|text| DefaultAnswer { text, idempotency_key: clock::new_id().to_string() });
        let is_about_plan = data.detail.card.answers.contains(&AnswerKind::Approve);
        let plan = if is_about_plan { Some(PlanPeek::load(app, id).await?) } else { None };
        Ok(Some(Self { plan, quick_consequence, forms, default_answer }))
    }
}

impl PlanPeek {
    async fn load(app: &App, id: TaskId) -> Result<Self, Error> {
        let plan = app.current_plan(id).await?;
        let content = plan.content.as_ref();
        Ok(Self {
            version: plan.version,
            summary: content.map(|it| it.summary.clone()).unwrap_or_default(),
            approach: content.map(|it| markdown::to_html(&it.approach)).unwrap_or_default(),
            files: content
                .map(|it| it.file_changes.iter().map(|file| file.path.clone()).collect())
                .unwrap_or_default(),
        })
    }
}

/// Approval of a low-risk plan, possible without opening the task.
struct QuickApproval {
    version: u32,
    plan_hash: String,
    idempotency_key: String,
}

pub(super) async fn page(state: WebState, session: Session) -> PageResult {
    let layout = Layout::for_page(&state, &session, "inbox").await?;
    let mut permissions = PagePermissions::for_session(&state.app, &session);
    let read = async {
        // Taken before the first read, so that live updates miss nothing.
        let since = state.app.store.now().await?.timestamp_micros();
        Ok((since, InboxList::load(&state.app, &layout, &mut permissions).await?))
    };
    let (since, list) =
        read.await.map_err(|error: Error| PageError::new(Layout::for_session(&session), error))?;
    render(&InboxPage { layout, live_href: format!("/live/inbox?since={since}"), list })
}

impl InboxList {
    pub(super) async fn load(
        app: &App,
        layout: &Layout,
        permissions: &mut PagePermissions,
    ) -> Result<Self, Error> {
        let page = app.inbox(None, &PageRequest { after: None, limit: MAX_ITEMS }).await?;
        let (mut items, mut others) = (Vec::new(), Vec::new());
        for view in app.waiting_pipelines(None).await? {
            match permissions.pipeline_waiting_on(&view).await {
                Some(WaitingOn::Viewer) => items.push((view.updated_at, story_item(&view))),
                Some(WaitingOn::Others(people)) => others.push(OtherItem {
                    href: story_href(&view),
                    title: view.story_id.clone(),
                    cause: story_cause(&view),
                    people,
                }),
                None => {}
            }
        }
        for view in app.waiting_merge_queues(None).await? {
            match permissions.queue_waiting_on(&view).await {
                Some(WaitingOn::Viewer) => {
                    let project = project_name(app, view.project).await?;
                    items.push((view.updated_at, queue_item(&view, project)));
                }
                Some(WaitingOn::Others(people)) => others.push(OtherItem {
                    href: QUEUES_HREF.to_owned(),
                    title: queue_title(&view),
                    cause: queue_cause(&view).to_owned(),
                    people,
                }),
                None => {}
            }
        }
        let mut own = Vec::new();
        for card in page.tasks.into_iter().filter(|card| card.waits_for_person) {
            match permissions.waiting_on(&card).await {
                Some(WaitingOn::Viewer) => own.push(card),
                Some(WaitingOn::Others(people)) => others.push(OtherItem {
                    href: format!("/tasks/{}", card.id),
                    title: card.title.clone(),
                    cause: labels::decision_title(&card),
                    people,
                }),
                None => {}
            }
        }
        let mut projects = BTreeMap::new();
        for task in app.waiting_tasks(own).await? {
            let (id, asked) = (TaskId(task.card.id), asked_at(&task));
            let project = match projects.entry(task.card.project) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(project_name(app, task.card.project).await?),
            };
            let mut item = inbox_item(&task, project.clone());
            if items.len() < MAX_DECIDED_HERE {
                let about = (id, item.quick_approval.is_some());
                // A task that cannot be read in full has a link only.
                item.decision = Box::pin(DecisionHere::load(app, layout, permissions, about))
                    .await
                    .ok()
                    .flatten();
            }
            items.push((asked, item));
        }
        items.sort_by_key(|(asked, _)| *asked);
        let items = items.into_iter().map(|(_, item)| item).collect();
        let lesson_count = app.count_pending_knowledge().await?;
        let window = PageRequest { after: None, limit: MAX_TROUBLED };
        let (overdue, failing) = (
            app.overdue_tasks(None, &window).await?.tasks,
            app.failing_tasks(None, MAX_TROUBLED).await?.tasks,
        );
        Ok(Self {
            layout: layout.clone(),
            items,
            lesson_count,
            others,
            overdue: overdue.iter().map(overdue_task).collect(),
            failing: failing.iter().map(failing_task).collect(),
        })
    }
}

impl InboxItemFragment {
    /// Loads the item of a task; `None` if it does not wait on the viewer.
    pub(super) async fn load(
        app: &App,
        layout: &Layout,
        permissions: &mut PagePermissions,
        detail: &dto::TaskDetail,
    ) -> Result<Option<Self>, Error> {
        if permissions.waiting_on(&detail.card).await != Some(WaitingOn::Viewer) {
            return Ok(None);
        }
        let project = project_name(app, detail.card.project).await?;
        let mut item = inbox_item(&WaitingTask::from(detail), project);
        let about = (TaskId(detail.card.id), item.quick_approval.is_some());
        item.decision =
            Box::pin(DecisionHere::load(app, layout, permissions, about)).await.ok().flatten();
        Ok(Some(Self { layout: layout.clone(), item }))
    }
}

impl InboxItemFragment {
    /// Returns the key of the question that the item shows.
    pub(super) fn question_key(&self) -> &str {
        &self.item.question_key
    }

    /// Loads the item of a pipeline; `None` if it does not wait on the viewer.
    pub(super) async fn for_story(
        layout: &Layout,
        permissions: &mut PagePermissions,
        view: &dto::PipelineView,
    ) -> Option<Self> {
        let waiting_on = permissions.pipeline_waiting_on(view).await?;
        let item = (waiting_on == WaitingOn::Viewer).then(|| story_item(view))?;
        Some(Self { layout: layout.clone(), item })
    }
}

fn story_href(view: &dto::PipelineView) -> String {
    format!("/pipelines/{}", view.id)
}

/// Returns the reason why a pipeline needs a person.
fn story_cause(view: &dto::PipelineView) -> String {
    let phase = view.phases.iter().find(|it| Some(it.number) == view.phase);
    let phase = phase.map_or_else(String::new, |it| format!("{} ({})", it.number, it.title));
    match view.state.as_str() {
        "at_gate" => format!("Phase {phase} needs approval"),
        "at_split" => format!("Tasks of phase {phase} need approval"),
        "failed" => format!("Phase {phase} failed"),
        _ => format!("Phase {phase} is blocked"),
    }
}

fn story_item(view: &dto::PipelineView) -> InboxItem {
    let report = &view.report;
    InboxItem {
        id: view.id,
        short_id: None,
        href: story_href(view),
        title: view.story_id.clone(),
        cause: story_cause(view),
        tone: if view.state == "failed" { "bad" } else { "wait" },
        asked_at: DisplayTime::ago(view.updated_at),
        seen_by: None,
        project: view.project.clone(),
        risk: None,
        cost: report.total_usd.map_or_else(String::new, format_usd),
        plan: Some(format!("{} · {} pipeline", view.feature_dir, view.pipeline)),
        agent_question: report.reason.as_deref().filter(|_| view.over).map(markdown::to_html),
        quick_approval: None,
        question_key: view.updated_at.timestamp_micros().to_string(),
        decision: None,
    }
}

fn queue_title(view: &dto::MergeQueueView) -> String {
    format!("Merge queue of {} in {}", view.branch, view.repository)
}

/// Returns the reason why a merge queue needs a person.
fn queue_cause(view: &dto::MergeQueueView) -> &'static str {
    match (view.incident, &view.paused) {
        (true, _) => "The branch does not have what was tested",
        (false, Some(_)) => "The merge queue stopped",
        (false, None) => "The branch fails its gates",
    }
}

fn queue_item(view: &dto::MergeQueueView, project: String) -> InboxItem {
    let (forge, branch) = (view.forge.clone(), view.branch.clone());
    let queue = QueueAddress::new(ProjectId(view.project), forge, &view.repository, branch);
    InboxItem {
        id: queue.as_task().0,
        short_id: None,
        href: QUEUES_HREF.to_owned(),
        title: queue_title(view),
        cause: queue_cause(view).to_owned(),
        tone: "bad",
        asked_at: DisplayTime::ago(view.updated_at),
        seen_by: None,
        project,
        risk: None,
        cost: String::new(),
        plan: None,
        agent_question: view.question.as_deref().map(markdown::to_html),
        quick_approval: None,
        question_key: view.updated_at.timestamp_micros().to_string(),
        decision: None,
    }
}

fn overdue_task(card: &dto::TaskCard) -> TroubledTask {
    let late = card.due_at.map(|due| format_duration(clock::now() - due)).unwrap_or_default();
    let note = format!("{}, overdue by {late}", labels::state_label(card.state));
    TroubledTask { id: card.id, title: card.title.clone(), note }
}

fn failing_task(card: &dto::TaskCard) -> TroubledTask {
    let failures = pluralize(card.failures, "failure");
    let note = format!("{}, {failures}", labels::state_label(card.state));
    TroubledTask { id: card.id, title: card.title.clone(), note }
}

async fn project_name(app: &App, id: Uuid) -> Result<String, Error> {
    Ok(app.project_by_id(ProjectId(id)).await?.name)
}

/// Returns when a decision was requested.
fn asked_at(task: &WaitingTask) -> Timestamp {
    task.question.as_ref().map_or(task.card.since, |question| question.asked_at)
}

fn inbox_item(task: &WaitingTask, project: String) -> InboxItem {
    let card = &task.card;
    let question = task.question.as_ref();
    let tone = if task.severity == Some(AlertSeverity::Critical) { "bad" } else { "wait" };
    InboxItem {
        id: card.id,
        short_id: Some(card.short.clone()),
        // A change is read before it is accepted.
        href: if card.answers.contains(&AnswerKind::Accept) {
            format!("/tasks/{}/change", card.id)
        } else {
            format!("/tasks/{}", card.id)
        },
        title: card.title.clone(),
        cause: labels::decision_title(card),
        tone,
        asked_at: DisplayTime::ago(asked_at(task)),
        seen_by: question.and_then(|question| question.seen_by.clone()),
        project,
        risk: card.risk,
        cost: card.spend.to_string(),
        plan: task.plan.as_ref().map(plan_summary),
        agent_question: question
            .and_then(|question| question.agent_question.as_deref())
            .map(markdown::to_html),
        quick_approval: quick_approval(task),
        question_key: question_key(task),
        decision: None,
    }
}

/// Returns the number of the open question, its plan and whether somebody has seen it.
fn question_key(task: &WaitingTask) -> String {
    let number = task.question.as_ref().map_or(0, |question| question.number);
    let seen = task.question.as_ref().is_some_and(|question| question.seen_by.is_some());
    let plan = task.plan.as_ref().map(|plan| labels::short_hash(&plan.hash));
    format!("{number}-{}-{}", plan.unwrap_or_default(), u8::from(seen))
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

fn quick_approval(task: &WaitingTask) -> Option<QuickApproval> {
    let is_low = task.card.risk == Some(RiskLevel::Low);
    let can_approve = task.card.answers.contains(&AnswerKind::Approve);
    let plan = task.plan.as_ref().filter(|_| is_low && can_approve)?;
    Some(QuickApproval {
        version: plan.version,
        plan_hash: plan.hash.clone(),
        idempotency_key: clock::new_id().to_string(),
    })
}
