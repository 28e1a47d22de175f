//! Points of a task at which a component is killed.

use strum::IntoEnumIterator as _;
use tamma_core::task_loop::State;
use tamma_flow::activities::names;

use crate::support::components::Victim;

/// Activity at the time of the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The transaction that moves the task to this state is open.
    Writes(State),
    /// An agent, a gate or the repository's hook is running.
    Works,
    /// The job has ended, and the transaction that saves its result is open.
    SavesResult,
    /// The task waits for another task.
    WaitsForTask,
    /// The task waits for approval by a person.
    WaitsForPerson,
    /// A person has approved and has no response yet; the worker saves the approval.
    Answers,
}

/// Point of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    /// Stored state. At the first point, the task is not stored yet.
    pub(crate) state: State,
    /// Current Temporal activity.
    pub(crate) activity: &'static str,
    /// Moment within the activity.
    pub(crate) moment: Moment,
}

/// Activities of the main path.
#[cfg(test)]
const ACTIVITIES: [&str; 11] = [
    names::RECORD,
    names::ADMIT,
    names::PREPARE,
    names::PLAN,
    names::CHECK,
    names::IMPLEMENT,
    names::TEST,
    names::REVIEW,
    names::AWAIT_DELIVERY,
    names::DELIVER,
    names::LEARN,
];

impl Point {
    /// Returns all points, in the order of the main path.
    pub(crate) fn all() -> Vec<Self> {
        use Moment::{Answers, SavesResult, WaitsForPerson, WaitsForTask, Works, Writes};
        use State as S;
        let at = |state, activity, moment| Self { state, activity, moment };
        vec![
            at(S::Pending, names::ADMIT, Writes(S::Pending)),
            at(S::Pending, names::ADMIT, WaitsForTask),
            at(S::Pending, names::PREPARE, Writes(S::Assigned)),
            at(S::Assigned, names::PLAN, Writes(S::Planning)),
            at(S::Planning, names::PLAN, Works),
            at(S::Planning, names::PLAN, SavesResult),
            at(S::Planning, names::CHECK, Writes(S::AwaitingApproval)),
            at(S::AwaitingApproval, names::RECORD, WaitsForPerson),
            at(S::AwaitingApproval, names::RECORD, Answers),
            at(S::AwaitingApproval, names::RECORD, Writes(S::Validated)),
            at(S::Validated, names::RECORD, Writes(S::InProgress)),
            at(S::InProgress, names::IMPLEMENT, Works),
            at(S::InProgress, names::IMPLEMENT, SavesResult),
            at(S::InProgress, names::TEST, Writes(S::Testing)),
            at(S::Testing, names::TEST, Works),
            at(S::Testing, names::TEST, SavesResult),
            at(S::Testing, names::REVIEW, Writes(S::QualityReview)),
            at(S::QualityReview, names::REVIEW, Works),
            at(S::QualityReview, names::REVIEW, SavesResult),
            at(S::QualityReview, names::AWAIT_DELIVERY, Writes(S::Approved)),
            at(S::Approved, names::DELIVER, Writes(S::Committing)),
            at(S::Committing, names::DELIVER, Works),
            at(S::Committing, names::DELIVER, SavesResult),
            at(S::Committing, names::LEARN, Writes(S::Learning)),
            at(S::Learning, names::RECORD, Writes(S::Completed)),
        ]
    }

    /// Returns the name of the database hold; `None` if the point is held elsewhere.
    pub(crate) fn database_hold(&self) -> Option<String> {
        match self.moment {
            Moment::Writes(to) => Some(format!("tasks {to}")),
            Moment::Answers => Some(format!("tasks {}", State::Validated)),
            Moment::SavesResult => Some(format!("answers {}", self.state)),
            Moment::Works | Moment::WaitsForTask | Moment::WaitsForPerson => None,
        }
    }

    /// Returns `true` if a person must approve the plan.
    pub(crate) fn needs_person(&self) -> bool {
        matches!(self.moment, Moment::WaitsForPerson | Moment::Answers)
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { state, activity, moment } = self;
        let description = match moment {
            Moment::Writes(to) => format!("{activity} writes `{to}`"),
            Moment::Works => format!("{activity} works"),
            Moment::SavesResult => format!("{activity} saves its result"),
            Moment::WaitsForTask => format!("{activity} waits for a task"),
            Moment::WaitsForPerson => "needs a decision".to_owned(),
            Moment::Answers => format!("{activity} writes an approval"),
        };
        f.pad(&format!("{state}: {description}"))
    }
}

/// Returns all kills: each victim at each point.
pub(crate) fn every_kill() -> Vec<(Point, Victim)> {
    let at = |point| Victim::iter().map(move |victim| (point, victim));
    Point::all().into_iter().flat_map(at).collect()
}

/// Returns the eight kills of the quick slice: each victim twice, at the start, in the middle and at
/// the end of a task. The first, third and seventh have found bugs.
pub(crate) fn quick_kills() -> Vec<(Point, Victim)> {
    use Moment::{Answers, SavesResult, WaitsForPerson, Works, Writes};
    use State as S;
    let selected = [
        (S::Pending, Writes(S::Pending), Victim::Postgres),
        (S::Pending, Writes(S::Pending), Victim::Server),
        (S::Planning, Works, Victim::Postgres),
        (S::AwaitingApproval, WaitsForPerson, Victim::Temporal),
        (S::AwaitingApproval, Answers, Victim::Server),
        (S::InProgress, Works, Victim::Worker),
        (S::QualityReview, SavesResult, Victim::Worker),
        (S::Committing, Works, Victim::Temporal),
    ];
    let is_selected = |(point, victim): &(Point, Victim)| {
        selected.contains(&(point.state, point.moment, *victim))
    };
    every_kill().into_iter().filter(is_selected).collect()
}

#[cfg(test)]
mod tests {
    use strum::EnumCount as _;

    use super::*;

    #[test]
    fn every_state_and_activity_of_the_main_path_has_a_point() {
        let points = Point::all();
        for state in State::MAIN_PATH.into_iter().filter(|state| !state.is_terminal()) {
            assert!(points.iter().any(|point| point.state == state), "{state}");
        }
        for activity in ACTIVITIES {
            assert!(points.iter().any(|point| point.activity == activity), "{activity}");
        }
        for to in State::MAIN_PATH {
            let writes = |point: &Point| point.moment == Moment::Writes(to);
            assert_eq!(points.iter().filter(|point| writes(point)).count(), 1, "{to}");
        }
    }

    #[test]
    fn there_are_at_least_sixty_distinct_kills() {
        let all = every_kill();
        assert!(all.len() >= 60, "{}", all.len());
        assert_eq!(all.len(), Point::all().len() * Victim::COUNT);
        for (at, kill) in all.iter().enumerate() {
            assert!(!all[..at].contains(kill), "{} {}", kill.0, kill.1);
        }
    }

    #[test]
    fn the_quick_slice_kills_each_victim_twice() {
        let quick = quick_kills();
        assert_eq!(quick.len(), 8);
        for victim in Victim::iter() {
            assert_eq!(quick.iter().filter(|(_, killed)| *killed == victim).count(), 2, "{victim}");
        }
    }
}
