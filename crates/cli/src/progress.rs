//! What takes a moment, told while it does.
//!
//! It goes to standard error, so that standard output is what was asked for and nothing else.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(80);

/// How progress is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// One line on the terminal, which turns while it waits.
    Spinner,
    /// A line when something begins, and another when it is done.
    Lines,
    /// Not at all.
    Silent,
}

impl Progress {
    /// A spinner on a terminal, lines in a pipe, and nothing where quiet is asked for.
    pub(crate) fn new(quiet: bool) -> Self {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Self::Silent,
            (false, true) => Self::Spinner,
            (false, false) => Self::Lines,
        }
    }

    /// Says that something begins, such as `starting PostgreSQL`.
    pub(crate) fn begin(self, what: &str) -> Step {
        let bar = (self == Self::Spinner).then(ProgressBar::new_spinner);
        if let Some(bar) = &bar {
            // A pattern that cannot be read would be our fault, and the usual one is as good.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TURN);
        }
        let step = Step { look: self, bar, began: now() };
        step.change(what);
        step
    }
}

/// Something that is under way. A dropped one leaves nothing on the terminal.
#[derive(Debug)]
pub(crate) struct Step {
    look: Progress,
    bar: Option<ProgressBar>,
    began: Instant,
}

impl Step {
    /// Says what is being done now.
    pub(crate) fn change(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{what}…")),
            None => self.line(&format!("{what}…")),
        }
    }

    /// Says that it is done, and how long it took: `✓ PostgreSQL 15 ready in 1.2 s`.
    pub(crate) fn done(self, what: &str) {
        let line = format!("✓ {what} in {}", seconds(now() - self.began));
        // In the spinner's place, for good.
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.line(&line);
    }

    fn line(&self, text: &str) {
        if self.look != Progress::Silent {
            said(text);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn said(line: &str) {
    // Whoever does not read it does not miss it.
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// A time as people read it.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[expect(clippy::disallowed_methods, reason = "people are told how long something took")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_tenths_of_a_second() {
        assert_eq!(seconds(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(75)), "75.0 s");
    }

    #[test]
    fn quiet_is_silent_wherever_it_goes() {
        assert_eq!(Progress::new(true), Progress::Silent);
    }
}
