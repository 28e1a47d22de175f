//! Landlock: the list of a cage as rules that the kernel keeps for a process and all its children.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::view::{Sight, View};
use super::{Cage, Error, Network, text};
use crate::process::Launch;

/// The first version that knows of ports (Linux 6.7). Without it the network would be open.
const NEEDED: ABI = ABI::V4;

/// The version that also keeps signals and nameless sockets inside (Linux 6.12).
const WISHED: ABI = ABI::V6;

/// Devices that everybody has.
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

/// What can be read of the table of processes: the agent's own entry, and what is of no process.
const PROCESS: [&str; 9] = [
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

/// What a launcher is told to forbid.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fence {
    /// What can be read. With nothing here and nothing writable, files are left alone.
    pub(super) readable: Vec<PathBuf>,
    /// What can be written.
    pub(super) writable: Vec<PathBuf>,
    /// The ports that can be connected to. `None` is all.
    pub(super) ports: Option<Vec<u16>>,
    /// Whether signals and nameless sockets stay inside.
    pub(super) scope: bool,
}

/// Whether the kernel knows enough of it.
pub(super) fn probe() -> Result<(), String> {
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .and_then(|rules| rules.handle_access(AccessNet::ConnectTcp))
        .and_then(Ruleset::create);
    made.map(drop).map_err(|error| error.to_string())
}

/// The program and the arguments that start a launch behind a fence.
pub(super) fn around(
    cage: &Cage,
    view: &View,
    launch: &Launch,
    found: &Path,
) -> (PathBuf, Vec<String>) {
    let mut line = cage.launcher.args.clone();
    line.extend(["--make".to_owned(), text(&cage.scratch())]);
    let hidden: Vec<&Path> = view
        .sights()
        .filter(|(_, sight)| matches!(sight, Sight::NoFile | Sight::NoFolder))
        .map(|(path, _)| path)
        .collect();
    for (path, sight) in view.sights() {
        match sight {
            Sight::Readable => {
                let mut parts = Vec::new();
                without(path, &hidden, &mut parts);
                line.extend(parts.iter().filter_map(|part| sight.told(part)).flatten());
            }
            _ => line.extend(sight.told(path).into_iter().flatten()),
        }
    }
    // Not the processes of others: as root, Landlock alone does not keep their environment shut.
    line.extend(PROCESS.iter().flat_map(|path| ["--read".to_owned(), (*path).to_owned()]));
    line.push("--scope".to_owned());
    match &cage.network {
        Network::Gateway { port, .. } => line.extend(["--port".to_owned(), port.to_string()]),
        Network::Nothing => line.push("--no-port".to_owned()),
        Network::Open { ports } => {
            line.extend(ports.iter().flat_map(|port| ["--port".to_owned(), port.to_string()]));
        }
    }
    line.extend(["--".to_owned(), text(found)]);
    line.extend(launch.args.iter().cloned());
    (cage.launcher.program.clone(), line)
}

/// A folder without some things below it, as a list of what is left: nothing can be taken away from
/// what Landlock has allowed.
fn without(path: &Path, hidden: &[&Path], parts: &mut Vec<PathBuf>) {
    if hidden.contains(&path) {
        return;
    }
    if !hidden.iter().any(|one| one.starts_with(path)) {
        parts.push(path.to_owned());
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        without(&entry.path(), hidden, parts);
    }
}

impl Fence {
    /// Puts it up around this process, for good.
    pub(super) fn put_up(&self) -> Result<(), Error> {
        let files = !self.readable.is_empty() || !self.writable.is_empty();
        if !files && self.ports.is_none() && !self.scope {
            return Ok(());
        }
        let failed = |error: landlock::RulesetError| Error::Fence(error.to_string());
        let mut rules = Ruleset::default();
        if files {
            // Hard: a kernel that cannot keep files apart must not be taken for one that can.
            rules = rules
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(NEEDED))
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
                .scope(Scope::from_all(WISHED))
                .map_err(failed)?;
        }
        let mut rules = rules.create().map_err(failed)?;
        if files {
            rules = self.files(rules).map_err(failed)?;
        }
        for port in self.ports.iter().flatten() {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).map_err(failed)?;
        }
        let status = rules.restrict_self().map_err(failed)?;
        if files && status.ruleset == RulesetStatus::NotEnforced {
            return Err(Error::Fence("the kernel does not keep it".to_owned()));
        }
        Ok(())
    }

    fn files(&self, mut rules: RulesetCreated) -> Result<RulesetCreated, landlock::RulesetError> {
        let devices = DEVICES.map(PathBuf::from);
        let (read, all) = (AccessFs::from_read(NEEDED), AccessFs::from_all(NEEDED));
        let allowed = self
            .readable
            .iter()
            .map(|path| (path, read))
            .chain(self.writable.iter().chain(&devices).map(|path| (path, all)));
        for (path, access) in allowed {
            // What has gone since the list was made needs no rule.
            let Ok(place) = PathFd::new(path) else { continue };
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEEDED) };
            rules = rules.add_rule(PathBeneath::new(place, access))?;
        }
        Ok(rules)
    }
}
