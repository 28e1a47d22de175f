//! Setup of checkouts on this machine, and the sandbox of commands from the configuration.
//!
//! A setup has network access, so it gets the operator's test variables only where nothing of an
//! agent runs: on the files of the base commit, in a checkout that no agent and no gate of a change
//! has used. If a change has other lock files, its setup runs on them, without these variables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::ids::{CommitId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task_loop::Job;
use tamma_engine::egress::EgressProxy;
use tamma_engine::gate::GateCheckout;
use tamma_engine::process::ProcessRecords;
use tamma_engine::sandbox::{self, Network, Sandbox, SandboxKind};
use tamma_engine::secret::{Redactor, Secret};
use tamma_engine::setup::{self, SetupCommand, SetupOutcome};
use tamma_engine::worktree::Worktree;
use tamma_store::Store;

use crate::clock::now;
use crate::config::WorkerConfig;
use crate::environment::{BASE_VARIABLES, select_variables};
use crate::error::Error;
use crate::failed_setup::FailedSetup;
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;
use crate::secret_use::record_test_secrets;
use crate::toolchains;

/// Checkout that commands of the configuration run in.
pub(crate) struct CommandPlace<'a> {
    pub(crate) path: PathBuf,
    pub(crate) repository: &'a Path,
    pub(crate) home: PathBuf,
}

/// Use of the operator's test variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestVariables {
    Included,
    Withheld,
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
        let readable = rules.engines.readable.iter().map(PathBuf::from);
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
            hidden: config.hidden_paths(),
            network,
            limits: config.operator.sandbox.limits,
        }
    }

    /// Returns the environment of a gate or a setup, with the packages that a setup installed.
    pub(crate) fn environment(
        &self,
        config: &WorkerConfig,
        variables: TestVariables,
    ) -> BTreeMap<String, String> {
        let mut env = select_variables(&config.environment, &BASE_VARIABLES);
        env.extend(toolchains::variables(&config.environment));
        env.extend(toolchains::installed_variables(&self.home));
        if variables == TestVariables::Included {
            env.extend(config.operator.test_environment.clone());
        }
        env.insert("HOME".to_owned(), self.home.display().to_string());
        env.insert("CI".to_owned(), "1".to_owned());
        env
    }

    /// Builds the setup of this checkout, if one is configured.
    fn setup(
        &self,
        (config, egress): (&WorkerConfig, &EgressProxy),
        ctx: &JobContext,
        project: &ProjectContext,
        variables: TestVariables,
    ) -> Result<Option<SetupCommand>, Error> {
        // The command is pinned with the task, like the gates.
        let rules = &ctx.rules.setup;
        let Some(command) = &rules.command else { return Ok(None) };
        let kind = sandbox::choose(project.rules.engines.sandbox)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let mut env = self.environment(config, variables);
        env.extend(toolchains::setup_variables(&self.home));
        Ok(Some(SetupCommand {
            command: command.clone(),
            lock_globs: rules.lock_globs(),
            time_limit: Duration::from_secs(u64::from(rules.timeout_seconds)),
            env,
            sandbox: self.sandbox(config, &project.rules, kind, egress.network(None)),
        }))
    }

    fn prepare_home(&self, config: &WorkerConfig) -> Result<(), Error> {
        toolchains::prepare_setup_home(&config.environment, &self.home).map_err(|error| {
            Error::Internal(format!("cannot prepare `{}`: {error}", self.home.display()))
        })
    }
}

/// Parts of the worker that a setup needs.
pub(crate) type SetupHost<'a> = (&'a WorkerConfig, &'a ProcessRecords, &'a EgressProxy, &'a Store);

/// Returns the home directory of setups in a task's worktree. Agents of the task can read it.
pub(crate) fn setup_home(config: &WorkerConfig, task: TaskId) -> PathBuf {
    config.data_dir.join("homes").join(task.to_string()).join("setup")
}

/// Prepares the worktree of a task, unless it is prepared already. Returns a failure that an agent
/// may have caused and can repair.
pub(crate) async fn set_up_worktree(
    (config, processes, egress, store): SetupHost<'_>,
    ctx: &JobContext,
    project: &ProjectContext,
    worktree: &Worktree,
) -> Result<Option<FailedSetup>, Error> {
    let place = CommandPlace {
        path: worktree.path().to_owned(),
        repository: worktree.repository(),
        home: setup_home(config, ctx.task.id),
    };
    let Some(setup) = place.setup((config, egress), ctx, project, TestVariables::Withheld)? else {
        return Ok(None);
    };
    if worktree.is_set_up(&setup).await.map_err(setup_error)? {
        return Ok(None);
    }
    let touched = worktree.diff_stat(ctx.base()?).await?;
    let is_unused = touched.is_empty() && !may_have_run(ctx);
    let variables = if is_unused { TestVariables::Included } else { TestVariables::Withheld };
    let Some(setup) = place.setup((config, egress), ctx, project, variables)? else {
        return Ok(None);
    };
    if variables == TestVariables::Included {
        record_test_secrets(store, config, ctx, "setup").await?;
    }
    place.prepare_home(config)?;
    let which = (ctx.run_id(), now());
    let ended = worktree.set_up(&setup, which, processes, &ctx.stop).await;
    let mut ended = check_outcome(config, &setup, "the worktree of the task", ended);
    let has_other_locks = ctx.rules.setup.covers(touched.keys().map(String::as_str));
    // Without the variables, it may fail for their lack alone.
    let lacks_variables = !is_unused && !config.operator.test_environment.is_empty();
    if let Err(Error::Setup(failed)) = &mut ended {
        failed.is_repairable = has_other_locks || lacks_variables;
    }
    match ended {
        Ok(()) => Ok(None),
        Err(Error::Setup(failed)) if failed.is_repairable => Ok(Some(failed)),
        Err(error) => Err(error),
    }
}

/// Returns `true` unless it is certain that no implementing agent has run in the worktree.
fn may_have_run(ctx: &JobContext) -> bool {
    let is_repeated_run = ctx.attempt > 1 && matches!(ctx.request.job, Job::Implement(_));
    ctx.task_loop.has_work || is_repeated_run
}

/// Commit in a checkout that a setup prepares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitToSetUp {
    pub(crate) commit: CommitId,
    /// Set if its lock files are not those of the base commit.
    pub(crate) has_other_locks: bool,
}

/// Prepares a checkout for gates or judges, unless it is prepared already. The commit is checked
/// out, before and after.
///
/// With the lock files of the base commit, the setup runs on all files of the base commit, in an
/// empty checkout.
pub(crate) async fn set_up_checkout(
    (config, processes, egress, store): SetupHost<'_>,
    ctx: &JobContext,
    project: &ProjectContext,
    checkout: &GateCheckout,
    CommitToSetUp { commit, has_other_locks }: CommitToSetUp,
) -> Result<(), Error> {
    let place = CommandPlace {
        path: checkout.path(),
        repository: checkout.repository(),
        home: checkout.home(),
    };
    let (variables, name) = if has_other_locks {
        (TestVariables::Withheld, "a checkout of the change")
    } else {
        (TestVariables::Included, "a checkout of the base commit")
    };
    let Some(setup) = place.setup((config, egress), ctx, project, variables)? else {
        return Ok(());
    };
    if checkout.is_set_up(&setup).await.map_err(setup_error)? {
        return Ok(());
    }
    let base = ctx.base()?;
    let runs_on_base = !has_other_locks && commit != base;
    if runs_on_base {
        checkout.empty().await?;
        checkout.check_out(base).await?;
    }
    if variables == TestVariables::Included {
        record_test_secrets(store, config, ctx, "setup").await?;
    }
    place.prepare_home(config)?;
    let which = (ctx.run_id(), now());
    let ended = checkout.set_up(&setup, which, processes, &ctx.stop).await;
    let mut ended = check_outcome(config, &setup, name, ended);
    if let Err(Error::Setup(failed)) = &mut ended {
        failed.is_repairable = has_other_locks;
    }
    ended?;
    if runs_on_base {
        checkout.check_out(commit).await?;
    }
    Ok(())
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
        Err(error) => Err(setup_error(error)),
    }
}

fn setup_error(error: setup::Error) -> Error {
    match error {
        setup::Error::Cancelled => Error::Stopped,
        setup::Error::Checkout(error) => error.into(),
        setup::Error::Process(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_hides_the_folders_of_credentials() {
        let data = PathBuf::from("/home/ada/.local/share/tamma");
        let work = data.join("work");
        let place = CommandPlace {
            path: work.join("checkouts/1"),
            repository: Path::new("/home/ada/greeter"),
            home: work.join("homes/1"),
        };
        let config = WorkerConfig { hidden: vec![data.clone()], ..WorkerConfig::new(&work) };
        let rules = Rules::default();
        let sandbox = place.sandbox(&config, &rules, SandboxKind::Bubblewrap, Network::Disabled);
        let forges = work.join("forges");
        assert_eq!(sandbox.hidden, [work, forges, data]);
    }
}
