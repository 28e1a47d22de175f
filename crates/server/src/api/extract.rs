//! Extractors whose rejections are problem documents.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tamma_core::ids::TaskId;

use crate::app::{Error, PageRequest, Principal};
use crate::auth;
use crate::problem::Problem;

/// Default page size.
const DEFAULT_LIMIT: u32 = 50;
/// Maximum page size.
const MAX_LIMIT: u32 = 500;

/// Person that the request acts for.
pub(super) struct CurrentPerson(pub(super) Principal);

impl<S: Sync> FromRequestParts<S> for CurrentPerson {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        auth::principal(parts).map(Self).map_err(|problem| *problem)
    }
}

/// Task ID from the request path.
pub(super) struct TaskPath(pub(super) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for TaskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Problem::unreadable(rejection.status(), rejection.body_text()))?;
        text.parse()
            .map(|id| Self(TaskId(id)))
            .map_err(|_| Error::NotFound { what: "task", key: text }.into())
    }
}

/// Query parameters.
pub(super) struct QueryParams<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Query::from_request_parts(parts, state)
            .await
            .map(|Query(query)| Self(query))
            .map_err(|rejection| Problem::unreadable(rejection.status(), rejection.body_text()))
    }
}

/// JSON body of the request.
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => Err(unreadable_body(&rejection)),
        }
    }
}

fn unreadable_body(rejection: &JsonRejection) -> Problem {
    let problem = Problem::unreadable(rejection.status(), rejection.body_text());
    match rejection {
        JsonRejection::MissingJsonContentType(_) => {
            problem.hint("Send JSON with the header `Content-Type: application/json`.")
        }
        _ => problem.hint("/api/v1/openapi.json has the schema of the body."),
    }
}

/// Validates the requested page.
pub(super) fn page_request(
    after: Option<String>,
    limit: Option<u32>,
) -> Result<PageRequest, Error> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let detail = format!("The limit {limit} is out of range.");
        let hint = format!("Use 1 to {MAX_LIMIT}, and get further pages with `after`.");
        return Err(Error::invalid(detail, hint));
    }
    Ok(PageRequest { after, limit })
}
