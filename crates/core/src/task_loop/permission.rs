//! Permissions that actions and answers require.

use super::{Action, AnswerKind};
use crate::access::Permission;

impl From<&Action> for Permission {
    fn from(action: &Action) -> Self {
        match action {
            Action::Pause
            | Action::Resume
            | Action::Cancel { .. }
            | Action::ChangeTask { .. }
            | Action::RevisePlan { .. }
            | Action::AdjustPlan { .. }
            | Action::Edit(_)
            | Action::Rate { .. }
            | Action::RequestChanges { .. }
            | Action::Reply { .. }
            | Action::Acknowledge
            | Action::Abandon { .. } => Self::Work,
            Action::Approve { .. }
            | Action::Reject { .. }
            | Action::Override { .. }
            | Action::Accept { .. }
            | Action::Retry { .. }
            | Action::Continue { .. }
            | Action::RollBack { .. }
            | Action::Skip { .. }
            | Action::Convene { .. } => Self::Decide,
        }
    }
}

impl From<AnswerKind> for Permission {
    fn from(answer: AnswerKind) -> Self {
        match answer {
            AnswerKind::RevisePlan
            | AnswerKind::RequestChanges
            | AnswerKind::Reply
            | AnswerKind::ChangeTask
            | AnswerKind::Cancel
            | AnswerKind::Abandon => Self::Work,
            AnswerKind::Approve
            | AnswerKind::Reject
            | AnswerKind::Override
            | AnswerKind::Accept
            | AnswerKind::Continue
            | AnswerKind::Retry
            | AnswerKind::RollBack
            | AnswerKind::Skip
            | AnswerKind::Convene => Self::Decide,
        }
    }
}
