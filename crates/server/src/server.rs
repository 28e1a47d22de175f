//! The server: an address, and what answers there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tamma_flow::Pace;
use tamma_store::{Changes, Library, LineChanges, Objects, Store};
use temporalio_client::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::app::App;
use crate::guard::Guard;
use crate::live::Live;

/// How a server is set up.
#[derive(Clone)]
pub struct Config {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// What every request must bring. An address that others can reach needs one.
    pub token: Option<String>,
    /// The environment, for the rules of the projects.
    pub environment: BTreeMap<String, String>,
    /// How patient new tasks are with their workers.
    pub pace: Pace,
    /// Where large things are kept, such as transcripts.
    pub objects: Objects,
    /// How repositories are looked at from here; nothing where they cannot be.
    pub look: Option<Look>,
}

/// What there is in a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// Its files, by their paths from the root.
    pub files: Vec<String>,
    /// Of the commits that were asked for, those that it does not have.
    pub absent: Vec<String>,
}

/// Looks at a repository, and for some commits in it. Nothing where that cannot be done from here.
pub type Look = Arc<dyn Fn(String, Vec<String>) -> BoxFuture<'static, Option<Sight>> + Send + Sync>;

impl Config {
    /// Whether a server could be set up so, before anything is started for it.
    pub fn check(&self) -> Result<(), Error> {
        let Self { address, token, .. } = self;
        match token {
            None if !address.ip().is_loopback() => return Err(Error::Open(*address)),
            Some(token) if token.chars().count() < MIN_TOKEN => {
                return Err(Error::WeakToken(token.chars().count()));
            }
            _ => {}
        }
        let taken = |source| Error::Bind { address: *address, source };
        std::net::TcpListener::bind(address).map(drop).map_err(taken)
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token and the environment have secrets in them.
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish_non_exhaustive()
    }
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Others could reach it, and anybody could use it.
    #[error(
        "{0} can be reached from other machines, and there is no token: anybody could run agents \
         here. Set a token (`--token`, TAMMA_TOKEN), or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The token is too short to be one.
    #[error("the token has only {0} characters: a good one has at least {MIN_TOKEN}")]
    WeakToken(usize),
    /// The address cannot be had.
    #[error(
        "cannot listen on {address}: stop what runs there, or choose another address with `--listen` \
         or TAMMA_LISTEN (port 0 takes a free one)"
    )]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The database does not tell of changes.
    #[error("the database does not tell of changes")]
    Store(#[from] tamma_store::Error),
    /// The network failed.
    #[error("the server cannot go on")]
    Io(#[from] std::io::Error),
}

/// The shortest token that is taken.
const MIN_TOKEN: usize = 16;

/// A server that has its address.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
    app: App,
    changes: (Changes, LineChanges),
}

impl Server {
    /// Takes the address. Nothing is answered before [`Server::run`].
    pub async fn bind(config: Config, store: Store, temporal: Client) -> Result<Self, Error> {
        config.check()?;
        let Config { address, token, environment, pace, objects, look } = config;
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })?;
        let address = listener.local_addr()?;
        let changes = (store.changes().await?, store.line_changes().await?);
        let environment = Arc::new(environment);
        let (live, library) = (Live::new(), Library::new(&store));
        let app = App { store, temporal, environment, pace, objects, live, library, look };
        Ok(Self { listener, address, guard: Guard::new(token.as_deref()), app, changes })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is told to stop; then it finishes what it has begun.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let live = self.app.live.clone();
        let (changes, lines) = self.changes;
        let router = api::router(self.app, self.guard, stop.clone());
        let serving = axum::serve(self.listener, router)
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::select! {
            served = async { serving.await } => Ok(served?),
            error = live.pass_on(changes, lines) => {
                stop.cancel();
                Err(error.into())
            }
        }
    }
}
