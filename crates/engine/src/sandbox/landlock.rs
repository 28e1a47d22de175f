//! Landlock sandbox: rules that the kernel enforces for a process and its descendants.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::view::{FileAccess, SandboxView};
use super::{Error, Sandbox, launcher, path_text};
use crate::process::Launch;

/// First version with rules for ports (Linux 6.7). Without it, the network would be open.
const REQUIRED_ABI: ABI = ABI::V4;

/// First version that scopes signals and abstract sockets (Linux 6.12).
const PREFERRED_ABI: ABI = ABI::V6;

/// Devices that every process may use.
const DEVICES: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];

/// Readable entries of `/proc`: the process itself, and entries that concern no process.
const PROC_PATHS: [&str; 9] = [
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
];

/// Landlock rules to enforce.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LandlockSandbox {
    /// Readable paths. If this and `writable` are empty, file access is unrestricted.
    pub(super) readable: Vec<PathBuf>,
    /// Writable paths.
    pub(super) writable: Vec<PathBuf>,
    /// Allowed destination ports; all if `None`.
    pub(super) ports: Option<Vec<u16>>,
    /// Restrict signals and abstract sockets to the sandbox.
    pub(super) scope: bool,
}

/// Checks that the kernel supports the required version.
pub(super) fn probe() -> Result<(), String> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED_ABI))
        .and_then(|rules| rules.handle_access(AccessNet::ConnectTcp))
        .and_then(Ruleset::create);
    ruleset.map(drop).map_err(|error| error.to_string())
}

/// Returns program and arguments that start a launch in a Landlock sandbox.
pub(super) fn wrap_command(
    sandbox: &Sandbox,
    view: &SandboxView,
    launch: &Launch,
    program: &Path,
) -> (PathBuf, Vec<String>) {
    let mut args = sandbox.launcher.args.clone();
    args.extend(["--make".to_owned(), path_text(&sandbox.scratch())]);
    let hidden: Vec<&Path> = view
        .entries()
        .filter(|(_, access)| matches!(access, FileAccess::HiddenFile | FileAccess::HiddenDir))
        .map(|(path, _)| path)
        .collect();
    for (path, access) in view.entries() {
        match access {
            FileAccess::Readable => {
                let mut parts = Vec::new();
                collect_visible(path, &hidden, &mut parts);
                args.extend(parts.iter().filter_map(|part| access.launcher_args(part)).flatten());
            }
            _ => args.extend(access.launcher_args(path).into_iter().flatten()),
        }
    }
    // Excludes other processes: as root, Landlock alone does not protect their environment.
    args.extend(PROC_PATHS.iter().flat_map(|path| ["--read".to_owned(), (*path).to_owned()]));
    args.push("--scope".to_owned());
    // Rules for ports do not name a host, so the operator's services are reachable directly.
    args.push("--no-port".to_owned());
    for forward in sandbox.network.forwards() {
        args.extend(["--port".to_owned(), forward.port.to_string()]);
    }
    args.extend(launcher::limit_args(&sandbox.limits, false));
    args.extend(["--".to_owned(), path_text(program)]);
    args.extend(launch.args.iter().cloned());
    (sandbox.launcher.program.clone(), args)
}

/// Collects the contents of a directory except for hidden paths, because Landlock rules cannot
/// exclude anything.
fn collect_visible(path: &Path, hidden: &[&Path], parts: &mut Vec<PathBuf>) {
    if hidden.contains(&path) {
        return;
    }
    if !hidden.iter().any(|hidden_path| hidden_path.starts_with(path)) {
        parts.push(path.to_owned());
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        collect_visible(&entry.path(), hidden, parts);
    }
}

impl LandlockSandbox {
    /// Enforces the rules on this process, irrevocably.
    pub(super) fn enforce(&self) -> Result<(), Error> {
        let files = !self.readable.is_empty() || !self.writable.is_empty();
        if !files && self.ports.is_none() && !self.scope {
            return Ok(());
        }
        let failed = |error: landlock::RulesetError| Error::Landlock(error.to_string());
        let mut rules = Ruleset::default();
        if files {
            // Hard requirement: fail if the kernel cannot restrict files.
            rules = rules
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(REQUIRED_ABI))
                .map_err(failed)?;
        }
        if self.ports.is_some() {
            let level = if files { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
            rules = rules
                .set_compatibility(level)
                .handle_access(AccessNet::ConnectTcp)
                .map_err(failed)?;
        }
        if self.scope {
            rules = rules
                .set_compatibility(CompatLevel::BestEffort)
                .scope(Scope::from_all(PREFERRED_ABI))
                .map_err(failed)?;
        }
        let mut rules = rules.create().map_err(failed)?;
        if files {
            rules = self.add_file_rules(rules).map_err(failed)?;
        }
        for port in self.ports.iter().flatten() {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).map_err(failed)?;
        }
        let status = rules.restrict_self().map_err(failed)?;
        if files && status.ruleset == RulesetStatus::NotEnforced {
            return Err(Error::Landlock("not supported by the kernel".to_owned()));
        }
        Ok(())
    }

    fn add_file_rules(
        &self,
        mut rules: RulesetCreated,
    ) -> Result<RulesetCreated, landlock::RulesetError> {
        let devices = DEVICES.map(PathBuf::from);
        let (read, all) = (AccessFs::from_read(REQUIRED_ABI), AccessFs::from_all(REQUIRED_ABI));
        let allowed = self
            .readable
            .iter()
            .map(|path| (path, read))
            .chain(self.writable.iter().chain(&devices).map(|path| (path, all)));
        for (path, access) in allowed {
            // Paths that no longer exist need no rule.
            let Ok(path_fd) = PathFd::new(path) else { continue };
            let access =
                if path.is_dir() { access } else { access & AccessFs::from_file(REQUIRED_ABI) };
            rules = rules.add_rule(PathBeneath::new(path_fd, access))?;
        }
        Ok(rules)
    }
}
