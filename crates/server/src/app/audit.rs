//! Verification of histories against their hash chains, and pages of the audit log.

use tamma_core::ids::TaskId;
use tamma_core::time::Timestamp;
use tamma_store::HistoryAudit;

use super::queries::invalid_cursor;
use super::{App, Error, PageRequest};
use crate::dto::{
    AuditLogEnd, AuditLogEntry, AuditLogPage, AuditPage, BrokenHistory, VerifiedHistory,
};

impl App {
    /// Verifies the history of one task.
    pub(crate) async fn verify_task(
        &self,
        task: TaskId,
        archived_before: Option<Timestamp>,
    ) -> Result<AuditPage, Error> {
        let history = self.verify_history(task, archived_before).await?;
        Ok(AuditPage { histories: vec![history], next: None })
    }

    /// Verifies the histories of a page of tasks.
    pub(crate) async fn verify_tasks(
        &self,
        window: &PageRequest,
        archived_before: Option<Timestamp>,
    ) -> Result<AuditPage, Error> {
        let after = match window.after.as_deref() {
            Some(after) => Some(after.parse().map(TaskId).map_err(|_| invalid_cursor(after))?),
            None => None,
        };
        let tasks = self.store.audited_tasks(after, window.limit).await?;
        let full = tasks.len() as u64 >= u64::from(window.limit);
        let next = tasks.last().filter(|_| full).map(ToString::to_string);
        let mut histories = Vec::with_capacity(tasks.len());
        for task in tasks {
            histories.push(self.verify_history(task, archived_before).await?);
        }
        Ok(AuditPage { histories, next })
    }

    /// Returns entries of the audit log after a position.
    pub(crate) async fn audit_log(&self, after: u64, limit: u32) -> Result<AuditLogPage, Error> {
        let pending = self.store.pending_audit().await?;
        let page = self.store.audit_log(after, limit).await?;
        let entries = page.entries.into_iter().map(|entry| AuditLogEntry {
            position: entry.position,
            previous: entry.previous.to_string(),
            hash: entry.hash.to_string(),
            content: entry.content,
        });
        let head = AuditLogEnd { position: page.head.position, hash: page.head.hash.to_string() };
        let (pending, oldest_pending) = (pending.count, pending.oldest);
        Ok(AuditLogPage { entries: entries.collect(), head, pending, oldest_pending })
    }

    async fn verify_history(
        &self,
        task: TaskId,
        archived_before: Option<Timestamp>,
    ) -> Result<VerifiedHistory, Error> {
        let audit = self.store.verify_history(task, archived_before).await?;
        if let Some(broken) = audit.broken {
            let (entry, fault) = (broken.sequence, broken.fault);
            tracing::error!(%task, entry, %fault, "history is broken");
        }
        Ok(audit.into())
    }
}

impl From<HistoryAudit> for VerifiedHistory {
    fn from(audit: HistoryAudit) -> Self {
        let HistoryAudit { task, verified, not_covered, head, broken } = audit;
        let broken = broken.map(|broken| BrokenHistory {
            sequence: broken.sequence,
            fault: broken.fault.to_string(),
            text: broken.fault.label().to_owned(),
        });
        Self { task: task.0, verified, not_covered, head, broken }
    }
}
