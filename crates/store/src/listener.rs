//! `LISTEN` on a notification channel. The connection is restored for as long as it takes.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool};

use crate::backoff::Backoff;
use crate::error::{Error, Result};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Subscription to a notification channel.
#[derive(Debug)]
pub(crate) struct Listener {
    pool: PgPool,
    channel: &'static str,
    connection: Option<PgListener>,
    backoff: Backoff,
}

/// Result of waiting for a notification.
#[derive(Debug)]
pub(crate) enum Notification {
    /// Connection was restored. Notifications sent while it was down are lost.
    Reconnected,
    /// Payload of a notification.
    Payload(String),
}

impl Listener {
    /// Subscribes to a channel. Every notification sent from now on is received.
    pub(crate) async fn open(pool: &PgPool, channel: &'static str) -> Result<Self> {
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut listener = Self { pool: pool.clone(), channel, connection: None, backoff };
        listener.try_next().await?;
        Ok(listener)
    }

    /// Waits for the next notification, also while the database is unavailable.
    ///
    /// Fails only if the database rejects the subscription.
    pub(crate) async fn next(&mut self) -> Result<Notification> {
        loop {
            match self.try_next().await {
                Ok(Some(notification)) => return Ok(notification),
                Ok(None) => {}
                Err(error) => self.reconnect_after(error).await?,
            }
        }
    }

    /// Drops the connection and waits before the next attempt if `error` is transient; otherwise
    /// returns it.
    pub(crate) async fn reconnect_after(&mut self, error: Error) -> Result<()> {
        if !error.is_retryable() {
            return Err(error);
        }
        self.connection = None;
        tokio::time::sleep(self.backoff.next_delay()).await;
        Ok(())
    }

    async fn try_next(&mut self) -> Result<Option<Notification>> {
        let Some(listener) = &mut self.connection else {
            let mut listener = PgListener::connect_with(&self.pool).await?;
            listener.listen(self.channel).await?;
            self.connection = Some(listener);
            return Ok(Some(Notification::Reconnected));
        };
        if let Some(notification) = listener.try_recv().await? {
            self.backoff.reset();
            return Ok(Some(Notification::Payload(notification.payload().to_owned())));
        }
        // Notifications sent to the lost connection are lost with it.
        self.connection = None;
        Ok(None)
    }
}
