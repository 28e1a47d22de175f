#![doc = include_str!("../README.md")]

mod agent;
mod case;
mod checker;
mod measures;
mod page;
mod project_config;
mod task_set;

pub use agent::{AgentScript, ScriptedChange, ScriptedRole, serve};
pub use case::{Arm, CaseKey, CaseOutcome, CaseResult, FileListMatch, OutputFolder, StartedCase};
pub use checker::{CheckEnvironment, Checker, PatchCheck, TaskCheck};
pub use measures::{ArmMeasures, EvalReport};
pub use page::render_page;
pub use project_config::{AgentChoice, project_config};
pub use task_set::{EvalTask, ExpectedOutcome, OracleNotes, TaskFiles, TaskSet};

use std::path::PathBuf;

/// Error of an evaluation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// File or folder could not be read or written.
    #[error("cannot {what} `{}`", path.display())]
    Disk {
        /// Operation, as a verb that fits after `cannot`.
        what: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Underlying error.
        source: std::io::Error,
    },
    /// File of a task that is missing or invalid.
    #[error("task `{task}`: {reason}")]
    Task {
        /// ID of the task.
        task: String,
        /// Reason, with the file.
        reason: String,
    },
    /// Set without tasks, or a name that no task has.
    #[error("{0}")]
    Set(String),
    /// Stored result that cannot be read.
    #[error("`{}` is not a result of this version: {source}", path.display())]
    Stored {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: serde_json::Error,
    },
    /// Output folder of an evaluation with other settings.
    #[error(
        "`{}` belongs to an evaluation with other settings ({found}); use another `--output`, or repeat \
         those settings",
        folder.display()
    )]
    OtherEvaluation {
        /// Output folder.
        folder: PathBuf,
        /// Settings in the folder.
        found: String,
    },
    /// Git failed.
    #[error(transparent)]
    Checkout(#[from] tamma_engine::mirror::Error),
    /// Check could not be started or stopped.
    #[error(transparent)]
    Process(#[from] tamma_engine::process::Error),
    /// Scripted agent lost its connection.
    #[error("the connection of the scripted agent failed: {0}")]
    Connection(String),
}

impl Error {
    /// Returns a function that adds the operation and the path to an I/O error.
    pub(crate) fn disk(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Disk { what, path, source }
    }
}
