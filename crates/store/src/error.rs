//! Errors of the store, grouped by the caller's options.
//!
//! The store never retries. [`Error::Unavailable`] is worth a retry, and each caller has its own
//! policy: Temporal retries activities, a person repeats a command.

use std::error::Error as StdError;

use tamma_core::ids::{KnowledgeId, TaskId};

type BoxedError = Box<dyn StdError + Send + Sync>;

/// Failure of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Requested item does not exist.
    #[error("{what} `{key}` not found")]
    NotFound {
        /// Type of the item, such as `task`.
        what: &'static str,
        /// Key that was looked up.
        key: String,
    },
    /// Stored data contradicts the write; nothing was written.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Database unreachable or overloaded. A retry may succeed.
    #[error("the database is unavailable")]
    Unavailable(#[source] BoxedError),
    /// Migrations of this program are missing in the database.
    #[error(
        "the database schema is older than this version of Tamma ({missing} migrations are missing); \
         run `tamma migrate` with this version, then start again"
    )]
    SchemaBehind {
        /// Number of missing migrations.
        missing: usize,
    },
    /// The schema needs a newer program.
    #[error(
        "the database needs a newer version of Tamma: it requires schema {oldest}, and this version \
         knows {known}; upgrade this program, or restore the backup from before the migration"
    )]
    SchemaTooNew {
        /// Oldest version of the schema that a program must know.
        oldest: i64,
        /// Newest version that this program knows.
        known: i64,
    },
    /// An applied migration differs from the one of this program.
    #[error(
        "migration {version} of the database differs from the one of this version of Tamma; use the \
         version that migrated the database, or another database"
    )]
    SchemaChanged {
        /// Version of the migration.
        version: i64,
    },
    /// Stored data cannot be decoded.
    #[error("cannot read the stored {} of `{}`", .0.what, .0.key)]
    Corrupt(#[source] CorruptData),
    /// Object storage failed.
    #[error("cannot access object storage at `{place}`; check that this machine can reach it")]
    Objects {
        /// Folder of the object storage.
        place: String,
        /// Cause of the failure.
        #[source]
        source: BoxedError,
    },
    /// Database rejected a statement, which is a bug in Tamma.
    #[error("the database rejected a statement")]
    Refused(#[source] BoxedError),
}

/// Contradiction between stored data and a write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// Offered steps are older than the stored ones.
    #[error("step {offered} of task {task} is stale: step {stored} is already stored")]
    StaleStep {
        /// Task that the steps belong to.
        task: TaskId,
        /// Last stored step.
        stored: u64,
        /// Last offered step.
        offered: u64,
    },
    /// Steps are missing between the stored and the offered ones.
    #[error("cannot write step {offered} of task {task}: the last stored step is {stored}")]
    MissingSteps {
        /// Task that the steps belong to.
        task: TaskId,
        /// Last stored step.
        stored: u64,
        /// First offered step.
        offered: u64,
    },
    /// Same steps are stored with different content: another workflow of the task wrote them.
    #[error("step {step} of task {task} is already stored with different content")]
    OtherHistory {
        /// Task that the step belongs to.
        task: TaskId,
        /// Last offered step.
        step: u64,
    },
    /// Same step is stored with a different number of history entries.
    #[error(
        "step {step} of task {task} is already stored with {stored} history entries instead of {offered}"
    )]
    DifferentStep {
        /// Task that the step belongs to.
        task: TaskId,
        /// Number of the step.
        step: u64,
        /// Length of the stored history.
        stored: u64,
        /// Length that the history would have with the offered step.
        offered: u64,
    },
    /// Offered steps are not consecutive, or belong to several tasks.
    #[error("steps are out of order: {0}")]
    OutOfOrder(&'static str),
    /// Same plan version is stored with different content.
    #[error("plan {version} of task {task} is already stored with different content")]
    DifferentPlan {
        /// Task that the plan belongs to.
        task: TaskId,
        /// Version of the plan.
        version: u32,
    },
    /// Entry was changed after the caller read it.
    #[error("knowledge entry {entry} has changed since you read it; reload it and try again")]
    KnowledgeChanged {
        /// ID of the entry.
        entry: KnowledgeId,
    },
    /// Unique or foreign key constraint was violated.
    #[error("constraint `{0}` is violated")]
    Constraint(String),
}

impl Conflict {
    /// Returns `true` if the stored history of a task is not the one that the writer continues.
    pub fn is_divergence(&self) -> bool {
        match self {
            Self::MissingSteps { .. } | Self::OtherHistory { .. } | Self::DifferentStep { .. } => {
                true
            }
            Self::StaleStep { .. }
            | Self::OutOfOrder(_)
            | Self::DifferentPlan { .. }
            | Self::KnowledgeChanged { .. }
            | Self::Constraint(_) => false,
        }
    }
}

/// Stored value that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CorruptData {
    /// Type of the item that the value belongs to.
    pub what: &'static str,
    /// Key of that item; empty until the caller adds it.
    pub key: String,
    /// Reason for the failure.
    pub reason: String,
}

impl Error {
    /// Returns `true` if a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::error::ErrorKind;
        if is_unavailable(&error) {
            return Self::Unavailable(error.into());
        }
        match &error {
            sqlx::Error::Database(database) => match database.kind() {
                ErrorKind::UniqueViolation | ErrorKind::ForeignKeyViolation => {
                    let name = database.constraint().unwrap_or("unnamed constraint");
                    Conflict::Constraint(name.to_owned()).into()
                }
                _ => Self::Refused(error.into()),
            },
            _ => Self::Refused(error.into()),
        }
    }
}

/// Returns `true` if a retry may succeed.
fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        // Raised when a connection breaks in the middle of a message.
        | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(database) => is_transient(&database.code().unwrap_or_default()),
        _ => false,
    }
}

/// Returns `true` for PostgreSQL conditions that pass without intervention: lost connections,
/// restarts, exhausted resources, deadlocks and serialisation failures.
fn is_transient(code: &str) -> bool {
    let class = code.get(..2).unwrap_or_default();
    matches!(class, "08" | "53" | "57" | "58") || matches!(code, "40001" | "40P01" | "55P03")
}

impl From<sqlx::migrate::MigrateError> for Error {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        // The error of a migration has its number.
        if matches!(&error, MigrateError::ExecuteMigration(cause, _) if is_unavailable(cause)) {
            return Self::Unavailable(error.into());
        }
        match error {
            MigrateError::Execute(error) => error.into(),
            other => Self::Refused(other.into()),
        }
    }
}

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;
