//! Database connections and partitions.
//!
//! A pool waits a limited time for a free connection and replaces broken ones. Callers decide about
//! retries; the store repeats no statement.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{Months, NaiveDate};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, Transaction};
use tamma_core::task_loop::Timestamp;

use crate::error::Result;
use crate::read_filter::ReadFilter;
use crate::row_security::TenantPools;

/// Default size of each of the two connection pools.
const CONNECTIONS: u32 = 10;

/// Idle time after which a connection is pinged before use. It is shorter than a server restart, so
/// that no statement fails after one.
const IDLE_BEFORE_PING: Duration = Duration::from_millis(500);

/// Settings of connections for lists.
pub(crate) const LIST_OPTIONS: [(&str, &str); 1] = [("plan_cache_mode", "force_custom_plan")];

/// Handle to the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    /// Pool for steps, other writes, and what no organisation owns. Its few statements are planned
    /// once.
    pub(crate) steps: PgPool,
    /// Pool for single rows of organisations: that of the steps, or one with row-level security.
    pub(crate) reads: PgPool,
    /// Pool for lists. Their filters differ so much that PostgreSQL plans each query anew.
    pub(crate) lists: PgPool,
    /// Pools with row-level security; `None` if the handle does not use it.
    pub(crate) tenants: Option<Arc<TenantPools>>,
    /// Projects that queries can return.
    pub(crate) filter: ReadFilter,
}

impl Store {
    /// Connects to a database, such as `postgres://tamma@localhost/tamma`.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, CONNECTIONS).await
    }

    /// Connects with at most `connections` connections in each of the two pools.
    pub async fn connect_with(url: &str, connections: u32) -> Result<Self> {
        let options = PgConnectOptions::from_str(url)?.application_name("tamma");
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(10))
            // Skip the ping for recently used connections, as it costs a round trip. An idle
            // connection may have lost its server, so it is pinged.
            .test_before_acquire(false)
            .before_acquire(|connection, resting| {
                Box::pin(async move {
                    if resting.idle_for > IDLE_BEFORE_PING {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            });
        let lists = options.clone().options(LIST_OPTIONS);
        let lists = pool.clone().connect_lazy_with(lists);
        let steps = Box::pin(pool.connect_with(options)).await?;
        let reads = steps.clone();
        Ok(Self { steps, reads, lists, tenants: None, filter: ReadFilter::all() })
    }

    /// Creates the history partitions for the month of `today` and `months` months after it.
    ///
    /// Returns how many were missing. Call it regularly, well ahead of time.
    pub async fn ensure_partitions(&self, today: NaiveDate, months: u32) -> Result<u32> {
        let last = today.checked_add_months(Months::new(months)).unwrap_or(today);
        let made =
            sqlx::query_scalar!(r#"SELECT ensure_partitions($1, $2) AS "made!""#, today, last)
                .fetch_one(&self.steps)
                .await?;
        Ok(u32::try_from(made).unwrap_or_default())
    }

    /// Checks that the database responds.
    pub async fn ping(&self) -> Result<()> {
        Ok(self.steps.acquire().await?.ping().await?)
    }

    /// Returns the time of the database's clock.
    pub async fn database_time(&self) -> Result<Timestamp> {
        Ok(sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "time!""#)
            .fetch_one(&self.steps)
            .await?)
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin_writing(&self) -> Result<Transaction<'static, Postgres>> {
        begin(&self.steps, "BEGIN").await
    }

    /// Waits until all connections are returned, then closes them.
    pub async fn close(&self) {
        if let Some(tenants) = &self.tenants {
            tenants.close().await;
        }
        self.steps.close().await;
        self.lists.close().await;
    }
}

/// Begins a transaction with a statement, even if the caller is dropped meanwhile, as the handler of a
/// request whose client is gone.
///
/// Otherwise, sqlx 0.9.0 would return the connection to the pool with the transaction still open
/// (launchbadge/sqlx#4385), and what others then write on it would never be committed.
#[expect(clippy::disallowed_methods, reason = "the one place that begins transactions")]
pub(crate) async fn begin(
    pool: &PgPool,
    statement: &'static str,
) -> Result<Transaction<'static, Postgres>> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move { pool.begin_with(statement).await });
    // Fails only while the runtime shuts down.
    Ok(begun.await.map_err(|_| sqlx::Error::WorkerCrashed)??)
}

/// Creates a database on the server at `url`, as a copy of `template` if given.
///
/// Returns `false` if the database exists already; it is left unchanged.
pub async fn create_database(url: &str, name: &str, template: Option<&str>) -> Result<bool> {
    let mut connection = PgConnection::connect(url).await?;
    let from = template.map(|template| format!(" TEMPLATE {}", quote(template)));
    let made = execute(
        &mut connection,
        format!("CREATE DATABASE {}{}", quote(name), from.unwrap_or_default()),
    )
    .await;
    connection.close().await?;
    match made {
        // duplicate_database
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P04") => Ok(false),
        // Concurrent creation violates the unique key of the catalogue instead.
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
        made => Ok(made.map(|()| true)?),
    }
}

/// Renames a database. It must have no connections.
pub async fn rename_database(url: &str, from: &str, to: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let sql = format!("ALTER DATABASE {} RENAME TO {}", quote(from), quote(to));
    execute(&mut connection, sql).await?;
    Ok(connection.close().await?)
}

/// Drops a database if it exists, and closes its connections.
pub async fn drop_database(url: &str, name: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    execute(&mut connection, format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quote(name)))
        .await?;
    Ok(connection.close().await?)
}

/// Returns the names of the databases on a server that start with `prefix`.
pub async fn list_databases(url: &str, prefix: &str) -> Result<Vec<String>> {
    let mut connection = PgConnection::connect(url).await?;
    let names = sqlx::query_scalar!(
        r#"SELECT datname::text AS "name!" FROM pg_database WHERE starts_with(datname::text, $1)"#,
        prefix
    )
    .fetch_all(&mut connection)
    .await?;
    connection.close().await?;
    Ok(names)
}

/// Runs SQL built at run time. PostgreSQL takes no parameters for names in these statements, so
/// callers quote the names.
async fn execute(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('\0', "").replace('"', "\"\""))
}
