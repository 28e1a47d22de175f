//! Processes that a task has left behind, found in `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Variable with which Tamma marks the processes of a run.
const MARK: &str = "TAMMA_RUN=";

/// Process that may belong to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftoverProcess {
    pub(crate) pid: u32,
    /// Command line.
    pub(crate) line: String,
    environment: String,
}

impl LeftoverProcess {
    /// Returns `true` if Tamma started the process for a run of a task.
    pub(crate) fn is_run_of(&self, task: &str) -> bool {
        let mark = format!("{MARK}{task}/");
        self.environment.split('\n').any(|entry| entry.starts_with(&mark))
    }

    /// Returns `true` if the mark, command line or environment names the task or the folder.
    fn is_about(&self, task: &str, folder: &str) -> bool {
        self.is_run_of(task)
            || [&self.line, &self.environment].iter().any(|text| text.contains(folder))
    }
}

/// Finds processes of a task or a folder, except those in `known`.
pub(crate) fn find(task: &str, folder: &Path, known: &BTreeSet<u32>) -> Vec<LeftoverProcess> {
    let folder = folder.display().to_string();
    let about = |process: &LeftoverProcess| {
        process.is_about(task, &folder) && !known.contains(&process.pid)
    };
    all().into_iter().filter(about).collect()
}

/// Returns all readable running processes.
fn all() -> Vec<LeftoverProcess> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(read).collect()
}

fn read(pid: u32) -> Option<LeftoverProcess> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(')')?.1.split_whitespace().next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let text = |name: &str, between: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', between).trim().to_owned())
    };
    Some(LeftoverProcess { pid, line: text("cmdline", " ")?, environment: text("environ", "\n")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a process to find")]
    fn a_running_process_is_found_by_its_mark_and_by_its_folder() {
        let task = format!("task-of-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("TAMMA_RUN", format!("{task}/3/1"))
            .env("SOMEWHERE", format!("/nowhere/{task}/script"))
            .spawn()
            .expect("spawn");
        let nowhere = Path::new("/nowhere/else/at/all");
        // Until `exec`, the child is a copy of this process.
        let is_found = |task: &str, folder: &Path| {
            find(task, folder, &BTreeSet::new()).iter().any(|it| it.line == "sleep 60")
        };
        while !is_found(&task, nowhere) {
            std::thread::yield_now();
        }
        assert!(is_found("another", &Path::new("/nowhere").join(&task)));
        assert!(!is_found("another", nowhere));
        assert!(find(&task, nowhere, &BTreeSet::from([child.id()])).is_empty());
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(!is_found(&task, nowhere));
    }
}
