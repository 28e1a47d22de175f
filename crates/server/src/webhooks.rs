//! Webhooks of forges. A webhook is a hint: it marks something as changed and wakes the poller,
//! which reads the facts itself.
//!
//! The route is public, so everything depends on the signature. Whoever cannot sign learns nothing,
//! not even the names of forges.

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::routing::post;
use chrono::TimeDelta;
use tamma_connect::forge::webhook::{self, WebhookError, WebhookHint};

use crate::app::{App, Error};
use crate::clock;
use crate::problem::Problem;
use crate::route_access;

/// Maximum size of a webhook, in bytes. Polling finds what a larger one says.
const MAX_WEBHOOK_BYTES: usize = 1024 * 1024;

/// Returns the route of webhooks.
pub(crate) fn router(app: App) -> Router {
    let store = app.store.clone();
    Router::new()
        .route("/hooks/forges/{name}", post(receive))
        .with_state(app)
        .layer(DefaultBodyLimit::max(MAX_WEBHOOK_BYTES))
        .layer(middleware::from_fn_with_state(store, route_access::check_api_route))
}

async fn receive(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Problem> {
    let body =
        body.map_err(|rejection| Problem::unreadable(rejection.status(), rejection.body_text()))?;
    let settings = match app.forges.settings(&name) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::warn!(%error, "webhook refused: settings of the forge cannot be used");
            None
        }
    };
    let Some(settings) = settings else { return Err(refused()) };
    let Some(secret) = &settings.webhook_secret else { return Err(refused()) };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let hint = match webhook::receive(settings.kind, secret, header, &body) {
        Ok(hint) => hint,
        Err(error @ (WebhookError::Unsigned | WebhookError::TooLarge)) => {
            tracing::warn!(forge = settings.name, %error, "webhook refused");
            return Err(refused());
        }
        // It is signed, so the sender can be told.
        Err(error @ WebhookError::Malformed) => {
            let detail = format!("Cannot read the webhook: {error}.");
            return Err(Problem::unreadable(StatusCode::BAD_REQUEST, detail));
        }
    };
    let WebhookHint { delivery, event, .. } = &hint;
    let known = app.store.is_webhook_accepted(&settings.name, delivery).await;
    if known.map_err(Error::from)? {
        tracing::debug!(forge = settings.name, delivery, event, "webhook accepted before");
        return Ok(StatusCode::NO_CONTENT);
    }
    let marked = app.leave_hints(&settings.name, &hint).await?;
    // After the hints: a forge does not send an accepted webhook again.
    let accepted = app.store.accept_webhook(&settings.name, delivery, event).await;
    accepted.map_err(Error::from)?;
    tracing::debug!(forge = settings.name, delivery, event, marked, "webhook accepted");
    Ok(StatusCode::NO_CONTENT)
}

fn refused() -> Problem {
    let status = StatusCode::UNAUTHORIZED;
    Problem::new(status, "unauthorized", "Webhook refused", "The webhook was refused.")
        .hint("Check the address and the secret of the webhook in the settings of the forge.")
}

impl App {
    /// Marks everything that a webhook names as changed, and returns how many things those are.
    async fn leave_hints(&self, forge: &str, hint: &WebhookHint) -> Result<u32, Error> {
        let Some(repository) = &hint.repository else { return Ok(0) };
        let mut marked = 0;
        for number in &hint.pull_requests {
            let is_ours = self.store.mark_pull_request_dirty(forge, repository, *number).await?;
            marked += u32::from(is_ours);
        }
        if !hint.issues.is_empty() {
            self.store.mark_intake_dirty(forge, repository).await?;
            marked += 1;
        }
        if !hint.commits.is_empty() {
            // Only those with one of the commits: a busy CI would else make every pull request dirty.
            let all = clock::now() + TimeDelta::days(1);
            for open in self.store.pull_requests_to_observe(forge, repository, all).await? {
                let is_it = open.facts.as_ref().is_none_or(|it| hint.commits.contains(&it.head));
                if is_it && !hint.pull_requests.contains(&open.number) {
                    self.store.mark_pull_request_dirty(forge, repository, open.number).await?;
                    marked += 1;
                }
            }
        }
        let names_nothing =
            hint.pull_requests.is_empty() && hint.issues.is_empty() && hint.commits.is_empty();
        if names_nothing {
            marked += u32::from(self.store.mark_repository_dirty(forge, repository).await?);
        }
        Ok(marked)
    }
}
