//! Signals to processes that are known by their ID and start time.
//!
//! The system can reuse a process ID at any time after the process is gone. A file descriptor of a
//! process (pidfd) always refers to the same process, so it is opened before the start time is
//! compared. Systems without pidfds compare and then signal by ID.

use rustix::process::{Pid, Signal, kill_process};

use super::{ProcessIdentity, process_table, to_pid};

/// Sends a signal to the process with this identity, and to no other one. Returns `false` if it has
/// exited.
pub(super) fn send(process: ProcessIdentity, signal: Signal) -> bool {
    let Some(pid) = to_pid(process.pid) else { return false };
    let is_same = || process_table::identity(process.pid) == Some(process);
    match send_by_descriptor(pid, signal, is_same) {
        Some(is_sent) => is_sent,
        None => is_same() && kill_process(pid, signal).is_ok(),
    }
}

/// Signals through a pidfd. Returns `None` if the system has none.
#[cfg(target_os = "linux")]
fn send_by_descriptor(pid: Pid, signal: Signal, is_same: impl Fn() -> bool) -> Option<bool> {
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    match pidfd_open(pid, PidfdFlags::empty()) {
        // The process lived before the descriptor was opened and lives after it, so it is the one
        // that the descriptor refers to.
        Ok(descriptor) if is_same() => match pidfd_send_signal(&descriptor, signal) {
            Err(Errno::NOSYS) => None,
            sent => Some(sent.is_ok()),
        },
        Ok(_) | Err(Errno::SRCH) => Some(false),
        Err(_) => None,
    }
}

/// Signals through a pidfd. This system has none.
#[cfg(not(target_os = "linux"))]
fn send_by_descriptor(_: Pid, _: Signal, _: impl Fn() -> bool) -> Option<bool> {
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use tokio::process::Command;

    use super::*;

    #[tokio::test]
    async fn signal_for_an_ended_process_never_reaches_another_one_with_its_id() {
        let mut child =
            Command::new("sleep").arg("60").kill_on_drop(true).spawn().expect("a child");
        let pid = child.id().expect("running");
        let identity = process_table::identity(pid).expect("in the table");
        // A record of an earlier process with the same ID has another start time.
        let ended = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity };
        assert!(!send(ended, Signal::KILL));
        assert!(!send(ProcessIdentity { start_ticks: 0, ..identity }, Signal::KILL));
        assert_eq!(child.try_wait().expect("waited"), None, "the other process still runs");

        assert!(send(identity, Signal::TERM));
        let status = child.wait().await.expect("waited");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
        assert!(!send(identity, Signal::KILL), "the process is gone");
    }

    #[test]
    fn impossible_ids_are_not_signalled() {
        assert!(!send(ProcessIdentity { pid: 0, start_ticks: 0 }, Signal::KILL));
        assert!(!send(ProcessIdentity { pid: u32::MAX, start_ticks: 0 }, Signal::KILL));
    }
}
