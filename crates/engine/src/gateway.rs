//! HTTP proxy between agents and model providers, one per worker.
//!
//! An agent gets a URL and a token that are valid for one run. It never sees the provider's key,
//! which the gateway adds to outgoing requests. The gateway reads every response for usage, cost
//! and errors. Usage therefore comes from the provider instead of the agent, and a run stops when
//! its budget is spent.
//!
//! Responses are streamed to the agent while they are read. A call is refused once a budget is
//! spent. Until then its maximum cost is reserved, so that concurrent calls exceed a budget by at
//! most one response.

mod clock;
mod dialect;
mod event_reader;
mod forward;
mod quota;
mod response_reader;
mod run_endpoint;
mod server;
mod usage_meter;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tamma_core::budget::{Spend, SpendLimit};
use tamma_core::cost::{Cost, Price, Tokens, Usage};
use tamma_core::task_loop::Timestamp;

use crate::process::RunId;
use crate::secret::Secret;

pub use dialect::Dialect;
pub use run_endpoint::RunEndpoint;

/// Error from opening the gateway.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Port could not be opened.
    #[error("cannot open a local port for the model gateway")]
    Port(#[source] io::Error),
    /// Socket could not be opened.
    #[error("cannot open the socket `{}` for the model gateway", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Underlying error.
        #[source]
        source: io::Error,
    },
    /// HTTP client could not be created.
    #[error("cannot create an HTTPS client for model providers")]
    Client(#[source] reqwest::Error),
}

/// Gateway server, shared by all runs of a worker. It closes with its last clone.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<server::GatewayServer>);

impl Gateway {
    /// Listens on a free local port, and on a socket for runs without network access.
    pub async fn open(socket: Option<&Path>) -> Result<Self, Error> {
        Ok(Self(Arc::new(server::GatewayServer::open(socket).await?)))
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns the path of the socket, if there is one.
    pub fn socket(&self) -> Option<&Path> {
        self.0.socket.as_deref()
    }

    /// Opens an endpoint for a run. It closes when it is dropped.
    pub fn open_endpoint(&self, config: RunEndpointConfig) -> RunEndpoint {
        self.0.open_endpoint(config)
    }
}

/// Callback for gateway events. It runs during a call and must not block.
pub type GatewayObserver = Arc<dyn Fn(GatewayEvent) + Send + Sync>;

/// Configuration of a run's endpoint.
#[derive(Clone)]
pub struct RunEndpointConfig {
    /// Identifier of the run.
    pub run: RunId,
    /// Current time. Later times are measured from it.
    pub now: Timestamp,
    /// Provider. With `None`, model calls through the gateway are refused.
    pub upstream: Option<Upstream>,
    /// Prices by model that override built-in ones. A model without a price is refused if a budget
    /// limits dollars.
    pub prices: BTreeMap<String, Price>,
    /// Models that the run can call. Empty: all.
    pub models: Vec<String>,
    /// Budgets of the run, its task, its project and the day.
    pub budget_limits: Vec<BudgetLimit>,
    /// Share of a budget at which a warning is sent, in percent.
    pub warn_percent: u8,
    /// MCP tools, served at `<url>/mcp` behind the same token. The router handles `/`.
    pub tools: Option<axum::Router>,
    /// Receiver of events.
    pub observer: GatewayObserver,
}

/// Model provider.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Base URL, such as `https://api.anthropic.com`. A trailing version is not repeated.
    pub base_url: String,
    /// API key, hidden from the agent.
    pub key: Secret,
    /// Longest rate limit that the agent waits for itself. A longer one ends the run.
    pub max_quota_wait: Duration,
}

/// Scope of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BudgetScope {
    /// Run.
    Run,
    /// Task.
    Task,
    /// Project.
    Project,
    /// Day.
    Day,
}

/// Budget of one scope, with the amount already spent.
#[derive(Debug, Clone, Copy)]
pub struct BudgetLimit {
    /// Scope of the budget.
    pub scope: BudgetScope,
    /// Spending limit.
    pub limit: SpendLimit,
    /// Amount spent before this run.
    pub spent: Spend,
}

/// Event of the gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum GatewayEvent {
    /// Model call ended.
    ModelCalled(ModelCall),
    /// Budget is nearly spent. Sent once per budget.
    BudgetWarning {
        /// Scope of the budget.
        scope: BudgetScope,
        /// Amount spent.
        spent: Spend,
        /// Limit of the budget.
        limit: SpendLimit,
    },
    /// Further model calls are refused. Sent once.
    Stopped(GatewayStop),
}

/// Model call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Run that made the call.
    pub run: RunId,
    /// Model, as the agent names it.
    pub model: String,
    /// API dialect of the call.
    pub dialect: Dialect,
    /// HTTP status of the response, or of the error that the agent received instead.
    pub status: u16,
    /// Token usage; `None` if the response does not report it.
    pub tokens: Option<Tokens>,
    /// Cost, if usage and price are known.
    pub cost: Cost,
    /// Time to the first byte of the response.
    pub time_to_first_byte: Option<Duration>,
    /// Total duration.
    pub duration: Duration,
    /// Start time.
    pub started_at: Timestamp,
    /// Explanation for people, such as an error message.
    pub note: Option<String>,
}

/// Reason for refusing further model calls of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayStop {
    /// Budget is spent.
    OverBudget {
        /// Scope of the budget.
        #[serde(rename = "whose")]
        scope: BudgetScope,
    },
    /// Provider's quota is exhausted.
    Quota {
        /// Time of the reset.
        until: Timestamp,
    },
    /// Model without a price was called, and a budget limits dollars.
    Unpriced {
        /// Model, as the agent names it.
        model: String,
    },
}

/// Usage of a run so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    /// Usage reported by the provider. The cost is unknown if the cost of any call is unknown.
    pub usage: Usage,
    /// Amount charged to the budgets: `usage`, plus estimates for calls with unknown cost.
    pub charged: Spend,
    /// Number of calls with a response.
    pub calls: u32,
    /// Number of responses without usage.
    pub unmetered: u32,
    /// Failure of the last call, if it failed.
    pub last_failure: Option<CallFailure>,
}

/// Failed model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// HTTP status.
    pub status: u16,
    /// Error message of the provider.
    pub message: String,
}

/// Reads a response in chunks of a size, and returns its tokens, for fuzzing.
#[cfg(fuzzing)]
pub(crate) fn read_response(
    dialect: Dialect,
    content_type: &str,
    body: &[u8],
    chunk_size: usize,
) -> Option<Tokens> {
    let mut reader = response_reader::ResponseReader::new(dialect, content_type);
    for chunk in body.chunks(chunk_size.max(1)) {
        reader.read_chunk(&chunk.to_vec().into());
    }
    reader.finish();
    reader.usage.tokens()
}
