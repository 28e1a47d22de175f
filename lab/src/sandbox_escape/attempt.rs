//! Escape attempt: steps of the agent, and a check from outside whether it escaped.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tamma_core::operator::ResourceLimits;
use tamma_engine::agent::{RunMode, RunReport};
use tamma_engine::permission::PermissionViolation;
use tamma_engine::sandbox::SandboxKind;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::repository::Repository;
use tamma_testkit::wait::wait_until_true;
use tokio_util::sync::CancellationToken;

use super::fixture::{EscapeFixture, FetchUnderWay, RUN_LIMIT};

/// State after an attempt.
pub(crate) struct AttemptResult<'a> {
    pub(crate) fixture: &'a EscapeFixture,
    pub(crate) report: RunReport,
    pub(crate) violations: Vec<PermissionViolation>,
    /// Patch that validators and people see.
    pub(crate) patch: String,
}

/// Settings of a run that differ between attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSetup {
    pub(crate) mode: RunMode,
    /// Agent calls its provider directly, through the egress proxy.
    pub(crate) signed_in: bool,
    pub(crate) limits: fn() -> ResourceLimits,
    pub(crate) time_limit: Duration,
}

type StepsFn = Box<dyn Fn(&EscapeFixture) -> Vec<AgentStep>>;
type EscapeCheck = Box<dyn Fn(&AttemptResult<'_>) -> bool>;

/// Escape attempt.
pub(crate) struct Attempt {
    pub(crate) name: String,
    /// Layer that stops it.
    pub(crate) stopped_by: &'static str,
    steps: StepsFn,
    escaped: EscapeCheck,
    setup: RunSetup,
    /// Cancels the run instead of letting it end.
    cancelled: bool,
    /// Takes effect when someone uses git in the worktree. In control runs, an unprotected git call
    /// replaces the worker's.
    needs_git: bool,
    /// A query of a forge with a login is under way.
    beside_fetch: bool,
}

impl Attempt {
    /// Creates an attempt that runs a shell script without asking for permission.
    pub(crate) fn script(
        name: &str,
        stopped_by: &'static str,
        script: impl Fn(&EscapeFixture) -> String + 'static,
        escaped: impl Fn(&AttemptResult<'_>) -> bool + 'static,
    ) -> Self {
        let steps = move |fixture: &EscapeFixture| script_steps(fixture, &script(fixture));
        Self::steps(name, stopped_by, steps, escaped)
    }

    /// Creates an attempt from agent steps.
    pub(crate) fn steps(
        name: &str,
        stopped_by: &'static str,
        steps: impl Fn(&EscapeFixture) -> Vec<AgentStep> + 'static,
        escaped: impl Fn(&AttemptResult<'_>) -> bool + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            stopped_by,
            steps: Box::new(steps),
            escaped: Box::new(escaped),
            setup: RunSetup {
                mode: RunMode::Implement,
                signed_in: false,
                limits: ResourceLimits::default,
                time_limit: RUN_LIMIT,
            },
            cancelled: false,
            needs_git: false,
            beside_fetch: false,
        }
    }

    pub(crate) fn in_mode(mut self, mode: RunMode) -> Self {
        self.setup.mode = mode;
        self
    }

    pub(crate) fn signed_in(mut self) -> Self {
        self.setup.signed_in = true;
        self
    }

    pub(crate) fn with_limits(mut self, limits: fn() -> ResourceLimits) -> Self {
        self.setup.limits = limits;
        self
    }

    pub(crate) fn with_time_limit(mut self, limit: Duration) -> Self {
        self.setup.time_limit = limit;
        self
    }

    pub(crate) fn cancelled(self) -> Self {
        Self { cancelled: true, ..self }
    }

    pub(crate) fn needs_git(self) -> Self {
        Self { needs_git: true, ..self }
    }

    pub(crate) fn beside_fetch(self) -> Self {
        Self { beside_fetch: true, ..self }
    }

    /// Runs the attempt. Returns `true` if it escaped.
    pub(crate) async fn run(&self, fixture: &EscapeFixture) -> Result<bool> {
        let mut steps = (self.steps)(fixture);
        let _fetch = if self.beside_fetch { Some(FetchUnderWay::start().await?) } else { None };
        let cancel = CancellationToken::new();
        let report = if self.cancelled {
            steps.push(AgentStep::Hang);
            let done = fixture.home().join("done");
            let stop = async {
                // Longer than a run, which then ends first.
                let limit = RUN_LIMIT * 2;
                wait_until_true("the end of the attempt", limit, || done.exists()).await?;
                cancel.cancel();
                std::future::pending::<Result<RunReport>>().await
            };
            let script = Script::new(steps);
            tokio::select! {
                report = fixture.run(&script, &self.setup, &cancel) => report?,
                report = stop => report?,
            }
        } else {
            fixture.run(&Script::new(steps), &self.setup, &cancel).await?
        };
        let is_unprotected = self.needs_git && fixture.kind == SandboxKind::Off;
        let (violations, patch) = if is_unprotected {
            (Vec::new(), unprotected_git(fixture))
        } else {
            // An unreadable repository is detected and is not an escape.
            fixture.commit_and_check().await.unwrap_or_default()
        };
        Ok((self.escaped)(&AttemptResult { fixture, report, violations, patch }))
    }
}

/// Returns the steps that run a shell script without asking for permission.
pub(crate) fn script_steps(fixture: &EscapeFixture, script: &str) -> Vec<AgentStep> {
    let home = fixture.home();
    // If the write fails, running the script reports it.
    let _ = std::fs::write(home.join("attempt.sh"), script);
    let (home, done) = (home.display().to_string(), home.join("done"));
    let command = format!("sh {home}/attempt.sh > {home}/output 2>&1; touch {home}/done");
    let pid_file = PathBuf::from(format!("{home}/pid"));
    vec![AgentStep::Spawn { command, new_session: false, pid_file }, AgentStep::AwaitFile(done)]
}

/// Uses git in the worktree without the worker's protection. Returns the patch.
fn unprotected_git(fixture: &EscapeFixture) -> String {
    let tree = fixture.tree.path().display().to_string();
    let mut patch = String::new();
    for call in [
        &["-C", &tree, "status"][..],
        &["-C", &tree, "add", "--all"],
        &["-C", &tree, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"],
        &["-C", &format!("{tree}/nested"), "status"],
        &["-C", &format!("{tree}/nested"), "log", "-p"],
        &["-C", &format!("{tree}/nested"), "checkout", "-q", "--", "."],
        &["-C", &format!("{tree}/nested"), "add", "--all"],
        &["-C", &format!("{tree}/nested"), "fetch", "-q", "origin"],
        &["-C", &format!("{tree}/bare"), "status"],
        &["-C", &tree, "fetch", "-q", "origin"],
        &["-C", &tree, "-c", "protocol.file.allow=always", "submodule", "update"],
        &["-C", &tree, "diff", "HEAD~1"],
    ] {
        patch = Repository::git(&fixture.project, call).unwrap_or_default();
    }
    patch
}
