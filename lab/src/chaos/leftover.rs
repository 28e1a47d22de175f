//! Processes that a task has left behind, from the system's table.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The variable by which Tamma marks what it starts for a run.
const MARK: &str = "TAMMA_RUN=";

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// How it was called.
    pub(crate) line: String,
    environment: String,
}

impl Process {
    /// Whether Tamma has started it for a run of a task.
    pub(crate) fn is_run_of(&self, task: &str) -> bool {
        let mark = format!("{MARK}{task}/");
        self.environment.split('\n').any(|entry| entry.starts_with(&mark))
    }

    /// Whether it has to do with a task or with a folder: by its mark, its call or its environment.
    fn is_about(&self, task: &str, folder: &str) -> bool {
        self.is_run_of(task)
            || [&self.line, &self.environment].iter().any(|text| text.contains(folder))
    }
}

/// The processes that run for a task, or in a folder, and are none of those that are known.
pub(crate) fn find(task: &str, folder: &Path, known: &BTreeSet<u32>) -> Vec<Process> {
    let folder = folder.display().to_string();
    let about =
        |process: &Process| process.is_about(task, &folder) && !known.contains(&process.pid);
    all().into_iter().filter(about).collect()
}

/// Every process that lives and can be looked at.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(look).collect()
}

fn look(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(')')?.1.split_whitespace().next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let text = |name: &str, between: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', between).trim().to_owned())
    };
    Some(Process { pid, line: text("cmdline", " ")?, environment: text("environ", "\n")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process to be found")]
    fn a_process_is_found_by_its_mark_and_by_its_folder_and_not_when_it_has_ended() {
        let task = format!("task-of-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("TAMMA_RUN", format!("{task}/3/1"))
            .env("SOMEWHERE", format!("/nowhere/{task}/script"))
            .spawn()
            .expect("it starts");
        let nowhere = Path::new("/nowhere/else/at/all");
        // The child is a copy of this process until it has become the program.
        let found = |task: &str, folder: &Path| {
            find(task, folder, &BTreeSet::new()).iter().any(|it| it.line == "sleep 60")
        };
        while !found(&task, nowhere) {
            std::thread::yield_now();
        }
        assert!(found("another", &Path::new("/nowhere").join(&task)));
        assert!(!found("another", nowhere));
        assert!(find(&task, nowhere, &BTreeSet::from([child.id()])).is_empty());
        child.kill().expect("killed");
        child.wait().expect("waited for");
        assert!(!found(&task, nowhere));
    }
}
