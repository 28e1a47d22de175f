//! HTTP server for tests, which responds as the documentation of a forge says and records requests.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use serde_json::Value;
use tamma_core::forge::ForgeKind;
use tokio::net::TcpListener;

use super::{Forge, ForgeCredential, ForgeSettings};

/// Request that the server received.
#[derive(Debug, Clone)]
pub(super) struct FakeRequest {
    /// Method and path with query, such as `GET /user`.
    pub(super) call: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl FakeRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|it| it.to_str().ok())
    }
}

/// Response of the server: status, headers and body.
#[derive(Debug, Clone)]
pub(super) struct FakeResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl FakeResponse {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self { status, headers: Vec::new(), body: body.to_string() }
    }

    pub(super) fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Running server.
#[derive(Clone)]
pub(super) struct FakeServer {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<FakeRequest>>>,
    respond: Arc<dyn Fn(&FakeRequest) -> FakeResponse + Send + Sync>,
}

impl FakeServer {
    pub(super) async fn start(
        respond: impl Fn(&FakeRequest) -> FakeResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { url, requests: Arc::default(), respond: Arc::new(respond) };
        let app = Router::new().fallback(handle).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        server
    }

    /// Returns the settings of a forge at this server, with the token `t0ken`.
    pub(super) fn settings(&self, kind: ForgeKind) -> ForgeSettings {
        ForgeSettings {
            name: "acme".to_owned(),
            kind,
            url: self.url.clone(),
            api: Some(self.url.clone()),
            credential: ForgeCredential::Token("t0ken".to_owned()),
            webhook_secret: None,
        }
    }

    /// Opens a forge at this server.
    pub(super) fn forge(&self, kind: ForgeKind) -> Forge {
        Forge::open(&self.settings(kind)).unwrap()
    }

    pub(super) fn requests(&self) -> Vec<FakeRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the methods and paths of all requests.
    pub(super) fn calls(&self) -> Vec<String> {
        self.requests().into_iter().map(|it| it.call).collect()
    }
}

async fn handle(
    State(server): State<FakeServer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let request = FakeRequest { call: format!("{method} {uri}"), headers, body };
    server.requests.lock().unwrap().push(request.clone());
    let answer = (server.respond)(&request);
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).unwrap()
}
