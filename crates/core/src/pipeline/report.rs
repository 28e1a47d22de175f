//! Report at the end of a run: a table for people, and data for programs.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

use super::{BUILT_IN_PIPELINE, PhaseDefinition, PhaseStatus, PipelineRun, PipelineState};
use crate::cost::{Cost, Usd};

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
    /// Number of the phase.
    pub number: u8,
    /// ID of the phase.
    pub id: String,
    /// Title of the phase.
    pub title: String,
    /// Result; `None` if the phase has not ended.
    pub status: Option<PhaseStatus>,
    /// Signal line of the phase.
    pub signal: Option<String>,
    /// Tokens used.
    pub tokens: u64,
}

/// Report of a run. Its serialised form is for programs.
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
    /// Known cost of all phases; `None` if the cost of a phase is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_usd: Option<Usd>,
    /// Reason if the run is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of the phase to continue from, if the run stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_from: Option<u8>,
    /// Name of the pipeline.
    pub pipeline: String,
    /// All phases.
    pub phases: Vec<PhaseRow>,
}

impl PipelineReport {
    /// Builds the report of a run. A run that has not ended is reported as blocked.
    pub fn new(run: &PipelineRun) -> Self {
        let (verdict, reason, continue_from) = match &run.state {
            PipelineState::Complete => (PipelineVerdict::Complete, None, None),
            PipelineState::Stopped { phase, verdict, reason, .. } => {
                (*verdict, Some(reason.clone()), Some(*phase))
            }
            _ => {
                let reason = format!("the run is {}", run.describe_state());
                (PipelineVerdict::Blocked, Some(reason), None)
            }
        };
        let executed =
            || run.records.iter().filter(|(_, record)| record.status != PhaseStatus::Skipped);
        let last = executed().next_back();
        let usages = || run.records.values().filter_map(|record| record.work.usage);
        let costs = usages().map(|usage| match usage.cost {
            Cost::Known(usd) => Some(usd),
            Cost::Unknown => None,
        });
        Self {
            phase: "loop".to_owned(),
            verdict,
            feature_dir: run.request.feature_dir.clone(),
            story_id: run.request.story_id.clone(),
            phases_executed: executed().count(),
            phases_skipped: run.records.len() - executed().count(),
            last_phase: last.map(|(phase, _)| *phase),
            last_signal: last.and_then(|(_, record)| record.signal.clone()),
            total_tokens: usages().fold(0, |sum, usage| usage.tokens.total().saturating_add(sum)),
            total_usd: costs
                .collect::<Option<Vec<_>>>()
                .map(|costs| costs.into_iter().fold(Usd::ZERO, |sum, usd| sum + usd)),
            reason,
            continue_from,
            pipeline: run.request.definition.name.clone(),
            phases: run
                .request
                .definition
                .numbered()
                .map(|(number, phase)| phase_row(run, number, phase))
                .collect(),
        }
    }

    /// Returns the verdict as a signal line, such as `WORKFLOW COMPLETE`.
    pub fn signal_line(&self) -> String {
        match (&self.verdict, &self.reason) {
            (PipelineVerdict::Complete, _) | (_, None) => format!("WORKFLOW {}", self.verdict),
            (verdict, Some(reason)) => format!("WORKFLOW {verdict}: {reason}"),
        }
    }

    /// Returns the report as YAML, for programs.
    pub fn to_yaml(&self) -> String {
        // Plain values always serialise.
        serde_saphyr::to_string(self).unwrap_or_default()
    }

    /// Returns the command that continues the run, if it stopped.
    pub fn continue_command(&self) -> Option<String> {
        let number = self.continue_from?;
        let (feature, story) = (&self.feature_dir, &self.story_id);
        let pipeline = if self.pipeline == BUILT_IN_PIPELINE {
            String::new()
        } else {
            format!(" --pipeline {}", self.pipeline)
        };
        Some(format!("tamma pipeline run {feature} {story} --from {number}{pipeline}"))
    }
}

fn phase_row(run: &PipelineRun, number: u8, phase: &PhaseDefinition) -> PhaseRow {
    let record = run.records.get(&number);
    PhaseRow {
        number,
        id: phase.id.clone(),
        title: phase.title().to_owned(),
        status: record.map(|record| record.status),
        signal: record.and_then(|record| record.signal.clone()),
        tokens: record.map_or(0, |record| record.work.tokens()),
    }
}

impl fmt::Display for PipelineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Workflow Progress: {}\n", self.story_id)?;
        writeln!(f, "| Phase | Status | Signal | Tokens |")?;
        writeln!(f, "|-------|--------|--------|--------|")?;
        for PhaseRow { number, title, status, signal, tokens, .. } in &self.phases {
            let status = status.map_or_else(|| "-".to_owned(), |status| status.to_string());
            // Escape bars, so that agent output cannot break the table.
            let signal = signal.as_deref().unwrap_or("-").replace('|', "\\|");
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
        if let Some(command) = self.continue_command() {
            writeln!(f, "**To continue**: fix the problem, then run")?;
            writeln!(f, "`{command}`")?;
        }
        match self.total_usd {
            Some(usd) => writeln!(f, "**Total tokens**: {} (≈ {usd})", self.total_tokens),
            None => writeln!(f, "**Total tokens**: {} (cost unknown)", self.total_tokens),
        }
    }
}
