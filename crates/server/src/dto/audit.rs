//! Verification of histories.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Page of verified histories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// Histories, in the order of their task IDs.
    pub histories: Vec<VerifiedHistory>,
    /// Value of `after` for the next page; omitted on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// History of a task, compared with its hash chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifiedHistory {
    /// Task ID.
    pub task: Uuid,
    /// Number of entries whose hash is right.
    pub verified: u64,
    /// Number of entries without a verifiable hash, such as those from before there were hashes.
    pub not_covered: u64,
    /// Hash of the last entry; omitted if the task has no hashes. Keep it elsewhere to find out later
    /// that the whole history was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// First broken entry; omitted if the history is intact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<BrokenHistory>,
}

/// First entry at which a history differs from what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrokenHistory {
    /// Sequence number of the entry.
    pub sequence: u64,
    /// `missing`, `changed`, `unexpected` or `end_changed`.
    pub fault: String,
    /// Fault as a sentence fragment about the entry, such as `was changed`.
    pub text: String,
}
