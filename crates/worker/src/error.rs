//! Errors of activities.
//!
//! None of them ends a job: Temporal retries with backoff, unless the error is final. Failures of
//! agents and gates are results, not errors.

use std::path::PathBuf;

use tamma_engine::process::RunId;
use tamma_engine::{delivery, egress, gate, gateway, git, mirror, process};
use tamma_flow::activities::{DIVERGED, LOST_WORKERS, NON_RETRYABLE};
use temporalio_common::error::ApplicationFailure;
use temporalio_sdk::activities::ActivityError;

/// Error of an activity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Store operation failed.
    #[error(transparent)]
    Store(#[from] tamma_store::Error),
    /// Repository is not usable.
    #[error(transparent)]
    Repository(#[from] mirror::Error),
    /// Git command failed.
    #[error(transparent)]
    Git(#[from] git::Error),
    /// Process could not be recorded or stopped.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Gateway could not be opened.
    #[error(transparent)]
    Gateway(#[from] gateway::Error),
    /// Network access of sandboxes could not be opened.
    #[error(transparent)]
    Egress(#[from] egress::Error),
    /// Gate could not be run.
    #[error(transparent)]
    Gate(#[from] gate::Error),
    /// Delivery failed for a reason other than the change itself.
    #[error(transparent)]
    Delivery(#[from] delivery::Error),
    /// Forge did not respond, or its response makes no sense.
    #[error(transparent)]
    Forge(#[from] tamma_connect::forge::Error),
    /// Another attempt works on the same effect.
    #[error("{0}")]
    EffectInProgress(String),
    /// Job result could not be written to or read from disk.
    #[error("cannot access the unsaved job result in `{}`", path.display())]
    UnsavedResult {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Transcript could not be written or uploaded.
    #[error("cannot write or upload the transcript in `{}`", path.display())]
    Transcript {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// File of a story could not be read or written.
    #[error("cannot write `{}`: {reason}", path.display())]
    StoryFile {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// Setup of a checkout failed.
    #[error(transparent)]
    Setup(#[from] crate::failed_setup::FailedSetup),
    /// Project configuration is invalid.
    #[error("invalid project configuration: {0}")]
    Configuration(String),
    /// Job request that this worker cannot handle.
    #[error("{0}")]
    Internal(String),
    /// Temporal request failed.
    #[error("Temporal request failed: {0}")]
    Temporal(String),
    /// Database has another history of the task than its workflow. The workflow ends, and another
    /// one continues from the database.
    #[error("the database has another history of this task: {0}")]
    Diverged(String),
    /// Too many workers died during the job, so no other worker tries it.
    #[error(
        "{0} workers died while running this job, so it is not retried. It may need too much \
         memory: check the workers' logs, then make the task smaller or give the workers more \
         memory before you retry"
    )]
    LostWorkers(u32),
    /// Too many attempts at the job had no end, although their workers may live.
    #[error(
        "{0} attempts at this job lost contact with Temporal, so it is not retried. It may leave its \
         worker no CPU time or memory, or the network is down: check the workers' logs before you retry"
    )]
    LostAttempts(u32),
    /// Attempt is older than one that this worker runs.
    #[error("attempt {run} is outdated: this worker runs {by}")]
    Outdated {
        /// Outdated attempt.
        run: RunId,
        /// Later attempt at this job, or at a later job of the task.
        by: RunId,
    },
    /// Job was stopped as requested.
    #[error("job stopped")]
    Stopped,
    /// Fault injected by a test.
    #[error("injected fault at `{0}`")]
    InjectedFault(&'static str),
}

impl Error {
    /// Returns whether a retry cannot succeed.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Store(error) => !error.is_retryable(),
            Self::Repository(error) if error.is_caused_by_change() => true,
            Self::Repository(mirror::Error::Git(error)) | Self::Git(error) => {
                error.is_caused_by_content()
            }
            Self::Repository(mirror::Error::Unknown { .. } | mirror::Error::Address(_))
            | Self::Process(process::Error::Superseded { .. })
            // A person has to change the credential.
            | Self::Forge(tamma_connect::forge::Error::Forbidden { .. })
            | Self::Configuration(_)
            | Self::Internal(_) => true,
            _ => false,
        }
    }
}

impl Error {
    /// Converts the error to one that Temporal understands.
    pub(crate) fn into_activity_error(self) -> ActivityError {
        let error = self;
        if matches!(error, Self::Stopped) {
            return ActivityError::cancelled();
        }
        tracing::warn!(error = &error as &dyn std::error::Error, "job failed");
        let type_name = match &error {
            Self::Diverged(_) => DIVERGED,
            Self::LostWorkers(_) | Self::LostAttempts(_) => LOST_WORKERS,
            error if error.is_final() => NON_RETRYABLE,
            _ => return ApplicationFailure::builder(with_causes(&error)).build().into(),
        };
        ApplicationFailure::builder(with_causes(&error))
            .type_name(type_name.to_owned())
            .non_retryable(true)
            .build()
            .into()
    }
}

/// Error with its causes in one line, because Temporal keeps only the outermost message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ErrorMessage(String);

fn with_causes(error: &dyn std::error::Error) -> ErrorMessage {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        source = cause.source();
    }
    ErrorMessage(message)
}
