//! Audit log: who asked for what, how they were authenticated, from where, and under which policy.
//!
//! Entries form one hash chain: each hash covers the stored bytes of its entry and the hash before it.
//! [`ChainVerifier`] reads a chain once, from its start, and names the first entry at which it differs
//! from what was written. It needs nothing but the entries, so that an export can be verified
//! anywhere.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::Display;

use crate::actor::Authentication;
use crate::ids::{Digest, ProjectId};
use crate::time::Timestamp;

/// Hash before the first entry is the hash of this text.
const GENESIS: &[u8] = b"tamma audit log";

/// Key of the content in an exported line, with what separates it from its neighbours.
const ENTRY_KEY: &str = r#","entry":"#;

/// Kind of an audited request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AuditKind {
    /// Decision, or another request to change something.
    Decision,
    /// Access to content: plans, changes, logs, transcripts, exports, and the audit log itself.
    Access,
    /// Use of a secret: a token or sign-in link that was issued or revoked, a sign-in, or a run that
    /// got credentials.
    Secret,
}

/// Audited request, recorded before anything is done for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRequest {
    /// Time at which the request arrived.
    pub at: Timestamp,
    /// Kind of the request.
    pub kind: AuditKind,
    /// Route or tool, such as `GET /api/v1/tasks/{id}/diff` or `tool approve_plan`.
    pub route: String,
    /// Path of the request, or the argument that names the subject.
    pub subject: String,
    /// Name of the person; `None` for an operator who gave no name, and for Tamma itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// Authentication of the person; `None` for Tamma itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authentication>,
    /// Address of the client, or of the last proxy before the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// ID of the request in responses and logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Result of an audited request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditOutcome {
    /// Result in one word.
    pub result: AuditResult,
    /// HTTP status of the response; `None` for a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Policy that allowed or refused the request, such as `role approver: decide`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Project that the policy was applied to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// Actions that the request led to, such as `approve`, each with its subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
}

/// Result of an audited request in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AuditResult {
    /// Request was carried out.
    Granted,
    /// Person lacked the permission.
    Refused,
    /// Request was invalid, came too late, or hit an error.
    Failed,
    /// Server stopped, or the client left, before the result was recorded.
    Unknown,
}

/// Returns the stored content of an entry: one line of JSON.
///
/// `request` and `outcome` are the recorded values as they are, so that a field that this version does
/// not know is kept. Without an outcome, the result is [`AuditResult::Unknown`].
pub fn entry_content(id: u64, request: Map<String, Value>, outcome: Option<Value>) -> String {
    let mut entry = Map::new();
    entry.insert("id".to_owned(), id.into());
    entry.extend(request);
    let unknown = || serde_json::json!({ "result": AuditResult::Unknown });
    entry.insert("outcome".to_owned(), outcome.unwrap_or_else(unknown));
    Value::Object(entry).to_string()
}

/// Returns the hash before the first entry.
pub fn genesis() -> Digest {
    Digest::of(GENESIS)
}

/// Returns the hash of an entry: SHA-256 of the hash before it in hexadecimal, a line feed, and the
/// content.
pub fn chain_hash(previous: Digest, content: &str) -> Digest {
    Digest::of(format!("{previous}\n{content}").as_bytes())
}

/// Entry in its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainedEntry {
    /// Number of the entry, from 1.
    pub position: u64,
    /// Hash of the entry before it.
    pub previous: Digest,
    /// Hash of this entry.
    pub hash: Digest,
    /// Content as it was hashed: one line of JSON.
    pub content: String,
}

impl ChainedEntry {
    /// Returns the entry that follows another one.
    pub fn following(head: AuditHead, content: String) -> Self {
        let hash = chain_hash(head.hash, &content);
        Self { position: head.position + 1, previous: head.hash, hash, content }
    }

    /// Returns the end of a chain whose last entry this is.
    pub fn head(&self) -> AuditHead {
        AuditHead { position: self.position, hash: self.hash }
    }

    /// Returns the entry as one line of JSON, with its content as it was hashed.
    pub fn to_line(&self) -> String {
        let Self { position, previous, hash, content } = self;
        format!(
            r#"{{"position":{position},"previous":"{previous}","hash":"{hash}"{ENTRY_KEY}{content}}}"#
        )
    }

    /// Reads a line of [`ChainedEntry::to_line`]; `None` if it is none. Content that was formatted
    /// differently since has another hash.
    pub fn from_line(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct LineStart {
            position: u64,
            previous: Digest,
            hash: Digest,
        }
        let (start, rest) = line.trim_end().split_once(ENTRY_KEY)?;
        let LineStart { position, previous, hash } =
            serde_json::from_str(&format!("{start}}}")).ok()?;
        let content = rest.strip_suffix('}')?.to_owned();
        Some(Self { position, previous, hash, content })
    }

    fn has_own_hash(&self) -> bool {
        chain_hash(self.previous, &self.content) == self.hash
    }
}

/// End of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// Number of entries.
    pub position: u64,
    /// Hash of the last one.
    pub hash: Digest,
}

impl AuditHead {
    /// Returns the end of a chain without entries.
    pub fn empty() -> Self {
        Self { position: 0, hash: genesis() }
    }
}

/// First entry at which a chain differs from what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenAuditEntry {
    /// Number of the entry.
    pub position: u64,
    /// Kind of the difference.
    pub fault: AuditFault,
}

/// Kind of difference between a chain and what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum AuditFault {
    /// Entry is gone.
    Missing,
    /// Content or hash of the entry was changed.
    Changed,
    /// Entry is at another position.
    Moved {
        /// Position of the entry now.
        to: u64,
    },
    /// Entry does not follow the one before it, and the one that does is gone.
    Unlinked,
    /// Entry has another hash than the one that was kept elsewhere.
    Replaced,
    /// Stored end of the chain was changed.
    EndChanged,
}

impl AuditFault {
    /// Returns the fault as a sentence fragment about an entry.
    pub fn label(self) -> String {
        match self {
            Self::Missing => "is missing".to_owned(),
            Self::Changed => "was changed".to_owned(),
            Self::Moved { to } => format!("was moved to position {to}"),
            Self::Unlinked => {
                "does not follow the entry before it: an entry was removed, or the one before it \
                 was rewritten"
                    .to_owned()
            }
            Self::Replaced => "has another hash than the given one".to_owned(),
            Self::EndChanged => "is not the stored end of the log".to_owned(),
        }
    }
}

/// Result of verifying a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainReport {
    /// Number of entries from the start that are as they were written.
    pub verified: u64,
    /// End of the verified part.
    pub head: AuditHead,
    /// First broken entry; `None` if the chain is intact.
    pub broken: Option<BrokenAuditEntry>,
}

/// Number of entries that receivers of an export get again after a failure, at most.
pub const MAX_EXPORT_BATCH: usize = 100;

/// Reads a chain once, in the order of its positions, in constant memory.
#[derive(Debug, Clone)]
pub struct ChainVerifier {
    /// End of the verified part.
    head: AuditHead,
    /// Last entries of the verified part.
    recent: VecDeque<AuditHead>,
    /// End that somebody kept elsewhere.
    anchor: Option<AuditHead>,
    state: VerifierState,
}

#[derive(Debug, Clone, Copy)]
enum VerifierState {
    Intact,
    /// The entry after the verified part is not in its place, which `fault` describes unless it is
    /// found later.
    Searching(AuditFault),
    Broken(BrokenAuditEntry),
}

impl ChainVerifier {
    /// Creates a verifier. The chain must contain `anchor`, if given.
    pub fn new(anchor: Option<AuditHead>) -> Self {
        let (head, recent) = (AuditHead::empty(), VecDeque::new());
        Self { head, recent, anchor, state: VerifierState::Intact }
    }

    /// Reads the next entry.
    pub fn read(&mut self, entry: &ChainedEntry) {
        let expected = self.head.position + 1;
        match self.state {
            VerifierState::Broken(_) => {}
            VerifierState::Searching(_) => self.search(entry),
            VerifierState::Intact if entry.position < expected => {
                // Receivers of an export can get a batch twice.
                if !self.recent.contains(&entry.head()) || !entry.has_own_hash() {
                    self.fail(entry.position, AuditFault::Changed);
                }
            }
            VerifierState::Intact if entry.position > expected => {
                self.state = VerifierState::Searching(AuditFault::Missing);
                self.search(entry);
            }
            VerifierState::Intact if !entry.has_own_hash() => {
                self.fail(expected, AuditFault::Changed);
            }
            VerifierState::Intact if entry.previous != self.head.hash => {
                self.state = VerifierState::Searching(AuditFault::Unlinked);
            }
            VerifierState::Intact => {
                let kept = self.anchor.filter(|anchor| anchor.position == entry.position);
                if kept.is_some_and(|anchor| anchor.hash != entry.hash) {
                    self.fail(expected, AuditFault::Replaced);
                } else {
                    self.head = entry.head();
                    self.recent.push_back(self.head);
                    if self.recent.len() > MAX_EXPORT_BATCH {
                        self.recent.pop_front();
                    }
                }
            }
        }
    }

    /// Looks for the entry that follows the verified part.
    fn search(&mut self, entry: &ChainedEntry) {
        if entry.previous == self.head.hash && entry.has_own_hash() {
            self.fail(self.head.position + 1, AuditFault::Moved { to: entry.position });
        }
    }

    fn fail(&mut self, position: u64, fault: AuditFault) {
        self.state = VerifierState::Broken(BrokenAuditEntry { position, fault });
    }

    /// Ends the chain, and compares it with its stored end, if there is one.
    pub fn finish(mut self, stored: Option<AuditHead>) -> ChainReport {
        let (next, last) = (self.head.position + 1, self.head.position);
        match (self.state, stored) {
            (VerifierState::Searching(fault), _) => self.fail(next, fault),
            (VerifierState::Intact, Some(stored)) if stored.position > last => {
                self.fail(next, AuditFault::Missing);
            }
            (VerifierState::Intact, Some(stored)) if stored != self.head => {
                self.fail(last, AuditFault::EndChanged);
            }
            (VerifierState::Intact, _)
                if self.anchor.is_some_and(|anchor| anchor.position > last) =>
            {
                self.fail(next, AuditFault::Missing);
            }
            (VerifierState::Intact | VerifierState::Broken(_), _) => {}
        }
        let broken = match self.state {
            VerifierState::Broken(broken) => Some(broken),
            VerifierState::Intact | VerifierState::Searching(_) => None,
        };
        ChainReport { verified: self.head.position, head: self.head, broken }
    }
}
