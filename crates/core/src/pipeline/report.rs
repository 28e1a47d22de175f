//! Report at the end of a run: a table for people, and data for programs.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoEnumIterator as _};

use super::{PhaseStatus, PipelinePhase, PipelineRun, PipelineState};

/// Verdict on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum PipelineVerdict {
    /// All phases of the range have ended.
    Complete,
    /// A person must act.
    Blocked,
    /// A phase failed.
    Failed,
}

/// Row of the phase table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRow {
    /// Phase of the row.
    pub phase: PipelinePhase,
    /// Result; `None` if the phase has not ended.
    pub status: Option<PhaseStatus>,
    /// Signal line of the phase.
    pub signal: Option<String>,
    /// Tokens used.
    pub tokens: u64,
}

/// Report of a run. Its JSON form is for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineReport {
    /// Always `loop`: the report covers the whole run.
    pub phase: String,
    /// Verdict on the run.
    pub verdict: PipelineVerdict,
    /// Folder of the feature.
    pub feature_dir: String,
    /// ID of the story.
    pub story_id: String,
    /// Number of phases that ran.
    pub phases_executed: usize,
    /// Number of phases that were skipped.
    pub phases_skipped: usize,
    /// Number of the last phase that ran.
    pub last_phase: Option<u8>,
    /// Signal line of the last phase.
    pub last_signal: Option<String>,
    /// Tokens used by all phases.
    pub total_tokens: u64,
    /// Reason if the run is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of the phase to continue from, if the run stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_from: Option<u8>,
    /// All phases.
    pub phases: Vec<PhaseRow>,
}

impl PipelineReport {
    /// Builds the report of a run. A run that has not ended is reported as blocked.
    pub fn new(run: &PipelineRun) -> Self {
        let (verdict, reason, continue_from) = match &run.state {
            PipelineState::Complete => (PipelineVerdict::Complete, None, None),
            PipelineState::Stopped { phase, verdict, reason } => {
                (*verdict, Some(reason.clone()), Some(phase.number()))
            }
            state => (PipelineVerdict::Blocked, Some(format!("the run is {state}")), None),
        };
        let executed =
            || run.records.iter().filter(|(_, record)| record.status != PhaseStatus::Skipped);
        let last = executed().next_back();
        Self {
            phase: "loop".to_owned(),
            verdict,
            feature_dir: run.request.feature_dir.clone(),
            story_id: run.request.story_id.clone(),
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
            phases: PipelinePhase::iter().map(|phase| phase_row(run, phase)).collect(),
        }
    }
}

fn phase_row(run: &PipelineRun, phase: PipelinePhase) -> PhaseRow {
    let record = run.records.get(&phase);
    PhaseRow {
        phase,
        status: record.map(|record| record.status),
        signal: record.and_then(|record| record.signal.clone()),
        tokens: record.map_or(0, |record| record.work.tokens),
    }
}

impl fmt::Display for PipelineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Workflow Progress: {}\n", self.story_id)?;
        writeln!(f, "| Phase | Status | Signal | Tokens |")?;
        writeln!(f, "|-------|--------|--------|--------|")?;
        for PhaseRow { phase, status, signal, tokens } in &self.phases {
            let status = status.map_or_else(|| "-".to_owned(), |status| status.to_string());
            // Escape bars, so that agent output cannot break the table.
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
            writeln!(f, "**To continue**: fix the problem, then run")?;
            writeln!(f, "`tamma pipeline run {feature} {story} --from {number}`")?;
        }
        writeln!(f, "**Total tokens**: {}", self.total_tokens)
    }
}
