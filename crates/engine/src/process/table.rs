//! The system's table of processes, read from `/proc`.
//!
//! Where there is no `/proc` the table is empty, and only the signals to the group are left.

use std::fs;
use std::path::{Path, PathBuf};

use super::Identity;

/// One process of the table.
pub(super) struct Process {
    /// Which one.
    pub(super) identity: Identity,
    /// Its group.
    pub(super) group: u32,
    /// Whether it has ended and only waits for its parent to notice.
    pub(super) ended: bool,
}

impl Process {
    /// Whether an assignment was in its environment when it started.
    pub(super) fn has(&self, assignment: &str) -> bool {
        fs::read(format!("/proc/{}/environ", self.identity.pid)).is_ok_and(|environment| {
            environment.split(|byte| *byte == 0).any(|entry| entry == assignment.as_bytes())
        })
    }
}

/// Whether the system has a table that we can read.
pub(super) fn is_there() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// Every process there is.
pub(super) fn read() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(process)
        .collect()
}

/// The process that has a number now, unless it has ended.
pub(super) fn identity(pid: u32) -> Option<Identity> {
    process(pid).filter(|process| !process.ended).map(|process| process.identity)
}

/// Which start of the machine this is.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn process(pid: u32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `/proc/<pid>/stat`. The name in it may hold anything, brackets and spaces too.
fn parse(pid: u32, stat: &str) -> Option<Process> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Process {
        identity: Identity { pid, started: fields.get(19)?.parse().ok()? },
        group: fields.get(2)?.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

/// Where a program is: the path itself, or the first place of a search path that has it.
pub(super) fn find(program: &Path, search: Option<&str>) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    // What a shell takes where nothing is said.
    let search = search.unwrap_or("/usr/local/bin:/usr/bin:/bin");
    search.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = "42 (a) b (c)) S 1 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        let process = parse(42, stat).expect("it can be read");
        assert_eq!(process.identity, Identity { pid: 42, started: 987_654 });
        assert_eq!((process.group, process.ended), (40, false));
    }

    #[test]
    fn this_process_is_in_the_table() {
        let me = std::process::id();
        assert!(read().iter().any(|process| Some(process.identity) == identity(me)));
    }

    #[test]
    fn a_program_is_found_by_path_or_in_the_search_path() {
        assert_eq!(find(Path::new("/bin/sh"), None), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find(Path::new("sh"), Some("/nowhere:/bin")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find(Path::new("sh"), Some("/nowhere")), None);
    }
}
