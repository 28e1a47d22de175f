//! Progress of slow steps, on the terminal.
//!
//! Written to standard error, so that standard output has only the requested data.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Interval between frames of the spinner.
const TICK_INTERVAL: Duration = Duration::from_millis(80);

/// Display of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Spinner on one terminal line.
    Spinner,
    /// One line when a step starts and one when it finishes.
    Lines,
    /// No output.
    Silent,
}

impl Progress {
    /// Selects a spinner on a terminal, lines in a pipe, and no output with `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Self::Silent,
            (false, true) => Self::Spinner,
            (false, false) => Self::Lines,
        }
    }

    /// Starts a step, such as `starting PostgreSQL`.
    pub(crate) fn start(self, what: &str) -> ProgressStep {
        let bar = (self == Self::Spinner).then(ProgressBar::new_spinner);
        if let Some(bar) = &bar {
            // An invalid template falls back to the default style.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK_INTERVAL);
        }
        let step = ProgressStep { mode: self, bar, started_at: now() };
        step.update(what);
        step
    }
}

/// Step in progress. Dropping it clears its spinner.
#[derive(Debug)]
pub(crate) struct ProgressStep {
    mode: Progress,
    bar: Option<ProgressBar>,
    started_at: Instant,
}

impl ProgressStep {
    /// Replaces the message of the step.
    pub(crate) fn update(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{what}…")),
            None => self.print_line(&format!("{what}…")),
        }
    }

    /// Reports success and the duration: `✓ PostgreSQL 15 ready in 1.2 s`.
    pub(crate) fn finish(self, what: &str) {
        let line = format!("✓ {what} in {}", format_seconds(now() - self.started_at));
        // The final line replaces the spinner.
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.print_line(&line);
    }

    fn print_line(&self, text: &str) {
        if self.mode != Progress::Silent {
            print_to_stderr(text);
        }
    }
}

impl Drop for ProgressStep {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn print_to_stderr(line: &str) {
    // Progress is optional, so a closed standard error is ignored.
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Formats a duration in seconds with one decimal.
fn format_seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[expect(clippy::disallowed_methods, reason = "progress shows the duration of a step")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_tenths_of_a_second() {
        assert_eq!(format_seconds(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(format_seconds(Duration::from_secs(75)), "75.0 s");
    }

    #[test]
    fn quiet_disables_progress() {
        assert_eq!(Progress::new(true), Progress::Silent);
    }
}
