//! Where a task's work is: here, and in the project's repository as we saw it last.
//!
//! | here | there | what |
//! | --- | --- | --- |
//! | `refs/heads/tamma/<task>` | `refs/tamma/work/<task>` | what runs have committed |
//! | `refs/tamma/salvage/<task>` | the same | what is not committed, the earlier salvage behind it |
//! | `refs/tamma/aside/<task>/<commit>` | the same | what a host had that others had gone past |
//!
//! None of those there is a branch, so nobody sees them who does not look for them. What the
//! project's repository had when we last looked or wrote is kept in a file of the mirror; it is the
//! lease under which we write, so a host that was overtaken cannot overwrite a newer one's work.

use std::path::PathBuf;

use tamma_core::ids::{CommitId, TaskId};
use tokio::fs;

use crate::git::Answer;
use crate::mirror::{Error, Mirror, branch, disk};

/// The trailer by which a commit says which piece of work made it.
pub(crate) const RUN: &str = "Tamma-Run";

/// The trailer by which a salvage says what the branch was at.
pub(crate) const BRANCH: &str = "Tamma-Branch";

/// A commit that a ref is at, with what is asked about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) commit: CommitId,
    pub(crate) tree: String,
    pub(crate) parents: Vec<CommitId>,
    /// Which piece of work it says it is of.
    pub(crate) run: String,
    /// What the branch was at when this was saved.
    pub(crate) branch: Option<CommitId>,
}

/// What the project's repository has of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct There {
    pub(crate) work: Option<CommitId>,
    pub(crate) salvage: Option<CommitId>,
}

/// Where a task's work is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refs {
    pub(crate) branch: Option<Tip>,
    pub(crate) salvage: Option<Tip>,
    /// What the project's repository had when we last looked or wrote.
    pub(crate) seen: There,
}

/// The name of a task's branch, whole.
pub(crate) fn on_branch(task: TaskId) -> String {
    format!("refs/heads/{}", branch(task))
}

/// Where a task's commits are in the project's repository.
pub(crate) fn work(task: TaskId) -> String {
    format!("refs/tamma/work/{task}")
}

/// Where a task's salvage is, here and there.
pub(crate) fn salvage(task: TaskId) -> String {
    format!("refs/tamma/salvage/{task}")
}

/// Where something is put that others have gone past.
pub(crate) fn aside(task: TaskId, commit: CommitId) -> String {
    let name: String = commit.to_string().chars().take(12).collect();
    format!("refs/tamma/aside/{task}/{name}")
}

impl Refs {
    /// Looks what is here, by one call of git.
    pub(crate) async fn read(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        let format = format!(
            "--format=%(refname)%00%(objectname)%00%(tree)%00%(parent)%00\
             %(trailers:key={RUN},valueonly,separator=%2C)%00\
             %(trailers:key={BRANCH},valueonly,separator=%2C)"
        );
        let (ours, saved) = (on_branch(task), salvage(task));
        let call = ["for-each-ref", &format, &ours, &saved];
        let listed = mirror.git.at(&mirror.path).run(call).await?;
        let mut refs = Self { seen: There::seen(mirror, task).await?, ..Self::default() };
        for line in listed.lines() {
            let mut parts = line.split('\0');
            let mut next = || parts.next().unwrap_or_default();
            let (name, commit, tree, parents, run, at) =
                (next(), next(), next(), next(), next(), next());
            let parents = parents.split(' ').filter(|parent| !parent.is_empty());
            let tip = Tip {
                commit: commit.parse()?,
                tree: tree.to_owned(),
                parents: parents.map(str::parse).collect::<Result<_, _>>()?,
                run: run.trim().to_owned(),
                branch: at.trim().parse().ok(),
            };
            if name == ours {
                refs.branch = Some(tip);
            } else if name == saved {
                refs.salvage = Some(tip);
            }
        }
        Ok(refs)
    }

    /// The commit that the branch is at.
    pub(crate) fn head(&self) -> Option<CommitId> {
        self.branch.as_ref().map(|tip| tip.commit)
    }

    /// The files that were not committed when the branch was left where it is, as a tree.
    pub(crate) fn uncommitted(&self) -> Option<&str> {
        let saved = self.salvage.as_ref()?;
        (saved.branch.is_some() && saved.branch == self.head()).then_some(saved.tree.as_str())
    }

    /// What has to be there so that all of this is.
    pub(crate) fn wanted(&self, task: TaskId) -> There {
        let prefix = format!("{task}/");
        // A branch without a commit of ours is at the base, which is there anyway.
        let ours = self.branch.as_ref().filter(|tip| tip.run.starts_with(&prefix));
        There {
            work: ours.map(|tip| tip.commit).or(self.seen.work),
            salvage: self.salvage.as_ref().map(|tip| tip.commit).or(self.seen.salvage),
        }
    }
}

impl There {
    /// Asks the project's repository, by one call.
    pub(crate) async fn ask(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        let (work, salvage) = (work(task), salvage(task));
        let call = ["ls-remote", "--quiet", &mirror.source, &work, &salvage];
        let listed = mirror.git.at(&mirror.path).run(call).await?;
        let mut there = Self::default();
        for line in listed.lines() {
            match line.split_once('\t') {
                Some((commit, name)) if name == work => there.work = Some(commit.parse()?),
                Some((commit, name)) if name == salvage => there.salvage = Some(commit.parse()?),
                _ => {}
            }
        }
        Ok(there)
    }

    /// What we know it to have.
    pub(crate) async fn seen(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        let path = Self::file(mirror, task);
        let text = match fs::read_to_string(&path).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            read => read.map_err(disk("read", &path))?,
        };
        let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        Ok(Self { work: of("work "), salvage: of("salvage ") })
    }

    /// Keeps it as what we know.
    pub(crate) async fn keep(self, mirror: &Mirror, task: TaskId) -> Result<(), Error> {
        let path = Self::file(mirror, task);
        let folder = mirror.path.join("tamma-seen");
        fs::create_dir_all(&folder).await.map_err(disk("make", &folder))?;
        let line = |name: &str, commit: Option<CommitId>| {
            commit.map(|commit| format!("{name} {commit}\n")).unwrap_or_default()
        };
        let text = line("work", self.work) + &line("salvage", self.salvage);
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, text).await.map_err(disk("write", &unfinished))?;
        fs::rename(&unfinished, &path).await.map_err(disk("rename", &path))
    }

    fn file(mirror: &Mirror, task: TaskId) -> PathBuf {
        mirror.path.join("tamma-seen").join(task.to_string())
    }
}

/// Writes refs to the project's repository: all of them or none, and each only if it is still what
/// we saw. `None` in place of what to write removes it.
pub(crate) async fn push(
    mirror: &Mirror,
    changes: &[(String, Option<CommitId>, Option<CommitId>)],
) -> Result<Answer, Error> {
    let text = |commit: &Option<CommitId>| commit.map(|it| it.to_string()).unwrap_or_default();
    let mut call = ["push", "--quiet", "--atomic", "--no-verify"].map(str::to_owned).to_vec();
    for (name, from, _) in changes {
        call.push(format!("--force-with-lease={name}:{}", text(from)));
    }
    call.push(mirror.source.clone());
    call.extend(changes.iter().map(|(name, _, to)| format!("{}:{name}", text(to))));
    Ok(mirror.git.at(&mirror.path).ask(&call).await?)
}
