//! The parts of a request, and what is said when one is wrong.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tamma_core::ids::TaskId;

use crate::app::{By, Error, Window};
use crate::guard::{self, Caller};
use crate::problem::Problem;

/// How many of a list are given, unless told otherwise.
const LIMIT: u32 = 50;
/// How many of a list are given at most.
const MOST: u32 = 500;

/// Who asks.
pub(super) struct Person(pub(super) By);

/// Whoever runs this server.
pub(super) struct Operator;

impl<S: Sync> FromRequestParts<S> for Person {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        guard::by(parts).map(Self).map_err(|problem| *problem)
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get::<Caller>() {
            Some(Caller::Operator(_)) => Ok(Self),
            _ => Err(Error::NotOperator.into()),
        }
    }
}

/// The task of the path.
pub(super) struct Which(pub(super) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for Which {
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

/// What stands behind the question mark.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Query::from_request_parts(parts, state)
            .await
            .map(|Query(query)| Self(query))
            .map_err(|rejection| Problem::unreadable(rejection.status(), rejection.body_text()))
    }
}

/// The body.
pub(super) struct Given<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Given<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => Err(unreadable(&rejection)),
        }
    }
}

fn unreadable(rejection: &JsonRejection) -> Problem {
    let problem = Problem::unreadable(rejection.status(), rejection.body_text());
    match rejection {
        JsonRejection::MissingJsonContentType(_) => {
            problem.hint("Send JSON, with the header `Content-Type: application/json`.")
        }
        _ => problem.hint("/api/v1/openapi.json says what the body looks like."),
    }
}

/// How much of a list is wanted.
pub(super) fn window(after: Option<String>, limit: Option<u32>) -> Result<Window, Error> {
    let limit = limit.unwrap_or(LIMIT);
    if !(1..=MOST).contains(&limit) {
        let detail = format!("The limit cannot be {limit}.");
        let hint = format!("Ask for 1 to {MOST} at once, and go on with `after`.");
        return Err(Error::invalid(detail, hint));
    }
    Ok(Window { after, limit })
}
