//! Task endpoints.

use std::str::FromStr;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use tamma_core::task_loop::{self, Phase};
use tamma_store::TaskFilter;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, QueryParams, TaskPath, page_request};
use crate::app::{Error, VerdictFormat};
use crate::dto::{
    AddedTask, InboxPage, NewTask, PlanVersion, ReviewedChange, TaskBundle, TaskDetail, TaskPage,
    TaskReportResponse,
};
use crate::problem::Problem;

/// Filter for tasks.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct TaskQuery {
    /// Project ID or name.
    project: Option<String>,
    /// States, separated by commas; `live` selects all open tasks.
    state: Option<String>,
    /// Phase (column of the board).
    phase: Option<String>,
    /// Paused tasks only, or unpaused tasks only.
    paused: Option<bool>,
    /// Label.
    label: Option<String>,
    /// Text in title or description.
    text: Option<String>,
    /// At least four characters from the start or end of the ID, or from the start of its short
    /// form. Other filters are ignored, and only the newest 10,000 tasks are searched.
    short: Option<String>,
    /// `next` value of the previous page.
    after: Option<String>,
    /// Maximum number of items, 1 to 500; default 50.
    limit: Option<u32>,
}

/// Lists tasks, newest first.
#[utoipa::path(
    get, path = "/tasks", tag = "tasks", operation_id = "list_tasks", params(TaskQuery),
    responses(
        (status = OK, body = TaskPage),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown filter value."),
    )
)]
pub(super) async fn list(
    state: ApiState,
    QueryParams(query): QueryParams<TaskQuery>,
) -> Result<Json<TaskPage>, Problem> {
    if let Some(digits) = &query.short {
        return Ok(Json(state.app.find_tasks_by_digits(digits).await?));
    }
    let project = state.app.project_filter(query.project.as_deref()).await?;
    let filter = TaskFilter {
        project,
        states: query.state.as_deref().map(parse_states).transpose()?.unwrap_or_default(),
        phase: query.phase.as_deref().map(parse_phase).transpose()?,
        paused: query.paused,
        label: query.label,
        text: query.text,
        ..TaskFilter::default()
    };
    Ok(Json(state.app.list_tasks(&filter, &page_request(query.after, query.limit)?).await?))
}

fn parse_states(text: &str) -> Result<Vec<task_loop::State>, Error> {
    use strum::IntoEnumIterator as _;
    if text == "live" {
        return Ok(task_loop::State::iter().filter(|state| !state.is_terminal()).collect());
    }
    let state = |word: &str| {
        task_loop::State::from_str(word.trim())
            .map_err(|_| unknown_filter_value("state", word, task_loop::State::iter()))
    };
    text.split(',').map(state).collect()
}

fn parse_phase(text: &str) -> Result<Phase, Error> {
    use strum::IntoEnumIterator as _;
    let is_it = |phase: &Phase| phase.to_string().eq_ignore_ascii_case(text.trim());
    Phase::iter().find(is_it).ok_or_else(|| unknown_filter_value("phase", text, Phase::iter()))
}

pub(super) fn unknown_filter_value<T: ToString>(
    what: &str,
    word: &str,
    all: impl Iterator<Item = T>,
) -> Error {
    let word: String = word.chars().take(40).collect();
    let all: Vec<_> = all.map(|each| each.to_string().to_lowercase()).collect();
    Error::invalid(format!("Unknown {what} `{word}`."), format!("Use one of: {}.", all.join(", ")))
}

/// Adds a task. A repeated request with the same ID returns the existing task.
#[utoipa::path(
    post, path = "/tasks", tag = "tasks", operation_id = "add_task",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewTask,
    responses(
        (status = CREATED, body = AddedTask, description = "Task added."),
        (status = OK, body = AddedTask, description = "Task already exists."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "A different task has this ID."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Invalid task, or the project's configuration has errors."),
        (status = SERVICE_UNAVAILABLE, body = Problem, content_type = "application/problem+json",
            description = "The database or Temporal is unreachable."),
    )
)]
pub(super) async fn add(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewTask>,
) -> Result<(StatusCode, Json<AddedTask>), Problem> {
    let added = state.app.add_task(by, new).await?;
    let status = if added.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(added)))
}

/// Returns a task with all its details.
#[utoipa::path(
    get, path = "/tasks/{id}", tag = "tasks", operation_id = "show_task",
    params(("id" = uuid::Uuid, Path, description = "Task ID.")),
    responses(
        (status = OK, body = TaskDetail),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
    )
)]
pub(super) async fn show(
    state: ApiState,
    TaskPath(task): TaskPath,
) -> Result<Json<TaskDetail>, Problem> {
    Ok(Json(state.app.task_detail(task).await?))
}

/// Returns the current plan of a task, with its content.
#[utoipa::path(
    get, path = "/tasks/{id}/plan", tag = "tasks", operation_id = "show_plan",
    params(("id" = uuid::Uuid, Path, description = "Task ID.")),
    responses(
        (status = OK, body = PlanVersion),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found, or it has no plan yet."),
    )
)]
pub(super) async fn plan(
    state: ApiState,
    TaskPath(task): TaskPath,
) -> Result<Json<PlanVersion>, Problem> {
    Ok(Json(state.app.current_plan(task).await?))
}

/// Returns the newest change of a task that has a review.
#[utoipa::path(
    get, path = "/tasks/{id}/diff", tag = "tasks", operation_id = "show_diff",
    params(("id" = uuid::Uuid, Path, description = "Task ID.")),
    responses(
        (status = OK, body = ReviewedChange),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found, or it has no reviewed change yet."),
    )
)]
pub(super) async fn diff(
    state: ApiState,
    TaskPath(task): TaskPath,
) -> Result<Json<ReviewedChange>, Problem> {
    Ok(Json(state.app.latest_change(task).await?))
}

/// Part of a report.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct ReportQuery {
    /// Iteration number; without it the report covers the whole task.
    iteration: Option<u16>,
}

/// Returns the report of a task: iterations with gates, criteria and decisions, councils and cost.
#[utoipa::path(
    get, path = "/tasks/{id}/report", tag = "tasks", operation_id = "report",
    params(("id" = uuid::Uuid, Path, description = "Task ID."), ReportQuery),
    responses(
        (status = OK, body = TaskReportResponse),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task or iteration not found."),
    )
)]
pub(super) async fn report(
    state: ApiState,
    TaskPath(task): TaskPath,
    QueryParams(query): QueryParams<ReportQuery>,
) -> Result<Json<TaskReportResponse>, Problem> {
    Ok(Json(state.app.report(task, query.iteration).await?))
}

/// Format of an exported verdict.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct VerdictQuery {
    /// `junit` or `sarif`.
    format: String,
}

/// Returns the verdict about the newest checked commit of a task, with its gates, criteria and
/// findings: as `JUnit` XML, or as SARIF 2.1.0.
#[utoipa::path(
    get, path = "/tasks/{id}/verdict", tag = "tasks", operation_id = "export_verdict",
    params(("id" = uuid::Uuid, Path, description = "Task ID."), VerdictQuery),
    responses(
        (status = OK, body = String, content_type = "application/xml",
            description = "`JUnit` XML; SARIF has the media type `application/sarif+json`."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found, or no commit was checked yet."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown format."),
    )
)]
pub(super) async fn verdict(
    state: ApiState,
    TaskPath(task): TaskPath,
    QueryParams(query): QueryParams<VerdictQuery>,
) -> Result<Response, Problem> {
    let format = parse_verdict_format(&query.format)?;
    let text = state.app.export_verdict(task, format).await?;
    Ok(([(header::CONTENT_TYPE, format.media_type())], text).into_response())
}

fn parse_verdict_format(text: &str) -> Result<VerdictFormat, Error> {
    use strum::IntoEnumIterator as _;
    VerdictFormat::from_str(text.trim())
        .map_err(|_| unknown_filter_value("format", text, VerdictFormat::iter()))
}

/// Returns everything about a task as files: task, plans, history, checks, runs with their
/// transcripts, stored texts such as failure briefs, and rules.
///
/// Secrets are redacted, and long files are cut in the middle.
#[utoipa::path(
    get, path = "/tasks/{id}/bundle", tag = "tasks", operation_id = "bundle",
    params(("id" = uuid::Uuid, Path, description = "Task ID.")),
    responses(
        (status = OK, body = TaskBundle),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
    )
)]
pub(super) async fn bundle(
    state: ApiState,
    TaskPath(task): TaskPath,
) -> Result<Json<TaskBundle>, Problem> {
    Ok(Json(state.app.bundle(task).await?))
}

/// Page of the inbox.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct InboxQuery {
    /// Project ID or name.
    project: Option<String>,
    /// `next` value of the previous page.
    after: Option<String>,
    /// Maximum number of items, 1 to 500; default 50.
    limit: Option<u32>,
}

/// Lists tasks, pipelines and merge queues that need a person, longest wait first.
#[utoipa::path(
    get, path = "/inbox", tag = "tasks", operation_id = "inbox", params(InboxQuery),
    responses((status = OK, body = InboxPage))
)]
pub(super) async fn inbox(
    state: ApiState,
    QueryParams(query): QueryParams<InboxQuery>,
) -> Result<Json<InboxPage>, Problem> {
    let project = state.app.project_filter(query.project.as_deref()).await?;
    let (pipelines, merge_queues) = match &query.after {
        None => (
            state.app.waiting_pipelines(project).await?,
            state.app.waiting_merge_queues(project).await?,
        ),
        Some(_) => (Vec::new(), Vec::new()),
    };
    let tasks = state.app.inbox(project, &page_request(query.after, query.limit)?).await?;
    Ok(Json(InboxPage { tasks, pipelines, merge_queues }))
}

/// Lists tasks that exceed the soft timeout of their state, most overdue first.
#[utoipa::path(
    get, path = "/tasks/overdue", tag = "tasks", operation_id = "overdue_tasks", params(InboxQuery),
    responses((status = OK, body = TaskPage))
)]
pub(super) async fn overdue(
    state: ApiState,
    QueryParams(query): QueryParams<InboxQuery>,
) -> Result<Json<TaskPage>, Problem> {
    let project = state.app.project_filter(query.project.as_deref()).await?;
    Ok(Json(state.app.overdue_tasks(project, &page_request(query.after, query.limit)?).await?))
}

/// Filter for failing tasks.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct FailingQuery {
    /// Project ID or name.
    project: Option<String>,
    /// Maximum number of items, 1 to 500; default 50.
    limit: Option<u32>,
}

/// Lists open tasks with at least three failures, most failures first.
#[utoipa::path(
    get, path = "/tasks/failing", tag = "tasks", operation_id = "failing_tasks",
    params(FailingQuery),
    responses((status = OK, body = TaskPage))
)]
pub(super) async fn failing(
    state: ApiState,
    QueryParams(query): QueryParams<FailingQuery>,
) -> Result<Json<TaskPage>, Problem> {
    let project = state.app.project_filter(query.project.as_deref()).await?;
    let limit = page_request(None, query.limit)?.limit;
    Ok(Json(state.app.failing_tasks(project, limit).await?))
}
