//! Command that runs to its end, with the end of its output.

use std::process::ExitStatus;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::output::OutputTail;
use crate::process::{self, Launch, ProcessRecords, SupervisedProcess};
use crate::sanitize;

/// Maximum size of the kept output, in bytes, for each of the two streams.
const MAX_OUTPUT_BYTES: usize = 32 * 1024;

/// Time for a command to exit before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Command that has ended.
pub(crate) struct CapturedRun {
    /// Exit status; `None` if the time limit was exceeded.
    pub(crate) status: Option<ExitStatus>,
    /// End of its standard output, followed by the end of its standard error, without control
    /// sequences.
    pub(crate) output: String,
}

/// Runs a command, and returns once all its processes have ended. `None` if it was cancelled.
pub(crate) async fn run_captured(
    launch: &Launch,
    records: &ProcessRecords,
    time_limit: Duration,
    cancel: &CancellationToken,
) -> Result<Option<CapturedRun>, process::Error> {
    let (mut group, pipes) = SupervisedProcess::start(launch, records, |_| {}).await?;
    drop(pipes.stdin);
    let (stdout, stderr) = (
        OutputTail::follow(pipes.stdout, MAX_OUTPUT_BYTES),
        OutputTail::follow(pipes.stderr, MAX_OUTPUT_BYTES),
    );
    let status = tokio::select! {
        status = group.wait() => Some(status?),
        () = tokio::time::sleep(time_limit) => None,
        () = cancel.cancelled() => {
            group.stop(STOP_GRACE).await?;
            return Ok(None);
        }
    };
    // Stop leftover processes even after a normal exit; they would disturb the next command.
    group.stop(STOP_GRACE).await?;
    let output = stdout.text().await + &stderr.text().await;
    // People and models read it.
    let output = sanitize::text(&output).into_owned();
    Ok(Some(CapturedRun { status, output }))
}
