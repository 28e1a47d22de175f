//! API server: configuration, startup and shutdown.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tamma_core::ids::Name;
use tamma_flow::WorkflowTuning;
use tamma_store::{KnowledgeCache, LineChanges, ObjectStorage, Revocations, Store, TaskChanges};
use temporalio_client::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alert_dispatcher::{AlertDispatcher, TerminalSender};
use crate::app::App;
use crate::auth::{AccessMode, Authenticator};
use crate::live::LiveUpdates;
use crate::web::SessionLayer;
use crate::{api, web};

/// Configuration of the server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Server's token. Required unless the address is a loopback address.
    pub token: Option<String>,
    /// Environment variables, which override the rules of projects.
    pub environment: BTreeMap<String, String>,
    /// Timeouts and retries of new workflows.
    pub workflow_tuning: WorkflowTuning,
    /// Storage for large objects, such as transcripts.
    pub objects: ObjectStorage,
    /// External URL of the server, if it differs from the address.
    pub public_url: Option<String>,
    /// Name that local browsers act under if there is no token.
    pub local_person: Option<Name>,
    /// Receiver of alerts for the terminal; `None` without a terminal.
    pub terminal: Option<TerminalSender>,
    /// Access to repositories; `None` if this server cannot read them.
    pub inspect_repository: Option<RepositoryInspector>,
}

/// Contents of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryContents {
    /// Paths of all files, relative to the root.
    pub files: Vec<String>,
    /// Requested commits that the repository lacks.
    pub missing_commits: Vec<String>,
}

/// Lists the files of a repository and looks up commits. Returns `None` if it is not accessible.
pub type RepositoryInspector = Arc<
    dyn Fn(String, Vec<String>) -> BoxFuture<'static, Option<RepositoryContents>> + Send + Sync,
>;

impl ServerConfig {
    /// Checks the token and the address before anything is started.
    pub fn check(&self) -> Result<(), Error> {
        let Self { address, token, .. } = self;
        match token {
            None if !address.ip().is_loopback() => return Err(Error::MissingToken(*address)),
            Some(token) if token.chars().count() < MIN_TOKEN => {
                return Err(Error::WeakToken(token.chars().count()));
            }
            _ => {}
        }
        let taken = |source| Error::Bind { address: *address, source };
        std::net::TcpListener::bind(address).map(drop).map_err(taken)
    }
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Token and environment contain secrets.
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish_non_exhaustive()
    }
}

/// Error that prevents the server from running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is reachable from other machines, and there is no token.
    #[error(
        "cannot listen on {0} without a token: anyone who can reach it could run agents here; set a \
         token (`--token`, TAMMA_TOKEN), or listen on 127.0.0.1"
    )]
    MissingToken(SocketAddr),
    /// The token is too short.
    #[error("the token has {0} characters; use at least {MIN_TOKEN}")]
    WeakToken(usize),
    /// The address is in use or not available.
    #[error(
        "cannot listen on {address}: stop the program that uses it, or choose another address with \
         `--listen` or TAMMA_LISTEN (port 0 selects a free port)"
    )]
    Bind {
        /// Address from the configuration.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Notifications of the database cannot be received.
    #[error("cannot receive notifications from the database")]
    Store(#[from] tamma_store::Error),
    /// The HTTP client for alerts cannot be created.
    #[error("cannot set up alert delivery")]
    Alerts(#[from] tamma_connect::message::Error),
    /// Accepting connections failed.
    #[error("cannot accept connections")]
    Io(#[from] std::io::Error),
}

/// Minimum length of a token, in characters.
const MIN_TOKEN: usize = 16;

/// Server that is bound to its address.
pub struct ApiServer {
    listener: TcpListener,
    address: SocketAddr,
    authenticator: Authenticator,
    app: App,
    alert_dispatcher: AlertDispatcher,
    local_person: Option<Name>,
    changes: (TaskChanges, LineChanges),
    revocations: (Revocations, watch::Sender<()>),
}

impl ApiServer {
    /// Binds the address. Requests are answered only after [`ApiServer::run`] is called.
    pub async fn bind(config: ServerConfig, store: Store, temporal: Client) -> Result<Self, Error> {
        config.check()?;
        let ServerConfig {
            address,
            token,
            environment,
            workflow_tuning,
            objects,
            inspect_repository,
            public_url,
            local_person,
            terminal,
        } = config;
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })?;
        let address = listener.local_addr()?;
        let changes = (store.task_changes().await?, store.line_changes().await?);
        let environment = Arc::new(environment);
        let (live, knowledge_cache) = (LiveUpdates::new(), KnowledgeCache::new(&store));
        let app = App {
            store,
            temporal,
            environment,
            workflow_tuning,
            objects,
            live,
            knowledge_cache,
            inspect_repository,
        };
        let base_url = public_url.unwrap_or_else(|| format!("http://{address}"));
        let alert_dispatcher =
            AlertDispatcher::new(app.clone(), terminal, base_url.trim_end_matches('/').to_owned())?;
        let (revocation_sender, revoked) = watch::channel(());
        let authenticator =
            Authenticator::new(AccessMode::new(token.as_deref()), app.store.clone(), revoked);
        let revocations = (app.store.revocations().await?, revocation_sender);
        Ok(Self {
            listener,
            address,
            authenticator,
            app,
            alert_dispatcher,
            local_person,
            changes,
            revocations,
        })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until `stop` is cancelled, then completes the open ones.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let live = self.app.live.clone();
        let (changes, lines) = self.changes;
        let alerts = Box::pin(self.alert_dispatcher.clone().run(stop.clone()));
        let (mut revocations, revocation_sender) = self.revocations;
        let revoked = async {
            loop {
                match revocations.next().await {
                    Ok(()) => revocation_sender.send_replace(()),
                    Err(error) => return error,
                }
            }
        };
        let session_layer = SessionLayer {
            app: self.app.clone(),
            authenticator: self.authenticator.clone(),
            default_person: self.local_person,
        };
        let pages = web::router(self.app.clone(), session_layer, stop.clone());
        let router = api::router(self.app, self.alert_dispatcher, self.authenticator, stop.clone())
            .merge(pages)
            .fallback(web::not_found);
        let serving = axum::serve(self.listener, router)
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        let serving = async {
            let served = tokio::select! {
                served = async { serving.await } => served.map_err(Error::from),
                error = live.forward_changes(changes, lines) => Err(error.into()),
                error = revoked => Err(error.into()),
            };
            stop.cancel();
            served
        };
        tokio::join!(serving, alerts).0
    }
}
