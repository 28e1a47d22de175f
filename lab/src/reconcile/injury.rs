//! Points of a task, and injuries at them.

use strum::{Display, EnumCount, EnumIter, EnumString, IntoEnumIterator as _};
use tamma_core::task_loop::State;
use tamma_flow::activities::names;

/// Injury to the agreement between PostgreSQL and Temporal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter, EnumCount, EnumString)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Injury {
    /// Somebody terminates the workflow.
    Terminate,
    /// Somebody resets the workflow to its start.
    Reset,
    /// Somebody deletes the workflow.
    Delete,
    /// PostgreSQL is restored from a copy that is older than the task.
    OlderDatabase,
    /// Temporal is restored from a copy that is older than the task.
    OlderTemporal,
}

impl Injury {
    /// Returns `true` if a side is restored from an older copy.
    pub(crate) fn is_restore(self) -> bool {
        matches!(self, Self::OlderDatabase | Self::OlderTemporal)
    }
}

/// Point of a task: its stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point(pub(crate) State);

/// Way to keep a task at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The job waits.
    Job(&'static str),
    /// The transaction that moves the task to this state waits.
    Write(State),
    /// The task waits for another task.
    Dependency,
    /// A person has to decide.
    Person,
    /// The task is closed.
    Closed,
}

impl Point {
    /// Returns all points, in the order of the states.
    fn all() -> Vec<Self> {
        // No task of this experiment has a pull request.
        let is_injured = |state: &State| !matches!(state, State::Failed | State::AwaitingMerge);
        State::iter().filter(is_injured).map(Self).collect()
    }

    /// Returns how the task is kept at the point.
    pub(crate) fn hold(self) -> Hold {
        match self.0 {
            State::Pending => Hold::Dependency,
            State::Assigned => Hold::Write(State::Planning),
            State::Planning => Hold::Job(names::PLAN),
            State::Validated => Hold::Write(State::InProgress),
            State::InProgress => Hold::Job(names::IMPLEMENT),
            State::Testing => Hold::Job(names::TEST),
            State::QualityReview => Hold::Job(names::REVIEW),
            State::Approved => Hold::Write(State::Committing),
            State::Committing => Hold::Job(names::DELIVER),
            State::Learning => Hold::Write(State::Completed),
            // After the run has started, so that the approval is not held.
            State::Adjusting => Hold::Write(State::Validated),
            State::AwaitingApproval
            | State::CtoIntervention
            | State::AwaitingMerge
            | State::HumanEscalation => Hold::Person,
            State::Completed | State::Cancelled | State::Failed => Hold::Closed,
        }
    }

    /// Returns the job at which a task waits that goes on from the point.
    pub(crate) fn next_job(self) -> Option<&'static str> {
        match self.0 {
            State::Pending
            | State::Assigned
            | State::Planning
            | State::AwaitingApproval
            | State::Validated
            | State::Adjusting
            | State::CtoIntervention
            | State::HumanEscalation => Some(names::IMPLEMENT),
            State::InProgress => Some(names::TEST),
            State::Testing => Some(names::REVIEW),
            State::QualityReview | State::Approved => Some(names::DELIVER),
            State::Committing
            | State::AwaitingMerge
            | State::Learning
            | State::Completed
            | State::Cancelled
            | State::Failed => None,
        }
    }

    /// Returns `true` if a person must approve the plan.
    pub(crate) fn needs_person(self) -> bool {
        self.hold() == Hold::Person
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0.to_string())
    }
}

/// Returns every injury at every point. A closed task has no later step that a restore could lose.
pub(crate) fn every_injury() -> Vec<(Point, Injury)> {
    let at = |point: Point| {
        let injuries = Injury::iter();
        let injuries = injuries.filter(move |it| point.hold() != Hold::Closed || !it.is_restore());
        injuries.map(move |injury| (point, injury))
    };
    Point::all().into_iter().flat_map(at).collect()
}

/// Returns the injuries of the quick slice: each one once.
pub(crate) fn quick_injuries() -> Vec<(Point, Injury)> {
    vec![
        (Point(State::InProgress), Injury::Terminate),
        (Point(State::AwaitingApproval), Injury::Reset),
        (Point(State::Planning), Injury::Delete),
        (Point(State::AwaitingApproval), Injury::OlderDatabase),
        (Point(State::AwaitingApproval), Injury::OlderTemporal),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_slice_has_every_injury() {
        let quick = quick_injuries();
        assert_eq!(quick.len(), Injury::COUNT);
        for injury in Injury::iter() {
            assert!(quick.iter().any(|(_, it)| *it == injury), "{injury}");
        }
        assert!(quick.iter().all(|it| every_injury().contains(it)));
    }

    #[test]
    fn every_state_in_which_a_task_can_be_injured_has_a_point() {
        let all = every_injury();
        for state in State::iter() {
            let without = matches!(state, State::Failed | State::AwaitingMerge);
            assert_eq!(all.iter().any(|(point, _)| point.0 == state), !without, "{state}");
        }
        assert_eq!(all.len(), 14 * 5 + 2 * 3);
    }
}
