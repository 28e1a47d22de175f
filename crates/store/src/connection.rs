//! The way to the database.
//!
//! A pool waits a limited time for a free connection and makes new ones where old ones broke.
//! Statements are not repeated; that is the caller's decision.

use std::str::FromStr;
use std::time::Duration;

use chrono::{Months, NaiveDate};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};
use tamma_core::ids::Digest;

use crate::error::Result;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!();

/// How many connections a process has for each of its two kinds of work, unless told otherwise.
const CONNECTIONS: u32 = 10;

/// How long a connection rests before it is asked whether it still works. Shorter than a server
/// needs to start again, so that its restart costs nobody a statement.
const RESTED: Duration = Duration::from_millis(500);

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    /// For steps and single rows: the statements are few, and planned once.
    pub(crate) steps: PgPool,
    /// For lists: what is asked for differs so much that each is planned by itself.
    pub(crate) lists: PgPool,
}

impl Store {
    /// Connects to a database, such as `postgres://tamma@localhost/tamma`.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, CONNECTIONS).await
    }

    /// Connects with at most so many connections for steps, and as many for lists.
    pub async fn connect_with(url: &str, connections: u32) -> Result<Self> {
        let options = PgConnectOptions::from_str(url)?.application_name("tamma");
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(10))
            // A connection that broke while it was in use is found out by the statement, which costs
            // no round trip. One that has rested may have lost its server meanwhile, and is asked.
            .test_before_acquire(false)
            .before_acquire(|connection, resting| {
                Box::pin(async move {
                    if resting.idle_for > RESTED {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            });
        let lists = options.clone().options([("plan_cache_mode", "force_custom_plan")]);
        Ok(Self {
            lists: pool.clone().connect_lazy_with(lists),
            steps: pool.connect_with(options).await?,
        })
    }

    /// Brings the tables to the newest form. Several programs may do so at once.
    pub async fn migrate(&self) -> Result<()> {
        Ok(MIGRATIONS.run(&self.steps).await?)
    }

    /// Makes the log's partitions for a day's month and so many months after it; returns how many
    /// were missing. To be called from time to time, well ahead.
    pub async fn ensure_partitions(&self, today: NaiveDate, months: u32) -> Result<u32> {
        let last = today.checked_add_months(Months::new(months)).unwrap_or(today);
        let made =
            sqlx::query_scalar!(r#"SELECT ensure_partitions($1, $2) AS "made!""#, today, last)
                .fetch_one(&self.steps)
                .await?;
        Ok(u32::try_from(made).unwrap_or_default())
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        Ok(self.steps.acquire().await?.ping().await?)
    }

    /// Waits until every connection is given back, and closes them.
    pub async fn close(&self) {
        self.steps.close().await;
        self.lists.close().await;
    }
}

/// What identifies the form of the tables: the same for the same migrations.
pub fn schema() -> Digest {
    let sums: Vec<u8> = MIGRATIONS.iter().flat_map(|each| each.checksum.iter().copied()).collect();
    Digest::of(&sums)
}

/// Makes a database on the server that a URL leads to, as a copy of another if one is named.
/// Returns whether it was made: one that is there is left as it is.
pub async fn create_database(url: &str, name: &str, template: Option<&str>) -> Result<bool> {
    let mut connection = PgConnection::connect(url).await?;
    let from = template.map(|template| format!(" TEMPLATE {}", quoted(template)));
    let made = run(
        &mut connection,
        format!("CREATE DATABASE {}{}", quoted(name), from.unwrap_or_default()),
    )
    .await;
    connection.close().await?;
    match made {
        // duplicate_database
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P04") => Ok(false),
        // Two that make the same one meet in the catalogue's own key.
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
        made => Ok(made.map(|()| true)?),
    }
}

/// Gives a database another name. Nobody may be connected to it.
pub async fn rename_database(url: &str, from: &str, to: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let sql = format!("ALTER DATABASE {} RENAME TO {}", quoted(from), quoted(to));
    run(&mut connection, sql).await?;
    Ok(connection.close().await?)
}

/// Removes a database, if it is there, and whoever is connected to it.
pub async fn drop_database(url: &str, name: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    run(&mut connection, format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quoted(name))).await?;
    Ok(connection.close().await?)
}

/// The names of a server's databases that begin with a text.
pub async fn databases(url: &str, prefix: &str) -> Result<Vec<String>> {
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

/// The one place that runs SQL put together at run time: PostgreSQL takes no parameter where these
/// statements have a name, so the name is quoted.
async fn run(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\0', "").replace('"', "\"\""))
}
