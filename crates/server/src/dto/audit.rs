//! Verification of histories, and the audit log.

use chrono::{DateTime, Utc};
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

/// Page of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLogPage {
    /// Entries in the order of their positions. Fewer than requested: these are the last ones.
    pub entries: Vec<AuditLogEntry>,
    /// Stored end of the hash chain, at the same moment.
    pub head: AuditLogEnd,
    /// Number of entries that are not in the chain yet.
    pub pending: u64,
    /// Time of the oldest one; omitted if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_pending: Option<DateTime<Utc>>,
}

/// Entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLogEntry {
    /// Number of the entry, from 1.
    pub position: u64,
    /// Hash of the entry before it.
    pub previous: String,
    /// SHA-256 of `previous`, a line feed and `content`.
    pub hash: String,
    /// Entry as it was hashed: one line of JSON.
    pub content: String,
}

/// End of the hash chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLogEnd {
    /// Number of entries.
    pub position: u64,
    /// Hash of the last one.
    pub hash: String,
}
