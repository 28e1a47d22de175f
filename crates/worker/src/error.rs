//! Why a job could not be done.
//!
//! None of these is the end of a job: the durable engine asks again, with growing pauses, unless
//! asking again cannot help. What an agent or a gate came to is an answer, not an error.

use std::path::PathBuf;

use tamma_engine::{delivery, gate, gateway, git, mirror, process};
use tamma_flow::port::FINAL;
use temporalio_common::error::ApplicationFailure;
use temporalio_sdk::activities::ActivityError;

/// Why a job could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store did not do what was asked.
    #[error(transparent)]
    Store(#[from] tamma_store::Error),
    /// The repository could not be used.
    #[error(transparent)]
    Repository(#[from] mirror::Error),
    /// Git could not be used.
    #[error(transparent)]
    Git(#[from] git::Error),
    /// A process could not be recorded or ended.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The gateway could not be opened.
    #[error(transparent)]
    Gateway(#[from] gateway::Error),
    /// A gate could not be run.
    #[error(transparent)]
    Gate(#[from] gate::Error),
    /// The change could not be handed over, for a reason that says nothing about it.
    #[error(transparent)]
    Delivery(#[from] delivery::Error),
    /// What came of a job cannot be put on the disk, or found there.
    #[error("the answer in `{}` cannot be used", path.display())]
    Answer {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A transcript cannot be written or put in its place.
    #[error("the transcript in `{}` cannot be used", path.display())]
    Transcript {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The project's configuration cannot be used.
    #[error("the configuration of the project cannot be used: {0}")]
    Configuration(String),
    /// The job makes no sense to this worker.
    #[error("{0}")]
    Odd(String),
    /// The durable engine could not be reached.
    #[error("the durable engine did not do what was asked: {0}")]
    Engine(String),
    /// The job was told to stop, and has.
    #[error("the job was stopped")]
    Stopped,
    /// A test made it fail.
    #[error("made to fail at `{0}`")]
    Fault(&'static str),
}

impl Error {
    /// Whether asking again cannot help.
    fn is_final(&self) -> bool {
        match self {
            Self::Store(error) => !error.is_retryable(),
            Self::Repository(mirror::Error::Unknown { .. })
            | Self::Process(process::Error::Superseded { .. })
            | Self::Configuration(_)
            | Self::Odd(_) => true,
            _ => false,
        }
    }
}

impl Error {
    /// What the durable engine is told.
    pub(crate) fn told(self) -> ActivityError {
        let error = self;
        if matches!(error, Self::Stopped) {
            return ActivityError::cancelled();
        }
        tracing::warn!(error = &error as &dyn std::error::Error, "a job could not be done");
        if error.is_final() {
            return ApplicationFailure::builder(with_causes(&error))
                .type_name(FINAL.to_owned())
                .non_retryable(true)
                .build()
                .into();
        }
        ApplicationFailure::builder(with_causes(&error)).build().into()
    }
}

/// An error in one line: the engine keeps the words of the outermost only.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Words(String);

fn with_causes(error: &dyn std::error::Error) -> Words {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        source = cause.source();
    }
    Words(words)
}
