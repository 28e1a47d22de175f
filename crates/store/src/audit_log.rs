//! Audit log: pending entries, the hash chain, and the positions of receivers outside.
//!
//! Requests insert and complete their entries without waiting for each other. One writer at a time
//! appends completed entries to the chain; triggers keep everything else out (migration 28). Until
//! then, an entry can be changed without a trace by somebody who can turn triggers off, so
//! [`PendingAudit`] says how many there are, and since when.

use serde_json::{Map, Value};
use tamma_core::audit::{AuditHead, AuditOutcome, AuditRequest, ChainedEntry, entry_content};
use tamma_core::ids::Digest;
use tamma_core::time::Timestamp;

use crate::connection::Store;
use crate::encoding::json;
use crate::error::Result;
use crate::steps::to_i64;

/// ID of a pending entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingAuditId(u64);

/// Page of the chain, with its end at the same moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLogPage {
    /// Entries in the order of their positions.
    pub entries: Vec<ChainedEntry>,
    /// Stored end of the chain.
    pub head: AuditHead,
}

/// Entries that are not in the chain yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingAudit {
    /// Number of entries.
    pub count: u64,
    /// Time of the oldest one; `None` if there is none.
    pub oldest: Option<Timestamp>,
}

impl Store {
    /// Records an audited request, before anything is done for it.
    pub async fn begin_audit(&self, request: &AuditRequest) -> Result<PendingAuditId> {
        let id = sqlx::query_scalar!(
            "INSERT INTO audit_pending (request) VALUES ($1) RETURNING id",
            json(request),
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(PendingAuditId(id.unsigned_abs()))
    }

    /// Records the result of a request. Returns `false` if the entry has one already, or is in the
    /// chain.
    pub async fn complete_audit(&self, id: PendingAuditId, outcome: &AuditOutcome) -> Result<bool> {
        let completed = sqlx::query!(
            "UPDATE audit_pending SET outcome = $2 WHERE id = $1 AND outcome IS NULL",
            to_i64(id.0),
            json(outcome),
        )
        .execute(&self.steps)
        .await?;
        Ok(completed.rows_affected() > 0)
    }

    /// Appends up to `limit` entries to the chain: completed ones, and those from before
    /// `abandoned_before`, whose result is unknown. Returns their number.
    pub async fn append_audit_entries(
        &self,
        abandoned_before: Timestamp,
        limit: u32,
    ) -> Result<u64> {
        let mut transaction = self.begin_writing().await?;
        // One writer at a time; the others wait for its few milliseconds.
        sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('tamma.audit', 0))")
            .execute(&mut *transaction)
            .await?;
        let pending = sqlx::query!(
            "SELECT id, request, outcome FROM audit_pending
             WHERE outcome IS NOT NULL OR recorded_at < $1
             ORDER BY id LIMIT $2 FOR UPDATE",
            abandoned_before,
            i64::from(limit),
        )
        .fetch_all(&mut *transaction)
        .await?;
        if pending.is_empty() {
            return Ok(0);
        }
        let head = sqlx::query!("SELECT position, hash FROM audit_head")
            .fetch_optional(&mut *transaction)
            .await?;
        let mut head = head.map_or_else(AuditHead::empty, |row| read_head(row.position, &row.hash));
        let (mut ids, mut positions) = (Vec::new(), Vec::new());
        let (mut previous, mut hashes, mut contents) = (Vec::new(), Vec::new(), Vec::new());
        for row in pending {
            let request = match row.request {
                Value::Object(request) => request,
                // The column accepts objects only.
                _ => Map::new(),
            };
            let content = entry_content(row.id.unsigned_abs(), request, row.outcome);
            let entry = ChainedEntry::following(head, content);
            head = entry.head();
            ids.push(row.id);
            positions.push(to_i64(entry.position));
            previous.push(entry.previous.to_string());
            hashes.push(entry.hash.to_string());
            contents.push(entry.content);
        }
        sqlx::query!(
            "INSERT INTO audit_entries (position, previous, hash, content)
             SELECT * FROM unnest($1::bigint [], $2::text [], $3::text [], $4::text [])",
            &positions,
            &previous,
            &hashes,
            &contents,
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query!("DELETE FROM audit_pending WHERE id = ANY($1::bigint [])", &ids)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(ids.len() as u64)
    }

    /// Returns up to `limit` entries after a position.
    pub async fn audit_log(&self, after: u64, limit: u32) -> Result<AuditLogPage> {
        // One statement, so that the end belongs to the entries. It may be missing, if somebody
        // removed it.
        let rows = sqlx::query!(
            r#"SELECT
                head.position AS "head_position?", head.hash AS "head_hash?",
                entry.position AS "position?", entry.previous AS "previous?",
                entry.hash AS "hash?", entry.content AS "content?"
             FROM (SELECT 1) AS one
             LEFT JOIN audit_head AS head ON true
             LEFT JOIN LATERAL (
                SELECT e.position, e.previous, e.hash, e.content FROM audit_entries AS e
                WHERE e.position > $1 ORDER BY e.position LIMIT $2
             ) AS entry ON true
             ORDER BY entry.position"#,
            to_i64(after),
            i64::from(limit),
        )
        .fetch_all(&self.steps)
        .await?;
        let mut page =
            AuditLogPage { entries: Vec::with_capacity(rows.len()), head: AuditHead::empty() };
        for row in rows {
            if let (Some(position), Some(hash)) = (row.head_position, row.head_hash) {
                page.head = read_head(position, &hash);
            }
            if let (Some(position), Some(previous), Some(hash), Some(content)) =
                (row.position, row.previous, row.hash, row.content)
            {
                page.entries.push(ChainedEntry {
                    position: position.unsigned_abs(),
                    previous: read_hash(&previous),
                    hash: read_hash(&hash),
                    content,
                });
            }
        }
        Ok(page)
    }

    /// Returns how many entries are not in the chain yet, and since when.
    pub async fn pending_audit(&self) -> Result<PendingAudit> {
        let row = sqlx::query!(
            r#"SELECT count(*) AS "count!", min(recorded_at) AS "oldest?" FROM audit_pending"#
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(PendingAudit { count: row.count.unsigned_abs(), oldest: row.oldest })
    }

    /// Returns the position of the last entry that a receiver has confirmed; 0 if there is none.
    pub async fn audit_export_position(&self, receiver: &str) -> Result<u64> {
        let position = sqlx::query_scalar!(
            "SELECT position FROM audit_exports WHERE receiver = $1",
            receiver,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(position.map_or(0, i64::unsigned_abs))
    }

    /// Saves the position of the last entry that a receiver has confirmed. It never goes back.
    pub async fn save_audit_export(&self, receiver: &str, position: u64) -> Result<()> {
        sqlx::query!(
            "INSERT INTO audit_exports (receiver, position) VALUES ($1, $2)
             ON CONFLICT (receiver) DO UPDATE
             SET position = greatest(audit_exports.position, excluded.position),
                 updated_at = clock_timestamp()",
            receiver,
            to_i64(position),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }
}

fn read_head(position: i64, hash: &str) -> AuditHead {
    AuditHead { position: position.unsigned_abs(), hash: read_hash(hash) }
}

/// Reads a hash. Text that is none was tampered with, and becomes a hash that fits nothing.
fn read_hash(text: &str) -> Digest {
    text.parse().unwrap_or_else(|_| Digest::of(text.as_bytes()))
}
