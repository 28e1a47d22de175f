//! Sandbox for agents and gates: limits the files, processes and network that they can reach.
//!
//! A [`Sandbox`] is an allowlist. Bubblewrap builds a file system from it, with separate namespaces
//! for processes and the network. Landlock denies access to everything else, with the limitations that
//! [`SandboxKind::Landlock`] lists, so it is used only if the rules name it. On macOS, Seatbelt does
//! the same; it has never been run there. Without a sandbox, nothing starts unless the rules contain
//! `sandbox: off`.
//!
//! No process has the network of the machine: what it can reach is behind ports on its own loopback,
//! which lead to the gateway, to the [egress proxy](crate::egress) and to services of the operator.
//!
//! Inside, our launcher ([`run_launcher()`]) runs first. It forwards these ports, sets limits, and
//! then executes the agent, so signals and exit codes are the agent's own. Records and markers of
//! [`process`](crate::process) are unaffected, because the sandbox is part of the recorded command
//! line.

mod bubblewrap;
mod diagnosis;
mod landlock;
mod launcher;
mod seatbelt;
mod syscall_filter;
mod system;
mod view;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tamma_core::operator::ResourceLimits;
use tamma_core::rules::SandboxMode;

use crate::private_git::PrivateGit;
use crate::process::{Launch, find_program, has_cgroups};

pub use launcher::run_launcher;

/// Maximum size of a temporary directory in memory, in bytes.
const SCRATCH_SIZE: u64 = 2 * 1024 * 1024 * 1024;

/// Error from choosing or starting a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No sandbox is available on this machine.
    #[error(
        "no sandbox is available ({reason}): install bubblewrap (`bwrap`) and allow user namespaces. \
         Landlock is weaker and never chosen automatically: on Linux 6.7 or newer, the operator can \
         allow it with `weakest_sandbox: landlock`, and the project selects it with `engines: \
         {{sandbox: landlock}}`. `off`, in both places, runs agents without a sandbox"
    )]
    NoSandbox {
        /// Checks that failed, with their errors.
        reason: String,
    },
    /// Sandbox in the rules is unavailable on this machine.
    #[error("the sandbox `{kind}` in the rules is not available: {reason}")]
    Unavailable {
        /// Sandbox in the rules.
        kind: SandboxKind,
        /// Error of the check.
        reason: String,
    },
    /// Launcher was started with an invalid argument.
    #[error("invalid argument `{0}` for the sandbox launcher")]
    InvalidArgument(String),
    /// Launcher failed.
    #[error("cannot {what}")]
    Launch {
        /// Step that failed.
        what: &'static str,
        /// Underlying error.
        source: std::io::Error,
    },
    /// Landlock could not be enforced.
    #[error("cannot enforce the Landlock sandbox: {0}")]
    Landlock(String),
}

/// Mechanism of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum SandboxKind {
    /// Bubblewrap: a separate file system, without access to other processes, networks or sockets.
    Bubblewrap,
    /// Landlock: an allowlist enforced by the kernel.
    ///
    /// Landlock cannot protect files in a writable directory (the check of the diff finds such
    /// changes), hide other processes, block datagrams, or kill leftover processes (the run's
    /// marker finds them).
    Landlock,
    /// Seatbelt of macOS: an allowlist enforced by the kernel. Never tested on macOS.
    Seatbelt,
    /// No sandbox, as set in the rules.
    Off,
}

impl SandboxKind {
    /// Returns `true` if the sandbox can show another file in place of one in the worktree.
    pub fn replaces_files(self) -> bool {
        self == Self::Bubblewrap
    }
}

/// Network access of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// Only the gateway.
    Gateway {
        /// Port on loopback, identical inside and outside.
        port: u16,
        /// Socket of the gateway.
        socket: PathBuf,
    },
    /// No network access.
    Disabled,
    /// Public hosts and those of the operator, through the egress proxy, for signed-in agents that
    /// call their provider directly, and for setups and gates with network access.
    Egress {
        /// Gateway, if the process can use it.
        gateway: Option<Forward>,
        /// HTTP proxy.
        proxy: Forward,
        /// Services of the operator, as plain TCP.
        services: Vec<Forward>,
    },
}

/// Port on loopback that leads out of a sandbox, identical inside and outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Port on loopback.
    pub port: u16,
    /// Socket that connections are forwarded to.
    pub socket: PathBuf,
}

impl Network {
    /// Returns all ports that lead out of the sandbox.
    fn forwards(&self) -> Vec<Forward> {
        match self {
            Self::Gateway { port, socket } => {
                vec![Forward { port: *port, socket: socket.clone() }]
            }
            Self::Disabled => Vec::new(),
            Self::Egress { gateway, proxy, services } => {
                let mut forwards: Vec<Forward> = gateway.iter().cloned().collect();
                forwards.push(proxy.clone());
                // A service of the operator must not take the place of our own ports.
                for service in services {
                    if forwards.iter().all(|other| other.port != service.port) {
                        forwards.push(service.clone());
                    }
                }
                forwards
            }
        }
    }

    /// Sets the variables that make programs use the proxy, in place of others.
    fn set_proxy_variables(&self, env: &mut BTreeMap<String, String>) {
        let Self::Egress { proxy, .. } = self else { return };
        let url = format!("http://127.0.0.1:{}", proxy.port);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            env.insert(name.to_owned(), url.clone());
            env.insert(name.to_ascii_lowercase(), url.clone());
        }
        for name in ["NO_PROXY", "no_proxy"] {
            env.insert(name.to_owned(), "127.0.0.1,localhost,::1".to_owned());
        }
        // Without it, Node.js ignores the other variables.
        env.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    }
}

/// Program that runs first in the sandbox and calls [`run_launcher()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments before those of the sandbox, such as `sandbox-launcher`.
    pub args: Vec<String>,
}

/// Sandbox of one process: an allowlist of files and network access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Mechanism.
    pub kind: SandboxKind,
    /// First program inside.
    pub launcher: Launcher,
    /// Worktree of the task.
    pub worktree: PathBuf,
    /// Worktree is read-only.
    pub read_only: bool,
    /// Repository of the worktree. Read-only, because commits are made outside.
    pub repository: Option<PathBuf>,
    /// Private git directory, which takes the place of the repository. Writable.
    pub git: Option<PrivateGit>,
    /// Home of the run. Writable.
    pub home: PathBuf,
    /// Further readable paths: the agent's installation, toolchains.
    pub readable: Vec<PathBuf>,
    /// Further writable paths: the credentials of an agent that is signed in.
    pub writable: Vec<PathBuf>,
    /// Read-only paths in the worktree. They must exist.
    pub protected: Vec<PathBuf>,
    /// Hidden paths below readable ones.
    pub hidden: Vec<PathBuf>,
    /// Network access.
    pub network: Network,
    /// Resources that the process can use, with all its descendants.
    pub limits: ResourceLimits,
}

impl Sandbox {
    /// Wraps a launch in the sandbox.
    ///
    /// Replaces program and arguments, and sets `TMPDIR`, `GIT_PAGER`, `GIT_OPTIONAL_LOCKS` if git is
    /// read-only, and the variables of the proxy if there is one. A program that does not exist is
    /// left unchanged, so that starting it reports the error.
    #[must_use]
    pub fn wrap(&self, mut launch: Launch) -> Launch {
        let search = launch.env.get("PATH").map(String::as_str);
        let program =
            find_program(&launch.program, search).map(|path| launch.working_dir.join(path));
        let Some(program) = program.filter(|_| self.kind != SandboxKind::Off) else {
            return launch;
        };
        let view = view::SandboxView::new(self, &launch, &program);
        let wrapped = match (self.kind, bubblewrap::probe()) {
            (SandboxKind::Bubblewrap, Ok(bubblewrap)) => {
                Some(bubblewrap.wrap_command(self, &view, &launch, &program))
            }
            (SandboxKind::Bubblewrap | SandboxKind::Off, _) => None,
            (SandboxKind::Landlock, _) => {
                Some(landlock::wrap_command(self, &view, &launch, &program))
            }
            (SandboxKind::Seatbelt, _) => {
                Some(seatbelt::wrap_command(self, &view, &launch, &program))
            }
        };
        let Some((first, args)) = wrapped else {
            // The caller skipped `choose`. Fail to start, which is safe.
            launch.program = PathBuf::from("/nowhere/bwrap");
            return launch;
        };
        let scratch = match self.kind {
            SandboxKind::Bubblewrap | SandboxKind::Off => PathBuf::from("/tmp"),
            SandboxKind::Landlock | SandboxKind::Seatbelt => self.scratch(),
        };
        launch.program = first;
        launch.args = args;
        launch.env.insert("TMPDIR".to_owned(), path_text(&scratch));
        self.network.set_proxy_variables(&mut launch.env);
        // Some agents run commands in a terminal, where git would start a pager and wait for a key.
        launch.env.entry("GIT_PAGER".to_owned()).or_insert_with(|| "cat".to_owned());
        if self.git.is_none() {
            launch.env.entry("GIT_OPTIONAL_LOCKS".to_owned()).or_insert_with(|| "0".to_owned());
        }
        launch
    }

    /// Returns the directory for temporary files if `/tmp` is not private.
    fn scratch(&self) -> PathBuf {
        self.home.join("tmp")
    }
}

/// Converts a path for a command line. Paths created by Tamma are valid UTF-8.
fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the best sandbox of this machine. It is tested once by running it.
pub fn best_available() -> Option<SandboxKind> {
    choose(SandboxMode::Auto).ok()
}

/// Describes how this machine isolates agents if the rules do not select a sandbox.
pub fn describe(limits: &ResourceLimits) -> Result<String, Error> {
    let kind = choose(SandboxMode::Auto)?;
    let network = match kind {
        SandboxKind::Bubblewrap => "loopback and local networks closed",
        SandboxKind::Landlock => "TCP limited by port; UDP open",
        SandboxKind::Seatbelt => "local ports limited",
        SandboxKind::Off => "network not limited",
    };
    let filter = match bubblewrap::probe() {
        Ok(bubblewrap) if kind == SandboxKind::Bubblewrap && bubblewrap.has_filter() => {
            "system calls filtered (seccomp)"
        }
        _ => "system calls not filtered",
    };
    let enforced_by = if has_cgroups() { "cgroup" } else { "rlimits and monitoring" };
    let ResourceLimits { memory_mb, processes, cpu_seconds, .. } = limits;
    Ok(format!(
        "{kind}; {network}; {filter}; limits ({enforced_by}): {memory_mb} MB of memory, \
         {processes} processes, {cpu_seconds} s of CPU time"
    ))
}

/// Selects the sandbox for a setting in the rules.
pub fn choose(sandbox: SandboxMode) -> Result<SandboxKind, Error> {
    let bubblewrap = || bubblewrap::probe().map(|_| SandboxKind::Bubblewrap);
    let landlock = || probe_landlock().map(|()| SandboxKind::Landlock);
    let not_here = |kind| move |reason: String| Error::Unavailable { kind, reason };
    let seatbelt = || seatbelt::probe().map(|()| SandboxKind::Seatbelt);
    match sandbox {
        SandboxMode::Auto if cfg!(target_os = "macos") => {
            seatbelt().map_err(|reason| Error::NoSandbox { reason })
        }
        SandboxMode::Auto => choose_automatically(bubblewrap()),
        SandboxMode::Bubblewrap => bubblewrap().map_err(not_here(SandboxKind::Bubblewrap)),
        SandboxMode::Landlock => landlock().map_err(not_here(SandboxKind::Landlock)),
        SandboxMode::Seatbelt => seatbelt().map_err(not_here(SandboxKind::Seatbelt)),
        SandboxMode::Off => Ok(SandboxKind::Off),
    }
}

/// Selects the only sandbox that stops a hostile agent. Landlock does not, so it must be chosen
/// explicitly.
fn choose_automatically(bubblewrap: Result<SandboxKind, String>) -> Result<SandboxKind, Error> {
    bubblewrap.map_err(|reason| Error::NoSandbox { reason })
}

fn probe_landlock() -> Result<(), String> {
    static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
    PROBE.get_or_init(landlock::probe).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landlock_is_never_chosen_automatically() {
        let error = choose_automatically(Err("`bwrap` is not installed".to_owned()))
            .expect_err("no sandbox")
            .to_string();
        for part in ["`bwrap` is not installed", "install bubblewrap", "weakest_sandbox: landlock"]
        {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        assert!(!matches!(choose(SandboxMode::Auto), Ok(SandboxKind::Landlock)));
    }

    #[test]
    fn own_ports_take_precedence_over_services_of_the_operator() {
        let forward = |port, name: &str| Forward { port, socket: PathBuf::from(name) };
        let network = Network::Egress {
            gateway: Some(forward(4_000, "gateway")),
            proxy: forward(4_001, "proxy"),
            services: vec![forward(4_000, "service"), forward(5_432, "database")],
        };
        let ports: Vec<_> =
            network.forwards().into_iter().map(|it| (it.port, path_text(&it.socket))).collect();
        let expected = [(4_000, "gateway"), (4_001, "proxy"), (5_432, "database")];
        assert_eq!(ports, expected.map(|(port, name)| (port, name.to_owned())));
        let mut env = BTreeMap::from([("HTTPS_PROXY".to_owned(), "http://elsewhere".to_owned())]);
        network.set_proxy_variables(&mut env);
        assert_eq!(env["HTTPS_PROXY"], "http://127.0.0.1:4001");
        assert_eq!(env["https_proxy"], env["HTTPS_PROXY"]);
    }
}
