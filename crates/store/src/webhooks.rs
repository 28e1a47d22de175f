//! Webhooks that forges sent. Each is accepted once.

use crate::connection::Store;
use crate::error::Result;

/// Longest stored ID or event name, in characters. Forges use UUIDs and short words.
const MAX_TEXT: usize = 200;

impl Store {
    /// Returns `true` if a webhook was accepted before, so its hint was left.
    pub async fn is_webhook_accepted(&self, forge: &str, delivery: &str) -> Result<bool> {
        let is_accepted = sqlx::query_scalar!(
            "SELECT EXISTS (
                SELECT FROM webhook_deliveries WHERE forge = $1 AND delivery = $2
             ) AS \"is_accepted!\"",
            forge,
            stored_text(delivery),
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(is_accepted)
    }

    /// Records a webhook. Returns `false` if it was accepted before.
    ///
    /// Leave its hint first: a webhook whose hint is lost is not sent again.
    pub async fn accept_webhook(&self, forge: &str, delivery: &str, event: &str) -> Result<bool> {
        let accepted = sqlx::query!(
            "INSERT INTO webhook_deliveries (forge, delivery, event) VALUES ($1, $2, $3)
             ON CONFLICT (forge, delivery) DO NOTHING",
            forge,
            stored_text(delivery),
            stored_text(event),
        )
        .execute(&self.steps)
        .await?;
        Ok(accepted.rows_affected() > 0)
    }
}

fn stored_text(text: &str) -> String {
    text.replace('\0', "").chars().take(MAX_TEXT).collect()
}
