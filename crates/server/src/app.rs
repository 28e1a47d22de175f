//! The use cases: what can be asked of Tamma, whoever asks and however.
//!
//! Nothing here tries again. What is worth another try is an [`Error::Unavailable`] or an
//! [`Error::NoAnswer`], and the client has the policy for it.

mod add;
mod ask;
mod change;
mod chat;
mod knowledge;
mod people;
mod projects;
mod read;
mod report;
mod rights;
mod rules;
mod runs;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use tamma_core::rules::{Right, Standing};
use tamma_flow::Pace;
use tamma_store::{Library, Objects, Store};
use temporalio_client::Client;

pub(crate) use change::Said;
pub(crate) use chat::Chats;
pub(crate) use read::{Cursor, Window};
pub(crate) use rights::{By, Known};
pub(crate) use runs::which;

use crate::live::Live;
use crate::problem::{Fault, Problem};
use crate::server::Look;

/// How long the durable engine has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Everything the use cases need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) temporal: Client,
    pub(crate) environment: std::sync::Arc<BTreeMap<String, String>>,
    pub(crate) pace: Pace,
    pub(crate) objects: Objects,
    pub(crate) live: Live,
    pub(crate) chats: Chats,
    pub(crate) library: Library,
    pub(crate) look: Option<Look>,
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why something that was asked was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no such thing.
    #[error("There is no {what} `{key}`.")]
    NotFound {
        /// What kind of thing.
        what: &'static str,
        /// What was asked for.
        key: String,
    },
    /// What was given does not make sense.
    #[error("{detail}")]
    Invalid {
        /// What is wrong.
        detail: String,
        /// What would be right.
        what_to_do: String,
    },
    /// The project's configuration is broken.
    #[error("{file} has {} in it, so no task can be added to the project.", mistakes(.faults))]
    Rules {
        /// The file.
        file: String,
        /// What is wrong with it.
        faults: Vec<Fault>,
    },
    /// The person may not.
    #[error("{by} is a {standing} here and may not {right}.")]
    Forbidden {
        /// Who.
        by: String,
        /// What it takes.
        right: Right,
        /// What they are.
        standing: Standing,
    },
    /// It is only for those who run this server.
    #[error("Only whoever has this server's own token may do that.")]
    NotOperator,
    /// It cannot be told what anybody may do.
    #[error("{why} So it cannot be told what you may do, and nothing is done.")]
    Unruled {
        /// Why not.
        why: String,
        /// What is wrong with the file.
        faults: Vec<Fault>,
    },
    /// The machine says no.
    #[error("{0}")]
    Refused(String),
    /// There is something that a person should look at twice before they approve it.
    #[error("There is something to look at twice: {}.", .0.join("; "))]
    Doubtful(Vec<String>),
    /// What they decided about is not there any more.
    #[error("The {what} is now {now}, not {seen}: it has changed since you saw it.")]
    Changed {
        /// A plan or a commit.
        what: &'static str,
        /// The first digits of what they saw.
        seen: String,
        /// The first digits of what is there.
        now: String,
    },
    /// The workflow of the task did not answer in time.
    #[error("The loop did not answer within {} seconds.", PATIENCE.as_secs())]
    NoAnswer,
    /// Something that is needed cannot be reached.
    #[error("{what} cannot be reached at the moment.")]
    Unavailable {
        /// What.
        what: &'static str,
        /// Why; for the log only.
        source: Source,
    },
    /// What is wanted is there, and not here.
    #[error("It is kept at `{place}`, which cannot be read from where this server runs.")]
    Elsewhere {
        /// Where.
        place: String,
        /// Why not; for the log only.
        source: Source,
    },
    /// Something stored cannot be read.
    #[error("The stored {what} of `{key}` cannot be read.")]
    Damaged {
        /// What.
        what: &'static str,
        /// Whose.
        key: String,
        /// Why; for the log only.
        source: Source,
    },
    /// A fault of ours.
    #[error("Tamma made a mistake; its log says which.")]
    Fault(#[source] Source),
}

fn mistakes(faults: &[Fault]) -> String {
    match faults.len() {
        1 => "a mistake".to_owned(),
        several => format!("{several} mistakes"),
    }
}

impl Error {
    pub(crate) fn invalid(detail: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::Invalid { detail: detail.into(), what_to_do: what_to_do.into() }
    }
}

impl From<tamma_store::Error> for Error {
    fn from(error: tamma_store::Error) -> Self {
        use tamma_store::Error as E;
        match error {
            E::NotFound { what, key } => Self::NotFound { what, key },
            E::Conflict(conflict) => Self::Fault(conflict.into()),
            E::Corrupt(damage) => {
                Self::Damaged { what: damage.what, key: damage.key.clone(), source: damage.into() }
            }
            E::Objects { place, source } => Self::Elsewhere { place, source },
            error if error.is_retryable() => {
                Self::Unavailable { what: "The database", source: error.into() }
            }
            error => Self::Fault(error.into()),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::NotFound { .. } => {
                Self::new(StatusCode::NOT_FOUND, "not-found", "There is no such thing", detail)
            }
            Error::Invalid { what_to_do, .. } => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Self::new(status, "invalid", "The request does not make sense", detail)
                    .hint(what_to_do)
            }
            Error::Rules { faults, .. } => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                let title = "The project's configuration has mistakes in it";
                let hint = "Run `tamma config check` in the repository, mend the file, and add the \
                            task again.";
                let problem = Self::new(status, "configuration", title, detail).hint(hint);
                Self { problems: faults, ..problem }
            }
            Error::Forbidden { .. } => {
                let title = "You may not do that";
                Self::new(StatusCode::FORBIDDEN, "forbidden", title, detail)
                    .hint("Ask somebody who may; `people` in `tamma.yaml` says who.")
            }
            Error::NotOperator => {
                let title = "You may not do that";
                Self::new(StatusCode::FORBIDDEN, "operator", title, detail)
                    .hint("Ask whoever runs the server, or set TAMMA_TOKEN to its own token.")
            }
            Error::Unruled { faults, .. } => {
                let title = "The project's configuration has mistakes in it";
                let hint = "Run `tamma config check` in the repository, and mend the file. Until \
                            then whoever has the server's own token may pause and cancel.";
                let problem = Self::new(StatusCode::CONFLICT, "unruled", title, detail).hint(hint);
                Self { problems: faults, ..problem }
            }
            Error::Refused(_) => {
                let title = "That cannot be done now";
                Self::new(StatusCode::CONFLICT, "refused", title, detail)
            }
            Error::Doubtful(_) => {
                let title = "It is not approved just so";
                Self::new(StatusCode::CONFLICT, "doubtful", title, detail).hint(
                    "Edit the entry; or approve it with `despite` (`--despite`), if you have looked.",
                )
            }
            Error::Changed { what, .. } => {
                let title = "It has changed since you saw it";
                Self::new(StatusCode::CONFLICT, "changed", title, detail)
                    .hint(format!("Look at the new {what}, and decide about that one."))
            }
            Error::NoAnswer => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "no-answer", "The loop did not answer", detail).hint(
                    "Is a worker running? Start one with `tamma up` or `tamma work`, and ask \
                     again: asking twice does no harm.",
                )
            }
            Error::Unavailable { what, source } => {
                tracing::warn!(what, error = chain(&*source), "not available");
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "unavailable", "Something is not available", detail)
                    .hint("Ask again in a moment. `tamma doctor` says what is missing.")
            }
            Error::Elsewhere { place, source } => {
                tracing::warn!(place, error = chain(&*source), "objects cannot be read");
                let title = "It cannot be read from here";
                Self::new(StatusCode::NOT_FOUND, "elsewhere", title, detail).hint(
                    "Read it on the worker's machine, or start the server with the same objects \
                     as the workers: `--objects`, TAMMA_OBJECTS.",
                )
            }
            Error::Damaged { what, key, source } => {
                tracing::error!(what, key, error = chain(&*source), "damaged");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "damaged", "Something stored cannot be read", detail).hint(
                    "A newer Tamma may have written it: upgrade this server. The log of the server \
                     says more.",
                )
            }
            Error::Fault(source) => {
                tracing::error!(error = chain(&*source), "a fault of ours");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "fault", "Tamma made a mistake", detail)
                    .hint("Please report it, with what the log of the server says.")
            }
        }
    }
}

/// An error with its sources, for the log.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
