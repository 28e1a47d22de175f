//! Checks of tasks without an agent: the known patch must pass gates and hidden tests, and every wrong
//! patch must fail one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tamma_core::gate::GateKind;
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::rules::GateRules;
use tamma_core::task_loop::Timestamp;
use tamma_engine::git::Git;
use tamma_engine::plain_checkout::{self, FolderCheck, FolderCheckRun};
use tamma_engine::process::{ProcessRecords, RunId};
use tamma_engine::sandbox::{Launcher, SandboxKind};
use uuid::Uuid;

use crate::Error;
use crate::task_set::TaskFiles;

/// Time limit of hidden tests.
const HIDDEN_TIME_LIMIT: Duration = Duration::from_mins(10);

/// Duration of a suite that takes long on purpose, in seconds, when only patches are checked.
const SUITE_SECONDS: &str = "1";

/// Everything that a check needs from the machine.
#[derive(Debug, Clone)]
pub struct CheckEnvironment {
    /// Environment of the commands.
    pub env: BTreeMap<String, String>,
    /// Readable paths besides the checkout, such as toolchains.
    pub readable: Vec<PathBuf>,
    /// Hidden paths below readable ones.
    pub hidden: Vec<PathBuf>,
    /// Sandbox of the commands.
    pub sandbox: SandboxKind,
    /// First program in the sandbox.
    pub launcher: Launcher,
}

/// Runs checks, in folders of its own.
#[derive(Debug)]
pub struct Checker {
    git: Git,
    environment: CheckEnvironment,
    records: ProcessRecords,
    folder: PathBuf,
}

/// Result of checking one patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatchCheck {
    /// Name of the patch: `oracle`, or the name of a wrong one.
    pub patch: String,
    /// Gates that fail, although they pass without the patch.
    pub failed_gates: Vec<String>,
    /// Result of the hidden tests.
    pub hidden_passed: bool,
    /// The known patch passed, or the wrong patch was rejected.
    pub ok: bool,
}

/// Result of checking one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskCheck {
    /// ID of the task.
    pub task: String,
    /// Hidden tests fail without any patch, as they must.
    pub base_fails: bool,
    /// Results of all patches, the known one first.
    pub patches: Vec<PatchCheck>,
}

impl TaskCheck {
    /// Returns `true` if the task can be solved and its wrong patches are rejected.
    pub fn is_ok(&self) -> bool {
        self.base_fails && self.patches.iter().all(|patch| patch.ok)
    }
}

impl Checker {
    /// Prepares a checker with its files below `folder`.
    pub async fn open(folder: &Path, environment: CheckEnvironment) -> Result<Self, Error> {
        std::fs::create_dir_all(folder).map_err(Error::disk("create", folder))?;
        let git = Git::find("git").await.map_err(tamma_engine::mirror::Error::from)?;
        let records = ProcessRecords::open(folder).await?;
        Ok(Self { git, environment, records, folder: folder.to_owned() })
    }

    /// Creates the repository of a case. A complete one is kept.
    pub async fn create_repository(&self, task: &TaskFiles, folder: &Path) -> Result<(), Error> {
        if folder.exists() {
            return Ok(());
        }
        let partial = folder.with_extension("partial");
        clear(&partial)?;
        task.write_repository(&partial)?;
        plain_checkout::create_repository(&self.git, &partial).await?;
        std::fs::rename(&partial, folder).map_err(Error::disk("create", folder))
    }

    /// Writes the files of a task with a patch applied to a new folder.
    pub async fn write_patched(
        &self,
        task: &TaskFiles,
        patch: Option<&str>,
        folder: &Path,
    ) -> Result<(), Error> {
        clear(folder)?;
        task.write_repository(folder)?;
        if let Some(patch) = patch {
            plain_checkout::apply_patch(&self.git, folder, patch).await?;
        }
        Ok(())
    }

    /// Runs the hidden tests on a commit, in a checkout that no agent has seen. Returns the files that
    /// the commit changes, too.
    pub async fn run_hidden_tests(
        &self,
        task: &TaskFiles,
        (repository, commit): (&Path, CommitId),
        folder: &Path,
        now: Timestamp,
    ) -> Result<(FolderCheckRun, BTreeSet<String>), Error> {
        clear(folder)?;
        plain_checkout::export_commit(&self.git, repository, commit, folder).await?;
        let changed = task.changed_files(folder)?;
        Ok((self.hidden(task, folder, now).await?, changed))
    }

    /// Runs the plain gates on a commit. Returns `true` if none fails that passes without the commit.
    pub async fn passes_gates(
        &self,
        task: &TaskFiles,
        (repository, commit): (&Path, CommitId),
        folder: &Path,
        now: Timestamp,
    ) -> Result<bool, Error> {
        clear(folder)?;
        plain_checkout::export_commit(&self.git, repository, commit, folder).await?;
        let failing = self.failing_gates(task, folder, now).await?;
        if failing.is_empty() {
            return Ok(true);
        }
        self.write_patched(task, None, folder).await?;
        Ok(failing.is_subset(&self.failing_gates(task, folder, now).await?))
    }

    async fn hidden(
        &self,
        task: &TaskFiles,
        folder: &Path,
        now: Timestamp,
    ) -> Result<FolderCheckRun, Error> {
        task.write_hidden_tests(folder)?;
        self.run(&task.task.hidden, folder, HIDDEN_TIME_LIMIT, now).await
    }

    /// Checks all patches of a task.
    pub async fn check(&self, task: &TaskFiles, now: Timestamp) -> Result<TaskCheck, Error> {
        let folder = self.folder.join("patches").join(&task.id);
        let base = folder.join("base");
        self.write_patched(task, None, &base).await?;
        let failing = self.failing_gates(task, &base, now).await?;
        let base_fails = !self.hidden(task, &base, now).await?.passed;
        let mut patches = Vec::new();
        let known = task.oracle_patch().map(|patch| ("oracle", patch, true));
        let wrong = task.wrong_patches().into_iter().map(|(name, patch)| (name, patch, false));
        for (name, patch, is_right) in known.into_iter().chain(wrong) {
            let checkout = folder.join(name);
            self.write_patched(task, Some(patch), &checkout).await?;
            let failed_gates: Vec<String> = self
                .failing_gates(task, &checkout, now)
                .await?
                .difference(&failing)
                .cloned()
                .collect();
            let hidden_passed = self.hidden(task, &checkout, now).await?.passed;
            let passed = failed_gates.is_empty() && hidden_passed;
            let patch = name.to_owned();
            patches.push(PatchCheck { patch, failed_gates, hidden_passed, ok: passed == is_right });
        }
        clear(&folder)?;
        Ok(TaskCheck { task: task.id.clone(), base_fails, patches })
    }

    /// Returns the gates that fail on the files of a folder. Builds run first.
    async fn failing_gates(
        &self,
        task: &TaskFiles,
        folder: &Path,
        now: Timestamp,
    ) -> Result<BTreeSet<String>, Error> {
        let mut gates: Vec<(&String, &GateRules)> = task.task.gates.iter().collect();
        gates.sort_by_key(|(name, gate)| (gate.kind != GateKind::Build, *name));
        let mut failing = BTreeSet::new();
        for (name, gate) in gates {
            let limit = Duration::from_secs(u64::from(gate.timeout_seconds));
            if !self.run(&gate.command, folder, limit, now).await?.passed {
                failing.insert(name.clone());
            }
        }
        Ok(failing)
    }

    async fn run(
        &self,
        command: &str,
        folder: &Path,
        time_limit: Duration,
        now: Timestamp,
    ) -> Result<FolderCheckRun, Error> {
        let home = self.folder.join("home");
        std::fs::create_dir_all(&home).map_err(Error::disk("create", &home))?;
        let CheckEnvironment { env, readable, hidden, sandbox, launcher } =
            self.environment.clone();
        let mut env = env;
        env.insert("SUITE_SECONDS".to_owned(), SUITE_SECONDS.to_owned());
        let folder = std::path::absolute(folder).map_err(Error::disk("find", folder))?;
        let check = FolderCheck {
            command: command.to_owned(),
            folder,
            home,
            env,
            readable,
            hidden,
            sandbox,
            launcher,
            time_limit,
        };
        let run = RunId { task: TaskId(Uuid::nil()), job_number: 0, generation: 0 };
        Ok(check.run((run, now), &self.records).await?)
    }
}

/// Removes a folder with everything in it.
fn clear(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::disk("remove", folder)(error))
        }
        _ => Ok(()),
    }
}
