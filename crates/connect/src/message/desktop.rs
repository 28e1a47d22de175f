//! Desktop notifications on this machine, shown by the program of the desktop.

use std::collections::BTreeMap;
use std::process::Stdio;

use tokio::process::Command;

use super::{AlertMessage, Error};

/// Environment variables that the program needs to find the desktop.
const ENV_VARIABLES: [&str; 6] =
    ["PATH", "HOME", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"];

pub(super) async fn send(
    environment: &BTreeMap<String, String>,
    message: &AlertMessage,
) -> Result<(), Error> {
    let mut command = program(message);
    command
        .env_clear()
        .envs(environment.iter().filter(|(name, _)| ENV_VARIABLES.contains(&name.as_str())))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(super::RESPONSE_TIMEOUT, command.status()).await;
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(Error::Unreachable(format!(
            "{PROGRAM} failed ({status}): check that someone is signed in on the server's machine"
        ))),
        Ok(Err(error)) => Err(Error::Unreachable(format!(
            "cannot start {PROGRAM}: {error}; install it, or disable the channel"
        ))),
        Err(_) => Err(Error::Unreachable("the desktop did not respond".to_owned())),
    }
}

/// Program that shows notifications.
const PROGRAM: &str = if cfg!(target_os = "macos") { "osascript" } else { "notify-send" };

#[cfg(target_os = "macos")]
fn program(message: &AlertMessage) -> Command {
    // Texts are passed as arguments, so they cannot become part of the script.
    let script = "on run {title, words}\ndisplay notification words with title title\nend run";
    let mut command = Command::new(PROGRAM);
    command.args(["-e", script, &message.subject, &message.text()]);
    command
}

#[cfg(not(target_os = "macos"))]
fn program(message: &AlertMessage) -> Command {
    use tamma_core::task_loop::AlertSeverity;
    let urgency = match message.severity {
        AlertSeverity::Critical => "critical",
        AlertSeverity::Warning => "normal",
        AlertSeverity::Info => "low",
    };
    let mut command = Command::new(PROGRAM);
    command.args(["--app-name=Tamma", &format!("--urgency={urgency}"), "--"]);
    command.args([&message.subject, &message.text()]);
    command
}
