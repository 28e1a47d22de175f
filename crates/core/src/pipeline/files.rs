//! Files beside a story, in its `_workflow` folder.
//!
//! They are written for people and other tools, and read again if the database does not know a
//! phase. All of them are YAML between two lines of dashes, except the token log and the outputs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{PhaseRecord, PhaseStatus, PhaseWork, PipelineRun};
use crate::cost::{Cost, Tokens, Usage};
use crate::time::Timestamp;

/// Folder of the files below the story's folder.
pub const WORKFLOW_DIR: &str = "_workflow";
/// Facts about the run, for the agents of its phases.
pub const AGENT_CONTEXT_FILE: &str = "AGENT-CONTEXT.md";
/// State of the run.
pub const STATE_FILE: &str = "STATE.md";
/// Tokens of each phase.
pub const TOKEN_LOG_FILE: &str = "TOKEN-LOG.md";
/// Folder of a feature's stories, if the story has no folder yet.
pub const STORIES_DIR: &str = "stories";

/// Returns the file name of a phase's output.
pub fn output_file(phase: u8) -> String {
    format!("PHASE-{phase}-OUTPUT.md")
}

/// Returns the phase that a file is the output of.
pub fn output_phase(file: &str) -> Option<u8> {
    file.strip_prefix("PHASE-")?.strip_suffix("-OUTPUT.md")?.parse().ok()
}

#[derive(Debug, Serialize)]
struct AgentContext<'a> {
    feature_dir: &'a str,
    story_id: &'a str,
    story_path: &'a str,
    workflow_path: String,
    state_path: String,
    current_phase: u8,
    from_phase: u8,
    to_phase: u8,
    approve_phases: Vec<u8>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StateFile {
    feature_dir: String,
    story_id: String,
    status: String,
    phases: BTreeMap<String, PhaseEntry>,
    current_phase: u8,
}

#[derive(Debug, Serialize, Deserialize)]
struct PhaseEntry {
    status: PhaseStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(default)]
    tokens_used: u64,
}

fn front_matter(value: &impl Serialize) -> String {
    // Maps of plain values always serialise.
    let yaml = serde_saphyr::to_string(value).unwrap_or_default();
    format!("---\n{}\n---\n", yaml.trim_end())
}

/// Renders `AGENT-CONTEXT.md`.
pub fn agent_context(run: &PipelineRun, story_path: &str) -> String {
    let request = &run.request;
    let workflow_path = format!("{story_path}/{WORKFLOW_DIR}");
    front_matter(&AgentContext {
        feature_dir: &request.feature_dir,
        story_id: &request.story_id,
        story_path,
        state_path: format!("{workflow_path}/{STATE_FILE}"),
        workflow_path,
        current_phase: run.current_phase(),
        from_phase: request.from,
        to_phase: request.to,
        approve_phases: request.approve.iter().copied().collect(),
    })
}

/// Renders `STATE.md`.
pub fn state(run: &PipelineRun) -> String {
    let key = |number: u8| {
        let id = run.request.phase(number).map_or("phase", |phase| phase.id.as_str());
        format!("{number}_{id}")
    };
    let entry = |record: &PhaseRecord| PhaseEntry {
        status: record.status,
        signal: record.signal.clone(),
        reason: record.reason.clone(),
        completed_at: record.completed_at,
        tokens_used: record.work.tokens(),
    };
    front_matter(&StateFile {
        feature_dir: run.request.feature_dir.clone(),
        story_id: run.request.story_id.clone(),
        status: run.state.name().to_owned(),
        phases: run.records.iter().map(|(number, it)| (key(*number), entry(it))).collect(),
        current_phase: run.current_phase(),
    })
}

/// Parses the records of `STATE.md`. Returns `None` if the file is damaged or about another story.
pub fn parse_state(run: &PipelineRun, text: &str) -> Option<BTreeMap<u8, PhaseRecord>> {
    let yaml = text.trim_start().strip_prefix("---\n")?;
    let (yaml, _) = yaml.split_once("\n---")?;
    let file: StateFile = serde_saphyr::from_str(yaml).ok()?;
    if file.story_id != run.request.story_id || file.current_phase == 0 {
        return None;
    }
    let mut records = BTreeMap::new();
    for (key, entry) in file.phases {
        let (number, id) = key.split_once('_')?;
        let number: u8 = number.parse().ok()?;
        if run.request.phase(number)?.id != id {
            return None;
        }
        let PhaseEntry { status, signal, reason, completed_at, tokens_used } = entry;
        // The file has only the total.
        let tokens = Tokens { input: tokens_used, ..Tokens::default() };
        let usage = (tokens_used > 0).then_some(Usage { tokens, cost: Cost::Unknown });
        let work = PhaseWork { usage, ..PhaseWork::default() };
        let record = PhaseRecord { status, signal, source: None, reason, completed_at, work };
        records.insert(number, record);
    }
    Some(records)
}

/// Renders `TOKEN-LOG.md`.
pub fn token_log(run: &PipelineRun) -> String {
    let mut text = format!("# Token Log: {}\n\n", run.request.story_id);
    text.push_str("| Phase | Input | Output | Total | Cost | Completed |\n");
    text.push_str("|-------|-------|--------|-------|------|-----------|\n");
    let (mut input, mut output) = (0_u64, 0_u64);
    for (number, record) in &run.records {
        let Some(usage) = record.work.usage else { continue };
        let tokens = usage.tokens;
        input = input.saturating_add(tokens.all_input());
        output = output.saturating_add(tokens.output);
        let title = run.request.phase(*number).map_or("-", |phase| phase.title());
        let cost = match usage.cost {
            Cost::Known(usd) => usd.to_string(),
            Cost::Unknown => "unknown".to_owned(),
        };
        let at = record.completed_at.map_or_else(|| "-".to_owned(), |at| at.to_rfc3339());
        let (all, out, total) = (tokens.all_input(), tokens.output, tokens.total());
        let _ = writeln!(text, "| {number}. {title} | {all} | {out} | {total} | {cost} | {at} |");
    }
    let total = input.saturating_add(output);
    let _ = writeln!(text, "| Total | {input} | {output} | {total} | | |");
    text
}

/// Sets `status` in the front matter of a story. Returns `None` if the story has no such key.
pub fn set_story_status(text: &str, status: &str) -> Option<String> {
    let rest = text.strip_prefix("---\n")?;
    let (head, tail) = rest.split_once("\n---")?;
    let mut found = false;
    let lines: Vec<String> = head
        .lines()
        .map(|line| {
            if !found && line.starts_with("status:") {
                found = true;
                format!("status: {status}")
            } else {
                line.to_owned()
            }
        })
        .collect();
    found.then(|| format!("---\n{}\n---{tail}", lines.join("\n")))
}
