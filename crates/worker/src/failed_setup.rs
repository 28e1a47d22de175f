//! Setup of a checkout that failed.

use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::ids::Reason;
use tamma_core::task_loop::Outcome;
use tamma_engine::secret::Redactor;
use tamma_engine::setup::SetupFailure;
use tamma_flow::activities::JobResult;

/// Maximum number of characters of the output in a failure's reason.
const MAX_REASON_OUTPUT: usize = 500;

/// Setup that failed. It says nothing about the change.
#[derive(Debug, thiserror::Error)]
#[error("the setup failed: {reason}")]
pub struct FailedSetup {
    /// Cause and remedy, for people.
    pub reason: Reason,
    /// End of the output.
    pub output: String,
}

impl FailedSetup {
    /// Describes a failed setup. `secrets` are replaced in its output.
    pub(crate) fn new(
        secrets: &Redactor,
        (command, place): (&str, &str),
        failure: SetupFailure,
    ) -> Option<Self> {
        let SetupFailure { cause, output } = failure;
        let output = secrets.redact(&output).into_owned();
        let command: String = command.chars().take(200).collect();
        let skipped = output.trim().chars().count().saturating_sub(MAX_REASON_OUTPUT);
        let end: String = output.trim().chars().skip(skipped).collect();
        let end = if end.is_empty() { "no output".to_owned() } else { end };
        let reason: String = format!(
            "setup `{command}` failed in {place} ({cause}). Fix `setup.command`, the lock files or \
             the network of the worker, then retry. Output: {end}"
        )
        .chars()
        .take(Reason::MAX)
        .collect();
        Some(Self { reason: reason.parse().ok()?, output })
    }

    /// Converts the failure to a job result.
    pub(crate) fn into_result(self) -> JobResult {
        let failure = JobFailure { kind: FailureKind::Crashed, reason: self.reason };
        JobResult::finished(Outcome::Failed(failure)).with_report(Some(self.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_setup_names_the_command_the_cause_and_the_end_of_the_output() {
        let output = format!("{}\nnpm error missing: left-pad\n", "x".repeat(2_000));
        let secrets = Redactor::default();
        let failure = SetupFailure { cause: "exit code 1".to_owned(), output: output.clone() };
        let failed =
            FailedSetup::new(&secrets, ("npm ci", "the worktree"), failure).expect("a reason");
        let reason = failed.reason.to_string();
        assert!(reason.starts_with("setup `npm ci` failed in the worktree (exit code 1)."));
        assert!(reason.ends_with("npm error missing: left-pad"), "{reason}");
        assert_eq!(failed.into_result().report(), Some(output.as_str()));
    }
}
