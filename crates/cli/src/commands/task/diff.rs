//! `tamma task diff`: the change that a task has made, with the numbers that comments name.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anyhow::Result;
use clap::Args;
use tamma_core::review::patch::{Row, rows};
use tamma_server::shape::Change;

use crate::client::{self, Client, Target};
use crate::{look, output};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task: its id, or at least four digits of its beginning or end.
    id: String,
    /// Only which files, and how many lines came and went.
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.which(&arguments.id).await?;
        let change: Change = client.get(&format!("/tasks/{id}/diff"), &[]).await?;
        let mut out = anstream::stdout().lock();
        if arguments.target.json {
            output::json(&change)?;
        } else if arguments.stat {
            stat(&mut out, &change.patch)?;
        } else {
            writeln!(out, "commit {}", change.commit)?;
            numbered(&mut out, &change.patch)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Every line, with its number in the file as it is after the change.
fn numbered(out: &mut impl Write, patch: &str) -> Result<()> {
    let mut first = true;
    for row in rows(patch) {
        let line = match row {
            Row::File(name) => {
                first = true;
                format!("\n{}", look::styled(&output::plain(&name), look::STRONG))
            }
            // Between two pieces of one file something is left out.
            Row::Piece(..) if std::mem::take(&mut first) => continue,
            Row::Piece(..) => "      ...".to_owned(),
            Row::Removed(text) => {
                look::paint(&format!("      - {}", output::plain(text)), AnsiColor::Red)
            }
            Row::Added(at, text) => {
                look::paint(&format!("{at:>5} + {}", output::plain(text)), AnsiColor::Green)
            }
            Row::Kept(at, text) => format!("{at:>5}   {}", output::plain(text)),
            Row::Note(text) => output::plain(text),
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn stat(out: &mut impl Write, patch: &str) -> Result<()> {
    let mut files: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut file = String::new();
    for row in rows(patch) {
        if let Row::File(name) = &row {
            file.clone_from(name);
        }
        let (added, removed) = files.entry(file.clone()).or_default();
        match row {
            Row::Added(..) => *added += 1,
            Row::Removed(_) => *removed += 1,
            Row::File(_) | Row::Piece(..) | Row::Kept(..) | Row::Note(_) => {}
        }
    }
    for (name, (added, removed)) in files.iter().filter(|(name, _)| !name.is_empty()) {
        writeln!(
            out,
            "{:>6} {:>6}  {}",
            format!("+{added}"),
            format!("-{removed}"),
            output::plain(name)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/a.rs b/a.rs\n--- a/a.rs\n+++ b/a.rs\n@@ -1,2 +1,3 @@\n one\n-two\n\
                         +2\n+3\n@@ -9 +10 @@\n-nine\n+ten\n";

    fn shown(tell: impl Fn(&mut Vec<u8>) -> Result<()>) -> String {
        let mut out = Vec::new();
        tell(&mut out).expect("written");
        anstream::adapter::strip_str(&String::from_utf8(out).expect("text")).to_string()
    }

    #[test]
    fn lines_have_the_numbers_that_comments_name() {
        assert_eq!(
            shown(|out| numbered(out, PATCH)),
            "\na.rs\n    1   one\n      - two\n    2 + 2\n    3 + 3\n      ...\n      - nine\n   10 + ten\n"
        );
        assert_eq!(shown(|out| stat(out, PATCH)), "    +3     -2  a.rs\n");
    }
}
