//! Experiments that are scripts in other languages.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::verdict::Verdict;

/// Runs a script, prints its output, and takes the figures from its last line, `<name>: <figures>`.
///
/// The script passes with exit code 0.
pub(crate) async fn run(name: &str, command: &mut Command) -> Result<Verdict> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start the script of `{name}`"))?;
    let output = child.stdout.take().context("the script has no standard output")?;
    let mut lines = BufReader::new(output).lines();
    let (mut last, mut out) = (None::<String>, std::io::stdout());
    while let Some(line) = lines.next_line().await? {
        if let Some(before) = last.replace(line) {
            writeln!(out, "{before}")?;
        }
    }
    let status = child.wait().await?;
    let figures = last.as_deref().and_then(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if let Some(figures) = figures {
        return Ok(Verdict::new(status.success(), figures));
    }
    if let Some(last) = &last {
        writeln!(out, "{last}")?;
    }
    Ok(Verdict::new(false, format!("the script ended early with {status}")))
}
