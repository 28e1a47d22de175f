//! Who sits at the terminal.

use anyhow::{Result, bail};

/// The name that is written in the log: the one given, else `TAMMA_PERSON`, else git's, else the
/// login name.
pub(crate) fn name(given: Option<&str>) -> Result<String> {
    let variable = |name| std::env::var(name).ok();
    let named = given
        .map(str::to_owned)
        .or_else(|| variable("TAMMA_PERSON"))
        .and_then(tidy)
        .or_else(|| of_git().and_then(tidy))
        .or_else(|| variable("USER").and_then(tidy))
        .or_else(|| variable("LOGNAME").and_then(tidy));
    match named {
        Some(name) => Ok(name),
        None => bail!(
            "it is not known who you are: give your name with `--as`, or set TAMMA_PERSON, or \
             `git config --global user.name`"
        ),
    }
}

fn tidy(text: impl AsRef<str>) -> Option<String> {
    let text = text.as_ref().trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[expect(clippy::disallowed_methods, reason = "git is asked one question; it is no work of a task")]
fn of_git() -> Option<String> {
    let asked = std::process::Command::new("git").args(["config", "user.name"]).output().ok()?;
    asked.status.success().then(|| String::from_utf8_lossy(&asked.stdout).into_owned())
}
