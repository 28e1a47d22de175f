//! Shell command that runs in a worktree, for phases of a pipeline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tamma_core::task_loop::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::captured::{CapturedRun, run_captured};
use crate::process::{self, ExceededLimit, Launch, ProcessRecords, RunId};
use crate::sandbox::Sandbox;
use crate::worktree::Worktree;

/// Shell command with its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// Command line, run by `sh -c`.
    pub line: String,
    /// Environment, including `HOME`. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Time limit.
    pub time_limit: Duration,
    /// Sandbox with the worktree.
    pub sandbox: Sandbox,
}

/// Shell command that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOutput {
    /// Exit code; `None` if the command did not exit by itself.
    pub code: Option<i32>,
    /// `true` if the time limit was exceeded.
    pub timed_out: bool,
    /// End of its standard output, followed by the end of its standard error.
    pub output: String,
    /// Resource limit that it exceeded, if it was stopped for that.
    pub exceeded: Option<ExceededLimit>,
}

impl ShellCommand {
    /// Runs the command, and returns once all its processes have ended. `None` if it was cancelled.
    pub async fn run(
        &self,
        worktree: &Worktree,
        (run, now): (RunId, Timestamp),
        records: &ProcessRecords,
        cancel: &CancellationToken,
    ) -> Result<Option<ShellOutput>, process::Error> {
        let launch = Launch {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), self.line.clone()],
            env: self.env.clone(),
            working_dir: worktree.path().to_owned(),
            run,
            now,
        };
        let launch = self.sandbox.wrap(launch);
        let launch = (&launch, Some(self.sandbox.limits));
        let captured = run_captured(launch, records, self.time_limit, cancel).await?;
        Ok(captured.map(|CapturedRun { status, output, exceeded }| ShellOutput {
            code: status.and_then(|status| status.code()),
            timed_out: status.is_none(),
            output,
            exceeded,
        }))
    }
}
