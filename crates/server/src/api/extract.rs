//! The parts of a request, and what is said when one is wrong.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use tamma_core::ids::{Name, TaskId};

use crate::PERSON;
use crate::app::{Error, Window};
use crate::problem::Problem;

/// How many of a list are given, unless told otherwise.
const LIMIT: u32 = 50;
/// How many of a list are given at most.
const MOST: u32 = 500;

/// Who asks.
pub(super) struct Person(pub(super) Name);

impl<S: Sync> FromRequestParts<S> for Person {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let said = parts.headers.get(PERSON).map(HeaderValue::as_bytes);
        let text = said.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::trim);
        let name =
            text.filter(|text| !text.contains(char::is_control)).and_then(|text| text.parse().ok());
        name.map(Self).ok_or_else(|| {
            let detail = match said {
                Some(_) => "The header `Tamma-Person` is not a name of 1 to 100 characters.",
                None => "The header `Tamma-Person` is missing.",
            };
            let title = "It must be known who asks";
            Problem::new(StatusCode::BAD_REQUEST, "person", title, detail)
                .hint("Send your name in the header `Tamma-Person`; it is written in the log.")
        })
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
