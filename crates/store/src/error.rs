//! What can go wrong, by what the caller can do about it.
//!
//! Nothing here tries again. [`Error::Unavailable`] is worth another try, and whoever called has
//! the policy for it: the durable loop for its writes, a person for a command.

use std::error::Error as StdError;

use tamma_core::ids::{KnowledgeId, TaskId};

type Source = Box<dyn StdError + Send + Sync>;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such thing.
    #[error("there is no {what} `{key}`")]
    NotFound {
        /// What kind of thing.
        what: &'static str,
        /// What was asked for.
        key: String,
    },
    /// What is there does not go together with what was to be written. Nothing was.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The database cannot be reached or is too busy. Trying again may help.
    #[error("the database is not available")]
    Unavailable(#[source] Source),
    /// What is stored cannot be read.
    #[error("the stored {} of `{}` cannot be read", .0.what, .0.key)]
    Corrupt(#[source] Damage),
    /// The place of large things cannot be used.
    #[error("what is kept at `{place}` cannot be reached from here")]
    Objects {
        /// Where.
        place: String,
        /// Why not.
        #[source]
        source: Source,
    },
    /// The database refused a statement of ours, which is a fault of ours.
    #[error("the database refused a statement")]
    Refused(#[source] Source),
}

/// What does not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// The step is older than what is there.
    #[error("task {task} is at step {stored} already; step {offered} comes too late")]
    Older {
        /// The task.
        task: TaskId,
        /// The last step that is there.
        stored: u64,
        /// The last step that was offered.
        offered: u64,
    },
    /// There are steps missing between what is there and what was offered.
    #[error("task {task} is at step {stored}; step {offered} cannot come next")]
    Gap {
        /// The task.
        task: TaskId,
        /// The last step that is there.
        stored: u64,
        /// The first step that was offered.
        offered: u64,
    },
    /// The step is there, and it is not the same.
    #[error("step {step} of task {task} is there, with {stored} entries instead of {offered}")]
    Different {
        /// The task.
        task: TaskId,
        /// Which step.
        step: u64,
        /// How many entries the log has.
        stored: u64,
        /// How many it would have.
        offered: u64,
    },
    /// The steps that were offered do not follow each other, or belong to several tasks.
    #[error("the steps do not follow each other: {0}")]
    Disorder(&'static str),
    /// That version of a plan is there, with another content.
    #[error("version {version} of the plan of task {task} is there with another content")]
    OtherPlan {
        /// The task.
        task: TaskId,
        /// Which version.
        version: u32,
    },
    /// Somebody has changed an entry meanwhile.
    #[error("somebody has changed the entry {entry} meanwhile: look at it again")]
    KnowledgeChanged {
        /// The entry.
        entry: KnowledgeId,
    },
    /// A name is taken, or something that is referred to is not there.
    #[error("`{0}` does not allow it")]
    Constraint(String),
}

/// Something stored that cannot be read: which, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Damage {
    /// What kind of thing.
    pub what: &'static str,
    /// Whose.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

impl Error {
    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::error::ErrorKind;
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            // The connection broke in the middle of a message.
            | sqlx::Error::Protocol(_) => Self::Unavailable(error.into()),
            sqlx::Error::Database(database) => {
                let code = database.code().unwrap_or_default();
                if is_passing(&code) {
                    return Self::Unavailable(error.into());
                }
                match database.kind() {
                    ErrorKind::UniqueViolation | ErrorKind::ForeignKeyViolation => {
                        let name = database.constraint().unwrap_or("a constraint");
                        Conflict::Constraint(name.to_owned()).into()
                    }
                    _ => Self::Refused(error.into()),
                }
            }
            _ => Self::Refused(error.into()),
        }
    }
}

/// Whether a condition of PostgreSQL passes by itself: lost connections, restarts, too little of
/// something, transactions in each other's way.
fn is_passing(code: &str) -> bool {
    let class = code.get(..2).unwrap_or_default();
    matches!(class, "08" | "53" | "57" | "58") || matches!(code, "40001" | "40P01" | "55P03")
}

impl From<sqlx::migrate::MigrateError> for Error {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        match error {
            sqlx::migrate::MigrateError::Execute(error) => error.into(),
            other => Self::Refused(other.into()),
        }
    }
}

/// The result of asking the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;
