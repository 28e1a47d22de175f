//! Task in a list.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::budget;
use tamma_core::cost::Usd;
use tamma_core::format::format_usd;
pub use tamma_core::ids::short_id;
use tamma_core::level::RiskLevel;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{AnswerKind, NextStep, Phase, State};
use utoipa::ToSchema;
use uuid::Uuid;

use super::merge_queue::MergeQueueView;
use super::pipeline::PipelineView;
use super::pull_request_badge::PullRequestBadge;

/// Task in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCard {
    /// Task ID.
    pub id: Uuid,
    /// Last eight characters of the ID.
    pub short: String,
    /// Project ID.
    pub project: Uuid,
    /// One-line title.
    pub title: String,
    /// Task type.
    #[schema(value_type = String)]
    pub r#type: TaskType,
    /// Priority.
    #[schema(value_type = String)]
    pub priority: Priority,
    /// Labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// State of the task.
    #[schema(value_type = String, example = "awaiting_approval")]
    pub state: State,
    /// Phase (column of the board).
    #[schema(value_type = String, example = "approve")]
    pub phase: Phase,
    /// `true` while the task is paused.
    pub paused: bool,
    /// Start of the current state.
    pub since: DateTime<Utc>,
    /// Risk of the plan; `null` before it is calculated.
    #[schema(value_type = Option<String>, example = "medium")]
    pub risk: Option<RiskLevel>,
    /// Number of iterations.
    pub iterations: u16,
    /// Number of plan revisions.
    pub retries: u8,
    /// Number of councils.
    pub councils: u8,
    /// Number of failures in the history.
    pub failures: u32,
    /// Spend so far.
    pub spend: Spend,
    /// Budget in US dollars; omitted without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "5.00")]
    pub budget: Option<Usd>,
    /// `true` if the task needs a decision.
    pub waits_for_person: bool,
    /// Possible answers to the open question.
    #[schema(value_type = Vec<String>, example = json!(["approve", "reject", "ask_changes"]))]
    pub answers: Vec<AnswerKind>,
    /// Next step, as data; `null` once the task is closed.
    #[schema(value_type = Option<Object>)]
    pub next: Option<NextStep>,
    /// Next step, as text.
    #[serde(rename = "next_in_words")]
    pub next_text: Option<String>,
    /// Time after which the task is overdue in its state.
    pub due_at: Option<DateTime<Utc>>,
    /// Pull request; omitted if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request_badge: Option<PullRequestBadge>,
    /// Number of history entries.
    pub entries: u64,
    /// Time of the last update.
    pub updated_at: DateTime<Utc>,
}

/// Spend of a task: the metered cost of its runs, and for each run without one the amount that was
/// reserved for it. Pages, terminal and chat all show this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spend {
    /// US dollars.
    #[schema(value_type = String, example = "0.42")]
    pub usd: Usd,
    /// Tokens of all kinds.
    pub tokens: u64,
    /// `true` if part of the amount is an estimate.
    pub estimated: bool,
}

impl fmt::Display for Spend {
    /// Writes the amount, marked with `≈` if part of it is reserved. An unknown cost is not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.estimated, self.usd == Usd::ZERO) {
            (true, true) => f.write_str("unknown"),
            (true, false) => write!(f, "≈ {}", format_usd(self.usd)),
            (false, _) => f.write_str(&format_usd(self.usd)),
        }
    }
}

/// Task whose stored data cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadableTask {
    /// Task ID.
    pub id: Uuid,
    /// One-line title.
    pub title: String,
    /// Error message.
    #[serde(rename = "why")]
    pub error: String,
}

/// Page of a list of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskPage {
    /// Tasks of this page.
    pub tasks: Vec<TaskCard>,
    /// Tasks of this page whose data cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<UnreadableTask>,
    /// Value of `after` for the next page; omitted on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Page of the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InboxPage {
    /// Tasks that need a decision.
    #[serde(flatten)]
    pub tasks: TaskPage,
    /// Pipelines at a gate or stopped by a phase, longest wait first. Only on the first page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipelines: Vec<PipelineView>,
    /// Merge queues that stopped by themselves or whose branch fails. Only on the first page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merge_queues: Vec<MergeQueueView>,
}

impl From<budget::Spend> for Spend {
    fn from(spend: budget::Spend) -> Self {
        Self { usd: spend.usd, tokens: spend.tokens, estimated: spend.estimated }
    }
}

impl From<tamma_store::TaskCard> for TaskCard {
    fn from(card: tamma_store::TaskCard) -> Self {
        Self {
            id: card.task.0,
            short: short_id(card.task.0),
            project: card.project.0,
            answers: card.answers(),
            waits_for_person: card.question.is_some() && !card.paused,
            title: card.title,
            r#type: card.r#type,
            priority: card.priority,
            labels: card.labels,
            created_at: card.created_at,
            state: card.state,
            phase: card.phase,
            paused: card.paused,
            since: card.since,
            risk: card.risk,
            iterations: card.iterations,
            retries: card.retries,
            councils: card.councils,
            failures: card.failures,
            spend: card.spend.into(),
            budget: card.budget,
            next_text: card.next.as_ref().map(ToString::to_string),
            next: card.next,
            due_at: card.due_at,
            pull_request_badge: None,
            entries: card.entries,
            updated_at: card.updated_at,
        }
    }
}

/// Converts a list item, or returns the task as unreadable.
pub(crate) fn card_or_unreadable(
    listed: tamma_store::ListedTask,
) -> Result<TaskCard, UnreadableTask> {
    match listed {
        tamma_store::ListedTask::Card(card) => Ok((*card).into()),
        tamma_store::ListedTask::Damaged { task, title, damage, .. } => Err(UnreadableTask {
            id: task.0,
            title,
            error: format!("cannot read the stored {}: {}", damage.what, damage.reason),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cost_is_not_shown_as_zero() {
        let spend = |cents, estimated| Spend { usd: Usd::from_cents(cents), tokens: 0, estimated };
        assert_eq!(spend(0, true).to_string(), "unknown");
        assert_eq!(spend(136, true).to_string(), "≈ $1.36");
        assert_eq!(spend(86, false).to_string(), "$0.86");
        assert_eq!(spend(0, false).to_string(), "$0.00");
    }
}
