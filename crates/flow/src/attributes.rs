//! What tasks can be searched by in the durable engine.

use tamma_core::task_loop::TaskLoop;
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributeUpdate};

/// The column of the board.
pub const PHASE: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaPhase");
/// The state.
pub const STATE: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaState");
/// The id of the project.
pub const PROJECT: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaProject");
/// The priority.
pub const PRIORITY: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaPriority");
/// The level of risk, once the plan has been checked.
pub const RISK: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaRisk");

/// The names of all of them. Each is a keyword, and Temporal has to know it before it is used.
pub const NAMES: [&str; 5] =
    ["TammaPhase", "TammaState", "TammaProject", "TammaPriority", "TammaRisk"];

/// What a workflow is started with.
pub fn at_start(memory: &TaskLoop) -> Vec<SearchAttributeUpdate> {
    let mut all = vec![
        PROJECT.value_set(memory.project.to_string()),
        PRIORITY.value_set(memory.priority.to_string()),
    ];
    all.extend(changed(None, memory));
    all
}

/// What has changed between what was published and what is.
pub(crate) fn changed(published: Option<&TaskLoop>, now: &TaskLoop) -> Vec<SearchAttributeUpdate> {
    let mut changed = Vec::new();
    let phase = |memory: &TaskLoop| memory.state.phase();
    if published.map(phase) != Some(phase(now)) {
        changed.push(PHASE.value_set(phase(now).to_string()));
    }
    if published.map(|memory| memory.state) != Some(now.state) {
        changed.push(STATE.value_set(now.state.to_string()));
    }
    if let Some(risk) = now.risk().filter(|risk| published.and_then(TaskLoop::risk) != Some(*risk))
    {
        changed.push(RISK.value_set(risk.to_string()));
    }
    changed
}
