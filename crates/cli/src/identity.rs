//! Name of the person who runs the command.

use anyhow::{Result, bail};

/// Returns the name for the task history: `explicit`, else `TAMMA_PERSON`, else git's `user.name`,
/// else the login name.
pub(crate) fn resolve_name(explicit: Option<&str>) -> Result<String> {
    let variable = |name| std::env::var(name).ok();
    let name = explicit
        .map(str::to_owned)
        .or_else(|| variable("TAMMA_PERSON"))
        .and_then(non_empty)
        .or_else(|| git_user_name().and_then(non_empty))
        .or_else(|| variable("USER").and_then(non_empty))
        .or_else(|| variable("LOGNAME").and_then(non_empty));
    match name {
        Some(name) => Ok(name),
        None => bail!(
            "cannot determine your name\n  help: pass `--as`, or set TAMMA_PERSON or \
             `git config --global user.name`"
        ),
    }
}

fn non_empty(text: impl AsRef<str>) -> Option<String> {
    let text = text.as_ref().trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "one short git call for the person, not part of a task"
)]
fn git_user_name() -> Option<String> {
    let output = std::process::Command::new("git").args(["config", "user.name"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
