//! Command that runs to its end, with the end of its output.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use tamma_core::operator::ResourceLimits;
use tokio_util::sync::CancellationToken;

use crate::output::OutputTail;
use crate::process::{
    self, ExceededLimit, Launch, ProcessRecord, ProcessRecords, RunCgroup, SupervisedProcess,
};
use crate::sanitize;

/// Maximum size of the kept output, in bytes, for each of the two streams.
const MAX_OUTPUT_BYTES: usize = 32 * 1024;

/// Time for a command to exit before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Number of the signal that ends a command over its resource limits.
const SIGKILL: i32 = 9;

/// Command that has ended.
pub(crate) struct CapturedRun {
    /// Exit status; `None` if the time limit was exceeded.
    pub(crate) status: Option<ExitStatus>,
    /// End of its standard output, followed by the end of its standard error, without control
    /// sequences. If it exceeded a resource limit, the last line says so.
    pub(crate) output: String,
    /// Resource limit that it exceeded. Its status is then that of a killed process.
    pub(crate) exceeded: Option<ExceededLimit>,
}

/// Runs a command, and returns once all its processes have ended. `None` if it was cancelled.
pub(crate) async fn run_captured(
    (launch, limits): (&Launch, Option<ResourceLimits>),
    records: &ProcessRecords,
    time_limit: Duration,
    cancel: &CancellationToken,
) -> Result<Option<CapturedRun>, process::Error> {
    let mut cgroup = None;
    let create_cgroup = |record: &ProcessRecord| {
        cgroup = limits.and_then(|limits| RunCgroup::create(record, &limits));
    };
    let (mut group, pipes) = SupervisedProcess::start(launch, records, create_cgroup).await?;
    drop(pipes.stdin);
    let (stdout, stderr) = (
        OutputTail::follow(pipes.stdout, MAX_OUTPUT_BYTES),
        OutputTail::follow(pipes.stderr, MAX_OUTPUT_BYTES),
    );
    let mut exceeded = None;
    let status = tokio::select! {
        limit = process::exceeded_limit(group.record().clone(), limits) => {
            exceeded = Some(limit);
            Some(ExitStatus::from_raw(SIGKILL))
        }
        status = group.wait() => Some(status?),
        () = tokio::time::sleep(time_limit) => None,
        () = cancel.cancelled() => {
            group.stop(STOP_GRACE).await?;
            return Ok(None);
        }
    };
    // Stop leftover processes even after a normal exit; they would disturb the next command.
    group.stop(STOP_GRACE).await?;
    let exceeded = exceeded.or_else(|| cgroup.as_ref()?.exceeded());
    let output = stdout.text().await + &stderr.text().await;
    // People and models read it.
    let mut output = sanitize::text(&output).into_owned();
    if let Some(exceeded) = exceeded {
        output = format!("{}\n{exceeded}\n", output.trim_end());
    }
    Ok(Some(CapturedRun { status, output, exceeded }))
}
