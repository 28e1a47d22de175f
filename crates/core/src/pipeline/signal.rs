//! Signals by which a phase reports its result.
//!
//! A structured result is used if the agent can give one. Otherwise the last non-empty line must be
//! exactly the signal. A signal that is quoted in a sentence, followed by commentary or misspelt
//! does not count. Without a clear signal the phase fails, because an agent that talks about
//! success may not have achieved it.

use serde::{Deserialize, Serialize};

use super::PipelinePhase;

/// Result that a phase reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseSignal {
    /// Phase succeeded.
    Success,
    /// Phase needs a person, for this reason.
    Blocked(String),
    /// Phase failed, for this reason.
    Failed(String),
    /// No clear signal; contains the last line.
    Unclear(String),
}

/// Source of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalSource {
    /// Structured result.
    Structured,
    /// Last line of the output.
    LastLine,
}

impl PhaseSignal {
    /// Returns the signal as a line; `None` if there was no output.
    pub fn line(&self, phase: PipelinePhase) -> Option<String> {
        let name = phase.title().to_uppercase();
        match self {
            Self::Success => Some(phase.success_signal().to_owned()),
            Self::Blocked(reason) => Some(format!("{name} BLOCKED: {reason}")),
            Self::Failed(reason) => Some(format!("{name} FAILED: {reason}")),
            Self::Unclear(last) => (!last.is_empty()).then(|| last.clone()),
        }
    }
}

/// Returns the signal of a phase: the structured one, or else the one in the output.
pub fn resolve(
    structured: Option<PhaseSignal>,
    output: &str,
    phase: PipelinePhase,
) -> (PhaseSignal, SignalSource) {
    match structured {
        Some(signal) => (signal, SignalSource::Structured),
        None => (parse(output, phase), SignalSource::LastLine),
    }
}

/// Parses the signal at the end of an output.
pub fn parse(output: &str, phase: PipelinePhase) -> PhaseSignal {
    let last = output.lines().map(str::trim_end).rfind(|line| !line.is_empty()).unwrap_or_default();
    if last == phase.success_signal() {
        PhaseSignal::Success
    } else if let Some(reason) = signal_reason(last, " BLOCKED: ") {
        PhaseSignal::Blocked(reason)
    } else if let Some(reason) = signal_reason(last, " FAILED: ") {
        PhaseSignal::Failed(reason)
    } else {
        PhaseSignal::Unclear(last.to_owned())
    }
}

/// Returns the reason after a keyword that only a name in capitals precedes. Any name is accepted,
/// because agents name their phases differently and these signals never pass a phase.
fn signal_reason(line: &str, keyword: &str) -> Option<String> {
    let (name, reason) = line.split_once(keyword)?;
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    let reason = reason.trim();
    (is_name && !reason.is_empty()).then(|| reason.to_owned())
}
