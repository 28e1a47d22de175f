//! The way of all model calls: one HTTP server of the worker, between the agents and the providers.
//!
//! An agent gets an address and a token that are good for one run. It never sees the provider's key,
//! which is put in on the way out. Every call is read on the way back: what it used, what it cost,
//! whether it failed. So a run is stopped when its money is spent, whatever the agent thinks, and what
//! it used is known from the provider and not from the agent.
//!
//! A response is passed on as it comes, and read beside that. A call is refused when a bound is
//! reached; until then it is set aside what the call can cost at most, so that many calls at once pass
//! a bound by one response at most.

mod clock;
mod dialect;
mod door;
mod forward;
mod meter;
mod quota;
mod reading;
mod server;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tamma_core::budget::{Limit, Spend};
use tamma_core::cost::{Cost, Price, Tokens, Usage};
use tamma_core::task_loop::Timestamp;

use crate::process::RunId;
use crate::secret::Secret;

pub use dialect::Dialect;
pub use door::Door;

/// What can go wrong with the gateway itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port cannot be opened.
    #[error("cannot listen on this machine for the agents' model calls")]
    Port(#[source] io::Error),
    /// The socket cannot be opened.
    #[error("cannot listen on the socket `{}` for the agents' model calls", path.display())]
    Socket {
        /// Where it was to be.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// There is nothing to call the providers with.
    #[error("cannot make HTTPS connections to the providers")]
    Client(#[source] reqwest::Error),
}

/// The server, which all runs of a worker share. It is closed with its last copy.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<server::Server>);

impl Gateway {
    /// Listens on a free port of this machine, and on a socket for runs that have no network.
    pub async fn open(socket: Option<&Path>) -> Result<Self, Error> {
        Ok(Self(Arc::new(server::Server::open(socket).await?)))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The socket, if there is one.
    pub fn socket(&self) -> Option<&Path> {
        self.0.socket.as_deref()
    }

    /// Opens a door for a run, until the door is dropped.
    pub fn admit(&self, visitor: Visitor) -> Door {
        self.0.admit(visitor)
    }
}

/// Who tells what happens. It is called in the middle of a call and must not wait.
pub type Observer = Arc<dyn Fn(Event) + Send + Sync>;

/// A run that comes through the gateway.
#[derive(Clone)]
pub struct Visitor {
    /// Which run.
    pub run: RunId,
    /// The time it is. Later times are measured from it.
    pub at: Timestamp,
    /// The provider; without one, no model is called through the gateway.
    pub upstream: Option<Upstream>,
    /// What the models cost.
    pub prices: BTreeMap<String, Price>,
    /// What may be spent: by the run, its task, its project, in a day.
    pub bounds: Vec<Bound>,
    /// The share of a bound at which it is told, in hundredths.
    pub warn_percent: u8,
    /// Our own tools, behind the same token at `<url>/mcp`. The router answers at `/`.
    pub tools: Option<axum::Router>,
    /// Who is told what happens.
    pub observer: Observer,
}

/// A provider.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Where its API is, such as `https://api.anthropic.com`. A version at its end is used once.
    pub base: String,
    /// The key, which the agent never sees.
    pub key: Secret,
    /// A limit that lasts longer than this ends the run; the agent waits for a shorter one itself.
    pub quota_patience: Duration,
}

/// Whose money it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Whose {
    /// The run's.
    Run,
    /// The task's.
    Task,
    /// The project's.
    Project,
    /// A day's.
    Day,
}

/// What may be spent, and what was spent before.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Whose money it is.
    pub whose: Whose,
    /// The most that may be spent.
    pub limit: Limit,
    /// What was spent before this run.
    pub spent: Spend,
}

/// What happens at the gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A model was called.
    Called(ModelCall),
    /// A bound is near. It is told once.
    Warned {
        /// Whose.
        whose: Whose,
        /// What is spent.
        spent: Spend,
        /// Of what.
        limit: Limit,
    },
    /// The run calls no model any more. It is told once.
    Stopped(Stop),
}

/// One call of a model, when it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// The run that called.
    pub run: RunId,
    /// The model, as the agent named it.
    pub model: String,
    /// In whose protocol.
    pub dialect: Dialect,
    /// The status of the response, or that which the agent got instead of one.
    pub status: u16,
    /// What it used, if the response said so.
    pub tokens: Option<Tokens>,
    /// What it cost, if that can be told.
    pub cost: Cost,
    /// How long it took until the response began.
    pub first_byte: Option<Duration>,
    /// How long it took altogether.
    pub took: Duration,
    /// When it began.
    pub at: Timestamp,
    /// What else is to be said about it.
    pub note: Option<String>,
}

/// Why a run calls no model any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The money is spent.
    OverBudget {
        /// Whose.
        whose: Whose,
    },
    /// The provider answers again at a later time only.
    Quota {
        /// When.
        until: Timestamp,
    },
}

/// What a run has used so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    /// What the providers said. The cost is unknown as soon as that of one call is.
    pub usage: Usage,
    /// What was charged to the bounds: as `usage`, with an estimate for each call that is unknown.
    pub charged: Spend,
    /// How many calls were answered.
    pub calls: u32,
    /// How many answers did not say what they used.
    pub unmetered: u32,
    /// The last call, if it failed.
    pub last_failure: Option<Failed>,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The status.
    pub status: u16,
    /// What the provider said.
    pub text: String,
}
