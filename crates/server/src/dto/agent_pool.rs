//! Status of the agent pool.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::cost::Usd;
use tamma_core::tier::Tier;
use utoipa::ToSchema;
use uuid::Uuid;

/// Status of the agent pool: workers, providers, and the results of each agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentPool {
    /// Runs in progress.
    pub active_runs: u64,
    /// Free slots of workers that are online.
    pub free_slots: u64,
    /// Workers that reported in the last day.
    pub workers: Vec<PoolWorker>,
    /// Runs whose worker is gone. Another worker will resume them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphaned_runs: Vec<PoolRun>,
    /// Providers with runs, or with an exhausted quota.
    pub providers: Vec<PoolProvider>,
    /// Results of each agent in the last 7 days.
    pub agents: Vec<AgentStatistics>,
}

/// Worker of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolWorker {
    /// Name of the worker.
    pub name: String,
    /// `true` if it reported recently.
    pub online: bool,
    /// Number of agent slots.
    pub slots: u32,
    /// Start of the worker.
    pub started_at: DateTime<Utc>,
    /// Last report.
    pub seen_at: DateTime<Utc>,
    /// Isolation of agents on its machine, in words; omitted if the worker does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Runs in progress.
    pub runs: Vec<PoolRun>,
}

/// Run in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolRun {
    /// Task ID, or pipeline ID.
    pub task: Uuid,
    /// Title of the task, or ID of the story.
    pub title: String,
    /// `true` if it is a phase of a pipeline.
    #[serde(default)]
    pub is_phase: bool,
    /// Agent name.
    pub agent: String,
    /// Model, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Purpose, such as `plan` or `implement`.
    pub mode: String,
    /// Start of the run.
    pub started_at: DateTime<Utc>,
}

/// Model provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolProvider {
    /// Name of the provider.
    pub name: String,
    /// Runs that hold a lease of the provider.
    pub runs: u64,
    /// Time at which its quota resets; omitted if it is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_until: Option<DateTime<Utc>>,
}

/// Results of one agent with one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentStatistics {
    /// Agent name.
    pub agent: String,
    /// Model, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tier that it ran as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tier: Option<Tier>,
    /// Purposes of its runs.
    pub modes: Vec<String>,
    /// Number of runs.
    pub runs: u64,
    /// Reviewed tasks whose first implementation it made.
    pub judged: u64,
    /// Those that passed their first review.
    pub passed: u64,
    /// Mean cost of a run in US dollars; omitted if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mean_usd: Option<Usd>,
}
