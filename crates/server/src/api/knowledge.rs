//! Knowledge base endpoints.

use std::str::FromStr;

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use strum::IntoEnumIterator;
use tamma_core::knowledge::{EntryKind, EntryStatus};
use tamma_store::KnowledgeFilter;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, QueryParams};
use crate::app::Error;
use crate::dto::{
    KnowledgeCheckRequest, KnowledgeCheckResult, KnowledgeDecision, KnowledgeEdit,
    KnowledgeEntryDetail, KnowledgeImportRequest, KnowledgeImportResult, KnowledgeList,
    NewKnowledgeEntry,
};
use crate::problem::Problem;

/// Filter for knowledge entries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct KnowledgeQuery {
    /// Project ID or name; entries of the organisation are included.
    project: Option<String>,
    /// Kind: recommendation, prohibition, convention or learning.
    kind: Option<String>,
    /// Status: pending, approved, rejected or retired.
    status: Option<String>,
    /// Search text; results are sorted by relevance.
    search: Option<String>,
    /// Only entries with retirement suggestions.
    #[serde(rename = "offers")]
    retirement_suggestions: bool,
}

/// Lists knowledge entries, oldest first, or search results, most relevant first.
#[utoipa::path(
    get, path = "/knowledge", tag = "knowledge", operation_id = "list_knowledge", params(KnowledgeQuery),
    responses(
        (status = OK, body = KnowledgeList),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown filter value."),
    )
)]
pub(super) async fn list(
    state: ApiState,
    QueryParams(query): QueryParams<KnowledgeQuery>,
) -> Result<Json<KnowledgeList>, Problem> {
    let project = state.app.project_filter(query.project.as_deref()).await?;
    let filter = KnowledgeFilter {
        project,
        kind: query
            .kind
            .as_deref()
            .map(|word| parse_filter_value::<EntryKind>("kind", word))
            .transpose()?,
        status: query
            .status
            .as_deref()
            .map(|word| parse_filter_value::<EntryStatus>("status", word))
            .transpose()?,
    };
    if query.retirement_suggestions {
        return Ok(Json(state.app.retirement_suggestions(&filter).await?));
    }
    Ok(Json(state.app.list_knowledge(&filter, query.search.as_deref()).await?))
}

fn parse_filter_value<T: FromStr + IntoEnumIterator + ToString>(
    what: &str,
    word: &str,
) -> Result<T, Error> {
    word.trim().parse().map_err(|_| super::tasks::unknown_filter_value(what, word, T::iter()))
}

/// Adds an entry. It is pending until a person approves it.
#[utoipa::path(
    post, path = "/knowledge", tag = "knowledge", operation_id = "add_knowledge",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewKnowledgeEntry,
    responses(
        (status = OK, body = KnowledgeEntryDetail),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Invalid entry."),
    )
)]
pub(super) async fn add(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewKnowledgeEntry>,
) -> Result<Json<KnowledgeEntryDetail>, Problem> {
    Ok(Json(state.app.add_knowledge(new, &by).await?))
}

/// Returns an entry with its changes and effects.
#[utoipa::path(
    get, path = "/knowledge/{id}", tag = "knowledge", operation_id = "show_knowledge",
    params(("id" = String, Path, description = "Entry ID, or characters from its start or end.")),
    responses(
        (status = OK, body = KnowledgeEntryDetail),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Entry not found."),
    )
)]
pub(super) async fn show(
    state: ApiState,
    Path(id): Path<String>,
) -> Result<Json<KnowledgeEntryDetail>, Problem> {
    Ok(Json(state.app.knowledge_entry(&id).await?))
}

/// Edits an entry. It becomes pending again.
#[utoipa::path(
    put, path = "/knowledge/{id}", tag = "knowledge", operation_id = "edit_knowledge",
    params(
        ("id" = String, Path, description = "Entry ID, or characters from its start or end."),
        ("Tamma-Person" = String, Header, description = "Name of the person."),
    ),
    request_body = KnowledgeEdit,
    responses(
        (status = OK, body = KnowledgeEntryDetail),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The entry has changed since it was read."),
    )
)]
pub(super) async fn edit(
    state: ApiState,
    Path(id): Path<String>,
    CurrentPerson(by): CurrentPerson,
    JsonBody(edit): JsonBody<KnowledgeEdit>,
) -> Result<Json<KnowledgeEntryDetail>, Problem> {
    Ok(Json(state.app.edit_knowledge(&id, edit, &by).await?))
}

/// Approves, rejects, retires or reopens an entry.
#[utoipa::path(
    post, path = "/knowledge/{id}/decision", tag = "knowledge", operation_id = "decide_knowledge",
    params(
        ("id" = String, Path, description = "Entry ID, or characters from its start or end."),
        ("Tamma-Person" = String, Header, description = "Name of the person."),
    ),
    request_body = KnowledgeDecision,
    responses(
        (status = OK, body = KnowledgeEntryDetail),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "Status change not allowed, unconfirmed warnings, or the entry has changed \
                since it was read."),
    )
)]
pub(super) async fn decide(
    state: ApiState,
    Path(id): Path<String>,
    CurrentPerson(by): CurrentPerson,
    JsonBody(decision): JsonBody<KnowledgeDecision>,
) -> Result<Json<KnowledgeEntryDetail>, Problem> {
    Ok(Json(state.app.decide_knowledge(&id, decision, &by).await?))
}

/// Imports exported entries.
#[utoipa::path(
    post, path = "/knowledge/import", tag = "knowledge", operation_id = "import_knowledge",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = KnowledgeImportRequest,
    responses(
        (status = OK, body = KnowledgeImportResult),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Invalid entry; nothing was imported."),
    )
)]
pub(super) async fn import(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(import): JsonBody<KnowledgeImportRequest>,
) -> Result<Json<KnowledgeImportResult>, Problem> {
    Ok(Json(state.app.import_knowledge(import, &by).await?))
}

/// Checks a plan against the knowledge base, without changing anything.
#[utoipa::path(
    post, path = "/knowledge/check", tag = "knowledge", operation_id = "check_knowledge",
    request_body = KnowledgeCheckRequest,
    responses((status = OK, body = KnowledgeCheckResult))
)]
pub(super) async fn check(
    state: ApiState,
    JsonBody(request): JsonBody<KnowledgeCheckRequest>,
) -> Result<Json<KnowledgeCheckResult>, Problem> {
    Ok(Json(state.app.check_knowledge(request).await?))
}
