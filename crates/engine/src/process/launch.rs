//! Gated start of child processes, shared by agents, gates and the services of `tamma up`.
//!
//! The child starts as a small shell that waits for a line on its standard input before it executes
//! the program. The caller records the process in between, so nothing runs unrecorded.

use std::io;
use std::path::Path;
use std::sync::{OnceLock, mpsc};

use tokio::process::Command;
use tokio::sync::oneshot;

/// Environment variable that holds the line. Descendants inherit it.
pub const MARKER_VARIABLE: &str = "TAMMA_RUN";

/// Shell script that waits for the marker, then executes its arguments. Arguments are never parsed
/// as shell text.
const GATED_EXEC: &str = "IFS= read -r TAMMA_RUN && export TAMMA_RUN && exec \"$@\"";

/// Possible locations of `setpriv`.
const SETPRIV: [&str; 3] =
    ["/usr/bin/setpriv", "/bin/setpriv", "/run/current-system/sw/bin/setpriv"];

/// Returns a command that becomes `program` once a line arrives on its standard input.
///
/// If `setpriv` is installed, the kernel sends `parent_death_signal` to the child when we die. The
/// signal is spelled as `setpriv` does, such as `KILL`.
#[must_use]
pub fn gated_command(program: &Path, parent_death_signal: &str) -> Command {
    let mut command = match SETPRIV.iter().find(|path| Path::new(path).exists()) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", parent_death_signal, "/bin/sh"]);
            command
        }
        None => Command::new("/bin/sh"),
    };
    command.args(["-c", GATED_EXEC, "sh"]).arg(program);
    command
}

/// Calls `spawn` on a thread that lives as long as this process, inside the current runtime.
///
/// The parent-death signal fires when the *thread* that started the child ends, and runtime threads
/// are short-lived.
pub async fn on_launch_thread<T: Send + 'static>(
    spawn: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    type LaunchTask = Box<dyn FnOnce() + Send>;
    static THREAD: OnceLock<Option<mpsc::Sender<LaunchTask>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (send, receive) = mpsc::channel::<LaunchTask>();
        std::thread::Builder::new()
            .name("tamma-launch".to_owned())
            .spawn(move || receive.into_iter().for_each(|work| work()))
            .ok()
            .map(|_| send)
    });
    let runtime = tokio::runtime::Handle::current();
    let (done, result) = oneshot::channel();
    let work: LaunchTask = Box::new(move || {
        let _inside = runtime.enter();
        drop(done.send(spawn()));
    });
    let ended = || io::Error::other("the launch thread has exited");
    thread.as_ref().and_then(|thread| thread.send(work).ok()).ok_or_else(ended)?;
    result.await.map_err(|_| ended())?
}
