//! Retries of writes to the store, and work that can be abandoned.

use std::time::Duration;

use tamma_store::Backoff;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// First and maximum delay between attempts.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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
