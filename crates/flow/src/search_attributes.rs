//! Search attributes of task workflows in Temporal.

use tamma_core::level::RiskLevel;
use tamma_core::task::Priority;
use tamma_core::task_loop::{State, TaskLoop};
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
        PHASE.value_set(published_state(task_loop.state).phase().to_string()),
        STATE.value_set(published_state(task_loop.state).to_string()),
    ];
    all.extend(task_loop.risk_level().map(|risk| RISK.value_set(risk.to_string())));
    all
}

/// Returns the state that [`STATE`] names, whose phase [`PHASE`] names. Each change rewrites a row of
/// Temporal's database with many indexes, so states that follow each other quickly count as one of
/// them.
pub fn published_state(state: State) -> State {
    match state {
        State::Pending | State::Assigned => State::Pending,
        State::Validated | State::InProgress => State::InProgress,
        State::Testing | State::QualityReview => State::QualityReview,
        State::Approved | State::Committing | State::Learning => State::Committing,
        State::Planning
        | State::AwaitingApproval
        | State::Adjusting
        | State::CtoIntervention
        | State::AwaitingMerge
        | State::HumanEscalation
        | State::Completed
        | State::Cancelled
        | State::Failed => state,
    }
}

/// Values of the attributes that can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishedValues {
    state: State,
    priority: Priority,
    risk: Option<RiskLevel>,
}

impl PublishedValues {
    /// Returns the values of a task. Workflows without a compact history publish every state.
    pub(crate) fn new(task_loop: &TaskLoop, compact_history: bool) -> Self {
        let TaskLoop { state, priority, .. } = *task_loop;
        let state = if compact_history { published_state(state) } else { state };
        Self { state, priority, risk: task_loop.risk_level() }
    }

    /// Returns the attributes that changed since they were published.
    pub(crate) fn changes_since(self, published: Self) -> Vec<SearchAttributeUpdate> {
        let mut changed = Vec::new();
        if published.state.phase() != self.state.phase() {
            changed.push(PHASE.value_set(self.state.phase().to_string()));
        }
        if published.state != self.state {
            changed.push(STATE.value_set(self.state.to_string()));
        }
        // Only an edit changes it.
        if published.priority != self.priority {
            changed.push(PRIORITY.value_set(self.priority.to_string()));
        }
        if let Some(risk) = self.risk.filter(|risk| published.risk != Some(*risk)) {
            changed.push(RISK.value_set(risk.to_string()));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_task::sample_task_loop;

    /// Number of updates while a task passes through states.
    fn count_updates(compact_history: bool, states: &[State]) -> usize {
        let mut task_loop = sample_task_loop();
        let mut published = PublishedValues::new(&task_loop, compact_history);
        let mut updates = 0;
        for state in states {
            task_loop.state = *state;
            let now = PublishedValues::new(&task_loop, compact_history);
            updates += usize::from(!now.changes_since(published).is_empty());
            published = now;
        }
        updates
    }

    #[test]
    fn states_that_follow_each_other_quickly_are_published_once() {
        use State::{Committing, Completed, InProgress, Learning, Planning, QualityReview};
        let states =
            [Planning, State::Validated, InProgress, State::Testing, QualityReview, Committing];
        let states = [&states[..], &[Learning, Completed]].concat();
        assert_eq!((count_updates(true, &states), count_updates(false, &states)), (5, 8));
        let waiting = [Planning, State::AwaitingApproval, State::AwaitingMerge, Completed];
        assert_eq!(count_updates(true, &waiting), 4, "a state in which a task waits is published");
    }

    #[test]
    fn a_published_state_stands_for_itself_and_for_states_of_its_phase() {
        for state in State::MAIN_PATH {
            let published = published_state(state);
            assert_eq!(published_state(published), published);
            let is_same = published.phase() == state.phase();
            assert!(is_same || state == State::Learning, "{state}");
        }
    }
}
