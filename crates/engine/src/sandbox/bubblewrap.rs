//! Bubblewrap sandbox: translates an allowlist into arguments of `bwrap`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::view::{FileAccess, SandboxView};
use super::{Network, SCRATCH_SIZE, Sandbox, path_text};
use crate::process::{Launch, find_program};

/// Separate namespaces and session, no capabilities, and an end together with the parent.
const ISOLATION_ARGS: [&str; 9] = [
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

/// Working `bwrap` program.
#[derive(Debug, Clone)]
pub(super) struct Bubblewrap {
    program: PathBuf,
    /// Supports `--disable-userns`, which prevents further user namespaces inside.
    disables_userns: bool,
}

/// Folders that are searched for `bwrap`. `PATH` is not used, because it may name folders that an
/// agent can write.
const SEARCH_PATH: &str = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin";

/// Finds and tests `bwrap`, once per process.
pub(super) fn probe() -> Result<&'static Bubblewrap, String> {
    static PROBE: OnceLock<Result<Bubblewrap, String>> = OnceLock::new();
    PROBE.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<Bubblewrap, String> {
    let path = find_program(Path::new("bwrap"), Some(SEARCH_PATH))
        .ok_or_else(|| format!("`bwrap` is not installed in {SEARCH_PATH}"))?;
    let sealed = Bubblewrap { program: path, disables_userns: true };
    if sealed.check_runs().is_ok() {
        return Ok(sealed);
    }
    let open = Bubblewrap { disables_userns: false, ..sealed };
    open.check_runs().map(|()| open)
}

impl Bubblewrap {
    /// Runs an empty command with the options that agents are started with.
    #[expect(clippy::disallowed_methods, reason = "the test runs before anything can be recorded")]
    fn check_runs(&self) -> Result<(), String> {
        let output = Command::new(&self.program)
            .args(self.isolation_args())
            .args(["--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
            .args(["--remount-ro", "/proc"])
            .args(["--size", "4096", "--tmpfs", "/tmp", "--", "/bin/sh", "-c", ":"])
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot start `{}`: {error}", self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{}` failed: {}", self.program.display(), stderr.trim()))
    }

    fn isolation_args(&self) -> impl Iterator<Item = &'static str> {
        ISOLATION_ARGS.into_iter().chain(self.disables_userns.then_some("--disable-userns"))
    }

    /// Returns program and arguments that start a launch in a sandbox.
    pub(super) fn wrap_command(
        &self,
        sandbox: &Sandbox,
        view: &SandboxView,
        launch: &Launch,
        program: &Path,
    ) -> (PathBuf, Vec<String>) {
        let mut args: Vec<String> = self.isolation_args().map(str::to_owned).collect();
        let mut append = |arguments: &[&str]| {
            args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        };
        let size = SCRATCH_SIZE.to_string();
        for (path, access) in view.entries() {
            let path = path_text(path);
            match access {
                FileAccess::Link(to) => append(&["--symlink", &path_text(to), &path]),
                FileAccess::Readable => append(&["--ro-bind", &path, &path]),
                FileAccess::Writable => append(&["--bind", &path, &path]),
                FileAccess::Replaced(with) => append(&["--ro-bind", &path_text(with), &path]),
                FileAccess::HiddenFile => append(&["--ro-bind", "/dev/null", &path]),
                FileAccess::HiddenDir => append(&["--size", "65536", "--tmpfs", &path]),
                FileAccess::Scratch => append(&["--size", &size, "--tmpfs", &path]),
                FileAccess::Devices => {
                    append(&["--dev", &path, "--size", &size, "--tmpfs", "/dev/shm"]);
                }
                // Root could change kernel settings through a writable `/proc`.
                FileAccess::Processes => append(&["--proc", &path, "--remount-ro", &path]),
            }
        }
        // Root directory of the new file system, which is otherwise empty.
        append(&["--remount-ro", "/"]);
        if !matches!(sandbox.network, Network::Open { .. }) {
            append(&["--unshare-net"]);
        }
        append(&[
            "--chdir",
            &path_text(&launch.working_dir),
            "--",
            &path_text(&sandbox.launcher.program),
        ]);
        args.extend(sandbox.launcher.args.iter().cloned());
        match &sandbox.network {
            Network::Gateway { port, socket } => {
                args.extend(["--forward".to_owned(), port.to_string(), path_text(socket)]);
            }
            Network::Disabled => {}
            Network::Open { ports } => {
                // The machine's network includes its abstract sockets; scope them.
                args.push("--scope".to_owned());
                args.extend(ports.iter().flat_map(|port| ["--port".to_owned(), port.to_string()]));
            }
        }
        args.extend(["--".to_owned(), path_text(program)]);
        args.extend(launch.args.iter().cloned());
        (self.program.clone(), args)
    }
}
