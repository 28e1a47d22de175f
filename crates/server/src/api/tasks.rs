//! Adding and finding tasks.

use std::str::FromStr;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tamma_core::task_loop::{self, Phase};
use tamma_store::Filter;
use utoipa::IntoParams;

use super::Desk;
use super::extract::{Asked, Given, Person, Which, window};
use crate::app::Error;
use crate::problem::Problem;
use crate::shape::{Added, Change, NewTask, Page, PlanVersion, TaskReport, Whole};

/// Which tasks are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// The id or the name of their project.
    project: Option<String>,
    /// One of these states, separated by commas; `live` is every state that is not an end.
    state: Option<String>,
    /// A column of the board.
    phase: Option<String>,
    /// Whether they are paused.
    paused: Option<bool>,
    /// A label they have.
    label: Option<String>,
    /// Words in their title or description.
    text: Option<String>,
    /// Digits that their id begins or ends with, at least four. Nothing else is looked at then,
    /// and only the newest tasks.
    short: Option<String>,
    /// What the last answer gave as `next`.
    after: Option<String>,
    /// How many at most: 1 to 500.
    limit: Option<u32>,
}

/// Lists tasks, the newest first.
#[utoipa::path(
    get, path = "/tasks", tag = "tasks", operation_id = "list_tasks", params(Wanted),
    responses(
        (status = OK, body = Page),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "A filter has a value that there is not."),
    )
)]
pub(super) async fn list(
    State(desk): State<Desk>,
    Asked(wanted): Asked<Wanted>,
) -> Result<Json<Page>, Problem> {
    if let Some(digits) = &wanted.short {
        return Ok(Json(desk.app.tasks_like(digits).await?));
    }
    let project = match &wanted.project {
        Some(project) => Some(desk.app.project(Some(project)).await?.id),
        None => None,
    };
    let filter = Filter {
        project,
        states: wanted.state.as_deref().map(states).transpose()?.unwrap_or_default(),
        phase: wanted.phase.as_deref().map(phase).transpose()?,
        paused: wanted.paused,
        label: wanted.label,
        text: wanted.text,
        ..Filter::default()
    };
    Ok(Json(desk.app.tasks(&filter, &window(wanted.after, wanted.limit)?).await?))
}

fn states(text: &str) -> Result<Vec<task_loop::State>, Error> {
    use strum::IntoEnumIterator as _;
    if text == "live" {
        return Ok(task_loop::State::iter().filter(|state| !state.is_terminal()).collect());
    }
    let state = |word: &str| {
        task_loop::State::from_str(word.trim())
            .map_err(|_| no_such("state", word, task_loop::State::iter()))
    };
    text.split(',').map(state).collect()
}

fn phase(text: &str) -> Result<Phase, Error> {
    use strum::IntoEnumIterator as _;
    let is_it = |phase: &Phase| phase.to_string().eq_ignore_ascii_case(text.trim());
    Phase::iter().find(is_it).ok_or_else(|| no_such("phase", text, Phase::iter()))
}

pub(super) fn no_such<T: ToString>(what: &str, word: &str, all: impl Iterator<Item = T>) -> Error {
    let word: String = word.chars().take(40).collect();
    let all: Vec<_> = all.map(|each| each.to_string().to_lowercase()).collect();
    Error::invalid(
        format!("There is no {what} `{word}`."),
        format!("Use one of: {}.", all.join(", ")),
    )
}

/// Adds a task. A second request with the same id finds the first one's task.
#[utoipa::path(
    post, path = "/tasks", tag = "tasks", operation_id = "add_task",
    params(("Tamma-Person" = String, Header, description = "Who adds it.")),
    request_body = NewTask,
    responses(
        (status = CREATED, body = Added, description = "It was added."),
        (status = OK, body = Added, description = "It was there already."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "Another task has the id."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The task does not make sense, or the project's configuration is broken."),
        (status = SERVICE_UNAVAILABLE, body = Problem, content_type = "application/problem+json",
            description = "The store or the durable engine cannot be reached."),
    )
)]
pub(super) async fn add(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(new): Given<NewTask>,
) -> Result<(StatusCode, Json<Added>), Problem> {
    let added = desk.app.add(by, new).await?;
    let status = if added.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(added)))
}

/// Shows a task with everything that is known of it.
#[utoipa::path(
    get, path = "/tasks/{id}", tag = "tasks", operation_id = "show_task",
    params(("id" = uuid::Uuid, Path, description = "The task.")),
    responses(
        (status = OK, body = Whole),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task."),
    )
)]
pub(super) async fn show(
    State(desk): State<Desk>,
    Which(task): Which,
) -> Result<Json<Whole>, Problem> {
    Ok(Json(desk.app.task(task).await?))
}

/// Shows a task's current plan, whole.
#[utoipa::path(
    get, path = "/tasks/{id}/plan", tag = "tasks", operation_id = "show_plan",
    params(("id" = uuid::Uuid, Path, description = "The task.")),
    responses(
        (status = OK, body = PlanVersion),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task, or it has no plan yet."),
    )
)]
pub(super) async fn plan(
    State(desk): State<Desk>,
    Which(task): Which,
) -> Result<Json<PlanVersion>, Problem> {
    Ok(Json(desk.app.plan(task).await?))
}

/// Shows the newest change of a task that was reviewed.
#[utoipa::path(
    get, path = "/tasks/{id}/diff", tag = "tasks", operation_id = "show_diff",
    params(("id" = uuid::Uuid, Path, description = "The task.")),
    responses(
        (status = OK, body = Change),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task, or nothing of it was reviewed yet."),
    )
)]
pub(super) async fn diff(
    State(desk): State<Desk>,
    Which(task): Which,
) -> Result<Json<Change>, Problem> {
    Ok(Json(desk.app.change(task).await?))
}

/// Which part of a report is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// The number of an iteration; without one the whole task is told of.
    iteration: Option<u16>,
}

/// Tells of a task: its iterations with gates, criteria and decisions, its councils, and its cost.
#[utoipa::path(
    get, path = "/tasks/{id}/report", tag = "tasks", operation_id = "report",
    params(("id" = uuid::Uuid, Path, description = "The task."), Part),
    responses(
        (status = OK, body = TaskReport),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task, or no such iteration."),
    )
)]
pub(super) async fn report(
    State(desk): State<Desk>,
    Which(task): Which,
    Asked(part): Asked<Part>,
) -> Result<Json<TaskReport>, Problem> {
    Ok(Json(desk.app.report(task, part.iteration).await?))
}

/// Whose questions are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Mine {
    /// The id or the name of a project.
    project: Option<String>,
    /// What the last answer gave as `next`.
    after: Option<String>,
    /// How many at most: 1 to 500.
    limit: Option<u32>,
}

/// Lists the tasks that wait for a person, the longest first.
#[utoipa::path(
    get, path = "/inbox", tag = "tasks", operation_id = "inbox", params(Mine),
    responses((status = OK, body = Page))
)]
pub(super) async fn inbox(
    State(desk): State<Desk>,
    Asked(mine): Asked<Mine>,
) -> Result<Json<Page>, Problem> {
    let project = match &mine.project {
        Some(project) => Some(desk.app.project(Some(project)).await?.id),
        None => None,
    };
    Ok(Json(desk.app.inbox(project, &window(mine.after, mine.limit)?).await?))
}
