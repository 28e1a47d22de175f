//! Listening to a channel of the database: the connection is made again for as long as it takes.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool};

use crate::error::{Error, Result};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Somebody who listens.
#[derive(Debug)]
pub(crate) struct Ear {
    pool: PgPool,
    channel: &'static str,
    listener: Option<PgListener>,
    wait: Duration,
}

/// What was heard.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Listening begins anew. What was sent since the connection was lost was not heard.
    Anew,
    /// A notification.
    Note(String),
}

impl Ear {
    /// Listens. Everything that is sent from now on is heard.
    pub(crate) async fn open(pool: &PgPool, channel: &'static str) -> Result<Self> {
        let mut ear = Self { pool: pool.clone(), channel, listener: None, wait: FIRST_WAIT };
        ear.attempt().await?;
        Ok(ear)
    }

    /// What is heard next. Waits until there is something, also while the database is away; fails only
    /// where the database refuses to be listened to.
    pub(crate) async fn next(&mut self) -> Result<Heard> {
        loop {
            match self.attempt().await {
                Ok(Some(heard)) => return Ok(heard),
                Ok(None) => {}
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// Begins anew, after a while, where an error may be gone then; else gives it back.
    pub(crate) async fn again(&mut self, error: Error) -> Result<()> {
        if !error.is_retryable() {
            return Err(error);
        }
        self.listener = None;
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    async fn attempt(&mut self) -> Result<Option<Heard>> {
        let Some(listener) = &mut self.listener else {
            let mut listener = PgListener::connect_with(&self.pool).await?;
            listener.listen(self.channel).await?;
            self.listener = Some(listener);
            return Ok(Some(Heard::Anew));
        };
        if let Some(notification) = listener.try_recv().await? {
            self.wait = FIRST_WAIT;
            return Ok(Some(Heard::Note(notification.payload().to_owned())));
        }
        // The connection is gone, and so is what was sent to it.
        self.listener = None;
        Ok(None)
    }
}
