//! Public routes of sign-in for programs: the providers, devices that sign in, and logouts that a
//! provider reports. Each of them carries a proof of its own, or returns nothing secret.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tamma_core::actor::{AuthMethod, Authentication, RequestInterface};
use tamma_core::ids::Digest;

use crate::app::{App, Error};
use crate::audit::{judge_result, sign_in_request};
use crate::clock;
use crate::dto::{
    DevicePoll, DeviceRequest, DeviceSignIn, ProviderList, ProviderView, SignedInDevice,
};
use crate::edge::{SignInThrottle, client_address};
use crate::problem::Problem;
use crate::route_access;

/// Maximum size of a request body, in bytes.
const MAX_BODY_BYTES: usize = 128 * 1024;

/// State of these routes.
#[derive(Clone)]
struct SignInState {
    app: App,
    /// Counts devices that begin to sign in, by address.
    throttle: Arc<SignInThrottle>,
}

/// Returns the routes.
pub(crate) fn router(app: App) -> Router {
    let store = app.store.clone();
    Router::new()
        .route("/sign-in/providers", get(list))
        .route("/sign-in/{provider}/device", post(start_device))
        .route("/sign-in/{provider}/device/token", post(poll_device))
        .route("/sign-in/{provider}/logout", post(logout))
        .with_state(SignInState { app, throttle: Arc::default() })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(store, route_access::check_api_route))
        .layer(middleware::map_response(forbid_caching))
}

async fn forbid_caching(mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

async fn list(State(state): State<SignInState>) -> Json<ProviderList> {
    let view = |provider: &tamma_core::operator::IdentityProvider| ProviderView {
        name: provider.name.clone(),
        label: provider.label().to_owned(),
    };
    Json(ProviderList { providers: state.app.identity.providers().map(view).collect() })
}

async fn start_device(
    State(state): State<SignInState>,
    Path(provider): Path<String>,
    request: Request,
) -> Result<Json<DeviceSignIn>, Problem> {
    // The provider is asked each time, so that nobody can make us ask often.
    let (address, now) = (client_address(request.extensions()), clock::now());
    if let Some(seconds) = state.throttle.wait_seconds(address, Digest::of(b""), now) {
        return Err(Error::TooManyAttempts { seconds }.into());
    }
    state.throttle.record_failure(address, now);
    let body: DeviceRequest = read_json(request).await?;
    let program = body.client.map(|name| name.chars().take(200).collect::<String>());
    let started = state.app.identity.begin_device(&provider, program.as_deref()).await?;
    Ok(Json(DeviceSignIn {
        secret: started.secret,
        user_code: started.code.user_code,
        verification_uri: started.code.verification_uri,
        verification_uri_complete: started.code.verification_uri_complete,
        interval_seconds: started.code.interval.clamp(1, 60),
        expires_in_seconds: started.seconds,
    }))
}

async fn poll_device(
    State(state): State<SignInState>,
    Path(provider): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let address = client_address(request.extensions());
    let DevicePoll { secret } = read_json(request).await?;
    let session = state.app.identity.poll_device(&provider, &secret).await?;
    if let Some(session) = &session {
        // The token is given out only if the sign-in is recorded.
        let auth =
            Authentication { method: AuthMethod::IdentityProvider, via: RequestInterface::Api };
        let route = "POST /sign-in/{provider}/device/token";
        let audited = sign_in_request(&session.person, auth, route, address);
        let recording = async { Ok::<(), Error>(()) };
        state.app.audit.record(&audited, recording, judge_result).await.flatten()?;
    }
    Ok(match session {
        Some(session) => Json(SignedInDevice {
            person: session.person.to_string(),
            token: session.token,
            expires_at: session.until,
        })
        .into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    })
}

/// Receives the logout of a person from a provider (OIDC back-channel logout).
async fn logout(
    State(state): State<SignInState>,
    Path(provider): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let mut fields = form_urlencoded::parse(&body);
    let token =
        fields.find(|(name, _)| name == "logout_token").map(|(_, token)| token.into_owned());
    let refused = |detail: &str| {
        let title = "Logout refused";
        Problem::new(StatusCode::BAD_REQUEST, "logout", title, detail)
            .hint("Check the issuer and the client of the identity provider in operator.yaml.")
    };
    let token = token.ok_or_else(|| refused("The form has no `logout_token`."))?;
    match state.app.identity.provider_logout(&provider, &token).await {
        Ok(_) => Ok(StatusCode::OK),
        Err(Error::SignInRefused(detail)) => Err(refused(&detail)),
        Err(error) => Err(error.into()),
    }
}

/// Reads a JSON body of at most [`MAX_BODY_BYTES`].
async fn read_json<T: serde::de::DeserializeOwned>(request: Request) -> Result<T, Problem> {
    let bytes = axum::body::to_bytes(request.into_body(), MAX_BODY_BYTES).await;
    let bytes = bytes.map_err(|_| unreadable("The body is too large, or incomplete."))?;
    serde_json::from_slice(&bytes).map_err(|error| unreadable(&error.to_string()))
}

fn unreadable(detail: &str) -> Problem {
    Problem::unreadable(StatusCode::BAD_REQUEST, detail)
}
