//! Repositories on this machine: mirrors, worktrees, and the disk space they use.

use std::sync::Arc;

use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::ids::{CommitId, PipelineId, ProjectId, TaskId};
use tamma_core::pipeline::PIPELINE_METADATA_KEY;
use tamma_core::repository_address::RepositoryAddress;
use tamma_core::task_loop::{Outcome, State, TaskLoop};
use tamma_engine::git::Git;
use tamma_engine::mirror::{self, KnownCommits, Mirror, task_branch};
use tamma_engine::workspaces::{WorkspaceKind, Workspaces};
use tamma_engine::worktree::{self, Author, Worktree};
use tamma_flow::activities::JobResult;
use tamma_store::Store;

use crate::config::WorkerConfig;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::project_context::ProjectContext;

/// Mirrors and worktrees of all projects on this machine. Clones share their state.
#[derive(Clone)]
pub(crate) struct Repositories {
    config: Arc<WorkerConfig>,
    store: Store,
    git: Git,
    /// Commits that the mirrors on this machine are known to have.
    mirror_cache: KnownCommits,
}

impl Repositories {
    /// Finds git. Mirrors are created on demand.
    pub(crate) async fn open(config: Arc<WorkerConfig>, store: Store) -> Result<Self, Error> {
        let git = Git::find("git").await?;
        Ok(Self { config, store, git, mirror_cache: KnownCommits::default() })
    }

    /// Loads the project of a job.
    pub(crate) async fn project(&self, ctx: &JobContext) -> Result<ProjectContext, Error> {
        let project = self.store.project(ctx.project()).await?;
        ProjectContext::load(project, &self.config.environment).await
    }

    /// Returns the newest commit of the branch that a job's task starts from: the branch of its
    /// story, or the base branch.
    pub(crate) async fn newest_base(&self, ctx: &JobContext) -> Result<CommitId, Error> {
        let project = self.store.project(ctx.project()).await?;
        let story = self.story_branch(ctx).await?;
        let branch = story.as_deref().or(ctx.rules.delivery.base.as_deref());
        let source: RepositoryAddress = project.repository.parse().map_err(mirror::Error::from)?;
        Ok(mirror::newest_commit(&self.git, &source, branch).await?)
    }

    /// Returns the branch of the story that a job's task belongs to.
    async fn story_branch(&self, ctx: &JobContext) -> Result<Option<String>, Error> {
        let pipeline = ctx.task.metadata.get(PIPELINE_METADATA_KEY).and_then(|id| id.parse().ok());
        let Some(pipeline) = pipeline.map(PipelineId) else { return Ok(None) };
        match self.store.pipeline(pipeline).await {
            Ok(story) if story.project == ctx.project() => {
                Ok(Some(task_branch(pipeline.as_task())))
            }
            // People can write any metadata.
            Ok(_) | Err(tamma_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the mirror of a project's repository.
    pub(crate) async fn mirror(&self, project: &ProjectContext) -> Result<Mirror, Error> {
        project.mirror(&self.git, &self.config.data_dir, &self.mirror_cache).await
    }

    /// Opens the worktree of a task with its newest work, from any worker.
    pub(crate) async fn worktree(
        &self,
        ctx: &JobContext,
        project: &ProjectContext,
    ) -> Result<Worktree, Error> {
        let mirror = self.mirror(project).await?;
        Ok(Worktree::open_at(&mirror, ctx.task.id, ctx.base()?, ctx.newest_work()).await?)
    }

    /// Frees disk space for a run. Returns a failure if there is not enough.
    pub(crate) async fn free_disk_space(
        &self,
        project: &ProjectContext,
    ) -> Result<Option<JobResult>, Error> {
        let Some(gigabytes) = project.rules.engines.disk_gb else { return Ok(None) };
        let limit = u64::from(gigabytes) * 1_000_000_000;
        let workspaces = Workspaces::new(self.git.clone(), &self.config.data_dir);
        let mut used = workspaces.total_bytes().await;
        if used <= limit {
            return Ok(None);
        }
        let mut listed = workspaces.list().await?;
        listed.sort_by_key(|it| it.changed);
        for it in listed.iter().filter(|it| it.kind != WorkspaceKind::Mirror) {
            let Some(task) = it.task else { continue };
            let task_loop = match self.store.task(task).await {
                Ok(stored) => stored.task_loop,
                // The worktree of a story stays until its branch is merged.
                Err(tamma_store::Error::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let Ok(task_loop) = task_loop else { continue };
            if !task_loop.state.is_terminal() {
                continue;
            }
            match workspaces.remove(it, task_loop.state == State::Completed).await {
                Ok(None) => used = used.saturating_sub(it.bytes),
                Ok(Some(reason)) => {
                    tracing::warn!(%task, reason, "workspace of an ended task kept");
                }
                // Its agent may have caused it, and must not stop other tasks.
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(%task, error, "failed to remove workspace of an ended task");
                }
            }
            if used <= limit {
                return Ok(None);
            }
        }
        let reason = format!(
            "disk limit of this worker reached: workspaces of open tasks, or work that cannot be \
             pushed, use {} MB of {} MB (`engines.disk_gb`); `tamma workspace list` shows them",
            used / 1_000_000,
            limit / 1_000_000
        );
        let reason = reason.parse().map_err(|_| Error::Internal("invalid reason".to_owned()))?;
        let failure = JobFailure { kind: FailureKind::Unavailable, reason };
        Ok(Some(JobResult::finished(Outcome::Failed(failure))))
    }

    /// Cleans up in the background. `tamma workspace reclaim`, or a full disk, removes the rest
    /// later.
    pub(crate) fn start_cleanup(&self, project: ProjectId, ended: &TaskLoop) {
        // A task without runs may have a worktree from planning; then it has a base commit.
        let Some(base) = ended.pin.map(|pin| pin.base) else { return };
        let delivered = (ended.state == State::Completed).then_some(ended.commit).flatten();
        let (repositories, task) = (self.clone(), ended.task);
        tokio::spawn(async move {
            if let Err(error) = repositories.clean_up(project, task, base, delivered).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%task, error, "failed to clean up after task");
            }
        });
    }

    async fn clean_up(
        &self,
        project: ProjectId,
        task: TaskId,
        base: CommitId,
        delivered: Option<CommitId>,
    ) -> Result<(), Error> {
        if !Mirror::exists(&self.config.data_dir, project).await {
            // Another host did the work, and cleans up when it needs disk space.
            return Ok(());
        }
        let project = self.store.project(project).await?;
        let project = ProjectContext::load(project, &self.config.environment).await?;
        let mirror = self.mirror(&project).await?;
        if let Some(worktree) = Worktree::find(&mirror, task).await? {
            let saved = worktree.remove(delivered.is_none()).await?;
            if let Some(reason) = saved.push_error {
                tracing::warn!(%task, reason, "failed to push checkpoint; work is on this worker only");
            }
        }
        if !tamma_engine::gate::remove_checkout(&self.config.data_dir, task.0).await? {
            tracing::info!(%task, "gate checkout kept; gates are still running");
        }
        // The delivered branch contains everything. Otherwise the refs stay, for people.
        if let Some(commit) = delivered
            && commit != base
            && let Some(reason) = worktree::remove_remote_refs(&mirror, task, commit).await?
        {
            tracing::info!(%task, reason, "task refs kept in the project's repository");
        }
        Ok(())
    }
}

/// Returns the author of commits.
pub(crate) fn author() -> Author {
    Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() }
}
