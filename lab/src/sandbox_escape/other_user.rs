//! The same attempts as an ordinary user, for an experiment that was started as root.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::support::programs;

/// User and group `nobody`.
pub(crate) const NOBODY: u32 = 65534;

/// Search path of the ordinary user. The one of root can name folders that it cannot read.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs of the build that the attempts need.
const PROGRAMS: [&str; 3] = ["lab", "sandbox-launcher", "scripted-agent"];

/// Runs this experiment again as an ordinary user, with the same arguments and `more`, and forwards its
/// output. Returns the number of escapes and of attempts.
pub(crate) async fn run(
    more: &[&str],
    mut print: impl FnMut(&str) -> Result<()>,
) -> Result<(usize, usize)> {
    let folder = tempfile::tempdir()?;
    let copies = own_folder(&folder.path().join("programs"))?;
    let temporary = own_folder(&folder.path().join("tmp"))?;
    chown(folder.path(), Some(NOBODY), Some(NOBODY))?;
    for name in PROGRAMS {
        // The folder of the build can be closed to other users.
        let (from, to) = (programs::folder()?.join(name), copies.join(name));
        if std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    let mut child = Command::new(copies.join("lab"))
        .args(std::env::args_os().skip(1))
        .args(more)
        .env("HOME", folder.path())
        .env("TMPDIR", &temporary)
        .env("PATH", SEARCH_PATH)
        .current_dir(folder.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the lab as an ordinary user")?;
    let output = child.stdout.take().context("standard output is not piped")?;
    let mut lines = BufReader::new(output).lines();
    let mut last = String::new();
    while let Some(line) = lines.next_line().await? {
        // The last line has the figures, which become part of our own.
        if !last.is_empty() {
            print(&last)?;
        }
        last = line;
    }
    child.wait().await?;
    match parse_figures(&last) {
        Some(figures) => Ok(figures),
        None => bail!("the attempts as an ordinary user failed: {last}"),
    }
}

/// Creates a folder of the ordinary user.
fn own_folder(path: &Path) -> Result<PathBuf> {
    std::fs::create_dir(path)?;
    chown(path, Some(NOBODY), Some(NOBODY))?;
    Ok(path.to_owned())
}

/// Reads the number of escapes and of attempts from the last line of an experiment.
fn parse_figures(line: &str) -> Option<(usize, usize)> {
    let (escapes, rest) = line.strip_prefix("sandbox-escape: ")?.split_once(" of ")?;
    let attempts = rest.split(' ').next()?;
    Some((escapes.parse().ok()?, attempts.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_last_line() {
        let line = "sandbox-escape: 0 of 170 escaped (170 as user 65534)";
        assert_eq!(parse_figures(line), Some((0, 170)));
        assert_eq!(parse_figures("sandbox-escape: failed: no sandbox is available"), None);
    }
}
