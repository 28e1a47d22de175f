//! Gates: a project's own checks, run on one exact commit.
//!
//! A gate runs in a [`Checkout`] that is made for gates, and in a cage. It passes when its command
//! exits with 0; where it says that it writes a report, the report has to be there, and to name no
//! failure. What a result means is judged by [`tamma_core::gate`], and so is whether to run
//! it again.

mod checkout;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::gate::{GateResult, Kind, Outcome};
use tamma_core::ids::Digest;
use tamma_core::rules::Report;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio_util::sync::CancellationToken;

pub use self::checkout::{Checkout, clear};
use self::report::Named;
use crate::confine::Cage;
use crate::output::Tail;
use crate::process::{self, Group, Launch, Records, RunId};

/// How much of what a gate writes is kept, of each of its two outputs.
const OUTPUT: usize = 32 * 1024;

/// How long a gate may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// How large a report may be.
const REPORT: u64 = 64 * 1024 * 1024;

/// What can go wrong with a gate, other than failing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkout could not be looked at.
    #[error(transparent)]
    Checkout(#[from] crate::mirror::Error),
    /// Its process could not be recorded or ended.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Its cage does not even run what does nothing. Whatever a gate says there is not about the code.
    #[error("the sandbox for gates does not start: {said}")]
    Cage {
        /// What was said about it.
        said: String,
    },
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
    /// Its environment, but for `HOME` and `REPORT`. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// How long it may take.
    pub time_limit: Duration,
    /// The form of the report that it writes, if it writes one.
    pub report: Option<Report>,
    /// What it may see, change and reach. Nothing confines it where this is missing.
    pub cage: Option<Cage>,
}

/// One run of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRun {
    /// What it came to.
    pub result: GateResult,
    /// The exit code, if it came to its end.
    pub code: Option<i32>,
    /// The end of what it wrote: first the standard output, then the standard error. Where its report
    /// cannot be used, the last line says why.
    pub output: String,
}

impl Gate {
    /// Runs it on the files that are in the checkout.
    pub async fn run(
        &self,
        checkout: &Checkout,
        (run, at): (RunId, Timestamp),
        records: &Records,
        cancel: &CancellationToken,
    ) -> Result<GateRun, Error> {
        // Directly in the home: the folder around a file in it could be made a link by the gate.
        let name = Digest::of(self.name.as_bytes()).to_string();
        let report = checkout.home().join(format!("report-{}", name.get(..12).unwrap_or(&name)));
        checkout::clear_path(&report).await?;
        let mut env = self.env.clone();
        env.insert("HOME".to_owned(), checkout.home().display().to_string());
        env.insert("REPORT".to_owned(), report.display().to_string());
        let launch = Launch {
            program: self.program.clone(),
            args: self.args.clone(),
            env,
            folder: checkout.path(),
            run,
            at,
        };
        let launch = match &self.cage {
            Some(cage) => cage.wrap(launch),
            None => launch,
        };
        let (mut group, pipes) = match Group::start(&launch, records, |_| {}).await {
            Ok(started) => started,
            // A gate that cannot be started has not passed, and people must see why.
            Err(error @ process::Error::Start { .. }) => {
                let named = Named::default();
                return Ok(self.came_to(Outcome::Failed, named, None, error.to_string()));
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
        let mut output = stdout.text().await + &stderr.text().await;
        let (mut outcome, code) = match ended {
            Some(status) if status.success() => (Outcome::Passed, status.code()),
            Some(status) => (Outcome::Failed, status.code()),
            None => (Outcome::TimedOut, None),
        };
        let mut named = Named::default();
        if let Some(form) = self.report {
            let (read, why) = read(form, &report, &checkout.path()).await;
            named = read;
            // The exit code says that there is something, and warnings are all there is.
            if outcome == Outcome::Failed {
                named.failures.append(&mut named.warnings);
            }
            if outcome == Outcome::Passed && (why.is_some() || !named.failures.is_empty()) {
                outcome = Outcome::Failed;
            }
            if let Some(why) = why {
                output = format!("{}\nthe report cannot be used: {why}\n", output.trim_end());
            }
        }
        Ok(self.came_to(outcome, named, code, output))
    }

    /// Makes sure that its cage runs anything at all: a cage that does not would fail on every commit
    /// alike, and what fails everywhere counts against nobody.
    pub async fn try_cage(
        &self,
        checkout: &Checkout,
        which: (RunId, Timestamp),
        records: &Records,
        cancel: &CancellationToken,
    ) -> Result<(), Error> {
        let args = vec!["-c".to_owned(), ":".to_owned()];
        let nothing = Self { program: "/bin/sh".into(), args, report: None, ..self.clone() };
        let ran = nothing.run(checkout, which, records, cancel).await?;
        match ran.result.outcome {
            Outcome::Passed => Ok(()),
            _ => Err(Error::Cage { said: ran.output.trim().to_owned() }),
        }
    }

    fn came_to(
        &self,
        outcome: Outcome,
        named: Named,
        code: Option<i32>,
        output: String,
    ) -> GateRun {
        let (name, kind) = (self.name.clone(), self.kind);
        let Named { failures, passed, skipped, .. } = named;
        let result = GateResult { name, kind, outcome, failures, passed, skipped };
        GateRun { result, code, output }
    }
}

/// What a report says, and why it cannot be believed to be whole, if it cannot.
async fn read(form: Report, path: &Path, checkout: &Path) -> (Named, Option<String>) {
    let nothing = |why: String| (Named::default(), Some(why));
    // Not through a link: the gate has made it, and it would lead us where the gate may not look.
    match fs::symlink_metadata(path).await {
        Err(_) => return nothing("it was not written".to_owned()),
        Ok(found) if !found.is_file() => return nothing("it is not a file".to_owned()),
        Ok(found) if found.len() > REPORT => return nothing("it is too large".to_owned()),
        Ok(_) => {}
    }
    let bytes = match fs::read(path).await {
        Ok(bytes) => bytes,
        Err(error) => return nothing(error.to_string()),
    };
    let checkout = checkout.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let text = String::from_utf8_lossy(&bytes);
        match form {
            Report::Junit => report::junit(&text, &checkout),
            Report::Sarif => match report::sarif(&text, &checkout) {
                Ok(named) => (named, None),
                Err(why) => (Named::default(), Some(why)),
            },
        }
    });
    reading.await.unwrap_or_else(|stopped| nothing(stopped.to_string()))
}
