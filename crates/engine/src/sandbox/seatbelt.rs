//! Seatbelt sandbox of macOS: translates an allowlist into a profile for `sandbox-exec`.
//!
//! The profile is generated and tested on Linux. It has never been run on macOS.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::view::{FileAccess, SandboxView};
use super::{Sandbox, launcher, path_text};
use crate::process::Launch;

/// Program that applies a profile.
const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Rules that every program needs. Everything else is denied; later rules override earlier ones.
const BASE: &str = "\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow mach-lookup
  (global-name \"com.apple.system.opendirectoryd.libinfo\")
  (global-name \"com.apple.system.notification_center\")
  (global-name \"com.apple.trustd.agent\"))
(allow pseudo-tty)
(allow file-read-metadata)
(allow file-read* file-write* file-ioctl
  (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/random\")
  (literal \"/dev/urandom\") (literal \"/dev/tty\") (literal \"/dev/ptmx\")
  (regex #\"^/dev/ttys[0-9]+$\"))
(allow file-read*
  (literal \"/\") (subpath \"/System\") (subpath \"/Library/Developer\") (subpath \"/Library/Apple\")
  (subpath \"/private/etc\") (subpath \"/private/var/db/timezone\")
  (subpath \"/private/var/db/dyld\") (subpath \"/var/select\") (subpath \"/private/var/select\"))
";

/// Checks that the program is installed.
pub(super) fn probe() -> Result<(), String> {
    if !cfg!(target_os = "macos") {
        return Err("Seatbelt exists on macOS only".to_owned());
    }
    if Path::new(PROGRAM).exists() { Ok(()) } else { Err(format!("`{PROGRAM}` is missing")) }
}

/// Returns program and arguments that start a launch in a Seatbelt sandbox.
pub(super) fn wrap_command(
    sandbox: &Sandbox,
    view: &SandboxView,
    launch: &Launch,
    program: &Path,
) -> (PathBuf, Vec<String>) {
    let mut args = vec!["-p".to_owned(), profile(sandbox, view)];
    args.push(path_text(&sandbox.launcher.program));
    args.extend(sandbox.launcher.args.iter().cloned());
    args.extend(["--make".to_owned(), path_text(&sandbox.scratch())]);
    args.extend(launcher::limit_args(&sandbox.limits, false));
    args.extend(["--".to_owned(), path_text(program)]);
    args.extend(launch.args.iter().cloned());
    (PathBuf::from(PROGRAM), args)
}

/// Returns the profile of a sandbox.
fn profile(sandbox: &Sandbox, view: &SandboxView) -> String {
    let mut text = BASE.to_owned();
    for (path, access) in view.entries() {
        let path = quote(path);
        let _ = match access {
            FileAccess::Link(_) => writeln!(text, "(allow file-read* (literal {path}))"),
            // Also below a writable folder, whose rule comes first.
            FileAccess::Readable => writeln!(
                text,
                "(allow file-read* file-map-executable (subpath {path}))\n\
                 (deny file-write* (subpath {path}))"
            ),
            FileAccess::Writable => writeln!(
                text,
                "(allow file-read* file-write* file-map-executable (subpath {path}))"
            ),
            FileAccess::HiddenFile | FileAccess::HiddenDir => {
                writeln!(text, "(deny file-read* file-write* (subpath {path}))")
            }
            // A file cannot take the place of another. `/tmp` is not private, so it is not
            // accessible. Devices and processes are part of the base rules.
            FileAccess::Replaced(_)
            | FileAccess::Scratch
            | FileAccess::Devices
            | FileAccess::Processes => Ok(()),
        };
    }
    for forward in sandbox.network.forwards() {
        let port = forward.port;
        let _ = writeln!(text, "(allow network-outbound (remote ip \"localhost:{port}\"))");
    }
    text
}

/// Quotes a path for a profile.
fn quote(path: &Path) -> String {
    format!("\"{}\"", path_text(path).replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamma_core::ids::TaskId;
    use tamma_core::operator::ResourceLimits;

    use super::*;
    use crate::process::RunId;
    use crate::sandbox::{Launcher, Network, SandboxKind};

    #[test]
    fn profile_denies_by_default_and_protects_files_in_the_worktree() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path().canonicalize().expect("a path");
        for name in ["tree/kept", "home", "read only \"x\"/secret"] {
            std::fs::create_dir_all(root.join(name)).expect("made");
        }
        let sandbox = Sandbox {
            kind: SandboxKind::Seatbelt,
            launcher: Launcher { program: PathBuf::from("/bin/sh"), args: Vec::new() },
            worktree: root.join("tree"),
            read_only: false,
            repository: None,
            git: None,
            home: root.join("home"),
            readable: vec![root.join("read only \"x\"")],
            writable: Vec::new(),
            protected: vec![root.join("tree/kept")],
            hidden: vec![root.join("read only \"x\"/secret")],
            network: Network::Gateway { port: 8_123, socket: root.join("socket") },
            limits: ResourceLimits::default(),
        };
        let launch = Launch {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), "true".to_owned()],
            env: BTreeMap::new(),
            working_dir: root.join("tree"),
            run: RunId { task: TaskId(uuid::Uuid::nil()), job_number: 1, generation: 1 },
            now: tamma_core::task_loop::Timestamp::UNIX_EPOCH,
        };
        let view = SandboxView::new(&sandbox, &launch, Path::new("/bin/sh"));
        let text = profile(&sandbox, &view);
        assert!(text.starts_with("(version 1)\n(deny default)\n"), "{text}");
        let position = |line: String| text.find(&line).unwrap_or_else(|| panic!("{line}\n{text}"));
        let at = |name: &str| quote(&root.join(name));
        let tree = position(format!(
            "(allow file-read* file-write* file-map-executable (subpath {}))",
            at("tree")
        ));
        assert!(tree < position(format!("(deny file-write* (subpath {}))", at("tree/kept"))));
        let readable = position(format!("(subpath {})", at("read only \"x\"")));
        let hidden = at("read only \"x\"/secret");
        assert!(readable < position(format!("(deny file-read* file-write* (subpath {hidden}))")));
        assert!(text.contains("read only \\\"x\\\""), "{text}");
        position("(allow network-outbound (remote ip \"localhost:8123\"))".to_owned());
        assert!(!text.contains("(allow network*)"), "{text}");
        let (program, args) = wrap_command(&sandbox, &view, &launch, Path::new("/bin/sh"));
        assert_eq!(program, Path::new(PROGRAM));
        assert_eq!(args.last().map(String::as_str), Some("true"));
        // The parentheses match, so that the profile can be parsed.
        let outside_strings = text.split('"').step_by(2).collect::<String>();
        let count = |letter| outside_strings.matches(letter).count();
        assert_eq!(count('('), count(')'), "{text}");
    }
}
