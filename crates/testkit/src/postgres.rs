//! A database for each test, on a real PostgreSQL; and a server that a test may kill.

mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use tamma_store::Store;

use crate::shared;

pub use server::{Server, Session};

/// The script that starts a server. It is also of use by itself.
pub const SCRIPT: &str = include_str!("postgres.sh");

/// How old a database left behind by a killed test is before a later run drops it.
const LEFT_BEHIND_SECONDS: u64 = 3600;

const PREFIX: &str = "tamma_test_";

/// A database of a test's own. It is dropped with this guard.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
}

/// The URL of the server: from `TAMMA_TEST_POSTGRES`, or of one that is started for the run.
pub fn server() -> Result<String> {
    match std::env::var("TAMMA_TEST_POSTGRES") {
        Ok(url) if !url.is_empty() => Ok(url),
        _ => shared::address("postgres", SCRIPT),
    }
}

impl Database {
    /// A new database with all tables and nothing in them.
    pub async fn fresh() -> Result<Self> {
        let server = server()?;
        let template = template(&server).await?;
        let it = Self::named(server);
        // Copying refuses while another copy is being made at that very moment.
        let _one_at_a_time = shared::lock("copy")?;
        tamma_store::create_database(&it.server, &it.name, Some(&template)).await?;
        Ok(it)
    }

    /// A new database without any table.
    pub async fn empty() -> Result<Self> {
        let it = Self::named(server()?);
        tamma_store::create_database(&it.server, &it.name, None).await?;
        Ok(it)
    }

    fn named(server: String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}_{}_{count}", now(), std::process::id());
        Self { server, name }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        within(&self.server, &self.name)
    }

    /// A store on it.
    pub async fn store(&self) -> Result<Store> {
        Ok(Store::connect(&self.url()).await?)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // On a thread of its own: this one may be inside a runtime. What cannot be dropped now is
        // dropped by a later run.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                drop(runtime.block_on(tamma_store::drop_database(&server, &name)));
            }
        });
        drop(dropping.join());
    }
}

/// The URL of a database of a server.
fn within(server: &str, name: &str) -> String {
    let (address, options) = match server.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (server, String::new()),
    };
    let from = address.find("://").map_or(0, |at| at + 3);
    let end = address[from..].find('/').map_or(address.len(), |at| from + at);
    format!("{}/{name}{options}", &address[..end])
}

/// The name of the template, made and migrated if it is not there. A change of the migrations
/// makes another one.
async fn template(server: &str) -> Result<String> {
    let schema = tamma_store::schema().short();
    let name = format!("tamma_template_{schema}");
    let _alone = shared::lock("template")?;
    if tamma_store::databases(server, &name).await?.contains(&name) {
        return Ok(name);
    }
    sweep(server).await?;
    // It gets its name when it is whole.
    let unfinished = format!("tamma_unfinished_{schema}");
    tamma_store::drop_database(server, &unfinished).await?;
    tamma_store::create_database(server, &unfinished, None).await?;
    let store = Store::connect(&within(server, &unfinished)).await?;
    store.migrate().await.context("the template is migrated")?;
    store.close().await;
    tamma_store::rename_database(server, &unfinished, &name).await?;
    Ok(name)
}

/// Drops what killed tests left behind.
async fn sweep(server: &str) -> Result<()> {
    for name in tamma_store::databases(server, PREFIX).await? {
        let made = name[PREFIX.len()..].split('_').next().and_then(|made| made.parse::<u64>().ok());
        let made = made.ok_or_else(|| anyhow!("`{name}` has no time in it"))?;
        if made + LEFT_BEHIND_SECONDS < now() {
            tamma_store::drop_database(server, &name).await?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "old databases are told by the time in their name")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or_default()
}
