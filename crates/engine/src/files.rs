//! Operations on files: those that agents may have replaced, and those that must not be lost.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;
use tokio::io::AsyncWriteExt as _;

/// Lock on a file. The system releases it if the process dies.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "held for as long as it lives")] File);

impl FileLock {
    /// Acquires the lock if it is free.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        let file = Self::open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(source),
        }
    }

    /// Waits for the lock.
    pub async fn acquire(path: PathBuf) -> io::Result<Self> {
        // The only call in this crate that blocks for longer than disk access.
        let locked = tokio::task::spawn_blocking(move || {
            let file = Self::open(&path)?;
            file.lock()?;
            Ok(Self(file))
        });
        locked.await.map_err(io::Error::other)?
    }

    fn open(path: &Path) -> io::Result<File> {
        File::options().create(true).append(true).open(path)
    }
}

/// Writes a file atomically, so that it survives a crash. A full disk is an error and leaves the file as it
/// was.
pub async fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let write = async {
        let mut file = fs::File::create(&partial).await?;
        file.write_all(content).await?;
        // Returns the error of the write, which `sync_all` does not.
        file.flush().await?;
        file.sync_all().await?;
        fs::rename(&partial, path).await
    };
    let written = write.await;
    if written.is_err() {
        let _ = fs::remove_file(&partial).await;
    }
    written
}

/// Removes a file, a link or a folder, if it exists.
pub fn remove_any(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        _ => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_replaced_completely_or_not_at_all() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.json");
        replace_file(&path, b"first").await.expect("written");
        replace_file(&path, b"second").await.expect("replaced");
        assert_eq!(std::fs::read(&path).expect("file"), b"second");
        #[cfg(target_os = "linux")]
        {
            let partial = path.with_extension("partial");
            std::os::unix::fs::symlink("/dev/full", &partial).expect("link");
            let error = replace_file(&path, b"third").await.expect_err("a full disk");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(std::fs::read(&path).expect("file"), b"second");
            assert!(!partial.exists());
        }
    }
}
