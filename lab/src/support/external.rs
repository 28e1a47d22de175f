//! Experiments that are scripts in other languages.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::verdict::Verdict;

/// Script in a process group of its own, which is terminated if it is dropped before its end.
struct ScriptProcess(Child);

impl Drop for ScriptProcess {
    fn drop(&mut self) {
        // A process that has been waited for has no ID.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            // SIGTERM instead of SIGKILL: the script ends what it has started, such as `tamma up`.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }
}

/// Runs a script, prints its output, and takes the figures from its last line, `<name>: <figures>`.
///
/// The script passes with exit code 0.
pub(crate) async fn run(name: &str, command: &mut Command) -> Result<Verdict> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start the script of `{name}`"))?;
    let mut script = ScriptProcess(child);
    let output = script.0.stdout.take().context("the script has no standard output")?;
    let mut lines = BufReader::new(output).lines();
    let (mut last, mut out) = (None::<String>, std::io::stdout());
    while let Some(line) = lines.next_line().await? {
        if let Some(before) = last.replace(line) {
            writeln!(out, "{before}")?;
        }
    }
    let status = script.0.wait().await?;
    let figures = last.as_deref().and_then(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if let Some(figures) = figures {
        return Ok(Verdict::new(status.success(), figures));
    }
    if let Some(last) = &last {
        writeln!(out, "{last}")?;
    }
    Ok(Verdict::new(false, format!("the script ended early with {status}")))
}
