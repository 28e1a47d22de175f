//! Databases on a real PostgreSQL, one for each test, and a server that tests can kill.

mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use tamma_store::Store;

use crate::shared_server;

pub use server::{PostgresServer, PsqlSession};

/// Script that starts a server. It can also be run on its own.
const SCRIPT: &str = include_str!("postgres.sh");

/// Age in seconds after which a database of a killed test is dropped by a later run.
const STALE_SECONDS: u64 = 3600;

const PREFIX: &str = "tamma_test_";

/// Database of one test. It is dropped with this guard.
#[derive(Debug)]
pub struct TestDatabase {
    server: String,
    name: String,
}

/// Returns the server's URL: `TAMMA_TEST_POSTGRES`, or a server started for this test run.
pub fn server_url() -> Result<String> {
    match std::env::var("TAMMA_TEST_POSTGRES") {
        Ok(url) if !url.is_empty() => Ok(url),
        _ => shared_server::shared_address("postgres", SCRIPT),
    }
}

impl TestDatabase {
    /// Creates a migrated database without data.
    pub async fn fresh() -> Result<Self> {
        let server = server_url()?;
        let template = template(&server).await?;
        let it = Self::named(server);
        // PostgreSQL refuses to copy a template while another copy is in progress.
        let _one_at_a_time = shared_server::lock("copy")?;
        tamma_store::create_database(&it.server, &it.name, Some(&template)).await?;
        Ok(it)
    }

    /// Creates a database without tables.
    pub async fn empty() -> Result<Self> {
        let it = Self::named(server_url()?);
        tamma_store::create_database(&it.server, &it.name, None).await?;
        Ok(it)
    }

    fn named(server: String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}_{}_{count}", now(), std::process::id());
        Self { server, name }
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        database_url(&self.server, &self.name)
    }

    /// Opens a store on it.
    pub async fn store(&self) -> Result<Store> {
        Ok(Store::connect(&self.url()).await?)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // Uses its own thread, as this one may be inside a runtime. A later run drops what remains.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                drop(runtime.block_on(tamma_store::drop_database(&server, &name)));
            }
        });
        drop(dropping.join());
    }
}

/// Returns the URL of a database on a server.
fn database_url(server: &str, name: &str) -> String {
    let (address, options) = match server.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (server, String::new()),
    };
    let from = address.find("://").map_or(0, |at| at + 3);
    let end = address[from..].find('/').map_or(address.len(), |at| from + at);
    format!("{}/{name}{options}", &address[..end])
}

/// Returns the name of the migrated template, and creates it if necessary. Changed migrations have
/// another template.
async fn template(server: &str) -> Result<String> {
    let schema = tamma_store::schema_digest().short();
    let name = format!("tamma_template_{schema}");
    let _alone = shared_server::lock("template")?;
    if tamma_store::list_databases(server, &name).await?.contains(&name) {
        return Ok(name);
    }
    drop_stale_databases(server).await?;
    // It gets its final name when it is complete.
    let unfinished = format!("tamma_unfinished_{schema}");
    tamma_store::drop_database(server, &unfinished).await?;
    tamma_store::create_database(server, &unfinished, None).await?;
    let store = Store::connect(&database_url(server, &unfinished)).await?;
    store.migrate().await.context("cannot migrate the template")?;
    store.close().await;
    tamma_store::rename_database(server, &unfinished, &name).await?;
    Ok(name)
}

/// Drops databases that killed tests left behind.
async fn drop_stale_databases(server: &str) -> Result<()> {
    for name in tamma_store::list_databases(server, PREFIX).await? {
        let made = name[PREFIX.len()..].split('_').next().and_then(|made| made.parse::<u64>().ok());
        let made = made.ok_or_else(|| anyhow!("`{name}` does not contain a timestamp"))?;
        if made + STALE_SECONDS < now() {
            tamma_store::drop_database(server, &name).await?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the age of a database is in its name")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or_default()
}
