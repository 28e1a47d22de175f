//! Counts the git processes that a worker starts, from outside: its `git` is a script that writes a
//! line and runs the real one. Processes that git starts itself are not counted.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Script with the name `git`. Its folder is the first one of the search path.
const SCRIPT: &str = r#"#!/bin/sh
name=
for argument in "$@"; do
    case "$argument" in
        -* | *=*) ;;
        *) name="$argument" && break ;;
    esac
done
echo "$name" >> 'LOG'
PATH="${PATH#*:}"
exec git "$@"
"#;

/// Log of git processes.
#[derive(Debug)]
pub(crate) struct GitLog {
    folder: PathBuf,
}

impl GitLog {
    /// Writes the script below a folder.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let log = Self { folder: folder.join("counted-git") };
        fs::create_dir_all(&log.folder)?;
        let script = log.folder.join("git");
        fs::write(&script, SCRIPT.replace("LOG", &log.file().display().to_string()))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        fs::write(log.file(), "")?;
        Ok(log)
    }

    /// Returns the search path with which a process runs the script.
    pub(crate) fn search_path(&self) -> Result<String> {
        let path = std::env::var("PATH").context("`PATH` is not set")?;
        Ok(format!("{}:{path}", self.folder.display()))
    }

    /// Returns the number of processes so far, by the name of the command.
    pub(crate) fn counts(&self) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for name in fs::read_to_string(self.file())?.lines() {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }

    fn file(&self) -> PathBuf {
        self.folder.join("log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_are_counted_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let log = GitLog::create(folder.path()).unwrap();
        for arguments in [&["version"][..], &["-c", "core.quotePath=false", "version"]] {
            let mut command = tokio::process::Command::new(log.folder.join("git"));
            let output = command.args(arguments).env("PATH", log.search_path().unwrap()).output();
            let output = output.await.unwrap();
            assert!(output.stdout.starts_with(b"git version "), "{output:?}");
        }
        assert_eq!(log.counts().unwrap(), [("version".to_owned(), 2)].into());
    }
}
