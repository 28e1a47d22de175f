//! Signals: how a phase says how it ended.
//!
//! A structured result is believed where the agent can give one. Otherwise the last line that is
//! not empty has to be the signal, exactly. A signal that is quoted in a sentence, followed by
//! commentary or spelled differently is none, and no clear signal is a failure: an agent that
//! talks about success has not necessarily had it.

use serde::{Deserialize, Serialize};

use super::Phase;

/// How a phase says it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// It did what it was for.
    Success,
    /// It needs a person, for this reason.
    Blocked(String),
    /// It cannot go on, for this reason.
    Failed(String),
    /// It did not say. The last line is kept for whoever looks into it.
    Unclear(String),
}

/// How a signal came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// As a structured result.
    Structured,
    /// As the last line of the output.
    LastLine,
}

impl Signal {
    /// The signal as a line, if there was anything.
    pub fn line(&self, phase: Phase) -> Option<String> {
        let name = phase.title().to_uppercase();
        match self {
            Self::Success => Some(phase.success_signal().to_owned()),
            Self::Blocked(reason) => Some(format!("{name} BLOCKED: {reason}")),
            Self::Failed(reason) => Some(format!("{name} FAILED: {reason}")),
            Self::Unclear(last) => (!last.is_empty()).then(|| last.clone()),
        }
    }
}

/// The signal of a phase: the structured one if there is one, otherwise what the output says.
pub fn read(structured: Option<Signal>, output: &str, phase: Phase) -> (Signal, Source) {
    match structured {
        Some(signal) => (signal, Source::Structured),
        None => (parse(output, phase), Source::LastLine),
    }
}

/// The signal that an output ends with.
pub fn parse(output: &str, phase: Phase) -> Signal {
    let last = output.lines().map(str::trim_end).rfind(|line| !line.is_empty()).unwrap_or_default();
    if last == phase.success_signal() {
        Signal::Success
    } else if let Some(reason) = reason(last, " BLOCKED: ") {
        Signal::Blocked(reason)
    } else if let Some(reason) = reason(last, " FAILED: ") {
        Signal::Failed(reason)
    } else {
        Signal::Unclear(last.to_owned())
    }
}

/// The reason after a keyword, where a name in capitals and nothing else stands before it. Which
/// name it is does not matter: agents call their phases by many, and nothing passes by it.
fn reason(line: &str, keyword: &str) -> Option<String> {
    let (name, reason) = line.split_once(keyword)?;
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    let reason = reason.trim();
    (is_name && !reason.is_empty()).then(|| reason.to_owned())
}
