//! What the data folder of a worker has on its disk: worktrees, mirrors and homes of runs.
//!
//! Anything here can be made again from the project's repository, as long as that has all of it.
//! Nothing is removed before that is certain.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use strum::Display;
use tamma_core::ids::{ProjectId, TaskId};
use tokio::fs;

use crate::git::Git;
use crate::mirror::{Error, Mirror, branch, disk};
use crate::process::Records;
use crate::worktree::{Uncommitted, Worktree, forget};

/// What a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// The checkout of a task.
    Worktree,
    /// Our copy of a project's repository.
    Mirror,
    /// The home of a task's runs.
    Home,
    /// Where gates run on the commits of a task, or on those that a project's tasks start from.
    Gates,
}

/// One folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is, if it is a task's.
    pub task: Option<TaskId>,
    /// The project, if it is known.
    pub project: Option<ProjectId>,
    /// What it takes on the disk.
    pub bytes: u64,
    /// When something in it was last changed, at its top.
    pub changed: SystemTime,
    /// Why it has to stay: something in it is nowhere else, or somebody works in it. Nothing where
    /// all of it is saved elsewhere.
    pub unsaved: Option<String>,
}

/// The data folder of a worker.
#[derive(Debug, Clone)]
pub struct Workspaces {
    git: Git,
    data: PathBuf,
}

/// What the project's repository has, by name.
struct Listed(Result<Vec<(String, String)>, String>);

impl Workspaces {
    /// Those in a data folder, which may not be there yet.
    pub fn new(git: Git, data: &Path) -> Self {
        Self { git, data: data.to_owned() }
    }

    /// What the whole folder takes on the disk.
    pub async fn bytes(&self) -> u64 {
        size(self.data.clone()).await
    }

    /// Everything that is there, the largest first.
    pub async fn list(&self) -> Result<Vec<Workspace>, Error> {
        let mut found = Vec::new();
        let busy = self.busy().await;
        for (path, name) in folders(&self.data.join("mirrors")).await? {
            let Some(project) = name.strip_suffix(".git").and_then(|id| id.parse().ok()) else {
                continue;
            };
            let project = ProjectId(project);
            let Some(mirror) = self.mirror(project).await? else { continue };
            let listed = Listed::of(&mirror).await;
            let mut worktrees = 0;
            for (_, name) in folders(&path.join("worktrees")).await? {
                let Some(task) = name.parse().ok().map(TaskId) else { continue };
                let Some(tree) = Worktree::find(&mirror, task).await? else { continue };
                worktrees += 1;
                let mut unsaved = listed.lacks_of(&tree).await?;
                if busy.contains(&task) {
                    unsaved = Some("a process works in it".to_owned());
                }
                let of = (Kind::Worktree, tree.path().to_owned());
                found.push(self.weigh(of, Some(task), Some(project), unsaved).await?);
            }
            let unsaved = match worktrees {
                0 => listed.lacks_of_all(&mirror).await?,
                _ => Some("it has worktrees".to_owned()),
            };
            found.push(self.weigh((Kind::Mirror, path), None, Some(project), unsaved).await?);
        }
        for (path, name) in folders(&self.data.join("homes")).await? {
            let task = name.get(..36).and_then(|id| id.parse().ok()).map(TaskId);
            let unsaved = match task {
                Some(task) if busy.contains(&task) => Some("a process works in it".to_owned()),
                Some(_) => None,
                None => Some("nobody knows whose it is".to_owned()),
            };
            found.push(self.weigh((Kind::Home, path), task, None, unsaved).await?);
        }
        for (path, name) in folders(&self.data.join("gates")).await? {
            let Ok(id) = name.parse() else { continue };
            let project = Mirror::is_here(&self.data, ProjectId(id)).await.then_some(ProjectId(id));
            let task = project.is_none().then_some(TaskId(id));
            let busy = task.is_some_and(|task| busy.contains(&task));
            let unsaved = busy.then(|| "a process works in it".to_owned());
            found.push(self.weigh((Kind::Gates, path), task, project, unsaved).await?);
        }
        found.sort_by_key(|it| std::cmp::Reverse(it.bytes));
        Ok(found)
    }

    /// Removes one, after everything in it is saved elsewhere. Returns why it stays, if it does.
    ///
    /// `delivered` says that its task is completed, so that what is not on the branch is rubbish.
    pub async fn remove(&self, it: &Workspace, delivered: bool) -> Result<Option<String>, Error> {
        if let Some(task) = it.task
            && self.busy().await.contains(&task)
        {
            return Ok(Some("a process works in it".to_owned()));
        }
        match (it.kind, it.task, it.project) {
            (Kind::Worktree, Some(task), Some(project)) => {
                let Some(mirror) = self.mirror(project).await? else {
                    return Ok(Some("its mirror is not there".to_owned()));
                };
                let Some(tree) = Worktree::find(&mirror, task).await? else { return Ok(None) };
                let is_there = Listed::of(&mirror).await.has_branch_of(&tree).await?;
                if delivered && is_there {
                    let commit = tree.head().await?;
                    tree.remove(false).await?;
                    // Whoever recorded the end may have been another host.
                    forget(&mirror, task, commit).await?;
                    return Ok(None);
                }
                let saved = tree.salvage().await?;
                if saved.pushed {
                    tree.remove(true).await?;
                    return Ok(None);
                }
                Ok(Some(saved.why.unwrap_or_else(|| "it is saved nowhere else".to_owned())))
            }
            (Kind::Mirror, _, Some(project)) => {
                let Some(mirror) = self.mirror(project).await? else { return Ok(None) };
                let _lock = mirror.lock().await?;
                if !folders(&mirror.path.join("worktrees")).await?.is_empty() {
                    return Ok(Some("it has worktrees".to_owned()));
                }
                let unsaved = Listed::of(&mirror).await.lacks_of_all(&mirror).await?;
                if unsaved.is_none() {
                    // It loses what makes it complete first, so that a half of it is made anew.
                    let complete = mirror.path.join("tamma-complete");
                    fs::remove_file(&complete).await.map_err(disk("remove", &complete))?;
                    fs::remove_dir_all(&mirror.path).await.map_err(disk("remove", &mirror.path))?;
                }
                Ok(unsaved)
            }
            (Kind::Home, Some(_), _) => {
                fs::remove_dir_all(&it.path).await.map_err(disk("remove", &it.path))?;
                Ok(None)
            }
            (Kind::Gates, Some(TaskId(id)), _) | (Kind::Gates, _, Some(ProjectId(id))) => {
                let cleared = crate::gate::clear(&self.data, id).await?;
                Ok((!cleared).then(|| "gates run in it".to_owned()))
            }
            _ => Ok(Some("nobody knows whose it is".to_owned())),
        }
    }

    async fn mirror(&self, project: ProjectId) -> Result<Option<Mirror>, Error> {
        let complete = self.data.join("mirrors").join(format!("{project}.git/tamma-complete"));
        let Ok(source) = fs::read_to_string(&complete).await else { return Ok(None) };
        Ok(Some(Mirror::open(self.git.clone(), &self.data, project, source.trim()).await?))
    }

    /// The tasks that a process works for.
    async fn busy(&self) -> Vec<TaskId> {
        let Ok(records) = Records::open(&self.data).await else { return Vec::new() };
        let records = records.all().await.unwrap_or_default();
        records.into_iter().map(|record| record.run.task).collect()
    }

    async fn weigh(
        &self,
        (kind, path): (Kind, PathBuf),
        task: Option<TaskId>,
        project: Option<ProjectId>,
        unsaved: Option<String>,
    ) -> Result<Workspace, Error> {
        let top = fs::metadata(&path).await.map_err(disk("look at", &path))?;
        let changed = top.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes = size(path.clone()).await;
        Ok(Workspace { kind, path, task, project, bytes, changed, unsaved })
    }
}

impl Listed {
    async fn of(mirror: &Mirror) -> Self {
        let call = ["ls-remote", "--quiet", mirror.source(), "refs/tamma/*", "refs/heads/tamma/*"];
        let listed = mirror.git.at(&mirror.path).run(call).await;
        Self(match listed {
            Ok(text) => Ok(text
                .lines()
                .filter_map(|line| line.split_once('\t'))
                .map(|(commit, name)| (name.to_owned(), commit.to_owned()))
                .collect()),
            Err(error) => Err(format!("the project's repository cannot be asked: {error}")),
        })
    }

    fn has(&self, commit: &str) -> bool {
        self.0.as_ref().is_ok_and(|all| all.iter().any(|(_, there)| there == commit))
    }

    fn is_at(&self, name: &str, commit: &str) -> bool {
        self.0.as_ref().is_ok_and(|all| all.iter().any(|(there, at)| there == name && at == commit))
    }

    /// Whether the task's branch is there, as it is here.
    async fn has_branch_of(&self, tree: &Worktree) -> Result<bool, Error> {
        let name = format!("refs/heads/{}", branch(tree.task()));
        Ok(self.is_at(&name, &tree.head().await?.to_string()))
    }

    /// What a worktree has that is nowhere else.
    async fn lacks_of(&self, tree: &Worktree) -> Result<Option<String>, Error> {
        if let Err(why) = &self.0 {
            return Ok(Some(why.clone()));
        }
        let held = tree.holds().await?;
        if let Some(commit) = held.committed.filter(|commit| !self.has(&commit.to_string())) {
            return Ok(Some(format!("{commit} is not pushed")));
        }
        Ok(match held.uncommitted {
            Uncommitted::Nothing => None,
            Uncommitted::Saved(commit) if self.has(&commit.to_string()) => None,
            Uncommitted::Saved(_) => {
                Some("it has work that is saved on this machine only".to_owned())
            }
            Uncommitted::Unsaved => Some("it has work that is not saved".to_owned()),
        })
    }

    /// What a mirror has that is nowhere else. What is left of a delivered task is rubbish.
    async fn lacks_of_all(&self, mirror: &Mirror) -> Result<Option<String>, Error> {
        if let Err(why) = &self.0 {
            return Ok(Some(why.clone()));
        }
        let format =
            "--format=%(refname) %(objectname) %(trailers:key=Tamma-Run,valueonly,separator=)";
        let call = ["for-each-ref", format, "refs/heads/tamma", "refs/tamma"];
        let text = mirror.git.at(&mirror.path).run(call).await?;
        let ours: Vec<(&str, &str, bool)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((
                    words.next()?,
                    words.next()?,
                    words.next().is_some_and(|run| !run.is_empty()),
                ))
            })
            .collect();
        let delivered = |name: &str| {
            let task = name.split('/').nth(3).unwrap_or_default();
            let branch = format!("refs/heads/tamma/{task}");
            ours.iter().any(|(name, commit, _)| *name == branch && self.is_at(&branch, commit))
        };
        let lost = ours.iter().find(|(name, commit, made)| {
            // A branch without a commit of ours is at a commit of the project.
            let is_base = name.starts_with("refs/heads/") && !made;
            !is_base && !self.has(commit) && !delivered(name)
        });
        Ok(lost.map(|(name, ..)| format!("`{name}` is not pushed")))
    }
}

/// The folders in a folder, with their names.
pub(crate) async fn folders(path: &Path) -> Result<Vec<(PathBuf, String)>, Error> {
    let mut entries = match fs::read_dir(path).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(disk("read", path))?,
    };
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(disk("read", path))? {
        if entry.file_type().await.is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push((entry.path(), name));
        }
    }
    found.sort();
    Ok(found)
}

/// What a folder takes on the disk. What vanishes meanwhile takes nothing.
async fn size(path: PathBuf) -> u64 {
    fn walk(path: &Path) -> u64 {
        let Ok(found) = std::fs::symlink_metadata(path) else { return 0 };
        let mut bytes = found.blocks() * 512;
        if found.is_dir() {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            bytes += entries.map(|entry| walk(&entry.path())).sum::<u64>();
        }
        bytes
    }
    tokio::task::spawn_blocking(move || walk(&path)).await.unwrap_or_default()
}
