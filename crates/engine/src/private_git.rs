//! Private git directory of an agent: own index, refs and objects on top of the mirror's objects.
//!
//! In the sandbox, the link `.git` of the worktree leads here, so `git add`, `stash`, `restore` and
//! `commit` work, and nothing that the agent does reaches the mirror. Tamma commits from the files
//! and never runs git with this directory once an agent has seen it: its index, configuration and
//! hooks are the agent's own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tamma_core::ids::CommitId;
use tokio::fs;

use crate::mirror::{Error, Mirror, disk_error};
use crate::sparse::SparseFolders;
use crate::worktree::remove_path;

/// Configuration of a private repository. The identity is for commits that nobody else sees.
const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[user]
\tname = Agent
\temail = agent@localhost
[gc]
\tauto = 0
[advice]
\tdetachedHead = false
";

/// Name of the git directory in its folder.
const REPOSITORY: &str = "private-repository";

/// Private git directory of an agent in one worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateGit {
    folder: PathBuf,
    objects: PathBuf,
    /// Content of the worktree's link outside the sandbox.
    outer_link: String,
}

/// Repository state that a private directory starts from.
pub(crate) struct PrivateGitSource<'a> {
    pub(crate) mirror: &'a Mirror,
    pub(crate) worktree: &'a Path,
    /// Git's directory of the worktree, in the mirror.
    pub(crate) git_dir: &'a Path,
    pub(crate) commit: CommitId,
    /// Name of the current branch.
    pub(crate) branch: &'a str,
    /// Patterns of files that git does not show.
    pub(crate) exclude: Vec<String>,
}

impl PrivateGit {
    /// Opens the directory in `folder`, and creates it if it is missing, belongs to another commit
    /// or must be `fresh`.
    pub(crate) async fn open(
        folder: &Path,
        source: &PrivateGitSource<'_>,
        fresh: bool,
    ) -> Result<Self, Error> {
        let outer_link = format!("gitdir: {}\n", source.git_dir.display());
        let git = Self {
            folder: folder.to_owned(),
            objects: source.mirror.path.join("objects"),
            outer_link,
        };
        // Outside the agent's reach, unlike the content of the directory.
        let stamp = folder.join("stamp");
        let state = format!("{}\n{}\n{}", source.commit, source.branch, source.exclude.join("\n"));
        let is_same = fs::read_to_string(&stamp).await.is_ok_and(|text| text == state);
        let is_there = fs::symlink_metadata(git.git_dir()).await.is_ok_and(|it| it.is_dir());
        if is_same && is_there && !fresh {
            return Ok(git);
        }
        fs::create_dir_all(folder).await.map_err(disk_error("create", folder))?;
        remove_path(&stamp).await?;
        git.create(source).await?;
        write(&git.link(), &format!("gitdir: {}\n", git.git_dir().display())).await?;
        write(&stamp, &state).await?;
        Ok(git)
    }

    /// Returns the git directory. The agent can write it.
    pub fn git_dir(&self) -> PathBuf {
        self.folder.join(REPOSITORY)
    }

    /// Returns the file that takes the place of the worktree's `.git`.
    pub fn link(&self) -> PathBuf {
        self.folder.join("link")
    }

    /// Returns the objects of the mirror, which the private ones build on.
    pub fn objects(&self) -> &Path {
        &self.objects
    }

    /// Points the worktree's own link here, for sandboxes that cannot replace a file.
    pub async fn attach(&self, worktree: &Path) -> Result<(), Error> {
        let text = format!("gitdir: {}\n", self.git_dir().display());
        replace_link(worktree, &text).await
    }

    /// Points the worktree's own link back to the mirror.
    pub async fn detach(&self, worktree: &Path) -> Result<(), Error> {
        replace_link(worktree, &self.outer_link).await
    }

    /// Creates the directory under another name, which no agent has seen, and renames it.
    async fn create(&self, source: &PrivateGitSource<'_>) -> Result<(), Error> {
        let PrivateGitSource { mirror, worktree, git_dir, commit, branch, exclude } = source;
        let new = self.folder.join("new");
        remove_path(&new).await?;
        let commit = commit.to_string();
        let mut init = vec!["init", "--quiet", "--bare", "--template="];
        let is_long = commit.len() > 40;
        init.extend(is_long.then_some("--object-format=sha256"));
        let init = init.into_iter().map(AsRef::as_ref).chain([new.as_os_str()]);
        mirror.git.outside(&self.folder).run(init).await?;
        let extensions = if is_long { "[extensions]\n\tobjectformat = sha256\n" } else { "" };
        let version = if is_long { "formatversion = 1" } else { "formatversion = 0" };
        let config = CONFIG.replace("formatversion = 0", version) + extensions;
        write(&new.join("config"), &config).await?;
        for folder in ["objects/info", "info"].map(|name| new.join(name)) {
            fs::create_dir_all(&folder).await.map_err(disk_error("create", &folder))?;
        }
        let alternates = format!("{}\n", self.objects.display());
        write(&new.join("objects/info/alternates"), &alternates).await?;
        write(&new.join("info/exclude"), &(exclude.join("\n") + "\n")).await?;
        // The project's branches, but not those of other tasks.
        let call = ["for-each-ref", "--format=%(objectname) %(refname)", "refs/remotes/origin"];
        let mut refs = mirror.git.bare(&mirror.path).run(call).await?;
        let _ = write!(refs, "\n{commit} refs/heads/{branch}\n");
        write(&new.join("packed-refs"), refs.trim_start()).await?;
        write(&new.join("HEAD"), &format!("ref: refs/heads/{branch}\n")).await?;
        let git = || mirror.git.in_worktree(&new, worktree);
        git().run(["read-tree", &commit]).await?;
        SparseFolders::read(git_dir).await.mark(git, worktree).await?;
        // Exits with 1 if a file differs from the commit.
        git().output(&["update-index", "-q", "--refresh"]).await?;
        let repository = self.git_dir();
        remove_path(&repository).await?;
        fs::rename(&new, &repository).await.map_err(disk_error("rename", &new))
    }
}

/// Returns `true` if the link of a worktree leads to a private git directory.
pub(crate) fn is_private_link(text: &str) -> bool {
    text.starts_with("gitdir: ") && text.trim_end().ends_with(&format!("/{REPOSITORY}"))
}

/// Replaces the link of a worktree, without following a link that an agent may have put there.
async fn replace_link(worktree: &Path, text: &str) -> Result<(), Error> {
    let (link, new) = (worktree.join(".git"), worktree.join(".git-tamma-new"));
    remove_path(&new).await?;
    write(&new, text).await?;
    if fs::symlink_metadata(&link).await.is_ok_and(|it| it.is_dir()) {
        // An agent's own repository. Its files are still its work.
        let replaced = worktree.join(".git-replaced");
        remove_path(&replaced).await?;
        fs::rename(&link, &replaced).await.map_err(disk_error("rename", &link))?;
    }
    fs::rename(&new, &link).await.map_err(disk_error("rename", &new))
}

async fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).await.map_err(disk_error("write", path))
}
