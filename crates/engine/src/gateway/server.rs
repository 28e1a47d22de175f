//! The server itself: where it listens, and who is let in.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::door::{Doors, Visit};
use super::forward::Forward;
use super::{Dialect, Door, Error, Visitor};

/// A provider that takes longer to be reached is not there.
const CONNECT: Duration = Duration::from_secs(15);

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) socket: Option<PathBuf>,
    base: String,
    doors: Arc<Doors>,
    listeners: Vec<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    doors: Arc<Doors>,
    client: reqwest::Client,
}

impl Server {
    pub(super) async fn open(socket: Option<&Path>) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            // A key is for the provider that it is for, and not for whom that names.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .build()
            .map_err(Error::Client)?;
        let doors = Arc::<Doors>::default();
        let app = Router::new().fallback(enter).with_state(Shared { doors: doors.clone(), client });

        let port = TcpListener::bind(("127.0.0.1", 0)).await.map_err(Error::Port)?;
        let address = port.local_addr().map_err(Error::Port)?;
        let port = port.tap_io(|connection| {
            // Small pieces go out at once; without this they wait for each other.
            let _ = connection.set_nodelay(true);
        });
        let mut listeners = vec![tokio::spawn(serve(axum::serve(port, app.clone())))];
        if let Some(path) = socket {
            let listener =
                listen(path).map_err(|source| Error::Socket { path: path.to_owned(), source })?;
            listeners.push(tokio::spawn(serve(axum::serve(listener, app))));
        }
        let base = format!("http://{address}");
        Ok(Self { address, socket: socket.map(Path::to_owned), base, doors, listeners })
    }

    pub(super) fn admit(&self, visitor: Visitor) -> Door {
        Door::open(&self.base, visitor, self.doors.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
        if let Some(socket) = &self.socket {
            // It may be gone with its folder already.
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn serve(server: impl IntoFuture<Output = std::io::Result<()>>) {
    if let Err(error) = server.await {
        tracing::error!(%error, "the gateway does not listen any more");
    }
}

/// Listens on a socket that only this user can reach.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        // One that a worker left behind, which nobody listens on.
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Lets a request in through the door of its run.
async fn enter(State(shared): State<Shared>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let (door, rest) = split(&path);
    let visit = shared.doors.visit(door);
    let Some(visit) = visit.filter(|visit| visit.knows(request.headers(), request.uri().query()))
    else {
        let message = "this is not the token of a run that is going on here";
        return Dialect::guess(rest).error(StatusCode::UNAUTHORIZED, message);
    };
    match rest.strip_prefix("/mcp").filter(|tail| tail.is_empty() || tail.starts_with('/')) {
        Some(tail) => tools(&visit, tail, request).await,
        None => Forward { visit, client: shared.client }.pass(rest, request).await,
    }
}

/// The first part of a path, and what follows.
fn split(path: &str) -> (&str, &str) {
    let path = path.trim_start_matches('/');
    path.split_at(path.find('/').unwrap_or(path.len()))
}

/// Asks our own tools.
async fn tools(visit: &Visit, tail: &str, mut request: Request<Body>) -> Response {
    let Some(tools) = visit.tools.clone() else {
        return (StatusCode::NOT_FOUND, "this run has no tools of ours").into_response();
    };
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = if tail.is_empty() { "/" } else { tail };
    match Uri::try_from(format!("{path}{query}")) {
        Ok(uri) => *request.uri_mut() = uri,
        Err(_) => return StatusCode::BAD_REQUEST.into_response(),
    }
    tools.oneshot(request).await.into_response()
}
