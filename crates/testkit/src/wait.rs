//! Polling, for conditions that send no notification.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{sleep, timeout};

/// Pause between two polls.
struct Pause(Duration);

impl Pause {
    const FIRST: Self = Self(Duration::from_millis(5));
    const LONGEST: Duration = Duration::from_millis(50);

    /// Waits, and doubles the next pause.
    async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(Self::LONGEST);
    }
}

/// Polls until a value is available.
///
/// Errors are retried, because components may be restarting, and the last one is reported on
/// timeout. To fail at once, return the error as the value. `what` completes the sentence "timed
/// out waiting for …".
pub async fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut poll: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut last = None;
    let polling = async {
        let mut pause = Pause::FIRST;
        loop {
            match poll().await {
                Ok(Some(value)) => return value,
                Ok(None) => last = None,
                Err(error) => last = Some(error),
            }
            pause.wait().await;
        }
    };
    let value = timeout(limit, polling).await;
    match (value, last) {
        (Ok(value), _) => Ok(value),
        (Err(_), Some(error)) => Err(error.context(late(what, limit))),
        (Err(_), None) => Err(anyhow!(late(what, limit))),
    }
}

/// Polls until a condition holds. Unlike [`wait_until`], it can be spawned with a closure that
/// borrows.
pub async fn wait_until_true(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> bool,
) -> Result<()> {
    let polling = async {
        let mut pause = Pause::FIRST;
        while !holds() {
            pause.wait().await;
        }
    };
    timeout(limit, polling).await.map_err(|_| anyhow!(late(what, limit)))
}

fn late(what: &str, limit: Duration) -> String {
    format!("timed out after {} s waiting for {what}", limit.as_secs())
}
