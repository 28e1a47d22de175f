//! Journal of the agent, and the lines that must survive a kill.

use std::fmt;
use std::time::Duration;

use super::schedule::Kill;

/// Lines of a journal. Each has a number and a time in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal(Vec<String>);

impl Journal {
    pub(crate) fn read(text: &str) -> Self {
        // A truncated last line does not count.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        Self(complete.lines().map(str::to_owned).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of lines written before a time.
    fn before(&self, time: Duration) -> usize {
        let at = |line: &String| line.split(' ').nth(1)?.parse::<u128>().ok();
        self.0.iter().filter(|line| at(line).is_some_and(|at| at < time.as_millis())).count()
    }

    /// Returns `true` if the first `lines` lines are equal.
    fn agrees(&self, other: &Self, lines: usize) -> bool {
        self.0.get(..lines).is_some_and(|ours| other.0.get(..lines) == Some(ours))
    }

    /// Returns `true` if the lines are numbered from 1 without gaps.
    fn is_complete(&self) -> bool {
        let numbers =
            self.0.iter().map(|line| line.split(' ').next().and_then(|it| it.parse().ok()));
        numbers.eq((1..=self.0.len()).map(Some))
    }
}

/// Outcome of one kill.
#[derive(Debug)]
pub(crate) struct RecoveryOutcome {
    pub(crate) kill: Kill,
    /// Time of the kill.
    pub(crate) at: Duration,
    pub(crate) interval: Duration,
    /// Journal at the time of the kill.
    pub(crate) before: Journal,
    /// Number of lines that the next agent found.
    pub(crate) found_lines: usize,
    /// Delivered journal.
    pub(crate) delivered: Journal,
    /// Number of lines of a complete journal.
    pub(crate) lines: usize,
    /// Time from the kill to the end of the task.
    pub(crate) took: Duration,
}

impl RecoveryOutcome {
    /// Returns the number of lines that must not be lost.
    fn needed(&self) -> usize {
        self.before.before(self.at.saturating_sub(self.interval))
    }

    /// Returns the reason for a failure; `None` if the outcome is good.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.found_lines < self.needed() {
            return Some(format!("{} lines are missing", self.needed() - self.found_lines));
        }
        if !self.delivered.agrees(&self.before, self.found_lines) {
            return Some("the found lines differ from the written ones".to_owned());
        }
        if self.delivered.len() != self.lines || !self.delivered.is_complete() {
            return Some(format!("{} of {} lines delivered", self.delivered.len(), self.lines));
        }
        None
    }
}

impl fmt::Display for RecoveryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        write!(
            f,
            "{:<6}  {:>7}  {:>7}  {:>6}  {:>5}  {:>8}  {}",
            self.kill.victim,
            seconds(self.kill.after),
            self.before.len(),
            self.needed(),
            self.found_lines,
            seconds(self.took),
            self.failure().unwrap_or_else(|| "completed, nothing missing".to_owned())
        )
    }
}
