//! Snapshot of a worktree's files as a tree.
//!
//! `git add` would look into submodules, whose settings an agent can write, and run their filters. So
//! files are listed and classified here, and git hashes exactly the ones that are named.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, Digest};
use tokio::fs;

use super::{SNAPSHOT_INDEX, SnapshotMode, Worktree, remove_path};
use crate::git::{self, GitCommand};
use crate::mirror::{Error, disk_error};
use crate::setup::SetupRecord;
use crate::sparse::SparseFolders;
use crate::special_files::remove_special_files;

/// Maximum size of a file in a change, in bytes. Hosts such as GitHub refuse larger ones.
pub(crate) const MAX_FILE_BYTES: u64 = 100_000_000;

/// Maximum size of all files in a change, in bytes.
const MAX_CHANGE_BYTES: u64 = 500_000_000;

/// Maximum number of files in a change.
const MAX_CHANGED_FILES: usize = 50_000;

/// Files of a worktree as a tree.
pub(super) struct Snapshot {
    pub(super) tree: String,
    /// All files together are within the limits of a change, so every change is.
    pub(super) is_small: bool,
}

/// File of the worktree, as git lists it.
struct ListedFile {
    is_tracked: bool,
    /// Path from the root, in bytes as the system has it.
    path: Vec<u8>,
}

/// Time of the file system, in seconds and nanoseconds.
pub(super) type FileClock = (i64, i64);

/// Names, sizes and times of all files that a snapshot contains. Equal ones mean that no file has
/// changed: an agent cannot set the time of the last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileTimes(Digest);

/// Files of a worktree, by what a snapshot does with them. Tracked files come first.
#[derive(Default)]
struct SnapshotFiles {
    /// Files, links, and folders that were files or are submodules.
    present: Vec<Vec<u8>>,
    /// Tracked files that no longer exist, or are no longer files.
    gone: Vec<Vec<u8>>,
    /// Tracked files above [`MAX_FILE_BYTES`], with their sizes.
    large_tracked: Vec<(Vec<u8>, u64)>,
    /// New files above the limit, with their sizes.
    too_large: Vec<(String, u64)>,
    /// Size of all present files.
    bytes: u64,
}

impl Worktree {
    /// Writes all files as a tree through a separate index.
    ///
    /// The agent's index is not used, because it may hide files. Files that the setup created are
    /// left out.
    pub(super) async fn snapshot(
        &self,
        base: CommitId,
        care: SnapshotMode,
    ) -> Result<String, Error> {
        Ok(self.snapshot_through(SNAPSHOT_INDEX, base, care).await?.tree)
    }

    pub(super) async fn snapshot_through(
        &self,
        index: &str,
        base: CommitId,
        care: SnapshotMode,
    ) -> Result<Snapshot, Error> {
        let index = self.git_dir().join(index);
        for stale in [index.clone(), index.with_extension("lock")] {
            remove_path(&stale).await?;
        }
        remove_special_files(&self.path).await?;
        let git = || self.own_git().env("GIT_INDEX_FILE", &index);
        git().run(["read-tree", &base.to_string()]).await?;
        SparseFolders::read(&self.git_dir()).await.mark(git, &self.path).await?;
        let created: Vec<_> = SetupRecord::read(&self.git_dir()).await.exclusions().collect();
        let (mut files, nested) = parse_listed(&git().run_bytes(list_call(created)).await?);
        files.extend(self.nested_files(nested).await?);
        let root = self.path.clone();
        let files = tokio::task::spawn_blocking(move || classify(&root, files));
        let mut files = files
            .await
            .map_err(|stopped| disk_error("read", &self.path)(std::io::Error::other(stopped)))?;
        self.find_grown_files(base, &mut files).await?;
        if let Some((path, bytes)) = files.too_large.first() {
            if care == SnapshotMode::AllFiles {
                let (path, bytes) = (path.clone(), *bytes);
                return Err(Error::FileTooLarge { path, bytes, limit: MAX_FILE_BYTES });
            }
            tracing::warn!(task = %self.task, path, bytes, "file too large for a checkpoint; left out");
        }
        if !files.gone.is_empty() {
            let call = ["update-index", "--force-remove", "-z", "--stdin"];
            git().input(terminated(&files.gone)).run(call).await?;
        }
        let is_small = files.bytes <= MAX_FILE_BYTES && files.present.len() <= MAX_CHANGED_FILES;
        let mut largest = None;
        for path in update_index(git, files.present, care).await? {
            if let Ok(file) = fs::symlink_metadata(join(&self.path, &path)).await {
                largest = largest.max(Some(file.len()));
            }
        }
        // The disk may have been too full for files that still exist.
        if let Some(bytes) = largest {
            self.check_disk(bytes).await?;
        }
        Ok(Snapshot { tree: git().run(["write-tree"]).await?, is_small })
    }

    /// Returns the time of the file system.
    pub(super) async fn file_clock(&self) -> Result<FileClock, Error> {
        let path = self.git_dir().join("tamma-clock");
        fs::write(&path, "now").await.map_err(disk_error("write", &path))?;
        let written = fs::metadata(&path).await.map_err(disk_error("read", &path))?;
        Ok((written.ctime(), written.ctime_nsec()))
    }

    /// Returns the times of all files that a snapshot contains. Git lists them, and reads none.
    ///
    /// Returns `None` if a file has changed at `before` or later, if one that git knows is gone, and if
    /// there are repositories in the worktree.
    pub(super) async fn file_times(
        &self,
        before: Option<FileClock>,
    ) -> Result<Option<FileTimes>, Error> {
        let head = self.git_dir().join("HEAD");
        let head = fs::read_to_string(&head).await.map_err(disk_error("read", &head))?;
        let git = self.own_git().env("GIT_INDEX_FILE", self.git_dir().join(SNAPSHOT_INDEX));
        let created: Vec<_> = SetupRecord::read(&self.git_dir()).await.exclusions().collect();
        let (files, nested) = parse_listed(&git.run_bytes(list_call(created)).await?);
        if !nested.is_empty() {
            return Ok(None);
        }
        let root = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || read_times(&root, &head, &files, before));
        let times = reading.await;
        times.map_err(|stopped| disk_error("read", &self.path)(std::io::Error::other(stopped)))
    }

    /// Lists the files of nested repositories, which an agent created. Git would store only a
    /// reference or refuse, and the files would be lost with the directory.
    ///
    /// A nested repository is listed as a plain folder, because its configuration and index are the
    /// agent's own.
    async fn nested_files(&self, mut folders: Vec<Vec<u8>>) -> Result<Vec<ListedFile>, Error> {
        let (mut files, no_index) = (Vec::new(), self.git_dir().join("tamma-no-index"));
        while let Some(folder) = folders.pop() {
            let call = ["ls-files", "-t", "-z", "--others", "--exclude-standard"];
            let git = self.mirror.git.in_worktree(&self.git_dir(), &join(&self.path, &folder));
            let listed = git.env("GIT_INDEX_FILE", &no_index).run_bytes(call).await?;
            let (inner, deeper) = parse_listed(&listed);
            let below = |path: Vec<u8>| [folder.clone(), path].concat();
            folders.extend(deeper.into_iter().map(below));
            let inner = inner.into_iter();
            files.extend(inner.map(|file| ListedFile { path: below(file.path), ..file }));
        }
        Ok(files)
    }

    /// Treats large tracked files as too large if their size has changed. Others are hashed.
    async fn find_grown_files(
        &self,
        base: CommitId,
        files: &mut SnapshotFiles,
    ) -> Result<(), Error> {
        if files.large_tracked.is_empty() {
            return Ok(());
        }
        let call = ["ls-tree", "-r", "-z", "-l", "--full-tree", &base.to_string()];
        let listed = self.mirror.git.bare(&self.mirror.path).run_bytes(call).await?;
        let mut sizes = BTreeMap::new();
        for entry in listed.split(|byte| *byte == 0) {
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            let about = String::from_utf8_lossy(&entry[..tab]);
            let size =
                about.split_whitespace().next_back().and_then(|size| size.parse::<u64>().ok());
            sizes.insert(&entry[tab + 1..], size);
        }
        for (path, bytes) in &files.large_tracked {
            if sizes.get(path.as_slice()) == Some(&Some(*bytes)) {
                files.present.insert(0, path.clone());
            } else {
                files.too_large.push((String::from_utf8_lossy(path).into_owned(), *bytes));
            }
        }
        Ok(())
    }

    /// Fails if the difference between two trees is too large for a change.
    pub(super) async fn check_size(&self, from: &str, to: &str) -> Result<(), Error> {
        let git = || self.mirror.git.bare(&self.mirror.path);
        let call = ["diff-tree", "-r", "-z", "--no-renames", "--raw", "--no-abbrev", from, to];
        let new = new_blobs(&git().run_bytes(call).await?);
        if new.len() > MAX_CHANGED_FILES {
            return Err(Error::TooManyFiles { files: new.len(), limit: MAX_CHANGED_FILES });
        }
        let blobs: BTreeSet<_> = new.values().map(String::as_str).collect();
        let names: String = blobs.iter().flat_map(|blob| [*blob, "\n"]).collect();
        let call = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
        let listed = git().input(names).run(call).await?;
        let sizes: BTreeMap<&str, u64> = listed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(blob, size)| Some((blob, size.parse().ok()?)))
            .collect();
        let size = |blob: &str| sizes.get(blob).copied().unwrap_or_default();
        for (path, blob) in &new {
            let (path, bytes) = (String::from_utf8_lossy(path).into_owned(), size(blob));
            if bytes > MAX_FILE_BYTES {
                return Err(Error::FileTooLarge { path, bytes, limit: MAX_FILE_BYTES });
            }
        }
        let bytes: u64 = new.values().map(|blob| size(blob)).sum();
        if bytes > MAX_CHANGE_BYTES {
            return Err(Error::ChangeTooLarge { bytes, limit: MAX_CHANGE_BYTES });
        }
        Ok(())
    }
}

/// Hashes files and puts them into the index.
///
/// If git refuses, the list is halved until only the file is left that git cannot read or convert. It
/// is an error, or left out while an agent is running, which creates and removes files. Returns the files
/// that were left out.
async fn update_index<'a>(
    git: impl Fn() -> GitCommand<'a>,
    files: Vec<Vec<u8>>,
    care: SnapshotMode,
) -> Result<Vec<Vec<u8>>, Error> {
    let (mut pending, mut left_out) = (vec![files], Vec::new());
    while let Some(mut batch) = pending.pop() {
        if batch.is_empty() {
            continue;
        }
        let call = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
        let added = git().input(terminated(&batch)).run(call).await;
        match added {
            Ok(_) => {}
            Err(git::Error::Failed { .. }) if batch.len() > 1 => {
                let later = batch.split_off(batch.len() / 2);
                pending.extend([later, batch]);
            }
            Err(git::Error::Failed { stderr: reason, .. }) => {
                let path = String::from_utf8_lossy(&batch.concat()).into_owned();
                if care == SnapshotMode::AllFiles {
                    return Err(Error::NotCommittable { path, reason });
                }
                tracing::warn!(path, reason, "file left out of a snapshot");
                left_out.extend(batch);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(left_out)
}

/// Parses the output of `ls-files -t -z`. Returns files, and folders that are repositories. Files
/// that a sparse checkout leaves out are neither.
fn parse_listed(listed: &[u8]) -> (Vec<ListedFile>, Vec<Vec<u8>>) {
    let (mut files, mut repositories) = (Vec::new(), Vec::new());
    for entry in listed.split(|byte| *byte == 0) {
        let [tag, b' ', path @ ..] = entry else { continue };
        let (is_tracked, path) = (*tag != b'?', path.to_vec());
        if *tag == b'S' {
            continue;
        }
        if path.ends_with(b"/") {
            repositories.push(path);
        } else {
            files.push(ListedFile { is_tracked, path });
        }
    }
    // A file that became a folder must leave the index before the files in the folder enter it.
    files.sort_by_key(|file| !file.is_tracked);
    (files, repositories)
}

/// Returns the call that lists all files but those that a setup created.
fn list_call(created: Vec<String>) -> impl Iterator<Item = String> {
    let list = ["ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard", "--", "."];
    list.into_iter().map(str::to_owned).chain(created)
}

/// Reads the times of files, without following links.
fn read_times(
    root: &Path,
    head: &str,
    files: &[ListedFile],
    before: Option<FileClock>,
) -> Option<FileTimes> {
    let mut text = head.as_bytes().to_vec();
    for file in files {
        let it = join(root, &file.path).symlink_metadata().ok()?;
        let changed = (it.ctime(), it.ctime_nsec());
        // The content of a folder that git lists is not known.
        if it.is_dir() || before.is_some_and(|before| changed >= before) {
            return None;
        }
        let (modified, number, mode) = ((it.mtime(), it.mtime_nsec()), it.ino(), it.mode());
        let about = format!("{number} {mode} {} {modified:?} {changed:?} ", it.len());
        text.extend_from_slice(about.as_bytes());
        text.extend_from_slice(&file.path);
        text.push(0);
    }
    Some(FileTimes(Digest::of(&text)))
}

/// Looks at each file, without following links.
fn classify(root: &Path, listed: Vec<ListedFile>) -> SnapshotFiles {
    let (mut files, mut folders) = (SnapshotFiles::default(), HashSet::new());
    for ListedFile { is_tracked, path } in listed {
        let full = join(root, &path);
        let metadata = full.symlink_metadata().ok().filter(|it| {
            let kind = it.file_type();
            (kind.is_file() || kind.is_symlink() || kind.is_dir())
                && is_below_folders(root, &full, &mut folders)
        });
        match metadata {
            Some(it) if it.is_file() && it.len() > MAX_FILE_BYTES && is_tracked => {
                files.bytes = files.bytes.saturating_add(it.len());
                files.large_tracked.push((path, it.len()));
            }
            Some(it) if it.is_file() && it.len() > MAX_FILE_BYTES => {
                files.too_large.push((String::from_utf8_lossy(&path).into_owned(), it.len()));
            }
            Some(it) => {
                files.bytes = files.bytes.saturating_add(it.len());
                files.present.push(path);
            }
            None if is_tracked => files.gone.push(path),
            None => {}
        }
    }
    files
}

/// Returns `true` if every folder between the root and a file is one, and not a link to one.
fn is_below_folders(root: &Path, file: &Path, known: &mut HashSet<PathBuf>) -> bool {
    let mut folder = file.parent();
    let mut new = Vec::new();
    while let Some(it) = folder.filter(|it| *it != root && !known.contains(*it)) {
        if !it.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return false;
        }
        new.push(it.to_owned());
        folder = it.parent();
    }
    known.extend(new);
    true
}

/// Parses the output of `diff-tree --raw -z`. Returns the new blobs by path.
fn new_blobs(listed: &[u8]) -> BTreeMap<Vec<u8>, String> {
    let mut parts = listed.split(|byte| *byte == 0);
    let mut new = BTreeMap::new();
    while let (Some(about), Some(path)) = (parts.next(), parts.next()) {
        let about = String::from_utf8_lossy(about);
        let fields: Vec<_> = about.split(' ').collect();
        // Old mode, new mode, old blob, new blob, status. A submodule has no blob.
        if let [_, mode, _, blob, status] = fields.as_slice()
            && *status != "D"
            && *mode != "160000"
        {
            new.insert(path.to_vec(), (*blob).to_owned());
        }
    }
    new
}

pub(super) fn join(root: &Path, path: &[u8]) -> PathBuf {
    root.join(Path::new(std::ffi::OsStr::from_bytes(path)))
}

pub(super) fn terminated(paths: &[Vec<u8>]) -> Vec<u8> {
    paths.iter().flat_map(|path| path.iter().copied().chain([0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracked_files_come_before_new_ones() {
        let (files, repositories) = parse_listed(b"? a/x\0? nested/\0H a\0S left-out\0");
        let files: Vec<_> = files.into_iter().map(|it| (it.is_tracked, it.path)).collect();
        assert_eq!(files, [(true, b"a".to_vec()), (false, b"a/x".to_vec())]);
        assert_eq!(repositories, [b"nested/".to_vec()]);
    }

    #[test]
    fn files_behind_links_and_special_files_are_gone() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path();
        std::fs::create_dir(root.join("real")).expect("made");
        std::fs::write(root.join("real/file"), "x").expect("written");
        std::os::unix::fs::symlink("real", root.join("link")).expect("linked");
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("bound");
        let listed = ["real/file", "link/file", "link", "socket", "missing"]
            .map(|path| ListedFile { is_tracked: true, path: path.into() });
        let files = classify(root, listed.into());
        assert_eq!(files.present, [b"real/file".to_vec(), b"link".to_vec()]);
        assert_eq!(files.gone, [b"link/file".to_vec(), b"socket".to_vec(), b"missing".to_vec()]);
    }
}
