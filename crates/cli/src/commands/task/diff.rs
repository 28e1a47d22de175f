//! `tamma task diff`: the latest reviewed change, with the line numbers that comments refer to.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anyhow::Result;
use tamma_core::review::patch::{PatchLine, lines};
use tamma_server::dto::ReviewedChange;
use uuid::Uuid;

use crate::client::{self, Client, ClientArgs};
use crate::{output, style};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    /// Show only the files with their added and removed line counts
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.resolve_task(&arguments.id).await?;
        let change = fetch(&client, id).await?;
        let mut out = anstream::stdout().lock();
        if arguments.target.json {
            output::print_json(&change)?;
        } else if arguments.stat {
            write_stat(&mut out, &change.patch)?;
            write_truncation(&mut out, &change)?;
        } else {
            write_change(&mut out, &change)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Fetches the latest reviewed change of a task.
pub(crate) async fn fetch(client: &Client, task: Uuid) -> Result<ReviewedChange> {
    Ok(client.get(&format!("/tasks/{task}/diff"), &[]).await?)
}

/// Writes a change with its line numbers.
pub(crate) fn write_change(out: &mut impl Write, change: &ReviewedChange) -> Result<()> {
    writeln!(out, "commit {}", output::sanitize(&change.commit))?;
    write_numbered_diff(out, &change.patch)?;
    write_truncation(out, change)
}

/// Says that a change is incomplete.
fn write_truncation(out: &mut impl Write, change: &ReviewedChange) -> Result<()> {
    if change.is_truncated {
        writeln!(out, "\nThe change is too large: the end of the patch is missing.")?;
    }
    Ok(())
}

/// Writes every line with its number in the changed file.
fn write_numbered_diff(out: &mut impl Write, patch: &str) -> Result<()> {
    let mut first = true;
    for row in lines(patch) {
        let line = match row {
            PatchLine::File(name) => {
                first = true;
                format!("\n{}", style::styled(&output::sanitize(&name), style::STRONG))
            }
            // Lines between two hunks of a file are omitted.
            PatchLine::Hunk(..) if std::mem::take(&mut first) => continue,
            PatchLine::Hunk(..) => "      ...".to_owned(),
            PatchLine::Removed(text) => {
                style::paint(&format!("      - {}", output::sanitize(text)), AnsiColor::Red)
            }
            PatchLine::Added(at, text) => {
                style::paint(&format!("{at:>5} + {}", output::sanitize(text)), AnsiColor::Green)
            }
            PatchLine::Context(at, text) => format!("{at:>5}   {}", output::sanitize(text)),
            PatchLine::Header(text) => output::sanitize(text),
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn write_stat(out: &mut impl Write, patch: &str) -> Result<()> {
    let mut files: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut file = String::new();
    for row in lines(patch) {
        if let PatchLine::File(name) = &row {
            file.clone_from(name);
        }
        let (added, removed) = files.entry(file.clone()).or_default();
        match row {
            PatchLine::Added(..) => *added += 1,
            PatchLine::Removed(_) => *removed += 1,
            PatchLine::File(_)
            | PatchLine::Hunk(..)
            | PatchLine::Context(..)
            | PatchLine::Header(_) => {}
        }
    }
    for (name, (added, removed)) in files.iter().filter(|(name, _)| !name.is_empty()) {
        writeln!(
            out,
            "{:>6} {:>6}  {}",
            format!("+{added}"),
            format!("-{removed}"),
            output::sanitize(name)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/a.rs b/a.rs\n--- a/a.rs\n+++ b/a.rs\n@@ -1,2 +1,3 @@\n one\n-two\n\
                         +2\n+3\n@@ -9 +10 @@\n-nine\n+ten\n";

    fn render(write: impl Fn(&mut Vec<u8>) -> Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("written");
        anstream::adapter::strip_str(&String::from_utf8(out).expect("text")).to_string()
    }

    #[test]
    fn lines_are_numbered_as_comments_refer_to_them() {
        assert_eq!(
            render(|out| write_numbered_diff(out, PATCH)),
            "\na.rs\n    1   one\n      - two\n    2 + 2\n    3 + 3\n      ...\n      - nine\n   10 + ten\n"
        );
        assert_eq!(render(|out| write_stat(out, PATCH)), "    +3     -2  a.rs\n");
    }
}
