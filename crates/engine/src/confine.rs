//! What confines an agent's process: what it may see, change and reach.
//!
//! A [`Cage`] is a list of what is there, and everything else is not. Bubblewrap builds a file system
//! from the list, with namespaces of its own for processes and the network. Where it cannot run,
//! Landlock forbids whatever is not on the list; what that cannot do is said at [`Kind::Landlock`].
//! Without either, nothing is started unless the rules say `sandbox: off`.
//!
//! Inside, a launcher of ours ([`inside()`]) comes first. It makes the gateway's port reachable where
//! there is no network, sets limits, and then becomes the agent: signals and exit codes are the
//! agent's own. The record and the mark of [`process`](crate::process) stay as they are, because the
//! cage is part of the command line that is started behind the gate.

mod bubblewrap;
mod fence;
mod inside;
mod system;
mod view;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tamma_core::rules::Sandbox;

use crate::process::{Launch, program};

pub use inside::inside;

/// How large a temporary folder in memory may become.
const SCRATCH: u64 = 2 * 1024 * 1024 * 1024;

/// What can go wrong with a cage.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine has nothing to confine with.
    #[error(
        "agents run in a sandbox, and this machine offers none: install bubblewrap (`bwrap`) and \
         allow user namespaces, or use Linux 6.7 or newer with Landlock ({why}). To run agents \
         without one, write `engines: {{sandbox: off}}`"
    )]
    Nothing {
        /// What was tried, and how it failed.
        why: String,
    },
    /// The machine does not have what the rules ask for.
    #[error("the rules ask for the sandbox `{wanted}`, which does not run here: {why}")]
    NotHere {
        /// What they ask for.
        wanted: Kind,
        /// How it failed.
        why: String,
    },
    /// The launcher was called in a way that it does not understand.
    #[error("`{0}` is not something that a launcher is told")]
    Told(String),
    /// Something that the launcher does failed.
    #[error("cannot {what}")]
    Launch {
        /// What was to be done.
        what: &'static str,
        /// Why it could not.
        source: std::io::Error,
    },
    /// Landlock refused.
    #[error("cannot confine this process with Landlock: {0}")]
    Fence(String),
}

/// What confines a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Bubblewrap: a file system of its own, and no process, network or socket of ours in sight.
    Bubblewrap,
    /// Landlock: an allow list that the kernel keeps.
    ///
    /// What it cannot do: keep something unwritable below a folder that is writable (protected files
    /// are only caught in the diff), hide that other processes exist, stop a datagram to anywhere, or
    /// end what is left of a run (the record's mark does).
    Landlock,
    /// Nothing. A person has written so in the rules.
    Off,
}

/// What a process reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// The gateway, and nothing else.
    Gateway {
        /// Its port on loopback, which is the same inside and outside.
        port: u16,
        /// Its socket.
        socket: PathBuf,
    },
    /// Nothing at all.
    Nothing,
    /// The machine's network, for agents that are signed in and speak to their provider themselves.
    Open {
        /// The ports that may be connected to; empty is all. This is kept by Landlock, where it is.
        ports: Vec<u16>,
    },
}

/// The program that comes first inside: ours, so that it knows [`inside()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// What it is told before what the cage tells it, such as `inside`.
    pub args: Vec<String>,
}

/// What a process may see, change and reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cage {
    /// What keeps it.
    pub kind: Kind,
    /// What comes first inside.
    pub launcher: Launcher,
    /// The worktree.
    pub worktree: PathBuf,
    /// Whether the worktree may only be looked at.
    pub looking: bool,
    /// The repository that the worktree hangs on. It can be read: commits are made outside.
    pub repository: Option<PathBuf>,
    /// The run's own home. It is writable.
    pub home: PathBuf,
    /// What else can be read: the agent's installation, toolchains.
    pub readable: Vec<PathBuf>,
    /// What else can be written: the agent's own folders in a user's home, where it is signed in.
    pub writable: Vec<PathBuf>,
    /// What cannot be written although it is in the worktree. Only what is there can be protected.
    pub protected: Vec<PathBuf>,
    /// What cannot be seen although it is below something readable.
    pub hidden: Vec<PathBuf>,
    /// What it reaches.
    pub network: Network,
}

impl Cage {
    /// Puts the cage around a launch: another program and other arguments, and in the environment
    /// where temporary files go and that git takes no locks that it can do without.
    ///
    /// A program that is not there stays as it is, so that starting it says so.
    #[must_use]
    pub fn wrap(&self, mut launch: Launch) -> Launch {
        let search = launch.env.get("PATH").map(String::as_str);
        let found = program(&launch.program, search).map(|path| launch.folder.join(path));
        let Some(found) = found.filter(|_| self.kind != Kind::Off) else {
            return launch;
        };
        let view = view::View::of(self, &launch, &found);
        let wrapped = match (self.kind, bubblewrap::probe()) {
            (Kind::Bubblewrap, Ok(bubblewrap)) => {
                Some(bubblewrap.around(self, &view, &launch, &found))
            }
            (Kind::Bubblewrap | Kind::Off, _) => None,
            (Kind::Landlock, _) => Some(fence::around(self, &view, &launch, &found)),
        };
        let Some((first, args)) = wrapped else {
            // Whoever asked for this kind has not asked `choose`. Failing to start is the safe way.
            launch.program = PathBuf::from("/nowhere/bwrap");
            return launch;
        };
        let scratch = match self.kind {
            Kind::Bubblewrap | Kind::Off => PathBuf::from("/tmp"),
            Kind::Landlock => self.scratch(),
        };
        launch.program = first;
        launch.args = args;
        launch.env.insert("TMPDIR".to_owned(), text(&scratch));
        launch.env.entry("GIT_OPTIONAL_LOCKS".to_owned()).or_insert_with(|| "0".to_owned());
        launch
    }

    /// Where temporary files go if there is no private `/tmp`.
    fn scratch(&self) -> PathBuf {
        self.home.join("tmp")
    }
}

/// How a path is written in a command line. Those we make are all text.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The best that this machine has. It is really tried, once.
pub fn best() -> Option<Kind> {
    choose(Sandbox::Auto).ok()
}

/// What is used for a setting of the rules.
pub fn choose(sandbox: Sandbox) -> Result<Kind, Error> {
    let bubblewrap = || bubblewrap::probe().map(|_| Kind::Bubblewrap);
    let landlock = || landlock().map(|()| Kind::Landlock);
    let not_here = |wanted| move |why: String| Error::NotHere { wanted, why };
    match sandbox {
        Sandbox::Auto => bubblewrap().or_else(|first| {
            landlock()
                .map_err(|second| Error::Nothing { why: format!("{first}; Landlock: {second}") })
        }),
        Sandbox::Bubblewrap => bubblewrap().map_err(not_here(Kind::Bubblewrap)),
        Sandbox::Landlock => landlock().map_err(not_here(Kind::Landlock)),
        Sandbox::Off => Ok(Kind::Off),
    }
}

fn landlock() -> Result<(), String> {
    static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
    PROBE.get_or_init(fence::probe).clone()
}
