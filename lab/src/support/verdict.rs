//! The result of an experiment.

/// The result of an experiment: its figures, and whether it passed.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Whether the experiment passed.
    pub(crate) passed: bool,
    /// The figures for the last line, in one line.
    pub(crate) figures: String,
}

impl Verdict {
    /// Returns the verdict of an experiment with these figures.
    pub(crate) fn new(passed: bool, figures: impl Into<String>) -> Self {
        Self { passed, figures: figures.into() }
    }
}
