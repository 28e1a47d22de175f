//! Alerts about pipelines that need a person.

use serde::{Deserialize, Serialize};

use crate::cause::AlertCause;
use crate::pipeline::{PipelineState, PipelineVerdict};
use crate::rules::Rules;
use crate::task_loop::{AlertKind, AlertSeverity};

/// Alert about a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineAlert {
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Urgency of the alert.
    pub severity: AlertSeverity,
    /// Cause of the alert.
    pub cause: AlertCause,
    /// Names of the actions that answer it.
    pub answers: Vec<String>,
}

/// Returns the alert about a state that needs a person, unless the rules turn it off.
pub fn alert_for(state: &PipelineState, rules: &Rules) -> Option<PipelineAlert> {
    let (cause, answers) = match *state {
        PipelineState::AtGate(phase) => {
            (AlertCause::PhaseApproval { phase }, vec!["continue", "skip", "stop"])
        }
        PipelineState::AtSplit(phase) => {
            (AlertCause::SplitApproval { phase }, vec!["continue", "skip", "stop"])
        }
        PipelineState::Stopped { phase, verdict: PipelineVerdict::Failed, by: None, .. } => {
            (AlertCause::PhaseFailed { phase }, vec!["resume"])
        }
        PipelineState::Stopped { phase, by: None, .. } => {
            (AlertCause::PhaseBlocked { phase }, vec!["resume"])
        }
        PipelineState::Ready
        | PipelineState::Running(_)
        | PipelineState::RunningTasks(_)
        | PipelineState::Complete
        | PipelineState::Stopped { .. } => return None,
    };
    let kind = AlertKind::from(cause);
    let answers = answers.into_iter().map(str::to_owned).collect();
    let alert = PipelineAlert { kind, severity: AlertSeverity::Warning, cause, answers };
    kind.is_enabled(rules).then_some(alert)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(verdict: PipelineVerdict, by: Option<&str>) -> PipelineState {
        let by = by.map(|name| name.parse().expect("a name"));
        PipelineState::Stopped { phase: 2, verdict, reason: "red".to_owned(), by }
    }

    #[test]
    fn states_that_need_a_person_send_an_alert_unless_the_rules_turn_it_off() {
        let mut rules = Rules::default();
        let kind =
            |state: &PipelineState, rules: &Rules| alert_for(state, rules).map(|alert| alert.kind);
        let blocked = stopped(PipelineVerdict::Blocked, None);
        let approval = Some(AlertKind::ApprovalNeeded);
        assert_eq!(kind(&PipelineState::AtGate(2), &rules), approval);
        assert_eq!(kind(&PipelineState::AtSplit(2), &rules), approval);
        assert_eq!(kind(&blocked, &rules), Some(AlertKind::TaskBlocked));
        assert_eq!(kind(&stopped(PipelineVerdict::Failed, None), &rules), Some(AlertKind::Error));
        let by_person = stopped(PipelineVerdict::Blocked, Some("ada"));
        for state in [PipelineState::Running(2), PipelineState::Complete, by_person] {
            assert_eq!(kind(&state, &rules), None);
        }
        rules.scrum_master.alerts.on_block = false;
        assert_eq!(kind(&blocked, &rules), None);
    }
}
