//! Output: one line per kill, totals per victim, and the figures of the last line.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use strum::IntoEnumIterator as _;

use super::trial::Trial;
use crate::support::components::Victim;

/// Rows of all kills so far.
#[derive(Debug, Default)]
pub(crate) struct KillTable {
    rows: Vec<KillRow>,
}

#[derive(Debug, Clone)]
struct KillRow {
    victim: Victim,
    took: Duration,
    finished: bool,
    reruns: usize,
    lost: usize,
    duplicated: usize,
    orphaned: usize,
}

impl KillTable {
    /// Prints the heading.
    pub(crate) fn begin() -> Result<Self> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{:<50} {:<9} {:>7}  result", "point", "killed", "seconds")?;
        Ok(Self::default())
    }

    /// Prints the row of a kill.
    pub(crate) fn add(&mut self, trial: &Trial) -> Result<()> {
        let Trial { point, victim, took, result } = trial;
        let mut notes = Vec::new();
        let mut row = KillRow {
            victim: *victim,
            took: *took,
            finished: result.is_ok(),
            reruns: 0,
            lost: 0,
            duplicated: 0,
            orphaned: 0,
        };
        match result {
            Ok(findings) => {
                row.reruns = findings.notes.len();
                // A skipped gate, or an approval that is missing, counts as lost.
                row.lost = findings.lost.len() + findings.skipped.len() + findings.unapproved.len();
                row.duplicated = findings.duplicated.len();
                row.orphaned = findings.orphaned.len();
                if findings.is_clean() {
                    notes.push("ok".to_owned());
                }
                notes.extend(findings.failures());
                notes.extend(findings.notes.iter().cloned());
            }
            // An unfinished task counts as lost.
            Err(error) => {
                row.lost = 1;
                notes.push(format!("lost: {error:#}"));
            }
        }
        let mut out = std::io::stdout().lock();
        let seconds = took.as_secs_f64();
        writeln!(out, "{point:<50} {victim:<9} {seconds:>7.1}  {}", notes.join("; "))?;
        out.flush()?;
        self.rows.push(row);
        Ok(())
    }

    /// Returns `true` if every task finished and nothing was lost, duplicated or orphaned.
    pub(crate) fn is_clean(&self) -> bool {
        let clean = |row: &KillRow| {
            row.finished && row.lost == 0 && row.duplicated == 0 && row.orphaned == 0
        };
        self.rows.iter().all(clean)
    }

    /// Prints the totals and returns the figures of the last line.
    pub(crate) fn end(&self) -> Result<String> {
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "\n{:<9} {:>5} {:>8} {:>6} {:>6} {:>4} {:>10} {:>8}",
            "killed", "kills", "finished", "median", "most", "lost", "duplicated", "orphaned"
        )?;
        for victim in Victim::iter() {
            let rows: Vec<_> = self.rows.iter().filter(|row| row.victim == victim).collect();
            let mut times: Vec<_> = rows.iter().map(|row| row.took.as_secs_f64()).collect();
            times.sort_by(f64::total_cmp);
            let sum = |of: fn(&KillRow) -> usize| rows.iter().map(|row| of(row)).sum::<usize>();
            writeln!(
                out,
                "{victim:<9} {:>5} {:>8} {:>6.1} {:>6.1} {:>4} {:>10} {:>8}",
                rows.len(),
                sum(|row| usize::from(row.finished)),
                times.get(times.len() / 2).copied().unwrap_or_default(),
                times.last().copied().unwrap_or_default(),
                sum(|row| row.lost),
                sum(|row| row.duplicated),
                sum(|row| row.orphaned),
            )?;
        }
        let sum = |of: fn(&KillRow) -> usize| self.rows.iter().map(of).sum::<usize>();
        let reruns = sum(|row| row.reruns);
        if reruns > 0 {
            writeln!(out, "{reruns} runs were interrupted by the kill and started again")?;
        }
        Ok(format!(
            "{} kills, {} lost, {} duplicated, {} orphaned",
            self.rows.len(),
            sum(|row| row.lost),
            sum(|row| row.duplicated),
            sum(|row| row.orphaned),
        ))
    }
}
