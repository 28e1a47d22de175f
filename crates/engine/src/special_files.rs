//! Special files of a checkout that would block a program that reads them.
//!
//! Git reads `.gitignore` and `.gitattributes` wherever it goes. If an agent or a gate made one of
//! them a named pipe, git would wait for a writer.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;

use crate::mirror::{Error, disk_error};

/// Maximum size of a link to a git directory, in bytes.
const MAX_LINK_BYTES: u64 = 10_000;

/// Names of files that git reads in every folder.
const READ_BY_GIT: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];

/// Removes entries that git would read and that are neither files, folders nor links. No work is
/// lost: a commit cannot contain them.
pub(crate) async fn remove_special_files(root: &Path) -> Result<(), Error> {
    let folder = root.to_owned();
    let removed = tokio::task::spawn_blocking(move || remove_below(folder)).await;
    let failed = |source| disk_error("remove special files in", root)(source);
    removed.map_err(|stopped| failed(io::Error::other(stopped)))?.map_err(failed)
}

fn remove_below(root: PathBuf) -> io::Result<()> {
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        // A folder that is gone or unreadable is not read by git either.
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            if kind.is_dir() {
                if name != ".git" {
                    folders.push(entry.path());
                }
            } else if !kind.is_file()
                && !kind.is_symlink()
                && READ_BY_GIT.iter().any(|it| name == *it)
            {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

/// Reads the link `.git` of a checkout. Returns `None` if it is not a small file.
pub(crate) async fn read_git_link(path: &Path) -> Option<String> {
    let metadata = fs::symlink_metadata(path).await.ok()?;
    if !metadata.is_file() || metadata.len() > MAX_LINK_BYTES {
        return None;
    }
    fs::read_to_string(path).await.ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn only_special_files_that_git_reads_are_removed() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/b")).expect("made");
        std::fs::write(at(".gitignore"), "x\n").expect("written");
        std::os::unix::fs::symlink("/dev/zero", at("a/.gitattributes")).expect("linked");
        let _sockets =
            ["a/b/.gitignore", "a/socket"].map(|name| UnixListener::bind(at(name)).expect("bound"));
        remove_special_files(folder.path()).await.expect("removed");
        assert!(!at("a/b/.gitignore").exists());
        let kept = [".gitignore", "a/.gitattributes", "a/socket"];
        assert!(kept.iter().all(|name| at(name).symlink_metadata().is_ok()));
        assert_eq!(read_git_link(&at(".gitignore")).await.as_deref(), Some("x\n"));
        assert_eq!(read_git_link(&at("a/socket")).await, None);
        assert_eq!(read_git_link(&at("a/.gitattributes")).await, None);
    }
}
