//! The server: an address, and what answers there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tamma_core::ids::Name;
use tamma_flow::Pace;
use tamma_store::{Changes, Library, LineChanges, Objects, Revocations, Store};
use temporalio_client::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Chats};
use crate::guard::{Gate, Guard};
use crate::live::Live;
use crate::post::{PostOffice, Terminal};
use crate::web::Door;
use crate::{api, web};

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
    /// What people's browsers know this server as, where that is not the address it listens on.
    pub public_url: Option<String>,
    /// In whose name people of this machine act in their browsers, where there is no token.
    pub person: Option<Name>,
    /// Where alerts for the terminal go, if this process has one.
    pub terminal: Option<Terminal>,
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
    /// Alerts cannot be sent.
    #[error("alerts cannot be sent")]
    Post(#[from] tamma_connect::message::Error),
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
    gate: Gate,
    app: App,
    post: PostOffice,
    person: Option<Name>,
    changes: (Changes, LineChanges),
    revocations: (Revocations, watch::Sender<()>),
}

impl Server {
    /// Takes the address. Nothing is answered before [`Server::run`].
    pub async fn bind(config: Config, store: Store, temporal: Client) -> Result<Self, Error> {
        config.check()?;
        let Config {
            address,
            token,
            environment,
            pace,
            objects,
            look,
            public_url,
            person,
            terminal,
        } = config;
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })?;
        let address = listener.local_addr()?;
        let changes = (store.changes().await?, store.line_changes().await?);
        let environment = Arc::new(environment);
        let (live, library) = (Live::new(), Library::new(&store));
        let chats = Chats::default();
        let app = App { store, temporal, environment, pace, objects, live, chats, library, look };
        let base = public_url.unwrap_or_else(|| format!("http://{address}"));
        let post = PostOffice::new(app.clone(), terminal, base.trim_end_matches('/').to_owned())?;
        let (tell, revoked) = watch::channel(());
        let gate = Gate::new(Guard::new(token.as_deref()), app.store.clone(), revoked);
        let revocations = (app.store.revocations().await?, tell);
        Ok(Self { listener, address, gate, app, post, person, changes, revocations })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is told to stop; then it finishes what it has begun.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let live = self.app.live.clone();
        let (changes, lines) = self.changes;
        let post = Box::pin(self.post.clone().run(stop.clone()));
        let (mut revocations, tell) = self.revocations;
        let revoked = async {
            loop {
                match revocations.next().await {
                    Ok(()) => tell.send_replace(()),
                    Err(error) => return error,
                }
            }
        };
        let door = Door { app: self.app.clone(), gate: self.gate.clone(), person: self.person };
        let pages = web::router(self.app.clone(), door, stop.clone());
        let router = api::router(self.app, self.post, self.gate, stop.clone())
            .merge(pages)
            .fallback(web::nothing_there);
        let serving = axum::serve(self.listener, router)
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        let serving = async {
            let served = tokio::select! {
                served = async { serving.await } => served.map_err(Error::from),
                error = live.pass_on(changes, lines) => Err(error.into()),
                error = revoked => Err(error.into()),
            };
            stop.cancel();
            served
        };
        tokio::join!(serving, post).0
    }
}
