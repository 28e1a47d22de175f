//! Fixture of a scenario: repository, home, scripted model and gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tamma_core::budget::SpendLimit;
use tamma_core::cost::Tokens;
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::operator::ResourceLimits;
use tamma_core::repository_address::RepositoryAddress;
use tamma_core::rules::{AgentPermissions, AgentRules};
use tamma_core::task_loop::Timestamp;
use tamma_engine::agent::{
    AgentObserver, AgentTimeouts, AgentUpdate, CodingAgent, ModelAccess, RunMode, RunReport,
    RunRequest,
};
use tamma_engine::agent_tools::{ToolServices, empty_search};
use tamma_engine::gateway::{Gateway, Upstream};
use tamma_engine::git::Git;
use tamma_engine::mirror::Mirror;
use tamma_engine::permission::{self, PermissionRules};
use tamma_engine::private_git::PrivateGit;
use tamma_engine::process::{ProcessRecords, RunId};
use tamma_engine::sandbox::{Launcher, Network, Sandbox, SandboxKind};
use tamma_engine::secret::Secret;
use tamma_engine::worktree::Worktree;
use tamma_testkit::model::{RecordedRequest, Script, ScriptedCall, ScriptedModel};
use tamma_testkit::programs::find_program;
use tamma_testkit::repository::Repository;
use tamma_testkit::wait::wait_until_true;
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::support::programs;

/// Time limit of a run.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Task of every scenario.
const TASK: TaskId = TaskId(uuid::Uuid::from_u128(7));

/// Project of every scenario.
const PROJECT: ProjectId = ProjectId(uuid::Uuid::from_u128(8));

/// Agent under test.
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) rules: AgentRules,
    /// Folder of its npm installation.
    pub(crate) installed: PathBuf,
    /// Kind of sandbox; `None` runs it without one.
    pub(crate) sandbox: Option<SandboxKind>,
}

impl Candidate {
    /// Returns the folder of its programs.
    pub(crate) fn programs(&self) -> PathBuf {
        self.installed.join("node_modules/.bin")
    }
}

/// Fixture of one scenario.
pub(crate) struct AgentFixture {
    repository: Repository,
    folder: TempDir,
    candidate: Arc<Candidate>,
    agent: CodingAgent,
    pub(crate) model: ScriptedModel,
    gateway: Gateway,
    runs: Mutex<u32>,
    /// Tokens of every model call, as metered by the gateway; `None` for an interrupted call.
    calls: Mutex<Vec<Option<Tokens>>>,
}

/// Status of a call that ended before its response began.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Updates of a run, in order.
#[derive(Clone, Default)]
pub(crate) struct UpdateLog(Arc<Mutex<Vec<AgentUpdate>>>);

impl UpdateLog {
    pub(crate) fn all(&self) -> Vec<AgentUpdate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn observer(&self) -> AgentObserver {
        let updates = self.clone();
        Arc::new(move |update| {
            updates.0.lock().unwrap_or_else(PoisonError::into_inner).push(update);
        })
    }

    /// Returns the process group of the agent, once it is recorded.
    pub(crate) fn group(&self) -> Option<u32> {
        self.all().iter().find_map(|update| match update {
            AgentUpdate::ProcessRecorded(record) => Some(record.pgid),
            _ => None,
        })
    }
}

impl AgentFixture {
    /// Creates a fixture. Paths that the script writes become absolute, because some agents require it.
    pub(crate) async fn new(candidate: &Arc<Candidate>, mut script: Script) -> Result<Self> {
        // Not in /tmp, because each sandbox has its own.
        let folder = tempfile::tempdir_in(programs::folder()?)?;
        let tree = folder.path().join("tree");
        let cases = script.cases.iter_mut().flat_map(|case| &mut case.steps);
        for call in script.steps.iter_mut().chain(cases).flat_map(|step| &mut step.calls) {
            if let ScriptedCall::Write { path, .. } = call {
                *path = Self::path(&tree, path);
            }
        }
        let files = [("README.md", "a project\n"), ("secrets/old", "old\n")];
        let repository = Repository::create(&tree, &files)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", candidate.programs().display());
        let environment = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
        ]);
        Ok(Self {
            repository,
            candidate: candidate.clone(),
            agent: CodingAgent::from_rules(&candidate.rules, &environment),
            model: ScriptedModel::start(script).await?,
            gateway: Gateway::open(Some(&folder.path().join("gateway"))).await?,
            runs: Mutex::default(),
            calls: Mutex::default(),
            folder,
        })
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.repository.path().to_owned()
    }

    /// Returns the root folder of the fixture.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Reads a file of the worktree; `None` if it does not exist.
    pub(crate) fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.tree().join(name)).ok()
    }

    /// Returns the absolute path of a file, as a string.
    pub(crate) fn path(folder: &Path, name: &str) -> String {
        folder.join(name).display().to_string()
    }

    pub(crate) fn run_request(&self, mode: RunMode) -> RunRequest {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs += 1;
        let tree = self.tree();
        RunRequest {
            run: RunId { task: TASK, job_number: 1, generation: *runs },
            now: at(),
            prompt: "Do it.".to_owned(),
            mode,
            time_limit: TIMEOUT,
            shell_limit: Duration::from_mins(10),
            spend_limit: SpendLimit::default(),
            policy: permission::default_policy(&tree, mode),
            sandbox: self.sandbox(mode),
            timeouts: AgentTimeouts::default(),
            protected_paths: Vec::new(),
            denied_commands: vec!["git push".to_owned()],
            ask_commands: Vec::new(),
            // Codex gives newer models other tools, which the scripted model supports less well.
            model: (self.candidate.name == "codex").then(|| "gpt-5.5".to_owned()),
            resume: None,
            home: self.folder.path().join("home"),
            access: Some(ModelAccess {
                gateway: self.gateway.clone(),
                upstream: Some(Upstream {
                    base_url: self.model.url(),
                    key: Secret::new("a-key-that-no-agent-sees"),
                    max_quota_wait: Duration::from_secs(5),
                }),
                prices: BTreeMap::new(),
                models: Vec::new(),
                budget_limits: Vec::new(),
                warn_percent: 80,
            }),
            search: empty_search(),
            facts: tamma_engine::submission::SubmissionFacts {
                criteria: vec!["C1".to_owned()],
                ..tamma_engine::submission::SubmissionFacts::default()
            },
            effort: None,
            resume_prompt: None,
            services: ToolServices::default(),
            keep_end: None,
            worktree: tree,
        }
    }

    fn sandbox(&self, mode: RunMode) -> Option<Sandbox> {
        let kind = self.candidate.sandbox?;
        Some(Sandbox {
            kind,
            launcher: Launcher {
                program: find_program("sandbox-launcher").ok()?,
                args: Vec::new(),
            },
            worktree: self.tree(),
            read_only: mode.is_read_only(),
            repository: None,
            git: None,
            home: self.folder.path().join("home"),
            readable: vec![self.candidate.installed.clone()],
            writable: Vec::new(),
            protected: Vec::new(),
            hidden: Vec::new(),
            network: Network::Gateway {
                port: self.gateway.address().port(),
                socket: self.gateway.socket()?.to_owned(),
            },
            limits: ResourceLimits::default(),
        })
    }

    /// Commits files to the project, and opens a worktree of its mirror at that commit.
    pub(crate) async fn open_worktree(
        &self,
        files: &[(&str, &str)],
    ) -> Result<(Worktree, CommitId)> {
        for (name, content) in files {
            self.repository.write(name, content)?;
        }
        if !files.is_empty() {
            self.repository.commit("files")?;
        }
        let base: CommitId = self.repository.git(&["rev-parse", "HEAD"])?.parse()?;
        let source: RepositoryAddress = self.tree().display().to_string().parse()?;
        let data = self.folder.path().join("data");
        let mirror = Mirror::open(Git::find("git").await?, &data, PROJECT, &source).await?;
        Ok((Worktree::open(&mirror, TASK, base).await?, base))
    }

    /// Adds folders to the search path of the agent, after its own programs, and returns the path.
    pub(crate) fn extend_path(&mut self, folders: &[PathBuf]) -> String {
        let own = [self.candidate.programs()];
        let folders: Vec<_> =
            own.iter().chain(folders).map(|folder| folder.display().to_string()).collect();
        let path = self.agent.inherited.entry("PATH".to_owned()).or_default();
        *path = format!("{}:{path}", folders.join(":"));
        path.clone()
    }

    /// Returns the sandbox of a run in another folder.
    pub(crate) fn sandbox_of(&self, folder: &Path, mode: RunMode) -> Result<Sandbox> {
        let sandbox = self.sandbox(mode).context("no sandbox is available")?;
        Ok(Sandbox { worktree: folder.to_owned(), ..sandbox })
    }

    /// Builds the request of a run in a checkout of the mirror, with the default permissions.
    pub(crate) fn request_in(
        &self,
        mode: RunMode,
        folder: &Path,
        git: &PrivateGit,
    ) -> Result<RunRequest> {
        let sandbox = self.sandbox_of(folder, mode)?;
        let none = BTreeSet::new();
        let permissions = PermissionRules::new(folder, mode, &AgentPermissions::default(), none)?
            .in_sandbox(sandbox.kind);
        Ok(RunRequest {
            worktree: folder.to_owned(),
            protected_paths: permissions.protected_patterns(),
            denied_commands: permissions.denied_commands(),
            ask_commands: permissions.ask_commands(),
            sandbox: Some(Sandbox {
                protected: permissions.existing_protected_paths(),
                git: Some(git.clone()),
                ..sandbox
            }),
            policy: permissions.into_policy(),
            ..self.run_request(mode)
        })
    }

    /// Runs the agent concurrently with `beside`. An error of `beside` cancels the run.
    pub(crate) async fn run_with(
        &self,
        request: &RunRequest,
        beside: impl AsyncFnOnce(&UpdateLog, &CancellationToken) -> Result<()>,
    ) -> Result<(RunReport, UpdateLog)> {
        let records = ProcessRecords::open(&self.folder.path().join("data")).await?;
        let (updates, cancel) = (UpdateLog::default(), CancellationToken::new());
        let observer = updates.observer();
        let run = self.agent.run(request, &records, &observer, &cancel);
        let beside = async {
            let result = beside(&updates, &cancel).await;
            if result.is_err() {
                cancel.cancel();
            }
            result
        };
        let both = async { tokio::join!(run, beside) };
        let (report, beside) =
            tokio::time::timeout(TIMEOUT * 2, both).await.context("the run did not end in time")?;
        let report = report?;
        beside.with_context(|| describe(&report, &updates))?;
        ensure!(report.metered, "the run was not metered");
        let left = group(updates.group().context("the process was not recorded")?);
        ensure!(left.is_empty(), "processes of the group still running: {left:?}");
        self.check_usage(&report, &updates)?;
        Ok((report, updates))
    }

    /// Runs the agent until it ends.
    pub(crate) async fn run(&self, request: &RunRequest) -> Result<(RunReport, UpdateLog)> {
        self.run_with(request, async |_, _| Ok(())).await
    }

    /// Checks that the usage of a run is the sum of its calls, and keeps the calls for
    /// [`Self::check_metering`].
    fn check_usage(&self, report: &RunReport, updates: &UpdateLog) -> Result<()> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = Tokens::default();
        for update in updates.all() {
            let AgentUpdate::ModelCalled(call) = update else { continue };
            sum = sum + call.tokens.unwrap_or_default();
            if call.tokens.is_some() || call.status < 300 || call.status == CLIENT_CLOSED_REQUEST {
                calls.push(call.tokens);
            }
        }
        let used = report.usage.unwrap_or_default().tokens;
        ensure!(sum == used, "the calls have {sum:?}, but the report has {used:?}");
        Ok(())
    }

    /// Checks that each response of the model was metered. Calls that were interrupted when the run
    /// ended have no usage; each may have been answered.
    pub(crate) async fn check_metering(&self) -> Result<()> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let metered: Vec<Tokens> = calls.iter().copied().flatten().collect();
        let interrupted = calls.len() - metered.len();
        let unmetered = || {
            let mut sent: Vec<_> =
                self.model.sent().iter().map(|response| response.tokens).collect();
            let unknown = metered.iter().filter(|tokens| {
                let at = sent.iter().position(|sent| sent == *tokens);
                at.map(|at| sent.swap_remove(at)).is_none()
            });
            (unknown.count(), sent)
        };
        // The scripted model counts a response shortly after its last byte.
        let limit = Duration::from_secs(2);
        let _ = wait_until_true("the last response", limit, || unmetered().0 == 0).await;
        let (unknown, sent) = unmetered();
        ensure!(unknown == 0, "{unknown} of the metered calls were not sent: {metered:?}");
        ensure!(
            sent.len() <= interrupted,
            "these responses were not metered, and {interrupted} calls were interrupted: {sent:?}"
        );
        Ok(())
    }

    /// Returns the uncommitted changes of the worktree, in the format of `git status`.
    pub(crate) fn changed(&self) -> Result<String> {
        self.repository.git(&["status", "--porcelain", "--untracked-files=all"])
    }

    /// Waits until the model has received a matching request.
    pub(crate) async fn wait_for_request(
        &self,
        wanted: impl Fn(&RecordedRequest) -> bool,
    ) -> Result<()> {
        let received = || self.model.requests().iter().any(&wanted);
        wait_until_true("a matching request to the model", TIMEOUT, received).await
    }
}

/// Returns the current time of every scenario.
pub(crate) fn at() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_hours(498_540)
}

/// Describes the end of a run, with likely reasons.
pub(crate) fn describe(report: &RunReport, updates: &UpdateLog) -> String {
    let asked: Vec<_> = updates
        .all()
        .into_iter()
        .filter_map(|update| match update {
            AgentUpdate::PermissionDecided(ask, ruling) => {
                Some(format!("{}: {:?} ({})", ask.title, ruling.effect, ruling.reason))
            }
            AgentUpdate::SubmissionRejected(flaws) => {
                Some(format!("submission rejected: {}", flaws.join("; ")))
            }
            _ => None,
        })
        .collect();
    let last: Vec<_> = report.stderr.lines().rev().take(3).collect();
    format!("run ended with {:?}; decisions: {asked:?}; last lines of stderr: {last:?}", report.end)
}

/// Returns the running processes whose folder in `/proc` matches.
fn processes(is: impl Fn(&Path) -> bool) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_running = |folder: &Path| {
        std::fs::read_to_string(folder.join("stat")).is_ok_and(|stat| {
            let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim_start());
            !state.starts_with(['Z', 'X'])
        })
    };
    all.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, folder)| is(folder) && is_running(folder))
        .map(|(pid, _)| pid)
        .collect()
}

/// Returns the running processes of a group.
pub(crate) fn group(pgid: u32) -> Vec<u32> {
    processes(|folder| {
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(2) == Some(&pgid.to_string())
    })
}

/// Returns the running processes whose command line contains a text.
pub(crate) fn running(text: &str) -> Vec<u32> {
    processes(|folder| {
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
}

/// Kills a process group with SIGKILL.
pub(crate) async fn kill(pgid: u32) -> Result<()> {
    let status = Command::new("kill").args(["-KILL", "--", &format!("-{pgid}")]).status().await?;
    ensure!(status.success(), "cannot kill process group {pgid}");
    Ok(())
}
