//! Retries of writes to the store and to full disks, and work that can be abandoned.

use std::time::Duration;

use tamma_engine::mirror;
use tamma_store::Backoff;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// First and maximum delay between attempts.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Time for which a job waits for space on a full disk.
const MAX_DISK_WAIT: Duration = Duration::from_mins(1);

/// Retries a write until the database is available. Without this, Temporal would restart the whole
/// job and pay for its run again.
pub(crate) async fn retry_until_stopped<T, F>(
    stop: &CancellationToken,
    write: impl Fn() -> F,
) -> Result<T, Error>
where
    F: Future<Output = tamma_store::Result<T>>,
{
    let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
    loop {
        match write().await {
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "failed to save job result; retrying");
            }
            written => return Ok(written?),
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = stop.cancelled() => return Err(Error::Stopped),
        }
    }
}

/// Repeats work on files for a while if the disk is full. Without this, Temporal would restart the whole job
/// and pay for its run again; it does so if the disk stays full, on any worker.
pub(crate) async fn retry_while_disk_is_full<T, F>(
    stop: &CancellationToken,
    work: impl Fn() -> F,
) -> Result<T, mirror::Error>
where
    F: Future<Output = Result<T, mirror::Error>>,
{
    retry_for(MAX_DISK_WAIT, stop, work).await
}

async fn retry_for<T, F>(
    limit: Duration,
    stop: &CancellationToken,
    work: impl Fn() -> F,
) -> Result<T, mirror::Error>
where
    F: Future<Output = Result<T, mirror::Error>>,
{
    let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
    let mut waited = Duration::ZERO;
    loop {
        let result = work().await;
        let is_full = result.as_ref().is_err_and(mirror::Error::is_disk_full);
        if !is_full || waited >= limit {
            return result;
        }
        let delay = backoff.next_delay();
        waited += delay;
        tracing::warn!(?delay, "the disk is full; retrying");
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stop.cancelled() => return result,
        }
    }
}

/// Runs work that can be repeated, and abandons it when the job is stopped.
pub(crate) async fn until_stopped<T>(
    stop: &CancellationToken,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        result = work => result,
        () = stop.cancelled() => Err(Error::Stopped),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use super::*;

    fn disk_error(kind: io::ErrorKind) -> mirror::Error {
        mirror::Error::Disk { what: "write", path: "index".into(), source: kind.into() }
    }

    #[tokio::test]
    async fn work_is_repeated_only_while_the_disk_is_full() {
        let stop = CancellationToken::new();
        let attempts = Cell::new(0);
        let work = || async {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                1 => Err(disk_error(io::ErrorKind::StorageFull)),
                _ => Err::<(), _>(disk_error(io::ErrorKind::PermissionDenied)),
            }
        };
        let error = retry_while_disk_is_full(&stop, work).await.expect_err("denied");
        assert!(!error.is_disk_full());
        assert_eq!(attempts.get(), 2);
        stop.cancel();
        attempts.set(0);
        let error = retry_while_disk_is_full(&stop, work).await.expect_err("stopped");
        assert!(error.is_disk_full());
        assert_eq!(attempts.get(), 1);
    }

    #[tokio::test]
    async fn a_disk_that_stays_full_is_an_error() {
        let attempts = Cell::new(0);
        let full = || async {
            attempts.set(attempts.get() + 1);
            Err::<(), _>(disk_error(io::ErrorKind::StorageFull))
        };
        let limit = Duration::from_millis(1);
        let error = retry_for(limit, &CancellationToken::new(), full).await.expect_err("full");
        assert!(error.is_disk_full());
        assert_eq!(attempts.get(), 2);
    }
}
