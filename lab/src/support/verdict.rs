//! Result of an experiment.

/// Result of an experiment, for the last line and the exit code.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// `false` makes the exit code 1.
    pub(crate) passed: bool,
    /// Figures for the last line, without line breaks.
    pub(crate) figures: String,
}

impl Verdict {
    /// Creates a verdict.
    pub(crate) fn new(passed: bool, figures: impl Into<String>) -> Self {
        Self { passed, figures: figures.into() }
    }
}
