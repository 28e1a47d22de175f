//! Export of the audit log to the receivers that the operator has configured.
//!
//! Each receiver gets every entry at least once, in order, from the position that it has reached. One
//! server at a time sends to it.

use std::time::Duration;

use futures_util::future::join_all;
use tamma_connect::audit_export::{AuditReceiver, AuditSender, BATCH_TIMEOUT};
use tamma_connect::message;
use tamma_core::audit::MAX_EXPORT_BATCH;
use tamma_core::operator::AuditSettings;
use tamma_core::run_queue::WaitingRun;
use tamma_core::task::Priority;
use tamma_core::time::Timestamp;
use tamma_store::{Backoff, Lease};
use tamma_telemetry::{names, registry};
use tokio_util::sync::CancellationToken;

use super::{AuditLog, MAX_WAIT};
use crate::app::Error;
use crate::clock;

/// Number of entries in one message. `tamma audit verify --file` accepts that one of them comes again.
const BATCH_SIZE: u32 = 100;
const _: () = assert!(BATCH_SIZE as usize == MAX_EXPORT_BATCH);

/// Duration of the lease on a receiver. A batch is sent in less time.
const LEASE_DURATION: Duration = Duration::from_mins(1);
const _: () = assert!(BATCH_TIMEOUT.as_secs() < 60);

/// First and longest delay after a failure.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Sends the audit log to its receivers.
pub(crate) struct AuditExporter {
    log: AuditLog,
    sender: AuditSender,
    receivers: Vec<AuditReceiver>,
    /// Holder of the leases.
    holder: String,
    started_at: Timestamp,
}

/// Failure to export a batch.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Send(#[from] message::Error),
}

impl AuditExporter {
    pub(crate) fn new(log: AuditLog, settings: &AuditSettings) -> Result<Self, message::Error> {
        Ok(Self {
            log,
            sender: AuditSender::new()?,
            receivers: AuditReceiver::from_settings(settings),
            holder: format!("audit export {}", clock::new_id()),
            started_at: clock::now(),
        })
    }

    /// Exports to all receivers until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        if self.receivers.is_empty() {
            return;
        }
        join_all(self.receivers.iter().map(|to| self.export_to(to, &stop))).await;
        let _ = self.log.store.release_leases(&self.holder).await;
    }

    async fn export_to(&self, receiver: &AuditReceiver, stop: &CancellationToken) {
        let key = receiver.key();
        let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
        loop {
            // Created first, so that an entry that is appended meanwhile is not missed.
            let appended = self.log.appended.notified();
            let exported = tokio::select! {
                () = stop.cancelled() => return,
                exported = self.export_batch(receiver, &key) => exported,
            };
            let has_failed = exported.is_err();
            let wait = match exported {
                Ok(true) => Duration::ZERO,
                Ok(false) => MAX_WAIT,
                Err(error) => {
                    registry().add(&names::AUDIT_FAILURES, &[("step", "export")], 1.0);
                    tracing::warn!(receiver = key, %error, "audit export failed; retrying");
                    backoff.next_delay()
                }
            };
            if !has_failed {
                backoff.reset();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = appended, if !has_failed => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Sends the next entries. Returns `false` if there are none, or if another server does it.
    async fn export_batch(&self, receiver: &AuditReceiver, key: &str) -> Result<bool, ExportError> {
        let store = &self.log.store;
        let run = WaitingRun {
            holder: self.holder.clone(),
            priority: Priority::Medium,
            since: self.started_at,
        };
        let lease = store.acquire_lease((Lease::AuditExport, key), &run, 1, LEASE_DURATION);
        if !lease.await.map_err(Error::from)? {
            return Ok(false);
        }
        let reached = store.audit_export_position(key).await.map_err(Error::from)?;
        if reached == 0 {
            // Monitoring must know a receiver that has never confirmed anything.
            store.save_audit_export(key, 0).await.map_err(Error::from)?;
        }
        let page = store.audit_log(reached, BATCH_SIZE).await.map_err(Error::from)?;
        let Some(last) = page.entries.last() else { return Ok(false) };
        self.sender.send(receiver, &page.entries).await?;
        store.save_audit_export(key, last.position).await.map_err(Error::from)?;
        Ok(true)
    }
}
