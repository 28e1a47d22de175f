//! Test fixture: a project with a commit, a data directory, and a fixed clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamma_core::budget::SpendLimit;
use tamma_core::cost::Price;
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;
use tamma_engine::agent::{
    AgentObserver, AgentTimeouts, AgentUpdate, CodingAgent, ModelAccess, RunMode, RunReport,
    RunRequest,
};
use tamma_engine::agent_tools::{ToolServices, empty_search};
use tamma_engine::gateway::{Gateway, Upstream};
use tamma_engine::git::Git;
use tamma_engine::mirror::Mirror;
use tamma_engine::permission;
use tamma_engine::process::{Launch, ProcessRecords, RunId, SupervisedProcess};
use tamma_engine::secret::Secret;
use tamma_engine::submission::SubmissionFacts;
use tamma_engine::worktree::{Author, Worktree};
use tamma_testkit::agent::{SCRIPT_VARIABLE, Script, program};
use tamma_testkit::model::ScriptedModel;
use tamma_testkit::wait_until;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Time limit for any wait in a test.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) task: TaskId,
}

impl Fixture {
    /// Runs a program to its end, and returns its exit code and output.
    pub(crate) async fn run_to_end(&self, launch: &Launch) -> (Option<i32>, String) {
        let (mut group, mut pipes) =
            SupervisedProcess::start(launch, &self.records().await, |_| {}).await.unwrap();
        drop(pipes.stdin);
        let (mut out, mut err) = (String::new(), String::new());
        let (read, read_stderr) = tokio::join!(
            pipes.stdout.read_to_string(&mut out),
            pipes.stderr.read_to_string(&mut err)
        );
        read.and(read_stderr).unwrap();
        let status = group.wait().await.unwrap();
        group.stop(Duration::from_secs(1)).await.unwrap();
        (status.code(), format!("{out}{err}"))
    }

    /// Creates a project with one commit, in a temporary directory.
    pub(crate) async fn create() -> Self {
        let task = TaskId("0192a000-0000-7000-8000-000000000001".parse().unwrap());
        let fixture = Self { folder: tempfile::tempdir().unwrap(), task };
        let project = fixture.project();
        std::fs::create_dir_all(project.join("src")).unwrap();
        std::fs::write(project.join("README.md"), "a project\n").unwrap();
        std::fs::write(project.join("src/old.txt"), "old\n").unwrap();
        fixture.git(&["init", "--quiet", "--initial-branch=main"]).await;
        fixture.git(&["add", "--all"]).await;
        fixture.git(&["commit", "--quiet", "-m", "first"]).await;
        fixture
    }

    /// Returns the user's own checkout.
    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns a path outside every checkout.
    pub(crate) fn scratch_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs git in the user's own checkout.
    pub(crate) async fn git(&self, arguments: &[&str]) -> String {
        git_in(&self.project(), arguments).await
    }

    pub(crate) async fn mirror(&self) -> Mirror {
        self.mirror_on(&self.data(), Git::find("git").await.unwrap()).await
    }

    /// Opens the mirror of a host, whose data is in `data`.
    pub(crate) async fn mirror_on(&self, data: &Path, git: Git) -> Mirror {
        let project = ProjectId("0192a000-0000-7000-8000-000000000002".parse().unwrap());
        let source = self.project().display().to_string().parse().unwrap();
        Mirror::open(git, data, project, &source).await.unwrap()
    }

    /// Opens the worktree on a host. Each host has its own data directory.
    pub(crate) async fn host(&self, name: &str) -> Worktree {
        let mirror =
            self.mirror_on(&self.scratch_path(name), Git::find("git").await.unwrap()).await;
        Worktree::open(&mirror, self.task, self.base().await).await.unwrap()
    }

    pub(crate) async fn base(&self) -> CommitId {
        self.git(&["rev-parse", "main"]).await.parse().unwrap()
    }

    pub(crate) async fn worktree(&self) -> Worktree {
        Worktree::open(&self.mirror().await, self.task, self.base().await).await.unwrap()
    }

    pub(crate) async fn records(&self) -> ProcessRecords {
        ProcessRecords::open(&self.data()).await.unwrap()
    }

    pub(crate) fn run(&self) -> RunId {
        RunId { task: self.task, job_number: 7, generation: 1 }
    }

    /// Creates an agent that follows a script.
    pub(crate) fn agent(&self, script: &Script) -> CodingAgent {
        let path = self.scratch_path("script.json");
        script.write(&path).unwrap();
        let mut env = environment();
        env.insert(SCRIPT_VARIABLE.to_owned(), path.display().to_string());
        CodingAgent { command: program().unwrap(), env, ..CodingAgent::default() }
    }

    /// Access to our tools, and to a model if there is one.
    pub(crate) async fn access(&self, model: Option<&ScriptedModel>) -> ModelAccess {
        let upstream = model.map(|model| Upstream {
            base_url: model.url(),
            key: Secret::new("the-key-of-the-provider"),
            max_quota_wait: Duration::from_secs(1),
        });
        let gateway = Gateway::open(None).await.unwrap();
        let price = |amount: &str| amount.parse().unwrap();
        let price = Price {
            input: price("3"),
            cached: price("0.3"),
            output: price("15"),
            cache_write: None,
            cache_write_1h: None,
            long_context: None,
        };
        let prices = [("scripted".to_owned(), price)].into();
        ModelAccess {
            gateway,
            upstream,
            prices,
            models: Vec::new(),
            budget_limits: Vec::new(),
            warn_percent: 80,
        }
    }

    pub(crate) fn run_request(&self, workspace: &Path, mode: RunMode) -> RunRequest {
        RunRequest {
            run: self.run(),
            now: noon(),
            worktree: workspace.to_owned(),
            prompt: "Do it.".to_owned(),
            mode,
            time_limit: WAIT_LIMIT,
            shell_limit: Duration::from_mins(10),
            spend_limit: SpendLimit::default(),
            policy: permission::default_policy(workspace, mode),
            sandbox: None,
            timeouts: AgentTimeouts { late_usage: Duration::ZERO, ..AgentTimeouts::default() },
            protected_paths: Vec::new(),
            denied_commands: Vec::new(),
            ask_commands: Vec::new(),
            model: None,
            resume: None,
            home: self.folder.path().join("home"),
            access: None,
            search: empty_search(),
            facts: SubmissionFacts {
                path_exists: Arc::new(|path| path == "names.txt"),
                criteria: vec!["C1".to_owned()],
                ..SubmissionFacts::default()
            },
            effort: None,
            resume_prompt: None,
            services: ToolServices::default(),
            keep_end: None,
        }
    }

    /// Runs an agent to its end, and returns the observed updates.
    pub(crate) async fn run_agent(
        &self,
        script: &Script,
        request: &RunRequest,
    ) -> (RunReport, Vec<AgentUpdate>) {
        let updates = RecordedUpdates::default();
        let cancel = CancellationToken::new();
        let report = self
            .agent(script)
            .run(request, &self.records().await, &updates.observer(), &cancel)
            .await
            .unwrap();
        (report, updates.all())
    }
}

/// Updates that an observer received.
#[derive(Clone, Default)]
pub(crate) struct RecordedUpdates {
    updates: Arc<Mutex<Vec<AgentUpdate>>>,
    changed: Arc<Notify>,
}

impl RecordedUpdates {
    pub(crate) fn observer(&self) -> AgentObserver {
        let updates = self.clone();
        Arc::new(move |update| {
            updates.updates.lock().unwrap().push(update);
            updates.changed.notify_one();
        })
    }

    pub(crate) fn all(&self) -> Vec<AgentUpdate> {
        self.updates.lock().unwrap().clone()
    }

    /// Waits for an update.
    pub(crate) async fn until<T>(&self, find: impl Fn(&AgentUpdate) -> Option<T>) -> T {
        let polling = async {
            loop {
                if let Some(value) = self.all().iter().find_map(&find) {
                    return value;
                }
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(WAIT_LIMIT, polling).await.expect("update within the time limit")
    }
}

pub(crate) fn author() -> Author {
    Author { name: "Ann".to_owned(), email: "ann@example.org".to_owned() }
}

pub(crate) fn noon() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

/// Environment with the `PATH` of this process.
pub(crate) fn environment() -> BTreeMap<String, String> {
    BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())])
}

pub(crate) async fn git_in(folder: &Path, arguments: &[&str]) -> String {
    let output = tokio::process::Command::new("git")
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    assert!(output.status.success(), "git {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Polls until a condition holds.
pub(crate) async fn until(holds: impl AsyncFn() -> bool) {
    let poll = async || Ok(holds().await.then_some(()));
    wait_until("a condition", WAIT_LIMIT, poll).await.unwrap();
}

/// Waits for a process ID in a file.
pub(crate) async fn pid(file: &Path) -> u32 {
    let read = || std::fs::read_to_string(file).ok()?.trim().parse().ok();
    until(async || read().is_some()).await;
    read().unwrap()
}

/// Returns `true` if a process is alive, according to `/proc`.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit_once(')').unwrap().1.trim_start().chars().next();
        !matches!(state, Some('Z' | 'X'))
    })
}

/// Returns the live processes of a group, according to `/proc`.
pub(crate) fn group(pgid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
            fields.split_whitespace().nth(2) == Some(&pgid.to_string())
        })
        .filter(|pid| is_alive(*pid))
        .collect()
}
