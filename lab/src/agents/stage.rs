//! What a scenario plays on: a repository, a home, a model with a script, the gateway.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tamma_core::budget::SpendLimit;
use tamma_core::cost::Tokens;
use tamma_core::ids::TaskId;
use tamma_core::rules::AgentRules;
use tamma_core::task_loop::Timestamp;
use tamma_engine::agent::{
    AgentObserver, AgentTimeouts, AgentUpdate, CodingAgent, ModelAccess, RunMode, RunReport,
    RunRequest,
};
use tamma_engine::agent_tools::empty_search;
use tamma_engine::gateway::{Gateway, Upstream};
use tamma_engine::permission;
use tamma_engine::process::{ProcessRecords, RunId};
use tamma_engine::sandbox::{Launcher, Network, Sandbox, SandboxKind};
use tamma_engine::secret::Secret;
use tamma_testkit::model::{RecordedRequest, Script, ScriptedCall, ScriptedModel};
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::support::programs;

/// How long anything may take before the scenario has failed.
const PATIENCE: Duration = Duration::from_mins(3);

/// How often it is looked whether something holds that tells nobody.
const LOOK: Duration = Duration::from_millis(50);

/// An agent that is tried.
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) rules: AgentRules,
    /// Where it is installed.
    pub(crate) installed: PathBuf,
    /// What it is confined by, if it is.
    pub(crate) cage: Option<SandboxKind>,
}

impl Candidate {
    /// Where its programs are.
    pub(crate) fn programs(&self) -> PathBuf {
        self.installed.join("node_modules/.bin")
    }
}

/// What one scenario plays on.
pub(crate) struct Stage {
    folder: TempDir,
    candidate: Arc<Candidate>,
    agent: CodingAgent,
    pub(crate) model: ScriptedModel,
    gateway: Gateway,
    runs: Mutex<u32>,
    /// What all runs used, as the gateway says.
    used: Mutex<Tokens>,
}

/// What was seen of a run.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<AgentUpdate>>>);

impl Seen {
    pub(crate) fn all(&self) -> Vec<AgentUpdate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn observer(&self) -> AgentObserver {
        let seen = self.clone();
        Arc::new(move |update| {
            seen.0.lock().unwrap_or_else(PoisonError::into_inner).push(update);
        })
    }

    /// The process group of the agent.
    pub(crate) fn group(&self) -> Option<u32> {
        self.all().iter().find_map(|update| match update {
            AgentUpdate::ProcessRecorded(record) => Some(record.pgid),
            _ => None,
        })
    }
}

impl Stage {
    /// Sets the stage. The files that the script writes are in its worktree; some agents want their
    /// paths whole.
    pub(crate) async fn set(candidate: &Arc<Candidate>, mut script: Script) -> Result<Self> {
        // Not where temporary files are: a cage has those of its own.
        let folder = tempfile::tempdir_in(programs::folder()?)?;
        let tree = folder.path().join("tree");
        let cases = script.cases.iter_mut().flat_map(|case| &mut case.steps);
        for call in script.steps.iter_mut().chain(cases).flat_map(|step| &mut step.calls) {
            if let ScriptedCall::Write { path, .. } = call {
                *path = Self::path(&tree, path);
            }
        }
        std::fs::create_dir_all(tree.join("secrets"))?;
        std::fs::write(tree.join("README.md"), "a project\n")?;
        std::fs::write(tree.join("secrets/old"), "old\n")?;
        for arguments in [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["add", "--all"],
            &["commit", "--quiet", "-m", "first"],
        ] {
            git(&tree, arguments).await?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", candidate.programs().display());
        let environment = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
        ]);
        Ok(Self {
            candidate: candidate.clone(),
            agent: CodingAgent::from_rules(&candidate.rules, &environment),
            model: ScriptedModel::start(script).await?,
            gateway: Gateway::open(Some(&folder.path().join("gateway"))).await?,
            runs: Mutex::default(),
            used: Mutex::default(),
            folder,
        })
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// Everything of the stage lies below it.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// A file of the worktree, if it is there.
    pub(crate) fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.tree().join(name)).ok()
    }

    /// A path in the worktree, as a script names it.
    pub(crate) fn path(folder: &Path, name: &str) -> String {
        folder.join(name).display().to_string()
    }

    pub(crate) fn order(&self, mode: RunMode) -> RunRequest {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs += 1;
        let tree = self.tree();
        RunRequest {
            run: RunId { task: TaskId(uuid::Uuid::from_u128(7)), job_number: 1, generation: *runs },
            now: at(),
            prompt: "Do it.".to_owned(),
            mode,
            time_limit: PATIENCE,
            spend_limit: SpendLimit::default(),
            policy: permission::default_policy(&tree, mode),
            sandbox: self.cage(mode),
            timeouts: AgentTimeouts::default(),
            protected_paths: Vec::new(),
            denied_commands: vec!["git push".to_owned()],
            ask_commands: Vec::new(),
            // Codex gives its newer models other tools, which the scripted model knows less well.
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
                budget_limits: Vec::new(),
                warn_percent: 80,
            }),
            search: empty_search(),
            evidence_exists: tamma_engine::submission::no_evidence(),
            worktree: tree,
        }
    }

    fn cage(&self, mode: RunMode) -> Option<Sandbox> {
        let kind = self.candidate.cage?;
        Some(Sandbox {
            kind,
            launcher: Launcher {
                program: programs::beside("tamma-inside").ok()?,
                args: Vec::new(),
            },
            worktree: self.tree(),
            read_only: mode.is_read_only(),
            repository: None,
            home: self.folder.path().join("home"),
            readable: vec![self.candidate.installed.clone()],
            writable: Vec::new(),
            protected: Vec::new(),
            hidden: Vec::new(),
            network: Network::Gateway {
                port: self.gateway.address().port(),
                socket: self.gateway.socket()?.to_owned(),
            },
        })
    }

    /// Runs the agent, while `beside` happens.
    pub(crate) async fn play(
        &self,
        order: &RunRequest,
        beside: impl AsyncFnOnce(&Seen, &CancellationToken) -> Result<()>,
    ) -> Result<(RunReport, Seen)> {
        let records = ProcessRecords::open(&self.folder.path().join("data")).await?;
        let (seen, cancel) = (Seen::default(), CancellationToken::new());
        let observer = seen.observer();
        let run = self.agent.run(order, &records, &observer, &cancel);
        let beside = async {
            let result = beside(&seen, &cancel).await;
            if result.is_err() {
                cancel.cancel();
            }
            result
        };
        let both = async { tokio::join!(run, beside) };
        let (report, beside) =
            tokio::time::timeout(PATIENCE * 2, both).await.context("the run does not end")?;
        let report = report?;
        beside.with_context(|| describe(&report, &seen))?;
        ensure!(report.metered, "the run was not metered");
        let left = group(seen.group().context("it was never on record")?);
        ensure!(left.is_empty(), "processes of its group live: {left:?}");
        let tokens = report.usage.unwrap_or_default().tokens;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.input += tokens.input;
        used.cached += tokens.cached;
        used.output += tokens.output;
        Ok((report, seen))
    }

    /// Runs the agent to its end.
    pub(crate) async fn run(&self, order: &RunRequest) -> Result<(RunReport, Seen)> {
        self.play(order, async |_, _| Ok(())).await
    }

    /// Whether what was metered is what the model sent, to the token.
    pub(crate) async fn is_metered(&self) -> Result<()> {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = || {
            self.model.sent().iter().fold(Tokens::default(), |all, one| Tokens {
                input: all.input + one.tokens.input,
                cached: all.cached + one.tokens.cached,
                output: all.output + one.tokens.output,
            })
        };
        // The model's books are closed a moment after the last byte.
        let _ = until(Duration::from_secs(2), || sent() == used).await;
        let sent = sent();
        ensure!(sent == used, "the model sent {sent:?}, and {used:?} was metered");
        // What the agent was given does not have the key in it, and what it sent upstream does.
        for request in self.model.requests() {
            let text = serde_json::to_string(&request.body)?;
            ensure!(!text.contains("a-key-that-no-agent-sees"), "the agent knows the key");
        }
        Ok(())
    }

    /// What of the worktree is not as it was committed.
    pub(crate) async fn changed(&self) -> Result<String> {
        git(&self.tree(), &["status", "--porcelain", "--untracked-files=all"]).await
    }

    /// Waits until the model was asked for a step.
    pub(crate) async fn asked(&self, wanted: impl Fn(&RecordedRequest) -> bool) -> Result<()> {
        until(PATIENCE, || self.model.requests().iter().any(&wanted))
            .await
            .context("the model was not asked")
    }
}

/// The time it is in every scenario.
pub(crate) fn at() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_hours(498_540)
}

/// How a run ended, with what may say why.
pub(crate) fn describe(report: &RunReport, seen: &Seen) -> String {
    let asked: Vec<_> = seen
        .all()
        .into_iter()
        .filter_map(|update| match update {
            AgentUpdate::PermissionDecided(ask, ruling) => {
                Some(format!("{}: {:?}", ask.title, ruling.effect))
            }
            AgentUpdate::SubmissionRejected(flaws) => {
                Some(format!("asked again: {}", flaws.join("; ")))
            }
            _ => None,
        })
        .collect();
    let last: Vec<_> = report.stderr.lines().rev().take(3).collect();
    format!("it ended with {:?}; asked: {asked:?}; its last words: {last:?}", report.end)
}

/// Waits until something holds that tells nobody.
pub(crate) async fn until(limit: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let look = async {
        while !holds() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let late = || format!("it took longer than {} s", limit.as_secs());
    tokio::time::timeout(limit, look).await.with_context(late)
}

/// Every process that lives and whose field of the system's table is this.
fn processes(is: impl Fn(&Path) -> bool) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lives = |folder: &Path| {
        std::fs::read_to_string(folder.join("stat")).is_ok_and(|stat| {
            let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim_start());
            !state.starts_with(['Z', 'X'])
        })
    };
    all.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, folder)| is(folder) && lives(folder))
        .map(|(pid, _)| pid)
        .collect()
}

/// Every process of a group that lives.
pub(crate) fn group(pgid: u32) -> Vec<u32> {
    processes(|folder| {
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(2) == Some(&pgid.to_string())
    })
}

/// Every process that lives and has this in its command line.
pub(crate) fn running(text: &str) -> Vec<u32> {
    processes(|folder| {
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
}

/// Kills a process group, as the system would.
pub(crate) async fn kill(pgid: u32) -> Result<()> {
    let status = Command::new("kill").args(["-KILL", "--", &format!("-{pgid}")]).status().await?;
    ensure!(status.success(), "the group {pgid} cannot be killed");
    Ok(())
}

async fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
