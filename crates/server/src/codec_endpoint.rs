//! Codec server of Temporal's web UI and command line: opens payloads for operators.
//!
//! Both send sealed payloads to `/codec/decode` and show the answer. The command line sends a token; a
//! browser that is signed in to Tamma sends its session. Pages of no other origin than Temporal's web UI
//! can ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use temporalio_client::{Client, NamespacedClient as _};
use temporalio_common::data_converters::SerializationContextData;
use temporalio_common::protos::temporal::api::common::v1::Payload;

use crate::app::App;
use crate::audit::record_request;
use crate::auth::{self, Authenticator};
use crate::problem::Problem;
use crate::{route_access, web};

/// Headers that Temporal's web UI sends.
const ALLOWED_HEADERS: &str = "authorization, content-type, x-namespace";

/// State of the middleware: authentication, and the origin of Temporal's web UI.
#[derive(Clone)]
struct CodecAccess {
    authenticator: Authenticator,
    ui_origin: Option<Arc<str>>,
}

/// Payloads, as Temporal's tools send and expect them.
#[derive(Debug, Serialize, Deserialize)]
struct PayloadList {
    payloads: Vec<EncodedPayload>,
}

/// Payload in JSON. All values are in base64.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct EncodedPayload {
    metadata: BTreeMap<String, String>,
    data: String,
}

/// Returns the route of the codec server.
pub(crate) fn router(app: App, authenticator: Authenticator) -> Router {
    let (store, log) = (app.store.clone(), app.audit.clone());
    let ui_origin = app.operator.temporal_ui.as_deref().map(Arc::from);
    let access = CodecAccess { authenticator, ui_origin };
    Router::new()
        .route("/codec/decode", post(decode))
        .with_state(app.temporal)
        .layer(middleware::from_fn_with_state(store, route_access::check_api_route))
        .layer(middleware::from_fn_with_state(log, record_request))
        .layer(middleware::from_fn_with_state(access, require_operator_origin))
}

/// Checks the origin and authenticates the request. Adds the headers that let Temporal's web UI read the
/// response.
async fn require_operator_origin(
    State(access): State<CodecAccess>,
    request: Request,
    next: Next,
) -> Response {
    let origin = request.headers().get(header::ORIGIN);
    let ui = access.ui_origin.as_deref();
    let is_ui = origin.is_some_and(|origin| {
        ui.is_some_and(|ui| origin.as_bytes().eq_ignore_ascii_case(ui.as_bytes()))
    });
    let origin = origin.filter(|_| is_ui).cloned();
    let mut response = if is_ui && request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        match auth::foreign_origin_problem(request.headers()).filter(|_| !is_ui) {
            Some(problem) => problem.into_response(),
            None => authenticate(access.authenticator, request, next).await,
        }
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        insert(headers, header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        insert(headers, header::ACCESS_CONTROL_ALLOW_METHODS, "POST");
        insert(headers, header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
        insert(headers, header::VARY, "Origin");
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}

/// Authenticates with the token of the request, or with the session of the browser.
async fn authenticate(authenticator: Authenticator, mut request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::AUTHORIZATION) {
        return auth::require_auth(State(authenticator), request, next).await;
    }
    let session = web::session_principal(&authenticator, request.headers()).await;
    match session {
        Ok(Some((caller, person))) => {
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(person);
            next.run(request).await
        }
        Ok(None) => auth::not_authenticated().into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

async fn decode(
    State(temporal): State<Client>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<PayloadList>, Problem> {
    let body =
        body.map_err(|rejection| Problem::unreadable(rejection.status(), rejection.body_text()))?;
    let list: PayloadList = serde_json::from_slice(&body)
        .map_err(|error| Problem::unreadable(StatusCode::BAD_REQUEST, error.to_string()))?;
    let payloads: Option<Vec<Payload>> = list.payloads.into_iter().map(from_json).collect();
    let payloads = payloads.ok_or_else(|| {
        let detail = "A value of a payload is not valid base64.";
        Problem::unreadable(StatusCode::BAD_REQUEST, detail)
    })?;
    let codec = temporal.data_converter().codec();
    let opened = codec.decode(&SerializationContextData::None, payloads).await;
    let opened = opened.map_err(|error| {
        let title = "Payload cannot be opened";
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "codec", title, format!("{error}."))
            .hint("`tamma keys list` on the server's machine shows the keys that it has.")
    })?;
    Ok(Json(PayloadList { payloads: opened.into_iter().map(to_json).collect() }))
}

fn from_json(payload: EncodedPayload) -> Option<Payload> {
    let value = |(name, value): (String, String)| Some((name, STANDARD.decode(value).ok()?));
    Some(Payload {
        metadata: payload.metadata.into_iter().map(value).collect::<Option<_>>()?,
        data: STANDARD.decode(payload.data).ok()?,
        ..Payload::default()
    })
}

fn to_json(payload: Payload) -> EncodedPayload {
    let value = |(name, value): (String, Vec<u8>)| (name, STANDARD.encode(value));
    EncodedPayload {
        metadata: payload.metadata.into_iter().map(value).collect(),
        data: STANDARD.encode(payload.data),
    }
}
