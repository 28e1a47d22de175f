//! Signals by which a phase reports its result.
//!
//! A structured result is used if the agent can give one. Otherwise the last non-empty line must be
//! exactly the signal. A signal that is quoted in a sentence, followed by commentary or misspelt
//! does not count. Without a clear signal the phase fails, because an agent that talks about
//! success may not have achieved it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PhaseDefinition;

/// Longest reason of a signal, in characters.
const MAX_REASON: usize = 1000;

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

/// Result of a phase, as its agent submits it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalSubmission {
    /// Result: `success` if the phase is complete, `blocked` if a person must act first, `failed` if
    /// it cannot be completed.
    pub result: SubmittedSignal,
    /// Reason, one sentence. Required for `blocked` and `failed`.
    #[serde(default)]
    pub reason: String,
}

/// Kind of a submitted signal
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubmittedSignal {
    /// The phase is complete
    Success,
    /// A person must act first
    Blocked,
    /// The phase cannot be completed
    Failed,
}

impl SignalSubmission {
    /// Converts the submission to a signal, or returns what is wrong with it.
    pub fn into_signal(self) -> Result<PhaseSignal, Vec<String>> {
        let reason = one_line(&self.reason);
        match self.result {
            SubmittedSignal::Success => Ok(PhaseSignal::Success),
            _ if reason.is_empty() => Err(vec![
                "`reason` is empty: write in one sentence what a person needs to know".to_owned(),
            ]),
            SubmittedSignal::Blocked => Ok(PhaseSignal::Blocked(reason)),
            SubmittedSignal::Failed => Ok(PhaseSignal::Failed(reason)),
        }
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_REASON).collect()
}

impl PhaseSignal {
    /// Returns a failure whose reason fits in one line.
    pub fn failed(reason: &str) -> Self {
        Self::Failed(one_line(reason))
    }

    /// Returns the signal as a line; `None` if there was no output.
    pub fn line(&self, phase: &PhaseDefinition) -> Option<String> {
        let name = phase.signal_name();
        match self {
            Self::Success => Some(phase.success_signal()),
            Self::Blocked(reason) => Some(format!("{name} BLOCKED: {reason}")),
            Self::Failed(reason) => Some(format!("{name} FAILED: {reason}")),
            Self::Unclear(last) => (!last.is_empty()).then(|| last.clone()),
        }
    }
}

/// Parses the signal at the end of an output.
pub fn parse(output: &str, phase: &PhaseDefinition) -> PhaseSignal {
    let last = output.lines().map(str::trim_end).rfind(|line| !line.is_empty()).unwrap_or_default();
    if last == phase.success_signal() {
        PhaseSignal::Success
    } else if let Some(reason) = signal_reason(last, " BLOCKED: ") {
        PhaseSignal::Blocked(reason)
    } else if let Some(reason) = signal_reason(last, " FAILED: ") {
        PhaseSignal::Failed(reason)
    } else {
        PhaseSignal::Unclear(last.chars().take(MAX_REASON).collect())
    }
}

/// Returns the reason after a keyword that only a name in capitals precedes. Any name is accepted,
/// because agents name their phases differently and these signals never pass a phase.
fn signal_reason(line: &str, keyword: &str) -> Option<String> {
    let (name, reason) = line.split_once(keyword)?;
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || " _-".contains(c));
    let reason: String = reason.trim().chars().take(MAX_REASON).collect();
    (is_name && !reason.is_empty()).then_some(reason)
}
