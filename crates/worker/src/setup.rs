//! Setup of checkouts on this machine, and the sandbox of commands from the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::ids::{Reason, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task_loop::Outcome;
use tamma_engine::gate::GateCheckout;
use tamma_engine::process::ProcessRecords;
use tamma_engine::sandbox::{self, Network, Sandbox, SandboxKind};
use tamma_engine::secret::{Redactor, Secret};
use tamma_engine::setup::{self, SetupCommand, SetupFailure, SetupOutcome};
use tamma_engine::worktree::Worktree;
use tamma_flow::activities::JobResult;

use crate::clock::now;
use crate::config::WorkerConfig;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;
use crate::runs::{BASE_VARIABLES, select_variables};
use crate::toolchains;

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
    fn new(
        config: &WorkerConfig,
        (command, place): (&str, &str),
        failure: SetupFailure,
    ) -> Result<Self, Error> {
        let SetupFailure { cause, output } = failure;
        let output = test_secrets(config).redact(&output).into_owned();
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
        let reason = reason.parse().map_err(|_| Error::Internal("invalid reason".to_owned()))?;
        Ok(Self { reason, output })
    }

    /// Converts the failure to a job result.
    pub(crate) fn into_result(self) -> JobResult {
        let failure = JobFailure { kind: FailureKind::Crashed, reason: self.reason };
        JobResult::finished(Outcome::Failed(failure)).with_report(Some(self.output))
    }
}

/// Checkout that commands of the configuration run in.
pub(crate) struct CommandPlace<'a> {
    pub(crate) path: PathBuf,
    pub(crate) repository: &'a Path,
    pub(crate) home: PathBuf,
}

impl CommandPlace<'_> {
    /// Builds the sandbox of a gate or a setup.
    pub(crate) fn sandbox(
        &self,
        config: &WorkerConfig,
        rules: &Rules,
        kind: SandboxKind,
        network: Network,
    ) -> Sandbox {
        let environment = &config.environment;
        let readable = rules.engines.readable.iter().map(PathBuf::from);
        let hidden = [config.data_dir.clone()].into_iter();
        Sandbox {
            kind,
            launcher: config.launcher.clone(),
            worktree: self.path.clone(),
            read_only: false,
            repository: Some(self.repository.to_owned()),
            git: None,
            home: self.home.clone(),
            readable: readable.chain(config.toolchains()).collect(),
            writable: Vec::new(),
            protected: Vec::new(),
            hidden: hidden.chain(toolchains::secrets(environment)).collect(),
            network,
        }
    }

    /// Returns the environment of a gate: with the packages that the setup installed, and the
    /// operator's test variables.
    pub(crate) fn environment(&self, config: &WorkerConfig) -> BTreeMap<String, String> {
        let mut env = select_variables(&config.environment, &BASE_VARIABLES);
        env.extend(toolchains::variables(&config.environment));
        env.extend(toolchains::installed_variables(&self.home));
        env.extend(config.operator.test_environment.clone());
        env.insert("HOME".to_owned(), self.home.display().to_string());
        env.insert("CI".to_owned(), "1".to_owned());
        env
    }

    /// Builds the setup of this checkout, if one is configured.
    fn setup(
        &self,
        config: &WorkerConfig,
        ctx: &JobContext,
        project: &ProjectContext,
    ) -> Result<Option<SetupCommand>, Error> {
        // The command is pinned with the task, like the gates.
        let rules = &ctx.rules.setup;
        let Some(command) = &rules.command else { return Ok(None) };
        let kind = sandbox::choose(project.rules.engines.sandbox)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let failed = |error: std::io::Error| {
            Error::Internal(format!("cannot prepare `{}`: {error}", self.home.display()))
        };
        toolchains::prepare_setup_home(&config.environment, &self.home).map_err(failed)?;
        let mut env = self.environment(config);
        env.extend(toolchains::setup_variables(&self.home));
        Ok(Some(SetupCommand {
            command: command.clone(),
            lock_globs: rules.lock_globs(),
            time_limit: Duration::from_secs(u64::from(rules.timeout_seconds)),
            env,
            sandbox: self.sandbox(
                config,
                &project.rules,
                kind,
                Network::Open { ports: Vec::new() },
            ),
        }))
    }
}

/// Returns the home directory of setups in a task's worktree. Agents of the task can read it.
pub(crate) fn setup_home(config: &WorkerConfig, task: TaskId) -> PathBuf {
    config.data_dir.join("homes").join(task.to_string()).join("setup")
}

/// Prepares the worktree of a task, unless it is prepared already.
pub(crate) async fn set_up_worktree(
    (config, processes): (&WorkerConfig, &ProcessRecords),
    ctx: &JobContext,
    project: &ProjectContext,
    worktree: &Worktree,
) -> Result<(), Error> {
    let place = CommandPlace {
        path: worktree.path().to_owned(),
        repository: worktree.repository(),
        home: setup_home(config, ctx.task.id),
    };
    let Some(setup) = place.setup(config, ctx, project)? else { return Ok(()) };
    let which = (ctx.run_id(), now());
    let ended = worktree.set_up(&setup, which, processes, &ctx.stop).await;
    check_outcome(config, &setup, "the worktree of the task", ended)
}

/// Prepares a checkout for gates, unless it is prepared already.
pub(crate) async fn set_up_checkout(
    (config, processes): (&WorkerConfig, &ProcessRecords),
    ctx: &JobContext,
    project: &ProjectContext,
    checkout: &GateCheckout,
) -> Result<(), Error> {
    let place = CommandPlace {
        path: checkout.path(),
        repository: checkout.repository(),
        home: checkout.home(),
    };
    let Some(setup) = place.setup(config, ctx, project)? else { return Ok(()) };
    let which = (ctx.run_id(), now());
    let ended = checkout.set_up(&setup, which, processes, &ctx.stop).await;
    check_outcome(config, &setup, "a checkout of the commit", ended)
}

/// Returns a redactor of the operator's test variables, for output that people see.
pub(crate) fn test_secrets(config: &WorkerConfig) -> Redactor {
    Redactor::new(config.operator.test_environment.values().map(Secret::new))
}

fn check_outcome(
    config: &WorkerConfig,
    setup: &SetupCommand,
    place: &str,
    ended: Result<SetupOutcome, setup::Error>,
) -> Result<(), Error> {
    match ended {
        Ok(SetupOutcome::UpToDate | SetupOutcome::Done) => Ok(()),
        Ok(SetupOutcome::Failed(failure)) => {
            Err(FailedSetup::new(config, (&setup.command, place), failure)?.into())
        }
        Err(setup::Error::Cancelled) => Err(Error::Stopped),
        Err(setup::Error::Checkout(error)) => Err(error.into()),
        Err(setup::Error::Process(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_setup_names_the_command_the_cause_and_the_end_of_the_output() {
        let output = format!("{}\nnpm error missing: left-pad\n", "x".repeat(2_000));
        let config = WorkerConfig::new("/nowhere");
        let failure = SetupFailure { cause: "exit code 1".to_owned(), output: output.clone() };
        let failed =
            FailedSetup::new(&config, ("npm ci", "the worktree"), failure).expect("a reason");
        let reason = failed.reason.to_string();
        assert!(reason.starts_with("setup `npm ci` failed in the worktree (exit code 1)."));
        assert!(reason.ends_with("npm error missing: left-pad"), "{reason}");
        assert_eq!(failed.into_result().report(), Some(output.as_str()));
    }
}
