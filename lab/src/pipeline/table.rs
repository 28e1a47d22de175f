//! Output: one line per scenario and per kill, and the figures of the last line.

use std::io::Write as _;

use anyhow::Result;
use strum::IntoEnumIterator as _;

use super::trial::PhaseTrial;
use crate::support::components::Victim;

/// Scenarios and kills so far.
#[derive(Debug, Default)]
pub(crate) struct StoryTable {
    passed: usize,
    scenarios: usize,
    kills: Vec<KillCounts>,
}

#[derive(Debug)]
struct KillCounts {
    victim: Victim,
    seconds: f64,
    interrupted: usize,
    orphaned: usize,
    lost: usize,
    repeated: usize,
}

impl StoryTable {
    /// Prints the result of a scenario.
    pub(crate) fn add_scenario(&mut self, name: &str, result: &Result<String>) -> Result<()> {
        self.scenarios += 1;
        self.passed += usize::from(result.is_ok());
        let text = match result {
            Ok(figures) => figures.clone(),
            Err(error) => format!("FAILED: {error:#}"),
        };
        writeln!(std::io::stdout(), "{name:<42} {text}")?;
        Ok(())
    }

    /// Prints the heading of the kills.
    pub(crate) fn begin_kills() -> Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "\n{:<24} {:<9} {:>7}  result", "point", "killed", "seconds")?;
        Ok(())
    }

    /// Prints the row of a kill. A story that did not finish counts as lost.
    pub(crate) fn add_kill(&mut self, trial: &PhaseTrial) -> Result<()> {
        let PhaseTrial { point, victim, took, result } = trial;
        let seconds = took.as_secs_f64();
        let mut counts = KillCounts {
            victim: *victim,
            seconds,
            interrupted: 0,
            orphaned: 0,
            lost: 1,
            repeated: 0,
        };
        let text = match result {
            Ok(findings) => {
                counts.interrupted = findings.interrupted;
                counts.orphaned = findings.orphaned.len();
                counts.lost = findings.lost.len();
                counts.repeated = findings.repeated.len();
                let kinds = [
                    ("lost", &findings.lost),
                    ("repeated", &findings.repeated),
                    ("orphaned", &findings.orphaned),
                ];
                let mut notes: Vec<String> = Vec::new();
                for (kind, items) in kinds {
                    notes.extend(items.iter().map(|item| format!("{kind}: {item}")));
                }
                if findings.is_clean() {
                    notes.push("ok".to_owned());
                }
                if findings.interrupted > 0 {
                    notes.push(format!("{} interrupted", findings.interrupted));
                }
                notes.join("; ")
            }
            Err(error) => format!("lost: {error:#}"),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{point:<24} {victim:<9} {seconds:>7.1}  {text}")?;
        out.flush()?;
        self.kills.push(counts);
        Ok(())
    }

    /// Returns `true` if every scenario passed and nothing was lost, repeated or orphaned.
    pub(crate) fn is_clean(&self) -> bool {
        let is_clean = |kill: &KillCounts| kill.lost + kill.repeated + kill.orphaned == 0;
        self.passed == self.scenarios && self.kills.iter().all(is_clean)
    }

    /// Prints the totals per component, and returns the figures of the last line.
    pub(crate) fn end(&self) -> Result<String> {
        let mut out = std::io::stdout().lock();
        if !self.kills.is_empty() {
            let heading = ["killed", "kills", "median", "most", "lost", "repeated"];
            let [killed, kills, median, most, lost, repeated] = heading;
            writeln!(
                out,
                "\n{killed:<9} {kills:>5} {median:>6} {most:>6} {lost:>4} {repeated:>8}"
            )?;
        }
        for victim in Victim::iter() {
            let rows: Vec<_> = self.kills.iter().filter(|kill| kill.victim == victim).collect();
            let mut seconds: Vec<_> = rows.iter().map(|kill| kill.seconds).collect();
            seconds.sort_by(f64::total_cmp);
            let (Some(median), Some(most)) = (seconds.get(seconds.len() / 2), seconds.last())
            else {
                continue;
            };
            let lost: usize = rows.iter().map(|kill| kill.lost).sum();
            let repeated: usize = rows.iter().map(|kill| kill.repeated).sum();
            writeln!(
                out,
                "{victim:<9} {:>5} {median:>6.1} {most:>6.1} {lost:>4} {repeated:>8}",
                rows.len()
            )?;
        }
        let sum = |of: fn(&KillCounts) -> usize| self.kills.iter().map(of).sum::<usize>();
        Ok(format!(
            "{} of {} scenarios as specified, {} kills, {} runs interrupted, {} orphaned, {} lost, \
             {} repeated",
            self.passed,
            self.scenarios,
            self.kills.len(),
            sum(|kill| kill.interrupted),
            sum(|kill| kill.orphaned),
            sum(|kill| kill.lost),
            sum(|kill| kill.repeated),
        ))
    }
}
