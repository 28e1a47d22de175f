//! A notification on the desktop of this machine, by the program that the desktop has for it.

use std::collections::BTreeMap;
use std::process::Stdio;

use tokio::process::Command;

use super::{Error, Message};

/// What the program needs to find the desktop.
const NEEDED: [&str; 6] =
    ["PATH", "HOME", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"];

pub(super) async fn send(
    environment: &BTreeMap<String, String>,
    message: &Message,
) -> Result<(), Error> {
    let mut command = program(message);
    command
        .env_clear()
        .envs(environment.iter().filter(|(name, _)| NEEDED.contains(&name.as_str())))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(super::PATIENCE, command.status()).await;
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(Error::Away(format!(
            "{PROGRAM} failed ({status}): does somebody sit at the machine that the server runs on?"
        ))),
        Ok(Err(error)) => Err(Error::Away(format!(
            "{PROGRAM} cannot be started: {error}; install it, or switch the channel off"
        ))),
        Err(_) => Err(Error::Away("the desktop did not answer".to_owned())),
    }
}

/// What shows notifications.
const PROGRAM: &str = if cfg!(target_os = "macos") { "osascript" } else { "notify-send" };

#[cfg(target_os = "macos")]
fn program(message: &Message) -> Command {
    // The texts are arguments of the script, and no part of it.
    let script = "on run {title, words}\ndisplay notification words with title title\nend run";
    let mut command = Command::new(PROGRAM);
    command.args(["-e", script, &message.subject, &message.text()]);
    command
}

#[cfg(not(target_os = "macos"))]
fn program(message: &Message) -> Command {
    use tamma_core::task_loop::Severity;
    let urgency = match message.severity {
        Severity::Critical => "critical",
        Severity::Warning => "normal",
        Severity::Info => "low",
    };
    let mut command = Command::new(PROGRAM);
    command.args(["--app-name=Tamma", &format!("--urgency={urgency}"), "--"]);
    command.args([&message.subject, &message.text()]);
    command
}
