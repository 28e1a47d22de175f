//! Actions on the selected cards of the board.

use askama::Template;
use tamma_core::format::pluralize;
use tamma_core::ids::TaskId;
use tamma_core::task::Priority;
use tamma_core::task_loop::AnswerKind;
use uuid::Uuid;

use super::BoardQuery;
use crate::app::{Error, PreviewedAction};
use crate::dto::{BulkResult, TaskAction, short_id};
use crate::problem::Problem;
use crate::web::form_fields::FormFields;
use crate::web::labels::state_label;
use crate::web::layout::{Layout, Link};
use crate::web::session::Session;
use crate::web::{PageError, PageResult, WebState, render};

/// Maximum number of tasks whose consequences are shown: as many as one request can change.
const MAX_PREVIEWS: usize = 100;

/// Results of an action on several items.
#[derive(Template)]
#[template(path = "bulk_result.html")]
pub(in crate::web) struct BulkResultPage {
    pub(in crate::web) layout: Layout,
    pub(in crate::web) heading: &'static str,
    pub(in crate::web) summary: String,
    pub(in crate::web) results: Vec<BulkResultView>,
    pub(in crate::web) back: Link,
}

/// Result of an action on one of several items.
pub(in crate::web) struct BulkResultView {
    pub(in crate::web) item: Link,
    pub(in crate::web) tone: &'static str,
    /// New state, or the reason for the refusal.
    pub(in crate::web) outcome: String,
}

/// Consequences of cancelling several tasks, before it is confirmed.
#[derive(Template)]
#[template(path = "bulk_cancel.html")]
struct BulkCancelPage {
    layout: Layout,
    reason: String,
    key: String,
    query: String,
    button: String,
    tasks: Vec<CancelledTaskView>,
    back: Link,
}

/// Consequence of the cancellation of one task.
struct CancelledTaskView {
    id: Uuid,
    item: Link,
    consequence: String,
}

/// Counts the accepted ones, such as "2 of 3 tasks".
pub(in crate::web) fn count_done(results: &[BulkResultView], noun: &str) -> String {
    let done = results.iter().filter(|result| result.tone == "good").count();
    let all = pluralize(results.len() as u64, noun);
    if done == results.len() { all } else { format!("{done} of {all}") }
}

/// Submits an action on several tasks and shows the result of each.
pub(in crate::web) async fn submit(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    // Nothing brings a cancelled task back, and the tasks differ in what they lose.
    if fields.text("action") == "cancel" && fields.text("confirmed") != "true" {
        return Box::pin(confirm_cancel(&state, &session, &fields)).await;
    }
    let submitted = async {
        let (heading, action) = parse_action(&fields)?;
        let tasks: Vec<Uuid> = fields.all("task").iter().filter_map(|id| id.parse().ok()).collect();
        let by = session.acting_person()?;
        let key = fields.non_empty("key");
        let results = state.app.perform_bulk_action(&tasks, &by, &action, key.as_deref()).await?;
        Ok((heading, results))
    };
    let (heading, results) = submitted.await.map_err(|error: Error| {
        PageError::new(Layout::for_session(&session), error).with_unsent_text(fields.text("reason"))
    })?;
    let mut views = Vec::new();
    for result in &results {
        // A task that the person cannot read has no title.
        let card = state.app.task_card(TaskId(result.task)).await.ok();
        views.push(result_view(result, card.map(|card| card.title)));
    }
    let back = BoardQuery::from_query_string(&fields.text("query")).href();
    render(&BulkResultPage {
        layout: Layout::for_page(&state, &session, "board").await?,
        heading,
        summary: count_done(&views, "task"),
        results: views,
        back: Link::new(back, "Back to board"),
    })
}

/// Shows what the state machine would do with each task.
async fn confirm_cancel(state: &WebState, session: &Session, fields: &FormFields) -> PageResult {
    let previewed = async {
        let missing = || Error::invalid("The reason is missing.", "Enter a reason, and try again.");
        let reason = fields.non_empty("reason").ok_or_else(missing)?;
        let person = session.acting_person()?.name;
        let mut tasks = Vec::new();
        let ids = fields.all("task");
        for id in ids.iter().filter_map(|id| id.parse::<Uuid>().ok()).take(MAX_PREVIEWS) {
            let cancel = PreviewedAction::Answer(AnswerKind::Cancel);
            let consequence = state.app.preview(TaskId(id), &person, cancel).await;
            let title = state.app.task_card(TaskId(id)).await.ok().map(|card| card.title);
            let title = title.unwrap_or_else(|| short_id(id));
            tasks.push(CancelledTaskView {
                id,
                item: Link::new(format!("/tasks/{id}"), title),
                consequence: consequence.unwrap_or_else(|error| Problem::from(error).detail),
            });
        }
        if tasks.is_empty() {
            return Err(Error::invalid("No task is selected.", "Select tasks on the board."));
        }
        Ok((reason, tasks))
    };
    let (reason, tasks) = previewed.await.map_err(|error: Error| {
        PageError::new(Layout::for_session(session), error).with_unsent_text(fields.text("reason"))
    })?;
    let query = fields.text("query");
    render(&BulkCancelPage {
        layout: Layout::for_page(state, session, "board").await?,
        button: format!("Cancel {}", pluralize(tasks.len(), "task")),
        back: Link::new(BoardQuery::from_query_string(&query).href(), "Back to board"),
        key: fields.text("key"),
        query,
        reason,
        tasks,
    })
}

fn result_view(result: &BulkResult, title: Option<String>) -> BulkResultView {
    let (tone, outcome) = match (&result.status, &result.problem) {
        (Some(status), _) => {
            let paused = if status.paused { ", paused" } else { "" };
            ("good", format!("{}{paused}", state_label(status.state)))
        }
        (None, Some(problem)) => ("bad", problem.detail.clone()),
        (None, None) => ("bad", String::new()),
    };
    let title = title.unwrap_or_else(|| short_id(result.task));
    BulkResultView { item: Link::new(format!("/tasks/{}", result.task), title), tone, outcome }
}

/// Parses the action of the button that was used, with the heading of its result.
fn parse_action(fields: &FormFields) -> Result<(&'static str, TaskAction), Error> {
    let edit = |priority, add_labels, remove_labels| TaskAction::Edit {
        title: None,
        priority,
        labels: None,
        add_labels,
        remove_labels,
    };
    let label = || {
        let missing = || Error::invalid("The label is missing.", "Enter a label.");
        fields.non_empty("label").map(|label| vec![label]).ok_or_else(missing)
    };
    Ok(match fields.text("action").as_str() {
        "pause" => ("Pause tasks", TaskAction::Pause {}),
        "resume" => ("Resume tasks", TaskAction::Resume {}),
        "cancel" => ("Cancel tasks", TaskAction::Cancel { reason: fields.text("reason") }),
        "priority" => {
            let unknown = |_| Error::invalid("Unknown priority.", "Choose one from the list.");
            let priority = fields.text("priority").parse::<Priority>().map_err(unknown)?;
            ("Set priority", edit(Some(priority), Vec::new(), Vec::new()))
        }
        "add_label" => ("Add label", edit(None, label()?, Vec::new())),
        "remove_label" => ("Remove label", edit(None, Vec::new(), label()?)),
        other => {
            let detail = format!("Unknown action `{other}`.");
            return Err(Error::invalid(detail, "Use the buttons of the board."));
        }
    })
}
