//! Disk usage of a worker's data directory: worktrees, mirrors, homes and gate checkouts.
//!
//! Everything can be created again from the project's repository, provided that it has all work.
//! Nothing is removed before that is confirmed.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use strum::Display;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::repository_address::RepositoryAddress;
use tamma_core::task::is_branch_of;
use tokio::fs;

use crate::git::{Git, QUERY_LIMIT, remote_arguments};
use crate::mirror::{Error, Mirror, disk_error, task_branch};
use crate::process::ProcessRecords;
use crate::worktree::{UncommittedWork, Worktree, remove_path, remove_remote_refs};

/// Type of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WorkspaceKind {
    /// Worktree of a task.
    Worktree,
    /// Mirror of a project's repository.
    Mirror,
    /// Home of a task's runs.
    Home,
    /// Checkout for gates, of a task or of a project's base commits.
    Gates,
}

/// Directory in a worker's data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// Type of the workspace.
    pub kind: WorkspaceKind,
    /// Path of the directory.
    pub path: PathBuf,
    /// Task that it belongs to, if any.
    pub task: Option<TaskId>,
    /// Project, if known.
    pub project: Option<ProjectId>,
    /// Disk usage in bytes.
    pub bytes: u64,
    /// Modification time of the top-level directory.
    pub changed: SystemTime,
    /// Reason to keep it: it is in use, or its work is not saved elsewhere. `None` if it can be
    /// removed.
    pub unsaved: Option<String>,
}

/// Data directory of a worker.
#[derive(Debug, Clone)]
pub struct Workspaces {
    git: Git,
    data: PathBuf,
}

/// Refs of the project's repository with their commits, or the error of the query.
struct RemoteRefs(Result<Vec<(String, String)>, String>);

impl Workspaces {
    /// Opens a data directory, which need not exist yet.
    pub fn new(git: Git, data: &Path) -> Self {
        Self { git, data: data.to_owned() }
    }

    /// Returns the total disk usage in bytes.
    pub async fn total_bytes(&self) -> u64 {
        disk_usage(self.data.clone()).await
    }

    /// Lists all workspaces, largest first.
    pub async fn list(&self) -> Result<Vec<Workspace>, Error> {
        let mut workspaces = Vec::new();
        let busy = self.busy_tasks().await;
        for (path, name) in list_dirs(&self.data.join("mirrors")).await? {
            let Some(project) = name.strip_suffix(".git").and_then(|id| id.parse().ok()) else {
                continue;
            };
            let project = ProjectId(project);
            let Some(mirror) = self.mirror(project).await? else { continue };
            let listed = RemoteRefs::list(&mirror).await;
            let mut worktrees = 0;
            for (_, name) in list_dirs(&path.join("worktrees")).await? {
                let Some(task) = name.parse().ok().map(TaskId) else { continue };
                let Some(tree) = Worktree::find(&mirror, task).await? else { continue };
                worktrees += 1;
                // One damaged worktree must not hide the others.
                let unsaved = listed.unsaved_in_worktree(&tree).await;
                let mut unsaved = unsaved.unwrap_or_else(|error| Some(error.to_string()));
                if busy.contains(&task) {
                    unsaved = Some("in use by a process".to_owned());
                }
                let location = (WorkspaceKind::Worktree, tree.path().to_owned());
                workspaces.push(self.describe(location, Some(task), Some(project), unsaved).await?);
            }
            let unsaved = match worktrees {
                0 => listed.unsaved_in_mirror(&mirror).await?,
                _ => Some("it still has worktrees".to_owned()),
            };
            workspaces.push(
                self.describe((WorkspaceKind::Mirror, path), None, Some(project), unsaved).await?,
            );
        }
        for (path, name) in list_dirs(&self.data.join("homes")).await? {
            let task = name.get(..36).and_then(|id| id.parse().ok()).map(TaskId);
            let unsaved = match task {
                Some(task) if busy.contains(&task) => Some("in use by a process".to_owned()),
                Some(_) => None,
                None => Some("unknown owner".to_owned()),
            };
            workspaces.push(self.describe((WorkspaceKind::Home, path), task, None, unsaved).await?);
        }
        for (path, name) in list_dirs(&self.data.join("gates")).await? {
            let Ok(id) = name.parse() else { continue };
            let project = Mirror::exists(&self.data, ProjectId(id)).await.then_some(ProjectId(id));
            let task = project.is_none().then_some(TaskId(id));
            let busy = task.is_some_and(|task| busy.contains(&task));
            let unsaved = busy.then(|| "in use by a process".to_owned());
            workspaces
                .push(self.describe((WorkspaceKind::Gates, path), task, project, unsaved).await?);
        }
        workspaces.sort_by_key(|it| std::cmp::Reverse(it.bytes));
        Ok(workspaces)
    }

    /// Removes a workspace if all of its work is saved elsewhere. Returns the reason if it stays.
    ///
    /// With `delivered`, the task is completed, so work that is not on the branch can be discarded.
    pub async fn remove(&self, it: &Workspace, delivered: bool) -> Result<Option<String>, Error> {
        if let Some(task) = it.task
            && self.busy_tasks().await.contains(&task)
        {
            return Ok(Some("in use by a process".to_owned()));
        }
        match (it.kind, it.task, it.project) {
            (WorkspaceKind::Worktree, Some(task), Some(project)) => {
                let Some(mirror) = self.mirror(project).await? else {
                    return Ok(Some("its mirror is missing".to_owned()));
                };
                let Some(tree) = Worktree::find(&mirror, task).await? else { return Ok(None) };
                let is_there = RemoteRefs::list(&mirror).await.has_branch_of(&tree).await?;
                if delivered && is_there {
                    let commit = tree.head().await?;
                    tree.remove(false).await?;
                    // Another host may have recorded the completion without removing the refs.
                    remove_remote_refs(&mirror, task, commit).await?;
                    return Ok(None);
                }
                let saved = tree.checkpoint().await?;
                if saved.pushed {
                    tree.remove(true).await?;
                    return Ok(None);
                }
                Ok(Some(
                    saved
                        .push_error
                        .unwrap_or_else(|| "its work is not saved elsewhere".to_owned()),
                ))
            }
            (WorkspaceKind::Mirror, _, Some(project)) => {
                let Some(mirror) = self.mirror(project).await? else { return Ok(None) };
                let _lock = mirror.lock().await?;
                if !list_dirs(&mirror.path.join("worktrees")).await?.is_empty() {
                    return Ok(Some("it still has worktrees".to_owned()));
                }
                let unsaved = RemoteRefs::list(&mirror).await.unsaved_in_mirror(&mirror).await?;
                if unsaved.is_none() {
                    // Remove the marker first, so that a partly removed mirror is created again.
                    let complete = mirror.path.join("tamma-complete");
                    fs::remove_file(&complete).await.map_err(disk_error("remove", &complete))?;
                    remove_path(&mirror.path).await?;
                }
                Ok(unsaved)
            }
            (WorkspaceKind::Home, Some(_), _) => {
                remove_path(&it.path).await?;
                Ok(None)
            }
            (WorkspaceKind::Gates, Some(TaskId(id)), _)
            | (WorkspaceKind::Gates, _, Some(ProjectId(id))) => {
                let cleared = crate::gate::remove_checkout(&self.data, id).await?;
                Ok((!cleared).then(|| "gates are running in it".to_owned()))
            }
            _ => Ok(Some("unknown owner".to_owned())),
        }
    }

    async fn mirror(&self, project: ProjectId) -> Result<Option<Mirror>, Error> {
        let complete = self.data.join("mirrors").join(format!("{project}.git/tamma-complete"));
        let Ok(source) = fs::read_to_string(&complete).await else { return Ok(None) };
        let source: RepositoryAddress = source.trim().parse()?;
        Ok(Some(Mirror::open(self.git.clone(), &self.data, project, &source).await?))
    }

    /// Returns tasks with running processes.
    async fn busy_tasks(&self) -> Vec<TaskId> {
        let Ok(records) = ProcessRecords::open(&self.data).await else { return Vec::new() };
        let records = records.all().await.unwrap_or_default();
        records.into_iter().map(|record| record.run.task).collect()
    }

    async fn describe(
        &self,
        (kind, path): (WorkspaceKind, PathBuf),
        task: Option<TaskId>,
        project: Option<ProjectId>,
        unsaved: Option<String>,
    ) -> Result<Workspace, Error> {
        let top = fs::metadata(&path).await.map_err(disk_error("read", &path))?;
        let changed = top.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes = disk_usage(path.clone()).await;
        Ok(Workspace { kind, path, task, project, bytes, changed, unsaved })
    }
}

impl RemoteRefs {
    async fn list(mirror: &Mirror) -> Self {
        let call = ["ls-remote", "--quiet"].into_iter();
        let refs = ["refs/tamma/*", "refs/heads/tamma/*"];
        let call = call.chain(remote_arguments(&mirror.source, refs));
        let listed = mirror.remote(QUERY_LIMIT).run(call).await;
        Self(match listed {
            Ok(text) => Ok(text
                .lines()
                .filter_map(|line| line.split_once('\t'))
                .map(|(commit, name)| (name.to_owned(), commit.to_owned()))
                .collect()),
            Err(error) => Err(format!("cannot query the project's repository: {error}")),
        })
    }

    fn has(&self, commit: &str) -> bool {
        self.0.as_ref().is_ok_and(|all| all.iter().any(|(_, remote)| remote == commit))
    }

    /// Returns `true` if a branch of the task is at a commit.
    fn is_delivered(&self, task: TaskId, commit: &str) -> bool {
        let is_branch = |name: &str| {
            name.strip_prefix("refs/heads/").is_some_and(|name| is_branch_of(task, name))
        };
        self.0
            .as_ref()
            .is_ok_and(|all| all.iter().any(|(name, at)| at == commit && is_branch(name)))
    }

    /// Returns `true` if the task's branch has the same commit there.
    async fn has_branch_of(&self, tree: &Worktree) -> Result<bool, Error> {
        Ok(self.is_delivered(tree.task(), &tree.head().await?.to_string()))
    }

    /// Returns the reason if a worktree has unsaved work.
    async fn unsaved_in_worktree(&self, tree: &Worktree) -> Result<Option<String>, Error> {
        if let Err(reason) = &self.0 {
            return Ok(Some(reason.clone()));
        }
        let contents = tree.contents().await?;
        if let Some(commit) = contents.committed.filter(|commit| !self.has(&commit.to_string())) {
            return Ok(Some(format!("{commit} is not pushed")));
        }
        Ok(match contents.uncommitted {
            UncommittedWork::Clean => None,
            UncommittedWork::Checkpointed(commit) if self.has(&commit.to_string()) => None,
            UncommittedWork::Checkpointed(_) => {
                Some("its uncommitted work is saved on this machine only".to_owned())
            }
            UncommittedWork::Unsaved => Some("it has unsaved work".to_owned()),
        })
    }

    /// Returns the reason if a mirror has unsaved work. Leftovers of delivered tasks do not count.
    async fn unsaved_in_mirror(&self, mirror: &Mirror) -> Result<Option<String>, Error> {
        if let Err(reason) = &self.0 {
            return Ok(Some(reason.clone()));
        }
        let format =
            "--format=%(refname) %(objectname) %(trailers:key=Tamma-Run,valueonly,separator=)";
        let call = ["for-each-ref", format, "refs/heads/tamma", "refs/tamma"];
        let text = mirror.git.bare(&mirror.path).run(call).await?;
        let ours: Vec<(&str, &str, bool)> = text
            .lines()
            .filter_map(|line| {
                let mut parts = line.split(' ');
                Some((
                    parts.next()?,
                    parts.next()?,
                    parts.next().is_some_and(|run| !run.is_empty()),
                ))
            })
            .collect();
        let delivered = |name: &str| {
            let task = name.split('/').nth(3).and_then(|id| id.parse().ok()).map(TaskId);
            let Some(task) = task else { return false };
            let branch = format!("refs/heads/{}", task_branch(task));
            ours.iter().any(|(name, commit, _)| *name == branch && self.is_delivered(task, commit))
        };
        let lost = ours.iter().find(|(name, commit, made)| {
            // Without a commit of a run, the branch is at a commit of the project.
            let is_base = name.starts_with("refs/heads/") && !made;
            !is_base && !self.has(commit) && !delivered(name)
        });
        Ok(lost.map(|(name, ..)| format!("`{name}` is not pushed")))
    }
}

/// Lists subdirectories with their names.
pub(crate) async fn list_dirs(path: &Path) -> Result<Vec<(PathBuf, String)>, Error> {
    let mut entries = match fs::read_dir(path).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(disk_error("read", path))?,
    };
    let mut dirs = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(disk_error("read", path))? {
        if entry.file_type().await.is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            dirs.push((entry.path(), name));
        }
    }
    dirs.sort();
    Ok(dirs)
}

/// Returns the disk usage of a directory. Files that disappear meanwhile count as zero.
async fn disk_usage(path: PathBuf) -> u64 {
    // Without recursion: an agent decides how deep its directories are.
    let walk = move || {
        let mut bytes = 0;
        let mut pending = vec![path];
        while let Some(path) = pending.pop() {
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                pending.extend(entries.map(|entry| entry.path()));
            }
        }
        bytes
    };
    tokio::task::spawn_blocking(walk).await.unwrap_or_default()
}
