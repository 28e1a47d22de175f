//! Alert deliveries and channel tests.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::task_loop::AlertKind;
use utoipa::ToSchema;
use uuid::Uuid;

/// Alert deliveries, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertDeliveries {
    /// Deliveries of this page.
    pub deliveries: Vec<AlertDelivery>,
}

/// Delivery of an alert to one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertDelivery {
    /// Delivery ID.
    pub id: Uuid,
    /// Task ID.
    pub task: Uuid,
    /// Kind of alert.
    #[schema(value_type = String, example = "approval_needed")]
    pub kind: AlertKind,
    /// Cause of the alert, as text.
    #[serde(rename = "in_words")]
    pub cause_text: String,
    /// Number of the reminder; 0 for the first message.
    pub reminder: u32,
    /// Receiver, without address or secret.
    pub receiver: String,
    /// `true` if it is part of the daily digest.
    pub digest: bool,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the next attempt; omitted once the delivery is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<DateTime<Utc>>,
    /// Outcome: `delivered`, `given_up`, `settled` or `no_receiver`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Time of the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Request to test the alert channels of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertTestRequest {
    /// Project ID or name; optional if only one project is registered.
    pub project: Option<String>,
}

/// Results of a channel test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertTestResults {
    /// One result per configured channel.
    #[serde(rename = "receipts")]
    pub results: Vec<AlertTestResult>,
}

/// Result of a test message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertTestResult {
    /// Receiver, without address or secret.
    pub receiver: String,
    /// `true` if the receiver accepted the message.
    pub arrived: bool,
    /// Error; omitted on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AlertTestResult {
    pub(crate) fn new(receiver: String, error: Option<String>) -> Self {
        Self { receiver, arrived: error.is_none(), error }
    }
}

impl From<tamma_store::Delivery> for AlertDelivery {
    fn from(it: tamma_store::Delivery) -> Self {
        let (outcome, ended_at) = it.ended.unzip();
        Self {
            id: it.id,
            task: it.task.0,
            kind: it.kind,
            cause_text: it.cause.to_string(),
            reminder: it.reminder,
            receiver: it.receiver,
            digest: it.digest,
            attempts: it.attempts,
            due_at: ended_at.is_none().then_some(it.due_at),
            outcome: outcome.map(|outcome| outcome.to_string()),
            ended_at,
            error: it.error,
        }
    }
}
