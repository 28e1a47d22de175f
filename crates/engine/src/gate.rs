//! Gates: a project's own checks, run on one exact commit.
//!
//! A gate runs in the worktree, and only while the worktree is that commit. It passes when its
//! command exits with 0. Reading the names of what failed from the tool's report is *planned*. What
//! a result means is judged by [`tamma_core::review::gate`], and so is whether to run it again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tamma_core::ids::CommitId;
use tamma_core::review::gate::{GateResult, Kind, Outcome};
use tamma_core::task_loop::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::output::Tail;
use crate::process::{self, Group, Launch, Records, RunId};
use crate::worktree::Worktree;

/// How much of what a gate writes is kept, of each of its two outputs.
const OUTPUT: usize = 32 * 1024;

/// How long a gate may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// What can go wrong with a gate, other than failing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The worktree could not be looked at.
    #[error(transparent)]
    Worktree(#[from] crate::mirror::Error),
    /// Its process could not be recorded or ended.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The files are not those of the commit that is to be judged.
    #[error("the worktree is not at {0}: commit what is there, or check that commit out")]
    NotAt(CommitId),
    /// We were told to stop it.
    #[error("the gate was stopped")]
    Cancelled,
}

/// A configured gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// What the project calls it.
    pub name: String,
    /// What it checks.
    pub kind: Kind,
    /// Its program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// How long it may take.
    pub time_limit: Duration,
}

/// One run of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRun {
    /// What it came to.
    pub result: GateResult,
    /// The commit it judged.
    pub commit: CommitId,
    /// The exit code, if it came to its end.
    pub code: Option<i32>,
    /// The end of what it wrote: first the standard output, then the standard error.
    pub output: String,
}

impl Gate {
    /// Runs it on a commit, which the worktree must be at.
    pub async fn run(
        &self,
        worktree: &Worktree,
        commit: CommitId,
        (run, at): (RunId, Timestamp),
        records: &Records,
        cancel: &CancellationToken,
    ) -> Result<GateRun, Error> {
        if !worktree.is_at(commit).await? {
            return Err(Error::NotAt(commit));
        }
        let launch = Launch {
            program: self.program.clone(),
            args: self.args.clone(),
            env: self.env.clone(),
            folder: worktree.path().to_owned(),
            run,
            at,
        };
        let (mut group, pipes) = match Group::start(&launch, records, |_| {}).await {
            Ok(started) => started,
            // A gate that cannot be started has not passed, and people must see why.
            Err(error @ process::Error::Start { .. }) => {
                return Ok(self.came_to(Outcome::Failed, commit, None, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        drop(pipes.stdin);
        let (stdout, stderr) =
            (Tail::follow(pipes.stdout, OUTPUT), Tail::follow(pipes.stderr, OUTPUT));
        let ended = tokio::select! {
            status = group.wait() => Some(status?),
            () = tokio::time::sleep(self.time_limit) => None,
            () = cancel.cancelled() => {
                group.stop(GRACE).await?;
                return Err(Error::Cancelled);
            }
        };
        // Also when it ended: what it left running would disturb the next one.
        group.stop(GRACE).await?;
        let output = stdout.text().await + &stderr.text().await;
        let (outcome, code) = match ended {
            Some(status) if status.success() => (Outcome::Passed, status.code()),
            Some(status) => (Outcome::Failed, status.code()),
            None => (Outcome::TimedOut, None),
        };
        Ok(self.came_to(outcome, commit, code, output))
    }

    fn came_to(
        &self,
        outcome: Outcome,
        commit: CommitId,
        code: Option<i32>,
        output: String,
    ) -> GateRun {
        let (name, kind) = (self.name.clone(), self.kind);
        let (failures, passed, skipped) = Default::default();
        let result = GateResult { name, kind, outcome, failures, passed, skipped };
        GateRun { result, commit, code, output }
    }
}
