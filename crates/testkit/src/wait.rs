//! Polling, for conditions that send no notification.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{sleep, timeout};

/// First and longest interval between two probes. The interval doubles after each probe.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// Probes until a value is available.
///
/// Errors are retried, because components may be restarting, and the last one is reported on
/// timeout. To fail at once, return the error as the value. `what` completes the sentence "timed
/// out waiting for …".
pub async fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut last = None;
    let polling = async {
        let mut interval = INTERVALS.0;
        loop {
            match probe().await {
                Ok(Some(found)) => return found,
                Ok(None) => last = None,
                Err(error) => last = Some(error),
            }
            sleep(interval).await;
            interval = (interval * 2).min(INTERVALS.1);
        }
    };
    let found = timeout(limit, polling).await;
    let late = || format!("timed out after {} s waiting for {what}", limit.as_secs());
    match (found, last) {
        (Ok(found), _) => Ok(found),
        (Err(_), Some(error)) => Err(error.context(late())),
        (Err(_), None) => Err(anyhow!(late())),
    }
}

/// Probes until a condition holds.
pub async fn wait_until_true(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> bool,
) -> Result<()> {
    wait_until(what, limit, || std::future::ready(Ok(holds().then_some(())))).await
}
