//! Name of the person who runs the command.

use std::io::Write as _;
use std::sync::Once;

use anyhow::{Result, bail};

/// Returns the name for the task history: `explicit`, else `TAMMA_PERSON`, else git's `user.name`,
/// else the login name, which is then announced.
pub(crate) fn resolve_name(explicit: Option<&str>) -> Result<String> {
    let variable = |name| std::env::var(name).ok();
    let chosen = explicit
        .map(str::to_owned)
        .or_else(|| variable("TAMMA_PERSON"))
        .and_then(non_empty)
        .or_else(|| git_user_name().and_then(non_empty));
    if let Some(name) = chosen {
        return Ok(name);
    }
    let login = variable("USER")
        .and_then(non_empty)
        .or_else(|| variable("LOGNAME").and_then(non_empty))
        .or_else(|| login_name(&std::fs::read_to_string("/etc/passwd").ok()?));
    match login {
        Some(name) => {
            announce_login_name(&name);
            Ok(name)
        }
        None => bail!(
            "cannot determine your name\n  help: pass `--as`, or set TAMMA_PERSON or \
             `git config --global user.name`"
        ),
    }
}

/// Says once that the login name is used, because it is recorded in histories.
fn announce_login_name(name: &str) {
    static ANNOUNCED: Once = Once::new();
    ANNOUNCED.call_once(|| {
        // Optional, so a closed standard error is ignored.
        let _ = writeln!(
            anstream::stderr().lock(),
            "note: acting as `{}`, your login name; choose another with `git config --global user.name` \
             or TAMMA_PERSON",
            crate::output::sanitize(name)
        );
    });
}

/// Returns the login name of the current user from the content of `/etc/passwd`.
fn login_name(passwd: &str) -> Option<String> {
    let user = rustix::process::getuid().as_raw().to_string();
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(user.as_str())).then(|| name.to_owned())
    };
    passwd.lines().find_map(name).and_then(non_empty)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_name_is_the_one_of_the_current_user() {
        let user = rustix::process::getuid().as_raw();
        let passwd =
            format!("other:x:{}:0::/:/bin/sh\nada:x:{user}:100::/home/ada:/bin/sh\n", user + 1);
        assert_eq!(login_name(&passwd).as_deref(), Some("ada"));
        assert_eq!(login_name("broken\n"), None);
    }

    #[test]
    fn an_explicit_name_is_used_as_it_is() {
        assert_eq!(resolve_name(Some(" Grace ")).expect("a name"), "Grace");
    }
}
