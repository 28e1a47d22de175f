//! Bubblewrap: the list of a cage as a command line of `bwrap`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::view::{Sight, View};
use super::{Cage, Network, SCRATCH, text};
use crate::process::{Launch, program};

/// Namespaces of its own, no rights, no terminal of ours, and an end with us.
const ALONE: [&str; 9] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
];

/// A `bwrap` that runs here.
#[derive(Debug, Clone)]
pub(super) struct Bubblewrap {
    program: PathBuf,
    /// Whether it can forbid further user namespaces inside.
    seals: bool,
}

/// Looks for one and tries it, once.
pub(super) fn probe() -> Result<&'static Bubblewrap, String> {
    static PROBE: OnceLock<Result<Bubblewrap, String>> = OnceLock::new();
    PROBE.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<Bubblewrap, String> {
    let search = std::env::var("PATH").unwrap_or_default();
    let usual = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin";
    let path = program(Path::new("bwrap"), Some(&format!("{usual}:{search}")))
        .ok_or("`bwrap` is not installed")?;
    let sealed = Bubblewrap { program: path, seals: true };
    if sealed.runs().is_ok() {
        return Ok(sealed);
    }
    let open = Bubblewrap { seals: false, ..sealed };
    open.runs().map(|()| open)
}

impl Bubblewrap {
    /// Starts something that does nothing, in the way that agents are started.
    #[expect(clippy::disallowed_methods, reason = "it is tried before anything can be recorded")]
    fn runs(&self) -> Result<(), String> {
        let output = Command::new(&self.program)
            .args(self.alone())
            .args(["--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
            .args(["--remount-ro", "/proc"])
            .args(["--size", "4096", "--tmpfs", "/tmp", "--", "/bin/sh", "-c", ":"])
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("`{}` does not start: {error}", self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{}` fails: {}", self.program.display(), said.trim()))
    }

    fn alone(&self) -> impl Iterator<Item = &'static str> {
        ALONE.into_iter().chain(self.seals.then_some("--disable-userns"))
    }

    /// The program and the arguments that start a launch in a cage.
    pub(super) fn around(
        &self,
        cage: &Cage,
        view: &View,
        launch: &Launch,
        found: &Path,
    ) -> (PathBuf, Vec<String>) {
        let mut line: Vec<String> = self.alone().map(str::to_owned).collect();
        let mut say = |words: &[&str]| line.extend(words.iter().map(|word| (*word).to_owned()));
        let size = SCRATCH.to_string();
        for (path, sight) in view.sights() {
            let path = text(path);
            match sight {
                Sight::Link(to) => say(&["--symlink", &text(to), &path]),
                Sight::Readable => say(&["--ro-bind", &path, &path]),
                Sight::Writable => say(&["--bind", &path, &path]),
                Sight::NoFile => say(&["--ro-bind", "/dev/null", &path]),
                Sight::NoFolder => say(&["--size", "65536", "--tmpfs", &path]),
                Sight::Scratch => say(&["--size", &size, "--tmpfs", &path]),
                Sight::Devices => {
                    say(&["--dev", &path, "--size", &size, "--tmpfs", "/dev/shm"]);
                }
                // As root, whoever is root outside could change the kernel's settings by this.
                Sight::Processes => say(&["--proc", &path, "--remount-ro", &path]),
            }
        }
        // The empty root that all this hangs in.
        say(&["--remount-ro", "/"]);
        if !matches!(cage.network, Network::Open { .. }) {
            say(&["--unshare-net"]);
        }
        say(&["--chdir", &text(&launch.folder), "--", &text(&cage.launcher.program)]);
        line.extend(cage.launcher.args.iter().cloned());
        match &cage.network {
            Network::Gateway { port, socket } => {
                line.extend(["--forward".to_owned(), port.to_string(), text(socket)]);
            }
            Network::Nothing => {}
            Network::Open { ports } => {
                // The network is the machine's, and with it go the sockets that have no path.
                line.push("--scope".to_owned());
                line.extend(ports.iter().flat_map(|port| ["--port".to_owned(), port.to_string()]));
            }
        }
        line.extend(["--".to_owned(), text(found)]);
        line.extend(launch.args.iter().cloned());
        (self.program.clone(), line)
    }
}
