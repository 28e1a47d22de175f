//! Working directory of an agent.

use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, TaskId};
use tamma_engine::agent::RunMode;
use tamma_engine::gate::GateCheckout;
use tamma_engine::missing_content::MissingContent;
use tamma_engine::private_git::PrivateGit;
use tamma_engine::worktree::Worktree;

use crate::config::WorkerConfig;
use crate::error::Error;
use crate::setup::setup_home;

/// Working directory of an agent.
#[derive(Clone, Copy)]
pub(crate) enum WorkingFolder<'a> {
    /// Empty directory without a repository.
    Empty(&'a Path),
    /// Worktree of the task.
    Worktree(&'a Worktree),
    /// Disposable checkout of a commit, for agents that judge it.
    Checkout(&'a GateCheckout),
}

impl WorkingFolder<'_> {
    pub(super) fn path(self) -> PathBuf {
        match self {
            Self::Empty(path) => path.to_owned(),
            Self::Worktree(worktree) => worktree.path().to_owned(),
            Self::Checkout(checkout) => checkout.path(),
        }
    }

    /// Returns what the directory lacks of a commit.
    pub(super) async fn missing_content(self, base: CommitId) -> Result<MissingContent, Error> {
        let mirror = match self {
            Self::Empty(_) => return Ok(MissingContent::default()),
            Self::Worktree(worktree) => worktree.mirror(),
            Self::Checkout(checkout) => checkout.mirror(),
        };
        Ok(mirror.missing_content(base).await?)
    }

    /// Returns the home directory of the setup that prepared this directory.
    pub(super) fn setup_home(self, config: &WorkerConfig, task: TaskId) -> PathBuf {
        match self {
            Self::Empty(_) | Self::Worktree(_) => setup_home(config, task),
            Self::Checkout(checkout) => checkout.home(),
        }
    }

    /// Opens a private git directory below `homes`. Agents that judge never see what another agent
    /// left in one.
    pub(super) async fn private_git(
        self,
        homes: &Path,
        mode: RunMode,
    ) -> Result<Option<PrivateGit>, Error> {
        let (name, fresh) = match mode {
            RunMode::Implement | RunMode::Phase => ("git-work", false),
            _ => ("git-read", true),
        };
        let folder = homes.join(name);
        Ok(match self {
            Self::Empty(_) => None,
            Self::Worktree(worktree) => Some(worktree.private_git(&folder, fresh).await?),
            Self::Checkout(checkout) => Some(checkout.private_git(&folder).await?),
        })
    }
}

impl<'a> From<&'a Worktree> for WorkingFolder<'a> {
    fn from(worktree: &'a Worktree) -> Self {
        Self::Worktree(worktree)
    }
}

impl<'a> From<&'a GateCheckout> for WorkingFolder<'a> {
    fn from(checkout: &'a GateCheckout) -> Self {
        Self::Checkout(checkout)
    }
}
