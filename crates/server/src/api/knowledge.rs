//! What the team knows.

use std::str::FromStr;

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use strum::IntoEnumIterator;
use tamma_core::knowledge::{Kind, Status};
use tamma_store::KnowledgeFilter;
use utoipa::IntoParams;

use super::Desk;
use super::extract::{Asked, Given, Person};
use crate::app::Error;
use crate::problem::Problem;
use crate::shape::{
    Knowledge, KnowledgeAnswer, KnowledgeDecision, KnowledgeEdit, KnowledgeImport,
    KnowledgeImported, KnowledgeList, KnowledgeQuestion, NewKnowledge,
};

/// Which entries are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// The id or the name of a project: its own entries, and those of every project.
    project: Option<String>,
    /// recommendation, prohibition, convention or learning.
    kind: Option<String>,
    /// pending, approved, rejected or retired.
    status: Option<String>,
    /// Words: what has the most to do with them comes first.
    search: Option<String>,
    /// Only what could be retired, with why.
    offers: bool,
}

/// Lists what the team knows, the oldest first; or what a search finds, the best first.
#[utoipa::path(
    get, path = "/knowledge", tag = "knowledge", operation_id = "list_knowledge", params(Wanted),
    responses(
        (status = OK, body = KnowledgeList),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "A filter has a value that there is not."),
    )
)]
pub(super) async fn list(
    State(desk): State<Desk>,
    Asked(wanted): Asked<Wanted>,
) -> Result<Json<KnowledgeList>, Problem> {
    let project = match &wanted.project {
        Some(project) => Some(desk.app.project(Some(project)).await?.id),
        None => None,
    };
    let filter = KnowledgeFilter {
        project,
        kind: wanted.kind.as_deref().map(|word| one_of::<Kind>("kind", word)).transpose()?,
        status: wanted
            .status
            .as_deref()
            .map(|word| one_of::<Status>("status", word))
            .transpose()?,
    };
    if wanted.offers {
        return Ok(Json(desk.app.knowledge_offers(&filter).await?));
    }
    Ok(Json(desk.app.knowledge_list(&filter, wanted.search.as_deref()).await?))
}

fn one_of<T: FromStr + IntoEnumIterator + ToString>(what: &str, word: &str) -> Result<T, Error> {
    word.trim().parse().map_err(|_| super::tasks::no_such(what, word, T::iter()))
}

/// Adds an entry. It is pending until a person approves it.
#[utoipa::path(
    post, path = "/knowledge", tag = "knowledge", operation_id = "add_knowledge",
    params(("Tamma-Person" = String, Header, description = "Who adds it.")),
    request_body = NewKnowledge,
    responses(
        (status = OK, body = Knowledge),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The entry does not make sense."),
    )
)]
pub(super) async fn add(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(new): Given<NewKnowledge>,
) -> Result<Json<Knowledge>, Problem> {
    Ok(Json(desk.app.add_knowledge(new, &by).await?))
}

/// Shows an entry with its history.
#[utoipa::path(
    get, path = "/knowledge/{id}", tag = "knowledge", operation_id = "show_knowledge",
    params(("id" = String, Path, description = "Its id, or digits it begins or ends with.")),
    responses(
        (status = OK, body = Knowledge),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such entry."),
    )
)]
pub(super) async fn show(
    State(desk): State<Desk>,
    Path(id): Path<String>,
) -> Result<Json<Knowledge>, Problem> {
    Ok(Json(desk.app.knowledge_one(&id).await?))
}

/// Says an entry in other words. It is pending again.
#[utoipa::path(
    put, path = "/knowledge/{id}", tag = "knowledge", operation_id = "edit_knowledge",
    params(
        ("id" = String, Path, description = "Its id, or digits it begins or ends with."),
        ("Tamma-Person" = String, Header, description = "Who changes it."),
    ),
    request_body = KnowledgeEdit,
    responses(
        (status = OK, body = Knowledge),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "Somebody has changed it meanwhile."),
    )
)]
pub(super) async fn edit(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    Person(by): Person,
    Given(edit): Given<KnowledgeEdit>,
) -> Result<Json<Knowledge>, Problem> {
    Ok(Json(desk.app.edit_knowledge(&id, edit, &by).await?))
}

/// Approves an entry, turns it down, retires it, or takes it up again.
#[utoipa::path(
    post, path = "/knowledge/{id}/decision", tag = "knowledge", operation_id = "decide_knowledge",
    params(
        ("id" = String, Path, description = "Its id, or digits it begins or ends with."),
        ("Tamma-Person" = String, Header, description = "Who decides."),
    ),
    request_body = KnowledgeDecision,
    responses(
        (status = OK, body = Knowledge),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "It cannot become that, there is something to look at twice, or somebody \
                has changed it meanwhile."),
    )
)]
pub(super) async fn decide(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    Person(by): Person,
    Given(decision): Given<KnowledgeDecision>,
) -> Result<Json<Knowledge>, Problem> {
    Ok(Json(desk.app.decide_knowledge(&id, decision, &by).await?))
}

/// Takes in entries as they were exported.
#[utoipa::path(
    post, path = "/knowledge/import", tag = "knowledge", operation_id = "import_knowledge",
    params(("Tamma-Person" = String, Header, description = "Who takes them in.")),
    request_body = KnowledgeImport,
    responses(
        (status = OK, body = KnowledgeImported),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "An entry does not make sense; nothing was taken in."),
    )
)]
pub(super) async fn import(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(import): Given<KnowledgeImport>,
) -> Result<Json<KnowledgeImported>, Problem> {
    Ok(Json(desk.app.import_knowledge(import, &by).await?))
}

/// Holds a plan against what the team knows, and changes nothing.
#[utoipa::path(
    post, path = "/knowledge/check", tag = "knowledge", operation_id = "check_knowledge",
    request_body = KnowledgeQuestion,
    responses((status = OK, body = KnowledgeAnswer))
)]
pub(super) async fn check(
    State(desk): State<Desk>,
    Given(question): Given<KnowledgeQuestion>,
) -> Result<Json<KnowledgeAnswer>, Problem> {
    Ok(Json(desk.app.check_knowledge(question).await?))
}
