//! The report at the end of a run: a table for people, and data for programs.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoEnumIterator as _};

use super::{Phase, Run, State, Status};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Verdict {
    /// Every phase of the range is over.
    Complete,
    /// A person has to do something.
    Blocked,
    /// A phase failed.
    Failed,
}

/// One phase in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The phase.
    pub phase: Phase,
    /// How it ended, if it came to that.
    pub status: Option<Status>,
    /// The signal it gave.
    pub signal: Option<String>,
    /// The tokens it used.
    pub tokens: u64,
}

/// How a run went. Serialised, it is the report that programs read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Always `loop`: the report is of the whole run and not of one of its phases.
    pub phase: String,
    /// How it ended.
    pub verdict: Verdict,
    /// The folder of the feature.
    pub feature_dir: String,
    /// The story.
    pub story_id: String,
    /// How many phases ran.
    pub phases_executed: usize,
    /// How many were skipped.
    pub phases_skipped: usize,
    /// The number of the last phase that ran.
    pub last_phase: Option<u8>,
    /// The signal it gave.
    pub last_signal: Option<String>,
    /// The tokens of all phases.
    pub total_tokens: u64,
    /// Why it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the phase to continue from, if it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_from: Option<u8>,
    /// Every phase.
    pub phases: Vec<Row>,
}

impl Report {
    /// The report of a run. One that has not ended is reported as waiting for somebody.
    pub fn of(run: &Run) -> Self {
        let (verdict, reason, continue_from) = match &run.state {
            State::Complete => (Verdict::Complete, None, None),
            State::Stopped { phase, verdict, reason } => {
                (*verdict, Some(reason.clone()), Some(phase.number()))
            }
            state => (Verdict::Blocked, Some(format!("the run is {state}")), None),
        };
        let executed = || run.records.iter().filter(|(_, it)| it.status != Status::Skipped);
        let last = executed().next_back();
        Self {
            phase: "loop".to_owned(),
            verdict,
            feature_dir: run.order.feature_dir.clone(),
            story_id: run.order.story_id.clone(),
            phases_executed: executed().count(),
            phases_skipped: run.records.len() - executed().count(),
            last_phase: last.map(|(phase, _)| phase.number()),
            last_signal: last.and_then(|(_, record)| record.signal.clone()),
            total_tokens: run
                .records
                .values()
                .fold(0, |sum, record| record.work.tokens.saturating_add(sum)),
            reason,
            continue_from,
            phases: Phase::iter().map(|phase| row(run, phase)).collect(),
        }
    }
}

fn row(run: &Run, phase: Phase) -> Row {
    let record = run.records.get(&phase);
    Row {
        phase,
        status: record.map(|record| record.status),
        signal: record.and_then(|record| record.signal.clone()),
        tokens: record.map_or(0, |record| record.work.tokens),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Workflow Progress: {}\n", self.story_id)?;
        writeln!(f, "| Phase | Status | Signal | Tokens |")?;
        writeln!(f, "|-------|--------|--------|--------|")?;
        for Row { phase, status, signal, tokens } in &self.phases {
            let status = status.map_or_else(|| "-".to_owned(), |status| status.to_string());
            // A bar would end the cell: what an agent wrote must not bend the table.
            let signal = signal.as_deref().unwrap_or("-").replace('|', "\\|");
            let (number, title) = (phase.number(), phase.title());
            writeln!(f, "| {number}. {title} | {status} | {signal} | {tokens} |")?;
        }
        writeln!(f)?;
        match self.continue_from {
            Some(number) => writeln!(f, "**Status**: {} at phase {number}", self.verdict)?,
            None => writeln!(f, "**Status**: {}", self.verdict)?,
        }
        if let Some(reason) = &self.reason {
            writeln!(f, "**Reason**: {reason}")?;
        }
        if let Some(number) = self.continue_from {
            let (feature, story) = (&self.feature_dir, &self.story_id);
            writeln!(f, "**To continue**: mend it, then run")?;
            writeln!(f, "`tamma pipeline run {feature} {story} --from {number}`")?;
        }
        writeln!(f, "**Total tokens**: {}", self.total_tokens)
    }
}
