//! Verification of histories against their hash chains.
//!
//! The database adds the hash of each entry and keeps the end of each chain (migration 19). Whoever can
//! turn triggers off can still change rows, but not without a trace: each hash depends on all entries
//! before it.

use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;
use crate::steps::task_not_found;

/// Result of verifying the history of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryAudit {
    /// Task ID.
    pub task: TaskId,
    /// Number of entries whose hash is right.
    pub verified: u64,
    /// Number of entries without a verifiable hash: written before there were hashes, archived, or the
    /// first one after an archived month.
    pub not_covered: u64,
    /// Hash of the last entry, in hexadecimal; `None` if the task has no hashes.
    pub head: Option<String>,
    /// First broken entry; `None` if the history is intact.
    pub broken: Option<BrokenEntry>,
}

/// Entry at which a history differs from what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenEntry {
    /// Sequence number of the entry.
    pub sequence: u64,
    /// Kind of the difference.
    pub fault: ChainFault,
}

/// Kind of difference between a history and its hash chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum ChainFault {
    /// Entry is gone.
    Missing,
    /// Content or hash of the entry, or the hash before it, was changed.
    Changed,
    /// No step of the task wrote the entry.
    Unexpected,
    /// Stored end of the chain was changed or removed.
    EndChanged,
}

impl ChainFault {
    /// Returns the fault as a sentence fragment about an entry.
    pub fn label(self) -> &'static str {
        match self {
            Self::Missing => "is missing",
            Self::Changed => "was changed",
            Self::Unexpected => "was not written by Tamma",
            Self::EndChanged => "is not the stored end of the history",
        }
    }
}

/// Task whose history is verified.
struct AuditedTask {
    /// Number of entries that the task has written.
    entry_count: u64,
    updated_at: Timestamp,
    chain: Option<ChainHead>,
}

/// Stored end of a chain.
struct ChainHead {
    first_entry: u64,
    last_entry: u64,
    hash: Vec<u8>,
}

/// Entry with its stored hash, and the hash that it should have.
struct ChainLink {
    sequence: u64,
    at: Timestamp,
    hash: Option<Vec<u8>>,
    expected: Vec<u8>,
}

impl Store {
    /// Returns up to `limit` tasks after another one, in the order of their IDs.
    pub async fn audited_tasks(&self, after: Option<TaskId>, limit: u32) -> Result<Vec<TaskId>> {
        let ids = sqlx::query_scalar!(
            "SELECT id FROM tasks
             WHERE ($1::uuid IS NULL OR id > $1) AND ($2::bool OR project = ANY($3::uuid []))
             ORDER BY id LIMIT $4",
            after.map(|task| task.0),
            self.reads_all(),
            self.readable_projects(),
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(ids.into_iter().map(TaskId).collect())
    }

    /// Verifies the history of a task. Months before `archived_before` may be detached.
    pub async fn verify_history(
        &self,
        task: TaskId,
        archived_before: Option<Timestamp>,
    ) -> Result<HistoryAudit> {
        // One statement, so that the task and its entries are from the same moment.
        let rows = sqlx::query!(
            r#"SELECT
                tasks.entries AS "entries!", tasks.updated_at AS "updated_at!",
                heads.first_entry AS "first_entry?",
                heads.entries AS "last_entry?", heads.hash AS "head?", links.sequence AS "sequence?",
                links.at AS "at?", links.hash AS "hash?", links.expected AS "expected?"
             FROM tasks
             LEFT JOIN history_heads AS heads ON heads.task = tasks.id
             LEFT JOIN LATERAL (
                SELECT
                    e.sequence, e.at, e.hash,
                    entry_hash(
                        lag(e.hash) OVER (ORDER BY e.sequence, e.at), e.task, e.sequence, e.project,
                        e.at, e.at_nanos, e.recorded_at, e.format, e.name, e."from", e."to", e."on",
                        e.actor, e.auth, e.reason, e.data
                    ) AS expected
                FROM entries AS e WHERE e.task = tasks.id
             ) AS links ON true
             WHERE tasks.id = $1 AND ($2::bool OR tasks.project = ANY($3::uuid []))
             ORDER BY links.sequence, links.at"#,
            task.0,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let mut audited = None;
        let mut links = Vec::with_capacity(rows.len());
        for row in rows {
            if let (Some(sequence), Some(at)) = (row.sequence, row.at) {
                let expected = row.expected.unwrap_or_default();
                let sequence = sequence.unsigned_abs();
                links.push(ChainLink { sequence, at, hash: row.hash, expected });
            }
            let chain = match (row.first_entry, row.last_entry, row.head) {
                (Some(first), Some(last), Some(hash)) => Some(ChainHead {
                    first_entry: first.unsigned_abs(),
                    last_entry: last.unsigned_abs(),
                    hash,
                }),
                _ => None,
            };
            let (entry_count, updated_at) = (row.entries.unsigned_abs(), row.updated_at);
            audited = Some(AuditedTask { entry_count, updated_at, chain });
        }
        let audited = audited.ok_or_else(|| task_not_found(task.0))?;
        Ok(audit_history(task, &audited, &links, archived_before))
    }
}

/// Compares the entries of a task with its chain, in order, up to the first difference.
fn audit_history(
    task: TaskId,
    audited: &AuditedTask,
    links: &[ChainLink],
    archived_before: Option<Timestamp>,
) -> HistoryAudit {
    let chain = audited.chain.as_ref();
    let head = chain.map(|chain| hexadecimal(&chain.hash));
    let archived = archived_entries(audited, links, archived_before);
    let (mut verified, mut not_covered) = (0, archived);
    let mut broken = None;
    let mut last = archived;
    for link in links {
        let is_covered = chain.is_some_and(|chain| link.sequence >= chain.first_entry);
        // The hash before the first entry after an archived month is archived, too.
        let follows_archive = archived > 0 && link.sequence == archived + 1;
        let fault = match &link.hash {
            _ if link.sequence <= last => Some((link.sequence, ChainFault::Unexpected)),
            _ if link.sequence > last + 1 => Some((last + 1, ChainFault::Missing)),
            _ if chain.is_some_and(|chain| link.sequence > chain.last_entry) => {
                Some((link.sequence, ChainFault::Unexpected))
            }
            None if is_covered => Some((link.sequence, ChainFault::Changed)),
            Some(_) if !is_covered => Some((link.sequence, ChainFault::EndChanged)),
            Some(hash) if !follows_archive && *hash != link.expected => {
                Some((link.sequence, ChainFault::Changed))
            }
            Some(_) if !follows_archive => {
                verified += 1;
                None
            }
            _ => {
                not_covered += 1;
                None
            }
        };
        if let Some((sequence, fault)) = fault {
            broken = Some(BrokenEntry { sequence, fault });
            break;
        }
        last = link.sequence;
    }
    let broken = broken.or_else(|| check_end(audited, links.last(), last));
    HistoryAudit { task, verified, not_covered, head, broken }
}

/// Returns the number of entries that an operator may have archived: all before the first one that is
/// left, if that is new enough.
fn archived_entries(
    audited: &AuditedTask,
    links: &[ChainLink],
    archived_before: Option<Timestamp>,
) -> u64 {
    let Some(before) = archived_before else { return 0 };
    match links.first() {
        Some(first) if first.at >= before => first.sequence.saturating_sub(1),
        None if audited.updated_at < before => audited.entry_count,
        Some(_) | None => 0,
    }
}

/// Compares the last entry with the count of the task and the stored end of its chain.
fn check_end(audited: &AuditedTask, link: Option<&ChainLink>, last: u64) -> Option<BrokenEntry> {
    let chain = audited.chain.as_ref();
    let written = chain.map_or(audited.entry_count, |chain| chain.last_entry);
    let (sequence, fault) = if last < audited.entry_count.max(written) {
        (last + 1, ChainFault::Missing)
    } else if last > audited.entry_count.min(written) {
        (audited.entry_count.min(written) + 1, ChainFault::Unexpected)
    } else if let (Some(chain), Some(link)) = (chain, link)
        && link.hash.as_ref() != Some(&chain.hash)
    {
        (last, ChainFault::EndChanged)
    } else {
        return None;
    };
    Some(BrokenEntry { sequence, fault })
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};

    use super::*;

    fn day(number: i64) -> Timestamp {
        DateTime::UNIX_EPOCH + TimeDelta::days(number)
    }

    /// Entries of these numbers, one per day, whose hashes are their numbers.
    fn links(numbers: &[u8]) -> Vec<ChainLink> {
        let link = |number: &u8| ChainLink {
            sequence: (*number).into(),
            at: day((*number).into()),
            hash: Some(vec![*number]),
            expected: vec![*number],
        };
        numbers.iter().map(link).collect()
    }

    fn audited(first_entry: u64, last: u8) -> AuditedTask {
        let chain = ChainHead { first_entry, last_entry: last.into(), hash: vec![last] };
        let (entry_count, updated_at) = (last.into(), day(last.into()));
        AuditedTask { entry_count, updated_at, chain: Some(chain) }
    }

    fn audit(task: &AuditedTask, links: &[ChainLink], archived: Option<i64>) -> HistoryAudit {
        audit_history(TaskId(uuid::Uuid::nil()), task, links, archived.map(day))
    }

    fn broken(task: &AuditedTask, links: &[ChainLink]) -> Option<(u64, ChainFault)> {
        audit(task, links, None).broken.map(|it| (it.sequence, it.fault))
    }

    #[test]
    fn an_intact_history_is_verified() {
        let intact = audit(&audited(1, 3), &links(&[1, 2, 3]), None);
        assert_eq!((intact.verified, intact.not_covered, intact.broken), (3, 0, None));
        assert_eq!(intact.head.as_deref(), Some("03"));
    }

    #[test]
    fn entries_before_the_chain_are_not_covered_and_not_broken() {
        let mut all = links(&[1, 2, 3, 4]);
        all[0].hash = None;
        all[1].hash = None;
        let old = audit(&audited(3, 4), &all, None);
        assert_eq!((old.verified, old.not_covered, old.broken), (2, 2, None));
        // A task that has written nothing since.
        all.truncate(2);
        let task = AuditedTask { entry_count: 2, updated_at: day(2), chain: None };
        let old = audit(&task, &all, None);
        assert_eq!((old.verified, old.not_covered, old.broken, old.head), (0, 2, None, None));
        assert_eq!(broken(&task, &all[..1]), Some((2, ChainFault::Missing)));
    }

    #[test]
    fn the_first_difference_is_named() {
        let task = audited(1, 4);
        assert_eq!(broken(&task, &links(&[1, 3, 4])), Some((2, ChainFault::Missing)));
        assert_eq!(broken(&task, &links(&[1, 2, 3])), Some((4, ChainFault::Missing)));
        assert_eq!(broken(&task, &[]), Some((1, ChainFault::Missing)));
        assert_eq!(broken(&task, &links(&[1, 2, 2, 3, 4])), Some((2, ChainFault::Unexpected)));
        assert_eq!(broken(&task, &links(&[1, 2, 3, 4, 5])), Some((5, ChainFault::Unexpected)));
        let mut changed = links(&[1, 2, 3, 4]);
        changed[2].expected = vec![9];
        assert_eq!(broken(&task, &changed), Some((3, ChainFault::Changed)));
        changed[1].hash = None;
        assert_eq!(broken(&task, &changed), Some((2, ChainFault::Changed)));
    }

    #[test]
    fn a_changed_end_of_the_chain_is_found() {
        let all = links(&[1, 2, 3]);
        let mut task = audited(1, 3);
        task.chain = task.chain.map(|chain| ChainHead { hash: vec![9], ..chain });
        assert_eq!(broken(&task, &all), Some((3, ChainFault::EndChanged)));
        // The count of the task was lowered with the entries, and the end of the chain was not.
        let task = AuditedTask { entry_count: 2, ..audited(1, 3) };
        assert_eq!(broken(&task, &all[..2]), Some((3, ChainFault::Missing)));
        let task = AuditedTask { chain: None, ..audited(1, 3) };
        assert_eq!(broken(&task, &all), Some((1, ChainFault::EndChanged)));
    }

    #[test]
    fn archived_months_are_missing_only_if_the_operator_says_so() {
        let (task, left) = (audited(1, 4), links(&[3, 4]));
        assert_eq!(broken(&task, &left), Some((1, ChainFault::Missing)));
        let archived = audit(&task, &left, Some(3));
        assert_eq!((archived.verified, archived.not_covered, archived.broken), (1, 3, None));
        let missing = BrokenEntry { sequence: 1, fault: ChainFault::Missing };
        assert_eq!(audit(&task, &left, Some(4)).broken, Some(missing), "day 3 is not archived");
        let all = audit(&task, &[], Some(5));
        assert_eq!((all.not_covered, all.broken), (4, None));
        assert_eq!(audit(&task, &[], Some(4)).broken, Some(missing));
    }
}
