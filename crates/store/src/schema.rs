//! Version of the database schema, and the programs that can use it.
//!
//! A release expands the schema, and a later one removes what no program uses any more. In between,
//! old and new programs share the database: an old one accepts a newer schema that is declared
//! compatible in `schema_compatibility`. Only [`Store::migrate`] changes the schema.
//!
//! An upgrade is finished when no program of the old version is left ([`Store::finish_upgrade`]). Until
//! then, new tasks behave as the old version knows them (`tamma_core::version::NewTaskBehaviour`).

use std::collections::BTreeMap;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tamma_core::ids::Digest;

use crate::Store;
use crate::error::{Error, Result};
use crate::workers::Worker;

static MIGRATIONS: Migrator = sqlx::migrate!();

/// Schema of a database, compared with the one that this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaStatus {
    /// All migrations that this program knows are applied, and no others.
    Current,
    /// Newer migrations are applied, and this program can use the schema.
    NewerCompatible,
    /// Migrations of this program are missing.
    Behind {
        /// Number of missing migrations.
        missing: usize,
    },
    /// The schema needs a newer program.
    TooNew {
        /// Oldest version of the schema that a program must know.
        oldest: i64,
        /// Newest version that this program knows.
        known: i64,
    },
    /// An applied migration differs from the one that this program knows.
    Changed {
        /// Version of the migration.
        version: i64,
    },
}

/// Result of a request to finish an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeFinish {
    /// From now on, programs must know this version of the schema.
    Finished {
        /// Newest version that this program knows.
        schema: i64,
    },
    /// Programs of an older version are online. Nothing has changed.
    OlderPrograms {
        /// Names of servers.
        servers: Vec<String>,
        /// Names of workers.
        workers: Vec<String>,
    },
}

impl Store {
    /// Compares the schema of the database with the one that this program knows.
    pub async fn schema_status(&self) -> Result<SchemaStatus> {
        // Neither table exists in an empty database, so these queries are not checked at build time.
        let applied: Vec<(i64, Vec<u8>)> = or_empty(
            sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations WHERE success")
                .fetch_all(&self.steps)
                .await,
        )?;
        let oldest: Vec<(i64,)> = or_empty(
            sqlx::query_as("SELECT oldest_version FROM schema_compatibility")
                .fetch_all(&self.steps)
                .await,
        )?;
        let known: Vec<(i64, &[u8])> =
            MIGRATIONS.iter().map(|it| (it.version, it.checksum.as_ref())).collect();
        Ok(compare(&known, &applied.into_iter().collect(), oldest.first().map(|it| it.0)))
    }

    /// Checks that this program can use the schema as it is.
    pub async fn check_schema(&self) -> Result<()> {
        usable(self.schema_status().await?)
    }

    /// Runs database migrations. Several processes can call this at once. If a table is in use for too
    /// long, the error is retryable: the next call continues where this one stopped.
    pub async fn migrate(&self) -> Result<()> {
        let status = self.schema_status().await?;
        let SchemaStatus::Behind { missing } = status else { return usable(status) };
        let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().cloned().collect());
        // A newer program may have migrated the database too.
        migrator.set_ignore_missing(true);
        // A migrator that fails keeps its lock until its connection is closed, so it has one of its own.
        let options = PgConnectOptions::clone(&self.steps.connect_options());
        let connection = PgPoolOptions::new().max_connections(1).connect_with(options).await?;
        let result = migrator.run(&connection).await;
        connection.close().await;
        result?;
        if missing == MIGRATIONS.iter().count() {
            // No program has used an empty database, so there is no upgrade to finish.
            self.require_schema(newest_version()).await?;
        }
        Ok(())
    }

    /// Returns the oldest version of the schema that a program must know.
    pub async fn oldest_schema(&self) -> Result<i64> {
        Ok(sqlx::query_scalar!("SELECT oldest_version FROM schema_compatibility")
            .fetch_one(&self.steps)
            .await?)
    }

    /// Returns `true` if no program of an older version can run.
    pub async fn is_upgrade_finished(&self) -> Result<bool> {
        Ok(self.oldest_schema().await? >= newest_version())
    }

    /// Finishes an upgrade to this version, unless an older program is online: from now on,
    /// programs that do not know its schema refuse to start, and new tasks can use everything it brings.
    pub async fn finish_upgrade(&self) -> Result<UpgradeFinish> {
        self.check_schema().await?;
        let schema = newest_version();
        let is_older = |(worker, is_online): &(Worker, bool)| {
            *is_online && worker.schema_version.is_none_or(|version| version < schema)
        };
        let older = self.workers().await?.into_iter().filter(is_older);
        let workers: Vec<_> = older.map(|(worker, _)| worker.name).collect();
        let servers = self.older_servers(schema).await?;
        if !servers.is_empty() || !workers.is_empty() {
            return Ok(UpgradeFinish::OlderPrograms { servers, workers });
        }
        self.require_schema(schema).await?;
        Ok(UpgradeFinish::Finished { schema })
    }

    /// Requires that programs know a version of the schema. It never falls.
    async fn require_schema(&self, version: i64) -> Result<()> {
        sqlx::query!(
            "UPDATE schema_compatibility SET oldest_version = $1 WHERE oldest_version < $1",
            version
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }
}

/// Returns the newest version of the schema that this program knows.
pub(crate) fn newest_version() -> i64 {
    MIGRATIONS.iter().map(|it| it.version).max().unwrap_or_default()
}

/// Returns the digest of all migrations, which identifies the schema.
pub fn schema_digest() -> Digest {
    let sums: Vec<u8> = MIGRATIONS.iter().flat_map(|each| each.checksum.iter().copied()).collect();
    Digest::of(&sums)
}

fn usable(status: SchemaStatus) -> Result<()> {
    match status {
        SchemaStatus::Current | SchemaStatus::NewerCompatible => Ok(()),
        SchemaStatus::Behind { missing } => Err(Error::SchemaBehind { missing }),
        SchemaStatus::TooNew { oldest, known } => Err(Error::SchemaTooNew { oldest, known }),
        SchemaStatus::Changed { version } => Err(Error::SchemaChanged { version }),
    }
}

fn compare(
    known: &[(i64, &[u8])],
    applied: &BTreeMap<i64, Vec<u8>>,
    oldest: Option<i64>,
) -> SchemaStatus {
    let changed = known
        .iter()
        .find(|(version, sum)| applied.get(version).is_some_and(|applied| applied != sum));
    if let Some((version, _)) = changed {
        return SchemaStatus::Changed { version: *version };
    }
    let newest = known.iter().map(|it| it.0).max().unwrap_or_default();
    let is_newer = applied.keys().any(|version| known.iter().all(|it| it.0 != *version));
    // A schema that declares nothing is older than the declaration.
    let oldest = oldest.unwrap_or_default();
    if is_newer && oldest > newest {
        return SchemaStatus::TooNew { oldest, known: newest };
    }
    let missing = known.iter().filter(|it| !applied.contains_key(&it.0)).count();
    match missing {
        0 if is_newer => SchemaStatus::NewerCompatible,
        0 => SchemaStatus::Current,
        missing => SchemaStatus::Behind { missing },
    }
}

/// Returns no rows if the table does not exist.
fn or_empty<T>(rows: sqlx::Result<Vec<T>>) -> Result<Vec<T>> {
    match rows {
        // undefined_table
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => {
            Ok(Vec::new())
        }
        rows => Ok(rows?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_schema_is_accepted_only_while_it_is_declared_compatible() {
        let known: [(i64, &[u8]); 2] = [(1, b"a"), (40, b"b")];
        let applied = |versions: &[(i64, &str)]| {
            versions.iter().map(|(version, sum)| (*version, sum.as_bytes().to_vec())).collect()
        };
        let status = |versions: &[(i64, &str)], oldest| compare(&known, &applied(versions), oldest);
        let both = [(1, "a"), (40, "b")];
        assert_eq!(status(&both, Some(40)), SchemaStatus::Current);
        assert_eq!(status(&[], None), SchemaStatus::Behind { missing: 2 });
        assert_eq!(status(&both[..1], None), SchemaStatus::Behind { missing: 1 });
        let newer = [(1, "a"), (40, "b"), (41, "c")];
        assert_eq!(status(&newer, Some(40)), SchemaStatus::NewerCompatible);
        let too_new = SchemaStatus::TooNew { oldest: 41, known: 40 };
        assert_eq!(status(&newer, Some(41)), too_new);
        // A lower number that another branch has added is as unknown as a higher one.
        assert_eq!(
            status(&[(1, "a"), (13, "c"), (40, "b")], Some(40)),
            SchemaStatus::NewerCompatible
        );
        assert_eq!(status(&[(1, "x"), (40, "b")], Some(40)), SchemaStatus::Changed { version: 1 });
    }
}
