//! Repositories on this machine: mirrors, worktrees, and the disk space they use.

use std::sync::Arc;
use std::time::SystemTime;

use tamma_connect::forge::Forges;
use tamma_core::ids::{CommitId, Digest, PipelineId, ProjectId, TaskId};
use tamma_core::pipeline::PIPELINE_METADATA_KEY;
use tamma_core::repository_address::RepositoryAddress;
use tamma_core::rules::Rules;
use tamma_core::task_loop::{State, TaskLoop};
use tamma_engine::git::{Git, GitLogin};
use tamma_engine::mirror::{self, KnownCommits, Mirror, task_branch};
use tamma_engine::workspaces::{Workspace, WorkspaceKind, Workspaces};
use tamma_engine::worktree::{self, Author, Worktree};
use tamma_store::{RegisteredProject, Store};

use crate::config::WorkerConfig;
use crate::content_cache::RecentValues;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::project_config::{RemoteConfigs, local_folder, read_local};
use crate::project_context::ProjectContext;

/// Mirrors and worktrees of all projects on this machine. Clones share their state.
#[derive(Clone)]
pub(crate) struct Repositories {
    config: Arc<WorkerConfig>,
    store: Store,
    git: Git,
    /// Forges of the operator, which have the logins for git.
    forges: Forges,
    /// Commits that the mirrors on this machine are known to have.
    mirror_cache: KnownCommits,
    /// Configurations of remote repositories.
    remote_configs: RemoteConfigs,
    /// Valid configurations by the hash of their text; `None` stands for no text. The environment and
    /// the operator's limits do not change while a worker runs.
    loaded_rules: RecentValues<Option<Digest>, Rules>,
}

/// Maximum number of cached configurations.
const MAX_LOADED_RULES: usize = 20;

impl Repositories {
    /// Finds git. Mirrors are created on demand.
    pub(crate) async fn open(
        config: Arc<WorkerConfig>,
        store: Store,
        forges: Forges,
    ) -> Result<Self, Error> {
        let logins = forges.clone();
        // A login can expire during a run, so each command asks for it.
        let git = Git::find("git").await?.with_logins(Arc::new(move |address| {
            let forges = logins.clone();
            Box::pin(async move {
                find_login(&forges, &address).await.map_err(|error| error.to_string())
            })
        }));
        Ok(Self {
            config,
            store,
            git,
            forges,
            mirror_cache: KnownCommits::default(),
            remote_configs: RemoteConfigs::default(),
            loaded_rules: RecentValues::new(MAX_LOADED_RULES),
        })
    }

    async fn load_project(&self, project: RegisteredProject) -> Result<ProjectContext, Error> {
        let WorkerConfig { environment, operator, .. } = &*self.config;
        let text = Box::pin(self.config_text(&project)).await?;
        let digest = text.as_deref().map(|text| Digest::of(text.as_bytes()));
        if let Some(rules) = self.loaded_rules.get(&digest) {
            return Ok(ProjectContext { project, rules });
        }
        let loaded = ProjectContext::load(project, text.as_deref(), environment, operator)?;
        self.loaded_rules.put(digest, loaded.rules.clone());
        Ok(loaded)
    }

    /// Reads the configuration file of a project: of its folder, or of the default branch of a remote
    /// repository, with the login of its forge.
    async fn config_text(&self, project: &RegisteredProject) -> Result<Option<String>, Error> {
        if let Some(folder) = local_folder(&project.repository) {
            return read_local(folder).await;
        }
        if let Some(known) = self.remote_configs.recent(&project.repository) {
            return Ok(known.text);
        }
        let git = self.git_for(&project.repository).await?;
        self.remote_configs.read(git, &self.config.data_dir, project, &self.mirror_cache).await
    }

    /// Loads the project of a job.
    pub(crate) async fn project(&self, ctx: &JobContext) -> Result<ProjectContext, Error> {
        let project = self.registered_project(ctx).await?;
        self.load_project(project).await
    }

    /// Returns the project of a job as it was when the job started, if that is known.
    async fn registered_project(&self, ctx: &JobContext) -> Result<RegisteredProject, Error> {
        match &ctx.registered_project {
            Some(project) => Ok(project.clone()),
            None => Ok(self.store.project(ctx.project()).await?),
        }
    }

    /// Loads a project.
    pub(crate) async fn project_by_id(&self, id: ProjectId) -> Result<ProjectContext, Error> {
        let project = self.store.project(id).await?;
        self.load_project(project).await
    }

    /// Returns the newest commit of the branch that a job's task starts from: the branch of its
    /// story, or the base branch.
    pub(crate) async fn newest_base(&self, ctx: &JobContext) -> Result<CommitId, Error> {
        let project = self.registered_project(ctx).await?;
        let story = self.story_branch(ctx).await?;
        let branch = story.as_deref().or(ctx.rules.delivery.base.as_deref());
        let source: RepositoryAddress = project.repository.parse().map_err(mirror::Error::from)?;
        let git = self.git_for(&project.repository).await?;
        Ok(mirror::newest_commit(&git, &source, branch).await?)
    }

    /// Returns the branch of the story that a job's task belongs to. The story delivers the changes of
    /// its tasks.
    pub(crate) async fn story_branch(&self, ctx: &JobContext) -> Result<Option<String>, Error> {
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
        let git = self.git_for(&project.project.repository).await?;
        project.mirror(&git, &self.config.data_dir, &self.mirror_cache).await
    }

    /// Returns git for a repository, if the login for it can be found. The error says whether a retry
    /// can help.
    async fn git_for(&self, address: &str) -> Result<Git, Error> {
        find_login(&self.forges, address).await?;
        Ok(self.git.clone())
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

    /// Frees disk space for a run. Returns the reason if there is not enough.
    pub(crate) async fn free_disk_space(
        &self,
        project: &ProjectContext,
    ) -> Result<Option<String>, Error> {
        match project.rules.engines.disk_gb {
            Some(gigabytes) => self.reduce_to(u64::from(gigabytes) * 1_000_000_000).await,
            None => Ok(None),
        }
    }

    /// Removes workspaces that nobody needs, oldest first, until they use at most this many bytes.
    async fn reduce_to(&self, limit: u64) -> Result<Option<String>, Error> {
        let workspaces = Workspaces::new(self.git.clone(), &self.config.data_dir);
        let mut used = workspaces.total_bytes().await;
        if used <= limit {
            return Ok(None);
        }
        let mut listed = workspaces.list().await?;
        listed.sort_by_key(|it| it.changed);
        for it in listed.iter().filter(|it| it.kind != WorkspaceKind::Mirror) {
            let Some(task) = it.task else { continue };
            let Some(is_delivered) = self.ended_owner(task).await? else { continue };
            if remove_workspace(&workspaces, it, is_delivered).await {
                used = used.saturating_sub(it.bytes);
            }
            if used <= limit {
                return Ok(None);
            }
        }
        Ok(Some(format!(
            "disk limit of this worker reached: workspaces of open tasks and stories, or work that \
             cannot be pushed, use {} MB of {} MB (`engines.disk_gb`); `tamma workspace list` shows \
             them",
            used / 1_000_000,
            limit / 1_000_000
        )))
    }

    /// Removes the workspaces of ended tasks and stories that have not changed since a time, if their
    /// work is saved elsewhere. Returns their number.
    pub(crate) async fn remove_old_workspaces(&self, before: SystemTime) -> Result<u64, Error> {
        let workspaces = Workspaces::new(self.git.clone(), &self.config.data_dir);
        let mut removed = 0;
        for it in workspaces.list().await? {
            if it.kind == WorkspaceKind::Mirror || it.changed >= before {
                continue;
            }
            let Some(task) = it.task else { continue };
            let Some(is_delivered) = self.ended_owner(task).await? else { continue };
            removed += u64::from(remove_workspace(&workspaces, &it, is_delivered).await);
        }
        Ok(removed)
    }

    /// Returns whether the work of an ended task or story is delivered completely, or `None` while
    /// its workspaces are needed.
    async fn ended_owner(&self, owner: TaskId) -> Result<Option<bool>, Error> {
        use tamma_store::Error::{Corrupt, NotFound};
        match self.store.task(owner).await {
            Ok(stored) => {
                let ended = stored.task_loop.ok().filter(|it| it.state.is_terminal());
                return Ok(ended.map(|it| it.state == State::Completed));
            }
            Err(NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match self.store.pipeline(PipelineId(owner.0)).await {
            // A later run continues from the refs of the story, so they stay.
            Ok(story) => Ok((story.run.is_some() && !story.is_live).then_some(false)),
            Err(NotFound { .. } | Corrupt(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Cleans up in the background. `tamma workspace reclaim`, or a full disk, removes the rest
    /// later.
    pub(crate) fn start_cleanup(
        &self,
        project: (ProjectId, Option<RegisteredProject>),
        ended: &TaskLoop,
    ) {
        // A task without runs may have a worktree from planning; then it has a base commit.
        let Some(base) = ended.pin.map(|pin| pin.base) else { return };
        let delivered = delivered_commit(ended);
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
        (project, registered): (ProjectId, Option<RegisteredProject>),
        task: TaskId,
        base: CommitId,
        delivered: Option<CommitId>,
    ) -> Result<(), Error> {
        if !Mirror::exists(&self.config.data_dir, project).await {
            // Another host did the work, and cleans up when it needs disk space.
            return Ok(());
        }
        let project = match registered {
            Some(registered) => registered,
            None => self.store.project(project).await?,
        };
        let project = self.load_project(project).await?;
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

/// Removes a workspace whose work is saved elsewhere. Returns `false` if it stays.
async fn remove_workspace(workspaces: &Workspaces, it: &Workspace, is_delivered: bool) -> bool {
    let path = it.path.display();
    match workspaces.remove(it, is_delivered).await {
        Ok(None) => return true,
        Ok(Some(reason)) => tracing::warn!(%path, reason, "workspace kept"),
        // Its agent may have caused it, and must not stop other tasks.
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(%path, error, "failed to remove workspace");
        }
    }
    false
}

/// Returns the newest commit of a completed task's work. A merge can make another commit of it.
fn delivered_commit(ended: &TaskLoop) -> Option<CommitId> {
    let pushed = ended.pull_request.as_ref().map(|it| it.pushed);
    (ended.state == State::Completed).then_some(pushed.or(ended.commit)).flatten()
}

/// Finds the login for a repository in a forge. Other repositories use the operator's own credentials.
async fn find_login(forges: &Forges, address: &str) -> Result<Option<GitLogin>, Error> {
    if address.starts_with('/') {
        return Ok(None);
    }
    let found = forges.for_repository(address);
    let found = found.map_err(|error| Error::Configuration(error.to_string()))?;
    let Some((forge, _)) = found else { return Ok(None) };
    let login = forge.git_login().await?;
    Ok(Some(GitLogin { user: login.user, password: login.password }))
}

/// Returns the author of commits.
pub(crate) fn author() -> Author {
    Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() }
}

#[cfg(test)]
mod tests {
    use tamma_core::pipeline::{
        GateAnswer, PipelineDefinition, PipelineEvent, PipelineRequest, PipelineRun, step,
    };
    use tamma_core::pull_request::{OpenedPullRequest, PullRequestState};
    use tamma_core::task_loop::Timestamp;
    use tamma_store::{PipelineWrite, RegisteredProject};
    use tamma_testkit::postgres::TestDatabase;
    use tamma_testkit::sample::sample_task_loop;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn merged_work_is_found_by_the_commit_that_was_pushed() {
        let commit = |digit: &str| -> CommitId { digit.repeat(40).parse().unwrap() };
        let mut task_loop = sample_task_loop();
        task_loop.commit = Some(commit("2"));
        assert_eq!(delivered_commit(&task_loop), None, "not completed");
        task_loop.state = State::Completed;
        assert_eq!(delivered_commit(&task_loop), Some(commit("2")));
        let url = "https://forge.example/o/r/pulls/7".to_owned();
        let opened = OpenedPullRequest { number: 7, url, head: commit("1"), base: commit("0") };
        task_loop.pull_request = Some(Box::new(PullRequestState::new(&opened, commit("1"))));
        assert_eq!(delivered_commit(&task_loop), Some(commit("1")));
    }

    #[tokio::test]
    async fn only_workspaces_of_ended_stories_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let database = TestDatabase::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let project = ProjectId(Uuid::from_u128(1));
        let (name, repository) = ("greeter".to_owned(), "/greeter".to_owned());
        store.register_project(&RegisteredProject { id: project, name, repository }).await.unwrap();
        let [waiting, stopped] = [2, 3].map(|number| PipelineId(Uuid::from_u128(number)));
        for (pipeline, story_id) in [(waiting, "A-1"), (stopped, "A-2")] {
            store.ensure_pipeline(pipeline, project, "plans/a", story_id).await.unwrap();
            let request = PipelineRequest {
                definition: PipelineDefinition::built_in(),
                feature_dir: "plans/a".to_owned(),
                story_id: story_id.to_owned(),
                from: 1,
                to: 1,
                approve: [1].into(),
            };
            let (run, at) = (PipelineRun::new(request).unwrap(), Timestamp::UNIX_EPOCH);
            let (mut run, _) = step(&run, at, PipelineEvent::Start).unwrap();
            if pipeline == stopped {
                let by = "Ann".parse().unwrap();
                let event = PipelineEvent::GateAnswered { answer: GateAnswer::Stop, by };
                run = step(&run, at, event).unwrap().0;
            }
            let write = PipelineWrite {
                pipeline,
                number: 1,
                revision: 1,
                started_by: "Ann".parse().unwrap(),
                started_at: at,
                run,
                base: None,
                story_path: None,
                delivered: None,
                delivery_error: None,
                is_live: pipeline == waiting,
                alert: None,
                at,
            };
            store.save_pipeline(&write).await.unwrap();
        }
        let home = |id: Uuid| folder.path().join("homes").join(id.to_string());
        let unknown = Uuid::from_u128(4);
        for id in [waiting.0, stopped.0, unknown] {
            std::fs::create_dir_all(home(id)).unwrap();
            std::fs::write(home(id).join("cache"), "x").unwrap();
        }
        let config = Arc::new(WorkerConfig::new(folder.path()));
        let forges = Forges::open(&config.forges);
        let repositories = Repositories::open(config, store, forges).await.unwrap();
        let left = || [waiting.0, stopped.0, unknown].map(|id| home(id).exists());
        let changed = std::fs::metadata(home(stopped.0)).unwrap().modified().unwrap();
        assert_eq!(repositories.remove_old_workspaces(changed).await.unwrap(), 0, "not that old");
        assert_eq!(left(), [true, true, true]);
        let reason = repositories.reduce_to(0).await.unwrap();
        assert!(reason.is_some_and(|it| it.contains("disk limit")), "open stories stay");
        assert_eq!(left(), [true, false, true]);
        std::fs::create_dir_all(home(stopped.0)).unwrap();
        let later = changed + std::time::Duration::from_hours(1);
        assert_eq!(repositories.remove_old_workspaces(later).await.unwrap(), 1);
        assert_eq!(left(), [true, false, true]);
    }
}
