//! Processes of tasks, found in `/proc`: those of runs, and those that a task has left behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::Result;
use tokio::process::Command;

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

/// Process that Tamma started for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunProcess {
    pub(crate) pid: u32,
    /// ID of the task.
    pub(crate) task: String,
}

impl RunProcess {
    /// Returns `true` if another process started it, directly or through others.
    pub(crate) fn descends_from(&self, ancestor: u32) -> bool {
        let mut next = parent(self.pid);
        while let Some(pid) = next.filter(|pid| *pid > 1) {
            if pid == ancestor {
                return true;
            }
            next = parent(pid);
        }
        false
    }
}

/// Returns the processes of all runs on this machine.
pub(crate) fn runs() -> Vec<RunProcess> {
    let run = |process: LeftoverProcess| {
        let mark = process.environment.split('\n').find_map(|entry| entry.strip_prefix(MARK))?;
        Some(RunProcess { pid: process.pid, task: mark.split('/').next()?.to_owned() })
    };
    all().into_iter().filter_map(run).collect()
}

/// Kills processes with SIGKILL. Some of them may have exited already.
pub(crate) async fn kill_all(pids: &[u32]) -> Result<()> {
    let pids = pids.iter().map(ToString::to_string);
    Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status().await?;
    Ok(())
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

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses that can contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
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
        let run = RunProcess { pid: child.id(), task: task.clone() };
        assert!(runs().contains(&run));
        assert!(run.descends_from(std::process::id()) && !run.descends_from(child.id()));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(!is_found(&task, nowhere));
    }
}
