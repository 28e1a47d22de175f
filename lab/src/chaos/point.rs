//! The points of a task's way at which something is killed.

use strum::{Display, EnumCount, EnumIter, EnumString, IntoEnumIterator as _};
use tamma_core::task_loop::State;
use tamma_flow::activities::names;

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter, EnumCount, EnumString)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Victim {
    /// `tamma work`.
    Worker,
    /// `tamma serve`.
    Server,
    /// Temporal.
    Temporal,
    /// PostgreSQL, with all its processes.
    Postgres,
}

/// What goes on in the moment of the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The worker is in the middle of the transaction that takes the task to a state.
    Writes(State),
    /// An agent, a gate or a hook of the repository runs.
    Works,
    /// The job is done, and the worker is in the middle of the transaction that keeps its answer.
    Keeps,
    /// Nothing happens until another task is completed.
    WaitsForTask,
    /// Nothing happens until a person approves.
    WaitsForPerson,
    /// A person has approved, and has no answer yet: the worker writes it down.
    Answers,
}

/// A point of a task's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    /// Where the task is, as the store has it. At the first point it is not there yet.
    pub(crate) state: State,
    /// The activity that is under way.
    pub(crate) activity: &'static str,
    /// What goes on.
    pub(crate) moment: Moment,
}

/// The activities of the main way.
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
    /// Every point, in the order of the way.
    pub(crate) fn all() -> Vec<Self> {
        use Moment::{Answers, Keeps, WaitsForPerson, WaitsForTask, Works, Writes};
        use State as S;
        let at = |state, activity, moment| Self { state, activity, moment };
        vec![
            at(S::Pending, names::ADMIT, Writes(S::Pending)),
            at(S::Pending, names::ADMIT, WaitsForTask),
            at(S::Pending, names::PREPARE, Writes(S::Assigned)),
            at(S::Assigned, names::PLAN, Writes(S::Planning)),
            at(S::Planning, names::PLAN, Works),
            at(S::Planning, names::PLAN, Keeps),
            at(S::Planning, names::CHECK, Writes(S::AwaitingApproval)),
            at(S::AwaitingApproval, names::RECORD, WaitsForPerson),
            at(S::AwaitingApproval, names::RECORD, Answers),
            at(S::AwaitingApproval, names::RECORD, Writes(S::Validated)),
            at(S::Validated, names::RECORD, Writes(S::InProgress)),
            at(S::InProgress, names::IMPLEMENT, Works),
            at(S::InProgress, names::IMPLEMENT, Keeps),
            at(S::InProgress, names::TEST, Writes(S::Testing)),
            at(S::Testing, names::TEST, Works),
            at(S::Testing, names::TEST, Keeps),
            at(S::Testing, names::REVIEW, Writes(S::QualityReview)),
            at(S::QualityReview, names::REVIEW, Works),
            at(S::QualityReview, names::REVIEW, Keeps),
            at(S::QualityReview, names::AWAIT_DELIVERY, Writes(S::Approved)),
            at(S::Approved, names::DELIVER, Writes(S::Committing)),
            at(S::Committing, names::DELIVER, Works),
            at(S::Committing, names::DELIVER, Keeps),
            at(S::Committing, names::LEARN, Writes(S::Learning)),
            at(S::Learning, names::RECORD, Writes(S::Completed)),
        ]
    }

    /// The name of what it waits for in the database, if the hold is there.
    pub(crate) fn in_database(&self) -> Option<String> {
        match self.moment {
            Moment::Writes(to) => Some(format!("tasks {to}")),
            Moment::Answers => Some(format!("tasks {}", State::Validated)),
            Moment::Keeps => Some(format!("answers {}", self.state)),
            Moment::Works | Moment::WaitsForTask | Moment::WaitsForPerson => None,
        }
    }

    /// Whether the plan is one that a person must approve.
    pub(crate) fn needs_person(&self) -> bool {
        matches!(self.moment, Moment::WaitsForPerson | Moment::Answers)
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { state, activity, moment } = self;
        let words = match moment {
            Moment::Writes(to) => format!("{activity} writes `{to}`"),
            Moment::Works => format!("{activity} works"),
            Moment::Keeps => format!("{activity} keeps its answer"),
            Moment::WaitsForTask => format!("{activity} waits for a task"),
            Moment::WaitsForPerson => "waits for a person".to_owned(),
            Moment::Answers => format!("{activity} writes an approval"),
        };
        f.pad(&format!("{state}: {words}"))
    }
}

/// Every kill: each victim at each point.
pub(crate) fn every_kill() -> Vec<(Point, Victim)> {
    let at = |point| Victim::iter().map(move |victim| (point, victim));
    Point::all().into_iter().flat_map(at).collect()
}

/// Eight kills for every change: each victim twice; at the beginning, in the middle and at the end
/// of the way; while something is written, while something runs, and before an answer is kept. The
/// first, the third and the seventh are those that have found faults.
pub(crate) fn quick_kills() -> Vec<(Point, Victim)> {
    use Moment::{Answers, Keeps, WaitsForPerson, Works, Writes};
    use State as S;
    let wanted = [
        (S::Pending, Writes(S::Pending), Victim::Postgres),
        (S::Pending, Writes(S::Pending), Victim::Server),
        (S::Planning, Works, Victim::Postgres),
        (S::AwaitingApproval, WaitsForPerson, Victim::Temporal),
        (S::AwaitingApproval, Answers, Victim::Server),
        (S::InProgress, Works, Victim::Worker),
        (S::QualityReview, Keeps, Victim::Worker),
        (S::Committing, Works, Victim::Temporal),
    ];
    let is_wanted =
        |(point, victim): &(Point, Victim)| wanted.contains(&(point.state, point.moment, *victim));
    every_kill().into_iter().filter(is_wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_every_activity_of_the_main_way_has_a_point() {
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
    fn the_whole_has_at_least_sixty_kills_and_no_two_alike() {
        let all = every_kill();
        assert!(all.len() >= 60, "{}", all.len());
        assert_eq!(all.len(), Point::all().len() * Victim::COUNT);
        for (at, kill) in all.iter().enumerate() {
            assert!(!all[..at].contains(kill), "{} {}", kill.0, kill.1);
        }
    }

    #[test]
    fn the_quick_ones_are_eight_and_each_victim_is_among_them_twice() {
        let quick = quick_kills();
        assert_eq!(quick.len(), 8);
        for victim in Victim::iter() {
            assert_eq!(quick.iter().filter(|(_, its)| *its == victim).count(), 2, "{victim}");
        }
    }
}
