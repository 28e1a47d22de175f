//! What the agent has written, and what of it has to be there after a kill.

use std::fmt;
use std::time::Duration;

use super::schedule::Kill;

/// The lines of a journal: a number and a time in milliseconds each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal(Vec<String>);

impl Journal {
    pub(crate) fn read(text: &str) -> Self {
        // A line that was cut off by the kill was not written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Self(whole.lines().map(str::to_owned).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many lines were written before a time.
    fn before(&self, time: Duration) -> usize {
        let at = |line: &String| line.split(' ').nth(1)?.parse::<u128>().ok();
        self.0.iter().filter(|line| at(line).is_some_and(|at| at < time.as_millis())).count()
    }

    /// Whether the first so many lines are the same in both.
    fn agrees(&self, other: &Self, lines: usize) -> bool {
        self.0.get(..lines).is_some_and(|ours| other.0.get(..lines) == Some(ours))
    }

    /// Whether its lines are numbered one by one.
    fn is_whole(&self) -> bool {
        let numbers =
            self.0.iter().map(|line| line.split(' ').next().and_then(|it| it.parse().ok()));
        numbers.eq((1..=self.0.len()).map(Some))
    }
}

/// What a trial has found.
#[derive(Debug)]
pub(crate) struct RecoveryOutcome {
    pub(crate) kill: Kill,
    /// When it happened.
    pub(crate) at: Duration,
    pub(crate) interval: Duration,
    /// What there was on the disk that is gone, or in the worktree whose agent is.
    pub(crate) before: Journal,
    /// How many lines the next agent found when it began.
    pub(crate) at_hand: usize,
    /// What was delivered.
    pub(crate) delivered: Journal,
    /// How many lines there are to be.
    pub(crate) lines: usize,
    /// From the kill to the end of the task.
    pub(crate) took: Duration,
}

impl RecoveryOutcome {
    /// How many lines have to be there.
    fn needed(&self) -> usize {
        self.before.before(self.at.saturating_sub(self.interval))
    }

    /// What is wrong, if something is.
    pub(crate) fn missing(&self) -> Option<String> {
        if self.at_hand < self.needed() {
            return Some(format!("{} lines are missing", self.needed() - self.at_hand));
        }
        if !self.delivered.agrees(&self.before, self.at_hand) {
            return Some("what was found is not what was written".to_owned());
        }
        if self.delivered.len() != self.lines || !self.delivered.is_whole() {
            return Some(format!("{} of {} lines arrived", self.delivered.len(), self.lines));
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
            self.at_hand,
            seconds(self.took),
            self.missing().unwrap_or_else(|| "completed, nothing missing".to_owned())
        )
    }
}
