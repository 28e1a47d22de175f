//! Pipelines of stories.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use tamma_store::PipelineFilter;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, QueryParams};
use crate::app::Error;
use crate::dto::{NewPipelineRun, PhaseOutput, PipelineActionBody, PipelineList, PipelineView};
use crate::problem::Problem;

/// Default and maximum number of listed pipelines.
const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    project: Option<String>,
    #[serde(default)]
    live: bool,
    #[serde(default)]
    needs_person: bool,
    limit: Option<u32>,
}

/// Lists pipelines, last changed first.
#[utoipa::path(
    get, path = "/pipelines", tag = "pipelines", operation_id = "list_pipelines",
    params(
        ("project" = Option<String>, Query, description = "Project ID or name."),
        ("live" = Option<bool>, Query, description = "Only runs that have not ended."),
        ("needs_person" = Option<bool>, Query, description = "Only runs that need a person: at a gate, or stopped by a phase."),
        ("limit" = Option<u32>, Query, description = "Maximum number, 1 to 500; default 50."),
    ),
    responses((status = OK, body = PipelineList))
)]
pub(super) async fn list(
    state: ApiState,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Json<PipelineList>, Problem> {
    let project = state.app.project_filter(query.project.as_deref()).await?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let detail = format!("The limit {limit} is out of range.");
        return Err(Error::invalid(detail, format!("Use 1 to {MAX_LIMIT}.")).into());
    }
    let filter = PipelineFilter { project, live: query.live, needs_person: query.needs_person };
    Ok(Json(PipelineList { pipelines: state.app.pipeline_list(&filter, limit).await? }))
}

/// Starts a run of a story's pipeline.
///
/// Records of earlier runs are kept for phases before `from`.
#[utoipa::path(
    post, path = "/pipelines", tag = "pipelines", operation_id = "run_pipeline",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewPipelineRun,
    responses(
        (status = OK, body = PipelineView, description = "Run started."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The story's pipeline is already running."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Invalid range, gate, feature directory or story ID."),
    )
)]
pub(super) async fn start(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewPipelineRun>,
) -> Result<Json<PipelineView>, Problem> {
    Ok(Json(state.app.start_pipeline(&by, new).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowQuery {
    newer_than: Option<u64>,
}

/// Returns a pipeline with its newest run.
///
/// With `newer_than`, the response is delayed until the pipeline has a higher `version`, at most
/// 25 s.
#[utoipa::path(
    get, path = "/pipelines/{id}", tag = "pipelines", operation_id = "show_pipeline",
    params(
        ("id" = String, Path, description = "Pipeline ID, its end, or the ID of the story."),
        ("newer_than" = Option<u64>, Query, description = "Last known version."),
    ),
    responses(
        (status = OK, body = PipelineView),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Pipeline not found."),
    )
)]
pub(super) async fn show(
    state: ApiState,
    Path(id): Path<String>,
    QueryParams(query): QueryParams<ShowQuery>,
) -> Result<Json<PipelineView>, Problem> {
    let id = state.app.resolve_pipeline(&id).await?;
    Ok(Json(match query.newer_than {
        Some(version) => state.app.newer_pipeline_view(id, version).await?,
        None => state.app.pipeline_view(id).await?,
    }))
}

/// Returns the output of a phase of the newest run.
#[utoipa::path(
    get, path = "/pipelines/{id}/phases/{phase}/output", tag = "pipelines",
    operation_id = "phase_output",
    params(
        ("id" = String, Path, description = "Pipeline ID, its end, or the ID of the story."),
        ("phase" = u8, Path, description = "Number of the phase."),
    ),
    responses(
        (status = OK, body = PhaseOutput),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "The phase has no output."),
    )
)]
pub(super) async fn output(
    state: ApiState,
    Path((id, phase)): Path<(String, u8)>,
) -> Result<Json<PhaseOutput>, Problem> {
    let id = state.app.resolve_pipeline(&id).await?;
    Ok(Json(state.app.phase_output(id, phase).await?))
}

/// Performs an action on a pipeline: answer at a gate, cancel, or resume.
#[utoipa::path(
    post, path = "/pipelines/{id}/actions", tag = "pipelines", operation_id = "act_on_pipeline",
    params(
        ("id" = String, Path, description = "Pipeline ID, its end, or the ID of the story."),
        ("Tamma-Person" = String, Header, description = "Name of the person."),
    ),
    request_body = PipelineActionBody,
    responses(
        (status = OK, body = PipelineView, description = "Action accepted."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Pipeline not found."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "Action not allowed in this state."),
    )
)]
pub(super) async fn perform(
    state: ApiState,
    Path(id): Path<String>,
    CurrentPerson(by): CurrentPerson,
    JsonBody(PipelineActionBody { action }): JsonBody<PipelineActionBody>,
) -> Result<Json<PipelineView>, Problem> {
    let id = state.app.resolve_pipeline(&id).await?;
    Ok(Json(state.app.act_on_pipeline(id, &by, action).await?))
}
