//! Control groups (cgroup v2) of runs, if the service manager delegates its group to this process.
//!
//! The kernel then limits memory and processes of a run as a whole, including files in memory. This
//! is in addition to measuring them, which works everywhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tamma_core::operator::ResourceLimits;

use super::{ExceededLimit, ProcessRecord};

/// Mount point of the unified hierarchy.
const MOUNT: &str = "/sys/fs/cgroup";

/// Group that this process moves to, because a group with processes cannot limit groups in it.
const OWN_GROUP: &str = "tamma-worker";

/// Attributes with which systemd marks a delegated group.
const DELEGATION_MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Controllers that limit a run.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Delegated group in which runs get their groups.
static DELEGATED: OnceLock<PathBuf> = OnceLock::new();

/// Reason for which runs get no control groups.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No unified hierarchy, or one without the needed controllers.
    #[error("this process has no cgroup v2 with the controllers `memory` and `pids`")]
    Unsupported,
    /// Group belongs to the service manager.
    #[error("`{}` is not delegated; set `Delegate=yes` in the systemd unit", .0.display())]
    NotDelegated(PathBuf),
    /// Delegated group could not be divided.
    #[error("cannot divide the delegated group `{}`", path.display())]
    Divide {
        /// Path of the group.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
}

/// Lets runs have control groups, if the group of this process is delegated to it. A worker calls
/// this once, before it starts anything.
///
/// Moves all processes of the group to a group inside it.
pub fn enable_cgroups() -> Result<(), CgroupError> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let folder = own_folder(&groups, Path::new(MOUNT)).ok_or(CgroupError::Unsupported)?;
    if !is_delegated(&folder) {
        return Err(CgroupError::NotDelegated(folder));
    }
    divide(&folder).map_err(|source| CgroupError::Divide { path: folder.clone(), source })?;
    // A second call finds the same group.
    let _ = DELEGATED.set(folder);
    Ok(())
}

/// Returns `true` if runs have control groups.
pub(crate) fn has_cgroups() -> bool {
    DELEGATED.get().is_some()
}

/// Returns the group of this process, if it has the needed controllers.
fn own_folder(groups: &str, mount: &Path) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut folder = mount.join(path.trim_start_matches('/'));
    // Started by a process that has already divided the group.
    if folder.ends_with(OWN_GROUP) {
        folder.pop();
    }
    let available = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
    let has = |needed: &&str| available.split_ascii_whitespace().any(|name| name == *needed);
    CONTROLLERS.iter().all(has).then_some(folder)
}

fn is_delegated(folder: &Path) -> bool {
    DELEGATION_MARKS.iter().any(|mark| {
        let mut value = [0_u8; 8];
        let read = rustix::fs::getxattr(folder, *mark, &mut value);
        read.is_ok_and(|length| value.get(..length) == Some(b"1".as_slice()))
    })
}

/// Moves all processes of a group to one inside it, and enables the controllers for others.
fn divide(folder: &Path) -> io::Result<()> {
    let own = folder.join(OWN_GROUP);
    match fs::create_dir(&own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for pid in fs::read_to_string(folder.join("cgroup.procs"))?.lines() {
        // A process that has exited meanwhile needs no group.
        let _ = fs::write(own.join("cgroup.procs"), pid);
    }
    fs::write(
        folder.join("cgroup.subtree_control"),
        CONTROLLERS.map(|it| format!("+{it}")).join(" "),
    )
}

/// Control group of a run. It is removed when it is dropped, after the processes of the run.
#[derive(Debug)]
pub(crate) struct RunCgroup {
    folder: PathBuf,
    memory_mb: u64,
}

impl RunCgroup {
    /// Creates the group of a run that has not started yet. `None` if runs have no groups, or if
    /// that fails.
    pub(crate) fn create(record: &ProcessRecord, limits: &ResourceLimits) -> Option<Self> {
        let parent = DELEGATED.get()?;
        match Self::create_in(parent, record.pgid, limits) {
            Ok(group) => Some(group),
            Err(error) => {
                tracing::warn!(%error, run = %record.run, "failed to create the control group");
                None
            }
        }
    }

    fn create_in(parent: &Path, pid: u32, limits: &ResourceLimits) -> io::Result<Self> {
        let folder = parent.join(format!("run-{pid}"));
        fs::create_dir(&folder)?;
        let group = Self { folder, memory_mb: limits.memory_mb };
        let memory = limits.memory_mb.saturating_mul(1024 * 1024);
        group.write("memory.max", &memory.to_string())?;
        // Kill the whole run instead of one of its processes.
        group.write("memory.oom.group", "1")?;
        // Absent without swap.
        let _ = group.write("memory.swap.max", "0");
        group.write("pids.max", &limits.processes.to_string())?;
        // Its descendants stay in the group.
        group.write("cgroup.procs", &pid.to_string())?;
        Ok(group)
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.folder.join(name), value)
    }

    /// Returns the limit for which the kernel has killed the run. A process too many is refused
    /// instead.
    pub(crate) fn exceeded(&self) -> Option<ExceededLimit> {
        let events = fs::read_to_string(self.folder.join("memory.events")).unwrap_or_default();
        (event_count(&events, "oom_kill") > 0).then_some(ExceededLimit::Memory(self.memory_mb))
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        // Fails while a process is left. The group is then removed with the service's.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns the number of events with a name, from lines such as `oom_kill 1`.
fn event_count(events: &str, name: &str) -> u64 {
    let count = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    events.lines().find_map(count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_in_the_unified_hierarchy_with_its_controllers() {
        let mount = tempfile::tempdir().expect("folder");
        let unit = mount.path().join("system.slice/tamma.service");
        fs::create_dir_all(unit.join(OWN_GROUP)).expect("made");
        let groups = "4:memory:/x\n0::/system.slice/tamma.service\n";
        assert_eq!(own_folder(groups, mount.path()), None, "no controllers");
        fs::write(unit.join("cgroup.controllers"), "cpu memory pids\n").expect("written");
        assert_eq!(own_folder(groups, mount.path()), Some(unit.clone()));
        let inside = "0::/system.slice/tamma.service/tamma-worker\n";
        assert_eq!(own_folder(inside, mount.path()), Some(unit.clone()));
        assert_eq!(own_folder("4:memory:/x\n", mount.path()), None);
        assert!(!is_delegated(&unit), "it has no mark");
    }

    #[test]
    fn delegated_group_is_divided_and_a_run_gets_its_limits() {
        let parent = tempfile::tempdir().expect("folder");
        let at = |name: &str| parent.path().join(name);
        fs::write(at("cgroup.procs"), "12\n").expect("written");
        divide(parent.path()).expect("divided");
        let read = |name: &str| fs::read_to_string(at(name)).expect("read");
        assert_eq!(read("cgroup.subtree_control"), "+memory +pids");
        assert_eq!(read("tamma-worker/cgroup.procs"), "12");
        let limits = ResourceLimits { memory_mb: 1, processes: 7, ..ResourceLimits::default() };
        let group = RunCgroup::create_in(parent.path(), 34, &limits).expect("created");
        assert_eq!(read("run-34/memory.max"), "1048576");
        assert_eq!(
            (read("run-34/pids.max"), read("run-34/cgroup.procs")),
            ("7".into(), "34".into())
        );
        assert_eq!(group.exceeded(), None);
        fs::write(at("run-34/memory.events"), "oom 1\noom_kill 2\n").expect("written");
        assert_eq!(group.exceeded(), Some(ExceededLimit::Memory(1)));
        assert_eq!(event_count("oom_kill 0\n", "oom_kill"), 0);
    }
}
