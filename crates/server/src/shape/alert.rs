//! What people were told, and whether it arrived.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::task_loop::AlertKind;
use utoipa::ToSchema;
use uuid::Uuid;

/// Messages to people, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deliveries {
    /// The messages.
    pub deliveries: Vec<Delivery>,
}

/// A message to one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Its identity.
    pub id: Uuid,
    /// The task.
    pub task: Uuid,
    /// What kind of alert it is.
    #[schema(value_type = String, example = "approval_needed")]
    pub kind: AlertKind,
    /// Why it was sent.
    pub in_words: String,
    /// Which of the alert's messages it is: the first is 0, then come reminders.
    pub reminder: u32,
    /// Who gets it, without an address or a key.
    pub receiver: String,
    /// Whether it goes out with everything else that is only good to know.
    pub digest: bool,
    /// How often it was tried.
    pub attempts: u32,
    /// When it goes, or is tried again; nothing once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<DateTime<Utc>>,
    /// What came of it: `delivered`, `given_up`, `settled` or `no_receiver`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whose channels are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TestAlerts {
    /// The id or the name of a project. It can be left out where there is exactly one.
    pub project: Option<String>,
}

/// What came of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipts {
    /// One for each channel of the configuration.
    pub receipts: Vec<Receipt>,
}

/// Whether a test message arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// Who was to get it.
    pub receiver: String,
    /// Whether they did.
    pub arrived: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Receipt {
    pub(crate) fn new(receiver: String, error: Option<String>) -> Self {
        Self { receiver, arrived: error.is_none(), error }
    }
}

impl From<tamma_store::Delivery> for Delivery {
    fn from(it: tamma_store::Delivery) -> Self {
        let (outcome, ended_at) = it.ended.unzip();
        Self {
            id: it.id,
            task: it.task.0,
            kind: it.kind,
            in_words: it.cause.to_string(),
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
