//! Gates: checks of a project, run on one exact commit.
//!
//! A gate runs in a separate [`GateCheckout`] and in a sandbox. It passes if its command exits with
//! 0. If it writes a report, the report must exist and contain no failures. [`tamma_core::gate`]
//! interprets the results and decides whether to run a gate again.

mod checkout;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::gate::{GateKind, GateOutcome, GateResult};
use tamma_core::ids::Digest;
use tamma_core::rules::ReportFormat;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio_util::sync::CancellationToken;

pub use self::checkout::{GateCheckout, remove_checkout};
use self::report::ReportResults;
use crate::captured::{CapturedRun, run_captured};
use crate::process::{self, Launch, ProcessRecords, RunId};
use crate::sandbox::Sandbox;

/// Maximum size of a report, in bytes.
const MAX_REPORT_BYTES: u64 = 64 * 1024 * 1024;

/// Error that prevented a gate from producing a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Checkout failed.
    #[error(transparent)]
    Checkout(#[from] crate::mirror::Error),
    /// Process could not be recorded or stopped.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Sandbox cannot run even an empty command, so a gate's result would say nothing about the
    /// code.
    #[error("cannot start the sandbox for gates: {output}")]
    Sandbox {
        /// Output of the failed command.
        output: String,
    },
    /// Gate was cancelled by the caller.
    #[error("the gate was cancelled")]
    Cancelled,
}

/// Configured gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateCommand {
    /// Name in the configuration.
    pub name: String,
    /// Type of check.
    pub kind: GateKind,
    /// Path, or name to search in `PATH`.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<String>,
    /// Environment, to which `HOME` and `REPORT` are added. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Time limit.
    pub time_limit: Duration,
    /// Format of the report, if the gate writes one.
    pub report: Option<ReportFormat>,
    /// Sandbox. With `None`, the gate has all permissions of the worker.
    pub sandbox: Option<Sandbox>,
}

/// Result of running a gate once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRun {
    /// Outcome, with the tests that passed, failed or were skipped.
    pub result: GateResult,
    /// Exit code; `None` if it did not exit by itself.
    pub code: Option<i32>,
    /// End of its standard output, followed by the end of its standard error. If the report is
    /// unusable, the last line says why.
    pub output: String,
}

impl GateCommand {
    /// Runs the gate on the files in the checkout.
    pub async fn run(
        &self,
        checkout: &GateCheckout,
        (run, at): (RunId, Timestamp),
        records: &ProcessRecords,
        cancel: &CancellationToken,
    ) -> Result<GateRun, Error> {
        // Directly in the home, because the gate could replace a subdirectory with a link.
        let name = Digest::of(self.name.as_bytes()).to_string();
        let report = checkout.home().join(format!("report-{}", name.get(..12).unwrap_or(&name)));
        checkout::remove_path(&report).await?;
        let mut env = self.env.clone();
        env.insert("HOME".to_owned(), checkout.home().display().to_string());
        env.insert("REPORT".to_owned(), report.display().to_string());
        let launch = Launch {
            program: self.program.clone(),
            args: self.args.clone(),
            env,
            working_dir: checkout.path(),
            run,
            now: at,
        };
        let launch = match &self.sandbox {
            Some(sandbox) => sandbox.wrap(launch),
            None => launch,
        };
        let launch = (&launch, self.sandbox.as_ref().map(|sandbox| sandbox.limits));
        let captured = match run_captured(launch, records, self.time_limit, cancel).await {
            Ok(Some(captured)) => captured,
            Ok(None) => return Err(Error::Cancelled),
            // A gate that cannot be started has failed, and people must see why.
            Err(error @ process::Error::Start { .. }) => {
                let results = ReportResults::default();
                return Ok(self.gate_run(GateOutcome::Failed, results, None, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let CapturedRun { status, mut output, .. } = captured;
        let (mut outcome, code) = match status {
            Some(status) if status.success() => (GateOutcome::Passed, status.code()),
            Some(status) => (GateOutcome::Failed, status.code()),
            None => (GateOutcome::TimedOut, None),
        };
        let mut results = ReportResults::default();
        if let Some(format) = self.report {
            let (read, error) = read_report(format, &report, &checkout.path()).await;
            results = read;
            // The exit code reports a failure, so warnings count as its cause.
            if outcome == GateOutcome::Failed {
                results.failures.append(&mut results.warnings);
            }
            if outcome == GateOutcome::Passed && (error.is_some() || !results.failures.is_empty()) {
                outcome = GateOutcome::Failed;
            }
            if let Some(error) = error {
                output = format!("{}\nunusable report: {error}\n", output.trim_end());
            }
        }
        Ok(self.gate_run(outcome, results, code, output))
    }

    /// Checks that the sandbox can run commands. Otherwise gates would fail on every commit alike,
    /// and pre-existing failures do not count.
    pub async fn check_sandbox(
        &self,
        checkout: &GateCheckout,
        which: (RunId, Timestamp),
        records: &ProcessRecords,
        cancel: &CancellationToken,
    ) -> Result<(), Error> {
        let args = vec!["-c".to_owned(), ":".to_owned()];
        let empty_gate = Self { program: "/bin/sh".into(), args, report: None, ..self.clone() };
        let run = empty_gate.run(checkout, which, records, cancel).await?;
        match run.result.outcome {
            GateOutcome::Passed => Ok(()),
            _ => Err(Error::Sandbox { output: run.output.trim().to_owned() }),
        }
    }

    fn gate_run(
        &self,
        outcome: GateOutcome,
        results: ReportResults,
        code: Option<i32>,
        output: String,
    ) -> GateRun {
        let (name, kind) = (self.name.clone(), self.kind);
        let ReportResults { failures, passed, skipped, .. } = results;
        let result = GateResult { name, kind, outcome, failures, passed, skipped };
        GateRun { result, code, output }
    }
}

/// Reads a report. The second value is the reason if it is missing or incomplete.
async fn read_report(
    format: ReportFormat,
    path: &Path,
    checkout: &Path,
) -> (ReportResults, Option<String>) {
    let no_results = |reason: String| (ReportResults::default(), Some(reason));
    // Never follow a link: the gate created it, and it could point to a hidden file.
    match fs::symlink_metadata(path).await {
        Err(_) => return no_results("the file does not exist".to_owned()),
        Ok(metadata) if !metadata.is_file() => return no_results("not a regular file".to_owned()),
        Ok(metadata) if metadata.len() > MAX_REPORT_BYTES => {
            return no_results("the file is too large".to_owned());
        }
        Ok(_) => {}
    }
    let bytes = match fs::read(path).await {
        Ok(bytes) => bytes,
        Err(error) => return no_results(error.to_string()),
    };
    let checkout = checkout.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let text = String::from_utf8_lossy(&bytes);
        match format {
            ReportFormat::Junit => report::junit(&text, &checkout),
            ReportFormat::Sarif => match report::sarif(&text, &checkout) {
                Ok(results) => (results, None),
                Err(reason) => (ReportResults::default(), Some(reason)),
            },
        }
    });
    reading.await.unwrap_or_else(|stopped| no_results(stopped.to_string()))
}

/// Parses both report formats, for fuzzing.
#[cfg(fuzzing)]
pub(crate) fn parse_report(format: ReportFormat, text: &str) {
    let checkout = Path::new("/checkout");
    match format {
        ReportFormat::Junit => drop(report::junit(text, checkout)),
        ReportFormat::Sarif => drop(report::sarif(text, checkout)),
    }
}
