//! HTTP server of the gateway: listeners and authentication.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::forward::Forwarder;
use super::run_endpoint::{EndpointState, RunEndpoints};
use super::{Dialect, Error, RunEndpoint, RunEndpointConfig};
use crate::private_socket;

/// Time limit for connecting to a provider.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct GatewayServer {
    pub(super) address: SocketAddr,
    pub(super) socket: Option<PathBuf>,
    base_url: String,
    endpoints: Arc<RunEndpoints>,
    listeners: Vec<JoinHandle<()>>,
}

#[derive(Clone)]
struct ServerState {
    endpoints: Arc<RunEndpoints>,
    client: reqwest::Client,
}

impl GatewayServer {
    pub(super) async fn open(socket: Option<&Path>) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            // Never follow redirects, because the request contains the provider's key.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(Error::Client)?;
        let endpoints = Arc::<RunEndpoints>::default();
        let app = Router::new()
            .fallback(handle_request)
            .with_state(ServerState { endpoints: endpoints.clone(), client });

        let port = TcpListener::bind(("127.0.0.1", 0)).await.map_err(Error::Port)?;
        let address = port.local_addr().map_err(Error::Port)?;
        let port = port.tap_io(|connection| {
            // Send small chunks immediately.
            let _ = connection.set_nodelay(true);
        });
        let mut listeners = vec![tokio::spawn(serve(axum::serve(port, app.clone())))];
        if let Some(path) = socket {
            let listener = private_socket::listen(path)
                .map_err(|source| Error::Socket { path: path.to_owned(), source })?;
            listeners.push(tokio::spawn(serve(axum::serve(listener, app))));
        }
        let base_url = format!("http://{address}");
        Ok(Self { address, socket: socket.map(Path::to_owned), base_url, endpoints, listeners })
    }

    pub(super) fn open_endpoint(&self, config: RunEndpointConfig) -> RunEndpoint {
        RunEndpoint::open(&self.base_url, config, self.endpoints.clone())
    }
}

impl Drop for GatewayServer {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
        if let Some(socket) = &self.socket {
            // The socket may already be removed with its directory.
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl fmt::Debug for GatewayServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayServer").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn serve(server: impl IntoFuture<Output = std::io::Result<()>>) {
    if let Err(error) = server.await {
        tracing::error!(%error, "gateway stopped listening");
    }
}

/// Routes a request to the endpoint of its run, if the token is valid.
async fn handle_request(State(shared): State<ServerState>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let (id, rest) = split_endpoint(&path);
    let endpoint = shared.endpoints.get(id);
    let Some(endpoint) = endpoint
        .filter(|endpoint| endpoint.is_authorized(request.headers(), request.uri().query()))
    else {
        let message = "invalid token, or the run has ended";
        return Dialect::guess(rest).error_response(StatusCode::UNAUTHORIZED, message);
    };
    match rest.strip_prefix("/mcp").filter(|tail| tail.is_empty() || tail.starts_with('/')) {
        Some(tail) => call_tools(&endpoint, tail, request).await,
        None => Forwarder { endpoint, client: shared.client }.forward(rest, request).await,
    }
}

/// Splits a path into its first segment and the rest.
fn split_endpoint(path: &str) -> (&str, &str) {
    let path = path.trim_start_matches('/');
    path.split_at(path.find('/').unwrap_or(path.len()))
}

/// Forwards a request to our own tools.
async fn call_tools(endpoint: &EndpointState, tail: &str, mut request: Request<Body>) -> Response {
    let Some(tools) = endpoint.tools.clone() else {
        return (StatusCode::NOT_FOUND, "no tools are available in this run").into_response();
    };
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = if tail.is_empty() { "/" } else { tail };
    match Uri::try_from(format!("{path}{query}")) {
        Ok(uri) => *request.uri_mut() = uri,
        Err(_) => return StatusCode::BAD_REQUEST.into_response(),
    }
    tools.oneshot(request).await.into_response()
}
