//! Small git repository to work on, created with the `git` program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

const FILES: [(&str, &str); 4] = [
    ("README.md", "# Greeter\n\nGreets everyone listed in `names.txt`.\n"),
    ("names.txt", "ann\nbo\n"),
    (
        "greet.sh",
        "#!/bin/sh\nset -eu\nwhile read -r name; do echo \"hello, $name\"; done < names.txt\n",
    ),
    (
        "check.sh",
        "#!/bin/sh\nset -eu\ncd \"$(dirname \"$0\")\"\ntest -s names.txt\n\
         test \"$(sh greet.sh | wc -l)\" -eq \"$(wc -l < names.txt)\"\necho ok\n",
    ),
];

/// Repository with one commit on `main`. Its check, `sh check.sh`, passes.
#[derive(Debug)]
pub struct Repository {
    path: PathBuf,
    /// Removed with the repository.
    _temporary: Option<TempDir>,
}

impl Repository {
    /// Creates a repository.
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let repository = Self::create(folder.path(), &FILES)?;
        Ok(Self { _temporary: Some(folder), ..repository })
    }

    /// Creates a repository with other files in a folder, which is kept.
    pub fn create(folder: &Path, files: &[(&str, &str)]) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let it = Self { path: folder.to_owned(), _temporary: None };
        it.git(&["init", "--quiet", "--initial-branch=main"])?;
        for (name, content) in files {
            it.write(name, content)?;
        }
        it.commit("first")?;
        Ok(it)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.path().join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(path, content)?)
    }

    /// Commits all changes and returns the commit.
    pub fn commit(&self, message: &str) -> Result<String> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", message])?;
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs git in it and returns the output.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        self.run("git", arguments)
    }

    /// Runs its check and returns the output.
    pub fn check(&self) -> Result<String> {
        self.run("sh", &["check.sh"])
    }

    #[expect(clippy::disallowed_methods, reason = "test repositories are created synchronously")]
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.path())
            // Ignore the developer's name, hooks, signing and editor.
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "Ann")
            .env("GIT_AUTHOR_EMAIL", "ann@example.com")
            .env("GIT_COMMITTER_NAME", "Ann")
            .env("GIT_COMMITTER_EMAIL", "ann@example.com")
            .env_remove("GIT_DIR")
            .output()
            .with_context(|| format!("cannot start `{program}`"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("`{program} {}` failed: {}", arguments.join(" "), stderr.trim());
        }
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }
}
