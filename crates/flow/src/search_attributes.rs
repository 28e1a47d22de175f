//! Search attributes of task workflows in Temporal.

use tamma_core::task_loop::TaskLoop;
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributeUpdate};

/// Phase of the task.
pub const PHASE: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaPhase");
/// State of the task.
pub const STATE: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaState");
/// ID of the project.
pub const PROJECT: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaProject");
/// Priority of the task.
pub const PRIORITY: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaPriority");
/// Risk level, once the plan has been checked.
pub const RISK: SearchAttributeKey<String> = SearchAttributeKey::keyword("TammaRisk");

/// Names of all attributes. Each is a keyword that must be registered with Temporal before use.
pub const NAMES: [&str; 5] =
    ["TammaPhase", "TammaState", "TammaProject", "TammaPriority", "TammaRisk"];

/// Returns the attributes that a workflow starts with.
pub fn initial_values(task_loop: &TaskLoop) -> Vec<SearchAttributeUpdate> {
    let mut all = vec![
        PROJECT.value_set(task_loop.project.to_string()),
        PRIORITY.value_set(task_loop.priority.to_string()),
    ];
    all.extend(changed_values(None, task_loop));
    all
}

/// Returns the attributes that changed since they were published.
pub(crate) fn changed_values(
    published: Option<&TaskLoop>,
    now: &TaskLoop,
) -> Vec<SearchAttributeUpdate> {
    let mut changed = Vec::new();
    let phase = |task_loop: &TaskLoop| task_loop.state.phase();
    if published.map(phase) != Some(phase(now)) {
        changed.push(PHASE.value_set(phase(now).to_string()));
    }
    if published.map(|task_loop| task_loop.state) != Some(now.state) {
        changed.push(STATE.value_set(now.state.to_string()));
    }
    // The workflow starts with the priority; only an edit changes it.
    if published.is_some_and(|before| before.priority != now.priority) {
        changed.push(PRIORITY.value_set(now.priority.to_string()));
    }
    if let Some(risk) =
        now.risk_level().filter(|risk| published.and_then(TaskLoop::risk_level) != Some(*risk))
    {
        changed.push(RISK.value_set(risk.to_string()));
    }
    changed
}
