//! Bubblewrap sandbox: translates an allowlist into arguments of `bwrap`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::view::{FileAccess, SandboxView};
use super::{Forward, SCRATCH_SIZE, Sandbox, diagnosis, launcher, path_text, syscall_filter};
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
    /// Filter of system calls, if it works.
    filter: Option<PathBuf>,
}

/// Shell script that opens the file in its first argument, and executes the others.
const WITH_FILTER: &str = "exec \"$@\" 9<\"$0\"";

/// Descriptor that the script opens.
const FILTER_DESCRIPTOR: &str = "9";

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
    let mut last = String::new();
    // Older versions and kernels lack some options.
    for disables_userns in [true, false] {
        for filter in [syscall_filter::path(), None] {
            let bubblewrap = Bubblewrap { program: path.clone(), disables_userns, filter };
            match bubblewrap.check_runs() {
                Ok(()) => return Ok(bubblewrap),
                Err(error) => last = error,
            }
        }
    }
    Err(diagnosis::explain(&last))
}

impl Bubblewrap {
    /// Runs an empty command with the options that agents are started with.
    #[expect(clippy::disallowed_methods, reason = "the test runs before anything can be recorded")]
    fn check_runs(&self) -> Result<(), String> {
        let (first, args) = self.first_command();
        let output = Command::new(first)
            .args(args)
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

    /// Returns `true` if system calls are filtered.
    pub(super) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns the program to start with its first arguments: `bwrap`, or a shell that opens the
    /// filter for it.
    fn first_command(&self) -> (PathBuf, Vec<String>) {
        let Some(filter) = &self.filter else { return (self.program.clone(), Vec::new()) };
        let (filter, program) = (path_text(filter), path_text(&self.program));
        let args: [&str; 6] =
            ["-c", WITH_FILTER, &filter, &program, "--seccomp", FILTER_DESCRIPTOR];
        (PathBuf::from("/bin/sh"), args.map(str::to_owned).to_vec())
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
        let (first, mut args) = self.first_command();
        args.extend(self.isolation_args().map(str::to_owned));
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
        append(&[
            "--unshare-net",
            "--chdir",
            &path_text(&launch.working_dir),
            "--",
            &path_text(&sandbox.launcher.program),
        ]);
        args.extend(sandbox.launcher.args.iter().cloned());
        for Forward { port, socket } in sandbox.network.forwards() {
            args.extend(["--forward".to_owned(), port.to_string(), path_text(&socket)]);
        }
        args.extend(launcher::limit_args(&sandbox.limits, true));
        args.extend(["--".to_owned(), path_text(program)]);
        args.extend(launch.args.iter().cloned());
        (first, args)
    }
}
