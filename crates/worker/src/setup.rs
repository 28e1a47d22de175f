//! Setup of checkouts on this machine, and the sandbox of commands from the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::ids::TaskId;
use tamma_core::rules::Rules;
use tamma_engine::gate::GateCheckout;
use tamma_engine::process::ProcessRecords;
use tamma_engine::sandbox::{self, Network, Sandbox, SandboxKind};
use tamma_engine::secret::{Redactor, Secret};
use tamma_engine::setup::{self, SetupCommand, SetupOutcome};
use tamma_engine::worktree::Worktree;

use crate::clock::now;
use crate::config::WorkerConfig;
use crate::environment::{BASE_VARIABLES, select_variables};
use crate::error::Error;
use crate::failed_setup::FailedSetup;
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;
use crate::toolchains;

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
            let failed = FailedSetup::new(&test_secrets(config), (&setup.command, place), failure);
            Err(failed.map_or_else(|| Error::Internal("invalid reason".to_owned()), Error::Setup))
        }
        Err(setup::Error::Cancelled) => Err(Error::Stopped),
        Err(setup::Error::Checkout(error)) => Err(error.into()),
        Err(setup::Error::Process(error)) => Err(error.into()),
    }
}
