//! The right that an action or an answer takes.

use super::{Action, Answer};
use crate::rules::Right;

impl From<&Action> for Right {
    fn from(action: &Action) -> Self {
        match action {
            Action::Pause
            | Action::Resume
            | Action::Cancel { .. }
            | Action::Modify { .. }
            | Action::AskChanges { .. }
            | Action::Rework { .. }
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
            | Action::Skip { .. } => Self::Decide,
        }
    }
}

impl From<Answer> for Right {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::AskChanges
            | Answer::Rework
            | Answer::Reply
            | Answer::Modify
            | Answer::Cancel
            | Answer::Abandon => Self::Work,
            Answer::Approve
            | Answer::Reject
            | Answer::Override
            | Answer::Accept
            | Answer::Continue
            | Answer::Retry
            | Answer::RollBack
            | Answer::Skip => Self::Decide,
        }
    }
}
