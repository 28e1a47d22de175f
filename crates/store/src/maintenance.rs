//! Maintenance of the installation, during which no runs start.

use tamma_core::ids::Name;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;

/// Maintenance that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    /// Reason, for people.
    pub reason: String,
    /// Person who started it.
    pub started_by: String,
    /// Start.
    pub started_at: Timestamp,
}

impl Store {
    /// Returns the maintenance that is under way.
    pub async fn maintenance(&self) -> Result<Option<Maintenance>> {
        let row = sqlx::query!("SELECT reason, started_by, started_at FROM maintenance")
            .fetch_optional(&self.steps)
            .await?;
        Ok(row.map(|row| Maintenance {
            reason: row.reason,
            started_by: row.started_by,
            started_at: row.started_at,
        }))
    }

    /// Starts maintenance, or changes its reason and person.
    pub async fn start_maintenance(&self, reason: &str, by: &Name, at: Timestamp) -> Result<()> {
        sqlx::query!(
            "INSERT INTO maintenance (reason, started_by, started_at) VALUES ($1, $2, $3)
             ON CONFLICT (only_row) DO UPDATE SET
                reason = excluded.reason, started_by = excluded.started_by",
            reason,
            by.as_str(),
            at,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Ends maintenance. Returns `false` if there is none.
    pub async fn end_maintenance(&self) -> Result<bool> {
        let ended = sqlx::query!("DELETE FROM maintenance").execute(&self.steps).await?;
        Ok(ended.rows_affected() > 0)
    }
}
