//! Process table of the system, read from `/proc`.
//!
//! Without `/proc` the table is empty. Callers can then only signal process groups.

use std::fs;
use std::path::{Path, PathBuf};

use super::ProcessIdentity;

/// Process in the table.
pub(super) struct ProcessEntry {
    /// Process ID and start time.
    pub(super) identity: ProcessIdentity,
    /// ID of the parent process.
    pub(super) parent: u32,
    /// Process group ID.
    pub(super) group: u32,
    /// Number of threads.
    pub(super) threads: u64,
    /// CPU time of the process and of its children that it has waited for, in clock ticks.
    pub(super) cpu_ticks: u64,
    /// Memory, also that which files back, in pages.
    pub(super) resident_pages: u64,
    /// Exited, but not yet waited for by its parent.
    pub(super) is_zombie: bool,
}

impl ProcessEntry {
    /// Returns `true` if the process started with this environment entry.
    pub(super) fn has_env(&self, assignment: &str) -> bool {
        fs::read(format!("/proc/{}/environ", self.identity.pid)).is_ok_and(|environment| {
            environment.split(|byte| *byte == 0).any(|entry| entry == assignment.as_bytes())
        })
    }

    /// Returns the environment entry of a variable that the process started with, if it has one.
    pub(super) fn env_entry(&self, name: &str) -> Option<String> {
        let environment = fs::read(format!("/proc/{}/environ", self.identity.pid)).ok()?;
        let is_named = |entry: &&[u8]| {
            entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
        };
        let found = environment.split(|byte| *byte == 0).find(is_named)?;
        Some(String::from_utf8_lossy(found).into_owned())
    }
}

/// Returns `true` if the system has a readable `/proc`.
pub(super) fn is_available() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// Lists all processes.
pub(super) fn list() -> Vec<ProcessEntry> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(read_process)
        .collect()
}

/// Returns the identity of a live process by its ID.
pub(super) fn identity(pid: u32) -> Option<ProcessIdentity> {
    read_process(pid).filter(|process| !process.is_zombie).map(|process| process.identity)
}

/// Returns `true` if the table contains a process, also if it has exited and nobody waited for it.
/// Without `/proc` that is assumed.
pub(super) fn contains(process: ProcessIdentity) -> bool {
    !is_available() || read_process(process.pid).is_some_and(|it| it.identity == process)
}

/// Returns the boot ID of the machine, or an empty string if it is unknown.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn read_process(pid: u32) -> Option<ProcessEntry> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/<pid>/stat`. The process name in it may contain brackets and spaces.
fn parse_stat(pid: u32, stat: &str) -> Option<ProcessEntry> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let times = fields.get(11..15)?.iter().filter_map(|ticks| ticks.parse::<u64>().ok());
    Some(ProcessEntry {
        identity: ProcessIdentity { pid, start_ticks: fields.get(19)?.parse().ok()? },
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        cpu_ticks: times.sum(),
        resident_pages: fields.get(21)?.parse().unwrap_or_default(),
        is_zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

/// Returns the path of a program: `program` itself, or its first match in a search path.
pub(super) fn find(program: &Path, search: Option<&str>) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    // Default of a shell if `PATH` is not set.
    let search = search.unwrap_or("/usr/local/bin:/usr/bin:/bin");
    search.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_with_brackets_and_spaces_is_parsed() {
        let stat = "42 (a) b (c)) S 1 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        let process = parse_stat(42, stat).expect("parses");
        assert_eq!(process.identity, ProcessIdentity { pid: 42, start_ticks: 987_654 });
        assert_eq!((process.parent, process.group, process.is_zombie), (1, 40, false));
        assert_eq!((process.threads, process.cpu_ticks), (1, 5 + 6 + 7 + 8));
        assert_eq!(process.resident_pages, 2);
    }

    #[test]
    fn table_contains_this_process() {
        let me = std::process::id();
        assert!(list().iter().any(|process| Some(process.identity) == identity(me)));
    }

    #[test]
    fn program_is_found_by_path_or_in_the_search_path() {
        assert_eq!(find(Path::new("/bin/sh"), None), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find(Path::new("sh"), Some("/nowhere:/bin")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find(Path::new("sh"), Some("/nowhere")), None);
    }
}
