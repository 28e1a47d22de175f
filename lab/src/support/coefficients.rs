//! Coefficients of `tamma capacity`: the benchmarks write what they measured.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

/// Returns the table of coefficients in the repository.
fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/core/src/capacity/coefficients.yaml")
}

/// Replaces the section of a benchmark, with today's date and the current commit.
pub(crate) async fn write(section: &str, values: &[(&'static str, u64)]) -> Result<()> {
    let git = Command::new("git")
        .args(["rev-parse", "--short=7", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .await
        .context("cannot start `git`")?;
    ensure!(git.status.success(), "cannot read the commit of this build");
    let commit = String::from_utf8(git.stdout)?;
    let file = file();
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let replaced = replace_section(&text, section, &today(), commit.trim(), values)?;
    Ok(std::fs::write(file, replaced)?)
}

fn replace_section(
    text: &str,
    section: &str,
    date: &str,
    commit: &str,
    values: &[(&'static str, u64)],
) -> Result<String> {
    let heading = format!("{section}:");
    let mut lines = text.lines().peekable();
    let mut replaced = String::new();
    let mut is_found = false;
    while let Some(line) = lines.next() {
        replaced.push_str(line);
        replaced.push('\n');
        if line != heading {
            continue;
        }
        is_found = true;
        while lines.next_if(|line| line.starts_with("  ")).is_some() {}
        // Quoted, because a commit can consist of digits.
        write!(replaced, "  measured: {date}\n  commit: \"{commit}\"\n")?;
        for (name, value) in values {
            writeln!(replaced, "  {name}: {value}")?;
        }
    }
    ensure!(is_found, "the coefficients have no section `{section}`");
    Ok(replaced)
}

#[expect(clippy::disallowed_methods, reason = "a measurement is dated")]
fn today() -> String {
    chrono::Utc::now().date_naive().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_of_the_benchmark_changes() {
        let text = "# Costs\nloop:\n  measured: 2026-01-01\n  rows: 1\nwaiting:\n  rows: 2\n";
        let replaced =
            replace_section(text, "loop", "2026-02-01", "1234567", &[("rows", 3)]).expect("found");
        let expected = "# Costs\nloop:\n  measured: 2026-02-01\n  commit: \"1234567\"\n  rows: 3\n\
                        waiting:\n  rows: 2\n";
        assert_eq!(replaced, expected);
        assert!(replace_section(text, "agents", "2026-02-01", "1234567", &[]).is_err());
    }

    #[test]
    fn the_table_has_the_sections_that_the_benchmarks_write() {
        let text = std::fs::read_to_string(file()).expect("the table");
        for section in ["loop", "waiting", "agents"] {
            assert!(replace_section(&text, section, "2026-02-01", "1234567", &[]).is_ok());
        }
    }
}
