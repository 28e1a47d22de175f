//! Fixture of an attempt: a user with keys, a worker with runs, and a hostile repository.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tamma_core::budget::SpendLimit;
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::plan::FileAction;
use tamma_core::repository_address::RepositoryAddress;
use tamma_core::rules::{AgentPermissions, PermissionLists};
use tamma_core::task_loop::Timestamp;
use tamma_engine::agent::{
    AgentObserver, AgentTimeouts, AgentUpdate, CodingAgent, RunMode, RunReport, RunRequest,
};
use tamma_engine::agent_tools::{ToolServices, empty_search};
use tamma_engine::egress::EgressProxy;
use tamma_engine::gateway::{Gateway, RunEndpoint, RunEndpointConfig};
use tamma_engine::git::{Git, GitLogin};
use tamma_engine::mirror::{Mirror, newest_commit};
use tamma_engine::permission::{PermissionRules, PermissionViolation};
use tamma_engine::private_git::PrivateGit;
use tamma_engine::process::{ProcessRecords, RunId};
use tamma_engine::sandbox::{Forward, Launcher, Network, Sandbox, SandboxKind};
use tamma_engine::worktree::{Author, Worktree};
use tamma_testkit::agent::{SCRIPT_VARIABLE, Script, program};
use tamma_testkit::repository::Repository;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::SECRET;
use super::attempt::RunSetup;
use super::rules::RULES;

/// Time limit of a run.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(30);

/// Fixture of an attempt. Its paths contain no links.
pub(crate) struct EscapeFixture {
    folder: TempDir,
    pub(crate) kind: SandboxKind,
    launcher: PathBuf,
    pub(crate) project: Repository,
    pub(crate) mirror: PathBuf,
    pub(crate) tree: Worktree,
    /// Git directory of the agent.
    git: PrivateGit,
    pub(crate) base: CommitId,
    pub(crate) permission_rules: PermissionRules,
    gateway: Gateway,
    /// Way of signed-in agents to public hosts. The operator allows no other host.
    egress: EgressProxy,
    /// Endpoints of this run and of another run.
    pub(crate) endpoints: [RunEndpoint; 2],
    /// Listeners that stand in for PostgreSQL, Temporal, a service on all addresses, and one on the
    /// loopback address of IPv6 (of IPv4, if the machine has no IPv6).
    pub(crate) ports: [TcpListener; 4],
    pub(crate) datagrams: UdpSocket,
    /// Sockets of a container engine and of another gateway, an abstract one, and PostgreSQL's.
    pub(crate) sockets: [UnixListener; 4],
    updates: Arc<Mutex<Vec<AgentUpdate>>>,
}

/// Query of a forge that waits for the response. Dropping it ends git.
pub(crate) struct FetchUnderWay {
    _query: JoinSet<()>,
    _connection: TcpStream,
}

impl FetchUnderWay {
    /// Starts a query with a login, as the worker does. The forge never responds.
    pub(crate) async fn start() -> Result<Self> {
        let forge = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let source = format!("http://{}/acme/shop.git", forge.local_addr()?);
        let source: RepositoryAddress = source.parse()?;
        let login = GitLogin { user: "bot".to_owned(), password: SECRET.to_owned() };
        let git = Git::find("git").await?.with_login(Some(login));
        let mut query = JoinSet::new();
        query.spawn(async move { drop(newest_commit(&git, &source, None).await) });
        let connected = tokio::time::timeout(RUN_LIMIT, forge.accept()).await;
        let (connection, _) = connected.context("git did not connect")??;
        Ok(Self { _query: query, _connection: connection })
    }
}

impl EscapeFixture {
    pub(crate) async fn new(kind: SandboxKind, launcher: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().canonicalize()?;
        let at = |name: &str| root.join(name);
        let forge = format!("kind: gitea\nurl: https://forge.example\ntoken: {SECRET}\n");
        let stored = format!("https://bot:{SECRET}@forge.example\n");
        // Of a project whose operator put the login into its address.
        let other = format!("[remote \"origin\"]\n\turl = {}/acme/shop.git\n", stored.trim_end());
        for (file, content) in [
            ("user/.ssh/id_ed25519", SECRET),
            ("user/.git-credentials", stored.as_str()),
            ("user/.bashrc", "# mine\n"),
            ("data/worktrees/other/plan.txt", SECRET),
            ("data/homes/other/token", SECRET),
            ("data/forges/work.yaml", forge.as_str()),
            ("data/mirrors/other.git/config", other.as_str()),
            ("data/homes/this/.keep", ""),
            ("postgres/.keep", ""),
            ("egress/.keep", ""),
        ] {
            std::fs::create_dir_all(at(file).parent().unwrap_or(&root))?;
            std::fs::write(at(file), content)?;
        }
        let project = Repository::new()?;
        add_hostile_content(&project, &root)?;
        let base: CommitId = project.commit("a hostile repository")?.parse()?;
        let id = ProjectId("0192a000-0000-7000-8000-000000000002".parse()?);
        let source: RepositoryAddress = project.path().display().to_string().parse()?;
        let mirror = Mirror::open(Git::find("git").await?, &at("data"), id, &source).await?;
        let tree = Worktree::open(&mirror, task()?, base).await?;
        let git = tree.private_git(&at("data/homes/git"), true).await?;
        if kind != SandboxKind::Off && !kind.replaces_files() {
            git.attach(tree.path()).await?;
        }
        let implementer = PermissionLists {
            deny: ["write: .github/**", "write: deploy/**"].map(str::to_owned).to_vec(),
            ..PermissionLists::default()
        };
        let permissions = AgentPermissions { implementer, ..AgentPermissions::default() };
        let permission_rules =
            PermissionRules::new(tree.path(), RunMode::Implement, &permissions, BTreeSet::new())?;
        let gateway = Gateway::open(Some(&at("gateway.sock"))).await?;
        let endpoint =
            |job_number| anyhow::Ok(gateway.open_endpoint(endpoint_config(run_id(job_number)?)?));
        let abstract_name = SocketAddr::from_abstract_name(at("nameless").display().to_string())?;
        Ok(Self {
            kind,
            launcher: launcher.to_owned(),
            mirror: at("data/mirrors").join(format!("{id}.git")),
            tree,
            git,
            base,
            permission_rules,
            endpoints: [endpoint(7)?, endpoint(8)?],
            gateway,
            egress: EgressProxy::open(&at("egress"), &[], None).await?,
            project,
            ports: [
                nonblocking(TcpListener::bind("127.0.0.1:0")?)?,
                nonblocking(TcpListener::bind("127.0.0.1:0")?)?,
                nonblocking(TcpListener::bind("0.0.0.0:0")?)?,
                nonblocking(
                    TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0"))?,
                )?,
            ],
            datagrams: UdpSocket::bind("0.0.0.0:0")?,
            sockets: [
                UnixListener::bind(at("docker.sock"))?,
                UnixListener::bind(at("other-gateway.sock"))?,
                UnixListener::bind_addr(&abstract_name)?,
                UnixListener::bind(at("postgres/.s.PGSQL.5432"))?,
            ],
            updates: Arc::default(),
            folder,
        })
    }

    /// Returns a path in the fixture's folder, which the agent must not access.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        let root = self.folder.path();
        root.canonicalize().unwrap_or_else(|_| root.to_owned()).join(name)
    }

    /// Returns the home of the run.
    pub(crate) fn home(&self) -> PathBuf {
        self.at("data/homes/this")
    }

    /// Returns the file that a successful attempt creates.
    pub(crate) fn loot(&self) -> PathBuf {
        self.at("loot")
    }

    /// Returns the output of the attempt.
    pub(crate) fn output(&self) -> String {
        std::fs::read(self.home().join("output"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Returns the updates of the run.
    pub(crate) fn updates(&self) -> Vec<AgentUpdate> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs the hostile agent like the worker does.
    pub(crate) async fn run(
        &self,
        script: &Script,
        setup: &RunSetup,
        cancel: &CancellationToken,
    ) -> Result<RunReport> {
        let path = self.home().join("script.json");
        script.write(&path)?;
        let env = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH")?),
            ("HOME".to_owned(), self.home().display().to_string()),
            (SCRIPT_VARIABLE.to_owned(), path.display().to_string()),
        ]);
        let agent = CodingAgent { command: program()?, env, ..CodingAgent::default() };
        let request = RunRequest {
            run: run_id(7)?,
            now: noon()?,
            worktree: self.tree.path().to_owned(),
            prompt: "Do it.".to_owned(),
            mode: setup.mode,
            time_limit: setup.time_limit,
            shell_limit: Duration::from_mins(10),
            spend_limit: SpendLimit::default(),
            policy: self.permission_rules.clone().into_policy(),
            sandbox: Some(self.sandbox(setup)),
            timeouts: AgentTimeouts { late_usage: Duration::ZERO, ..AgentTimeouts::default() },
            protected_paths: self.permission_rules.protected_patterns(),
            denied_commands: self.permission_rules.denied_commands(),
            ask_commands: Vec::new(),
            model: None,
            resume: None,
            home: self.home(),
            access: None,
            search: empty_search(),
            facts: tamma_engine::submission::SubmissionFacts {
                criteria: vec!["C1".to_owned()],
                ..tamma_engine::submission::SubmissionFacts::default()
            },
            effort: None,
            resume_prompt: None,
            services: ToolServices::default(),
            keep_end: None,
        };
        let records = ProcessRecords::open(&self.at("data")).await?;
        let updates = self.updates.clone();
        let observer: AgentObserver = Arc::new(move |update| {
            updates.lock().unwrap_or_else(PoisonError::into_inner).push(update);
        });
        agent.run(&request, &records, &observer, cancel).await.context("the run failed")
    }

    fn sandbox(&self, setup: &RunSetup) -> Sandbox {
        let port = self.gateway.address().port();
        let gateway = Forward { port, socket: self.at("gateway.sock") };
        let network = if setup.signed_in {
            self.egress.network(Some(gateway))
        } else {
            Network::Gateway { port, socket: gateway.socket }
        };
        Sandbox {
            kind: self.kind,
            launcher: Launcher { program: self.launcher.clone(), args: Vec::new() },
            worktree: self.tree.path().to_owned(),
            read_only: setup.mode != RunMode::Implement,
            repository: None,
            git: Some(self.git.clone()),
            home: self.home(),
            readable: Vec::new(),
            writable: Vec::new(),
            protected: self.permission_rules.existing_protected_paths(),
            hidden: vec![self.at("data")],
            network,
            limits: (setup.limits)(),
        }
    }

    /// Checks the diff and commits, like the worker does after a run. Returns the patch that people
    /// see with the violations.
    pub(crate) async fn commit_and_check(&self) -> Result<(Vec<PermissionViolation>, String)> {
        let touched: BTreeMap<String, FileAction> = self.tree.diff_stat(self.base).await?;
        let author = Author { name: "Ann".to_owned(), email: "ann@example.org".to_owned() };
        let commit = self.tree.commit_all(7, "the work", &author).await?;
        let patch = self.tree.diff(self.base, commit).await?.text;
        self.tree.checkpoint().await?;
        Ok((self.permission_rules.check_diff(&touched), patch))
    }

    /// Returns `true` if a listener got a connection. No wait is needed: connections are queued.
    pub(crate) fn was_reached(&self, which: usize) -> bool {
        self.ports[which].accept().is_ok()
    }

    /// Returns `true` if a socket got a connection.
    pub(crate) fn was_socket_reached(&self, which: usize) -> bool {
        let socket = &self.sockets[which];
        socket.set_nonblocking(true).is_ok() && socket.accept().is_ok()
    }

    /// Returns the port of a listener.
    pub(crate) fn port(&self, which: usize) -> u16 {
        self.ports[which].local_addr().map(|address| address.port()).unwrap_or_default()
    }
}

/// Adds hostile content to a repository.
fn add_hostile_content(project: &Repository, root: &Path) -> Result<()> {
    project.write("tamma.yaml", RULES)?;
    project.write("src/main.txt", "main\n")?;
    project.write("deploy/keys.txt", "keys\n")?;
    // An empty folder stands for a submodule that is not checked out.
    std::fs::create_dir(project.path().join("sub"))?;
    let commit = project.git(&["rev-parse", "HEAD"])?;
    project.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},sub")])?;
    std::os::unix::fs::symlink(root, project.path().join("out"))?;
    std::os::unix::fs::symlink(root.join("loot"), project.path().join("notes.txt"))?;
    Ok(())
}

fn task() -> Result<TaskId> {
    Ok(TaskId("0192a000-0000-7000-8000-000000000001".parse()?))
}

fn run_id(job_number: u32) -> Result<RunId> {
    Ok(RunId { task: task()?, job_number, generation: 1 })
}

fn noon() -> Result<Timestamp> {
    Ok("2026-11-15T12:00:00Z".parse()?)
}

fn endpoint_config(run: RunId) -> Result<RunEndpointConfig> {
    Ok(RunEndpointConfig {
        run,
        now: noon()?,
        upstream: None,
        prices: BTreeMap::new(),
        models: Vec::new(),
        budget_limits: Vec::new(),
        warn_percent: 80,
        tools: None,
        observer: Arc::new(|_| {}),
    })
}

fn nonblocking(listener: TcpListener) -> Result<TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(listener)
}
