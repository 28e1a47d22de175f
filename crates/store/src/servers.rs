//! Servers that report to the database, so that an upgrade is not finished while an old one runs.

use crate::connection::Store;
use crate::error::Result;
use crate::schema::newest_version;
use crate::workers::ONLINE_TIMEOUT;

impl Store {
    /// Records a heartbeat of a server, with the version of the schema that its program knows.
    pub async fn record_server(&self, name: &str) -> Result<()> {
        // Servers that died without signing off are removed after a day.
        sqlx::query!(
            "WITH gone AS (
                DELETE FROM servers
                WHERE seen_at < clock_timestamp() - interval '1 day' AND name <> $1
             )
             INSERT INTO servers (name, schema_version, started_at, seen_at)
             VALUES ($1, $2, clock_timestamp(), clock_timestamp())
             ON CONFLICT (name) DO UPDATE SET
                schema_version = excluded.schema_version, seen_at = excluded.seen_at",
            name,
            newest_version(),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Removes a server that shuts down.
    pub async fn remove_server(&self, name: &str) -> Result<()> {
        sqlx::query!("DELETE FROM servers WHERE name = $1", name).execute(&self.steps).await?;
        Ok(())
    }

    /// Returns the names of servers that are online and do not know a version of the schema.
    pub(crate) async fn older_servers(&self, schema: i64) -> Result<Vec<String>> {
        let rows = sqlx::query!(
            "SELECT name, seen_at, clock_timestamp() AS \"now!\"
             FROM servers WHERE schema_version < $1 ORDER BY name",
            schema
        )
        .fetch_all(&self.steps)
        .await?;
        let online = rows.into_iter().filter(|row| row.now - row.seen_at <= ONLINE_TIMEOUT);
        Ok(online.map(|row| row.name).collect())
    }
}
