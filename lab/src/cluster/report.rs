//! Output: one line per strike, totals per sort of strike, and the figures of the last line.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use tamma_core::ids::TaskId;

use super::strike::Strike;
use crate::chaos::finding::Findings;
use crate::support::figures::{percentile, table};

/// Round with one strike.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) strike: Strike,
    /// Number of tasks in flight that depend on the struck part.
    pub(crate) interrupted: usize,
    /// For each task in flight, the time from the strike until it had done its job and was at the next.
    pub(crate) times: Vec<Duration>,
}

/// Results so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rounds: Vec<Round>,
    /// Number of examined tasks.
    tasks: usize,
    /// Number of runs that started or ended more than once.
    reruns: usize,
    found: FindingCounts,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct FindingCounts {
    lost: usize,
    doubled: usize,
    orphaned: usize,
    skipped: usize,
    unapproved: usize,
}

impl Report {
    /// Prints the heading.
    pub(crate) fn begin() -> Result<Self> {
        let mut out = std::io::stdout().lock();
        let titles = ("strike", "interrupted", "median", "longest");
        writeln!(
            out,
            "{:>4} {:<15} {:>11} {:>7} {:>7}",
            "", titles.0, titles.1, titles.2, titles.3
        )?;
        Ok(Self::default())
    }

    pub(crate) fn strikes(&self) -> usize {
        self.rounds.len()
    }

    pub(crate) fn interruptions(&self) -> usize {
        self.rounds.iter().map(|round| round.interrupted).sum()
    }

    /// Prints the times of a round without a strike.
    pub(crate) fn print_undisturbed(times: &[Duration]) -> Result<()> {
        print_round(0, "none", 0, times)
    }

    /// Prints the row of a round.
    pub(crate) fn add_round(&mut self, round: Round) -> Result<()> {
        let name = round.strike.to_string();
        print_round(self.rounds.len() + 1, &name, round.interrupted, &round.times)?;
        self.rounds.push(round);
        Ok(())
    }

    /// Adds what was found during a strike.
    pub(crate) fn add_findings(&mut self, strike: Strike, findings: &Findings) -> Result<()> {
        self.add(&strike.to_string(), findings)
    }

    /// Adds what was found after the end of all tasks.
    pub(crate) fn add_last(&mut self, findings: &Findings) -> Result<()> {
        self.add("end", findings)
    }

    /// Adds a completed task. One that cannot be examined counts as lost.
    pub(crate) fn add_task(&mut self, task: TaskId, findings: Result<Findings>) -> Result<()> {
        self.tasks += 1;
        match findings {
            Ok(findings) => {
                self.reruns += findings.notes.len();
                self.add(&format!("task {task}"), &findings)
            }
            Err(error) => self.add_lost_task(&format!("task {task}: {error:#}")),
        }
    }

    /// Adds a task that does not complete.
    pub(crate) fn add_lost_task(&mut self, why: &str) -> Result<()> {
        let mut findings = Findings::default();
        findings.add_lost(why);
        self.add("task", &findings)
    }

    fn add(&mut self, about: &str, findings: &Findings) -> Result<()> {
        self.found.lost += findings.lost.len();
        self.found.doubled += findings.duplicated.len();
        self.found.orphaned += findings.orphaned.len();
        self.found.skipped += findings.skipped.len();
        self.found.unapproved += findings.unapproved.len();
        let mut out = std::io::stdout().lock();
        for failure in findings.failures() {
            writeln!(out, "     {about}: {failure}")?;
        }
        Ok(())
    }

    /// Returns `true` if nothing was found.
    pub(crate) fn is_clean(&self) -> bool {
        self.found == FindingCounts::default()
    }

    /// Prints the totals and returns the figures of the last line.
    pub(crate) fn end(&self) -> Result<String> {
        let mut names: Vec<Strike> = Vec::new();
        for round in &self.rounds {
            if !names.contains(&round.strike) {
                names.push(round.strike);
            }
        }
        let heading = ["strike", "strikes", "interrupted", "median s", "longest s"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for name in names {
            let rounds: Vec<_> = self.rounds.iter().filter(|round| round.strike == name).collect();
            let times: Vec<_> = rounds.iter().flat_map(|round| &round.times).copied().collect();
            let interrupted: usize = rounds.iter().map(|round| round.interrupted).sum();
            rows.push(vec![
                name.to_string(),
                rounds.len().to_string(),
                interrupted.to_string(),
                seconds(percentile(&times, 50)),
                seconds(times.iter().copied().max()),
            ]);
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{}", table(&rows))?;
        let (tasks, reruns) = (self.tasks, self.reruns);
        writeln!(out, "{tasks} tasks examined; {reruns} runs or entries were repeated")?;
        let longest = self.rounds.iter().flat_map(|round| &round.times).copied().max();
        let FindingCounts { lost, doubled, orphaned, skipped, unapproved } = self.found;
        Ok(format!(
            "{} strikes, {} interruptions, longest resume {} s, {unapproved} unapproved, {lost} lost, \
             {doubled} doubled, {orphaned} orphaned, {skipped} skipped",
            self.strikes(),
            self.interruptions(),
            seconds(longest),
        ))
    }
}

fn print_round(number: usize, name: &str, interrupted: usize, times: &[Duration]) -> Result<()> {
    let (median, longest) = (seconds(percentile(times, 50)), seconds(times.iter().copied().max()));
    let mut out = std::io::stdout().lock();
    writeln!(out, "{number:>4} {name:<15} {interrupted:>11} {median:>7} {longest:>7}")?;
    Ok(out.flush()?)
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| format!("{:.1}", time.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(seconds: &[u64]) -> Round {
        let times = seconds.iter().copied().map(Duration::from_secs).collect();
        Round { strike: Strike::KillWorker, interrupted: 7, times }
    }

    #[test]
    fn the_last_line_ends_with_what_was_lost_doubled_orphaned_and_skipped() {
        let mut report = Report::default();
        report.add_round(round(&[2, 9])).expect("printed");
        report.add_round(round(&[4])).expect("printed");
        assert!(report.is_clean());
        let figures = report.end().expect("printed");
        assert_eq!(
            figures,
            "2 strikes, 14 interruptions, longest resume 9.0 s, 0 unapproved, 0 lost, 0 doubled, \
             0 orphaned, 0 skipped"
        );
    }

    #[test]
    fn a_finding_of_any_kind_fails_the_experiment() {
        let kinds: [fn(&mut Findings); 5] = [
            |it| it.add_lost("a step"),
            |it| it.add_duplicate("a commit"),
            |it| it.orphaned.push("a process".to_owned()),
            |it| it.add_skipped("a gate"),
            |it| it.add_unapproved("a run"),
        ];
        for kind in kinds {
            let (mut report, mut findings) = (Report::default(), Findings::default());
            kind(&mut findings);
            report.add_last(&findings).expect("printed");
            assert!(!report.is_clean());
        }
    }
}
