//! Order in which waiting runs get a free slot.
//!
//! Higher priority comes first. A run that waits longer than [`AGEING_STEP`] moves up one priority,
//! and again after each further step, so that nothing waits forever behind newer, more urgent work.
//! Where projects share slots, they take turns, so that no project waits for the backlog of another.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use crate::ids::ProjectId;
use crate::task::Priority;
use crate::time::Timestamp;

/// Waiting time that raises a run by one priority.
pub const AGEING_STEP: TimeDelta = TimeDelta::minutes(10);

/// Run that waits for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    /// Unique name of the run.
    pub holder: String,
    /// Priority of its task.
    pub priority: Priority,
    /// Start of its wait.
    pub since: Timestamp,
}

impl WaitingRun {
    /// Returns the rank at a time: the priority, plus one for each [`AGEING_STEP`] of waiting.
    pub fn rank(&self, now: Timestamp) -> i64 {
        rank(self.priority, now - self.since)
    }
}

/// Rank of a critical run that has not waited yet.
const TOP_RANK: i64 = 3;

fn rank(priority: Priority, waited: TimeDelta) -> i64 {
    let base = match priority {
        Priority::Low => 0,
        Priority::Medium => 1,
        Priority::High => 2,
        Priority::Critical => TOP_RANK,
    };
    base + waited.num_seconds().max(0) / AGEING_STEP.num_seconds()
}

/// Returns the level of a run in a queue that orders by level and then by arrival: 1 comes first, 4
/// last. Ageing ends at level 1.
pub fn queue_level(priority: Priority, waited: TimeDelta) -> u32 {
    let level = TOP_RANK + 1 - rank(priority, waited).min(TOP_RANK);
    u32::try_from(level).unwrap_or(1)
}

/// Returns how long a run keeps its level, or `None` at level 1.
pub fn time_at_level(priority: Priority, waited: TimeDelta) -> Option<TimeDelta> {
    let step = AGEING_STEP.num_seconds();
    let seconds = waited.num_seconds().max(0);
    let next = (seconds / step + 1).saturating_mul(step);
    (queue_level(priority, waited) > 1).then(|| TimeDelta::seconds(next - seconds))
}

/// Returns how many of the waiting runs come before `run`: those with a higher rank, and those with
/// the same rank that have waited longer. Names break ties.
pub fn runs_ahead<'a>(
    run: &WaitingRun,
    waiting: impl IntoIterator<Item = &'a WaitingRun>,
    now: Timestamp,
) -> usize {
    let key = |it: &WaitingRun| (std::cmp::Reverse(it.rank(now)), it.since, it.holder.clone());
    let own = key(run);
    waiting.into_iter().filter(|other| other.holder != run.holder && key(other) < own).count()
}

/// Run that waits for a slot that projects share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRun {
    /// Project of its task.
    pub project: ProjectId,
    /// Run itself, with its priority and the start of its wait.
    pub run: WaitingRun,
}

/// Returns how many of the waiting runs come before that of `holder` if projects take turns.
///
/// The [level](queue_level) decides first. Within a level, a run comes before those of projects that
/// have more runs in `active` or in front of it, and then before those that have waited shorter. Names
/// break ties.
pub fn runs_ahead_in_turn(
    holder: &str,
    waiting: &[ProjectRun],
    active: &[ProjectId],
    now: Timestamp,
) -> usize {
    let mut queue: Vec<_> = waiting
        .iter()
        .map(|ProjectRun { project, run }| {
            let level = queue_level(run.priority, now - run.since);
            (level, run.since, run.holder.as_str(), *project)
        })
        .collect();
    queue.sort_unstable();
    let mut taken: BTreeMap<ProjectId, usize> = BTreeMap::new();
    for project in active {
        *taken.entry(*project).or_default() += 1;
    }
    let mut turns: Vec<_> = queue
        .into_iter()
        .map(|(level, since, name, project)| {
            let turn = taken.entry(project).or_default();
            *turn += 1;
            (level, *turn, since, name)
        })
        .collect();
    turns.sort_unstable();
    turns.iter().position(|(.., name)| *name == holder).unwrap_or(turns.len())
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;
    use strum::IntoEnumIterator as _;
    use uuid::Uuid;

    use super::*;

    fn at(second: i64) -> Timestamp {
        DateTime::from_timestamp(1_790_000_000 + second, 0).expect("timestamp")
    }

    fn run(name: &str, priority: Priority, since: i64) -> WaitingRun {
        WaitingRun { holder: name.to_owned(), priority, since: at(since) }
    }

    fn runs() -> impl Strategy<Value = Vec<WaitingRun>> {
        let one = (0..4_usize, 0..7_200_i64);
        proptest::collection::vec(one, 1..12).prop_map(|list| {
            let run = |(number, (priority, since)): (usize, (usize, i64))| {
                let priority = Priority::iter().nth(priority).unwrap_or_default();
                run(&format!("run-{number}"), priority, since)
            };
            list.into_iter().enumerate().map(run).collect()
        })
    }

    proptest! {
        #[test]
        fn every_run_has_its_own_place(all in runs(), now in 0..20_000_i64) {
            let mut places: Vec<_> = all.iter().map(|it| runs_ahead(it, &all, at(now))).collect();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..all.len()));
        }

        #[test]
        fn among_equal_waits_the_higher_priority_is_first(since in 0..7_200_i64, now in 0..20_000_i64) {
            let all: Vec<_> = Priority::iter().map(|it| run(&it.to_string(), it, since)).collect();
            for pair in all.windows(2) {
                let [lower, higher] = pair else { continue };
                let place = |it| runs_ahead(it, &all, at(now));
                prop_assert!(place(higher) < place(lower));
            }
        }

        /// Newer runs of any priority pass a run only until it has waited for three steps.
        #[test]
        fn nothing_starves(since in 0..3_600_i64, newer in proptest::collection::vec(0..86_400_i64, 0..20)) {
            let old = run("old", Priority::Low, since);
            let limit = since + 3 * AGEING_STEP.num_seconds();
            let mut all: Vec<_> = newer
                .iter()
                .enumerate()
                .map(|(number, later)| {
                    run(&format!("new-{number}"), Priority::Critical, limit + 1 + later)
                })
                .collect();
            all.push(old.clone());
            for now in [limit + 1, limit + 600, limit + 90_000] {
                let present: Vec<_> = all.iter().filter(|it| it.since <= at(now)).cloned().collect();
                prop_assert_eq!(runs_ahead(&old, &present, at(now)), 0);
            }
        }
    }

    const LARGE: ProjectId = ProjectId(Uuid::from_u128(1));
    const SMALL: ProjectId = ProjectId(Uuid::from_u128(2));

    fn project_run(project: ProjectId, name: &str, priority: Priority, since: i64) -> ProjectRun {
        ProjectRun { project, run: run(name, priority, since) }
    }

    /// Returns a backlog of the large project, and four runs of the small one that came later.
    fn backlog(since: i64) -> Vec<ProjectRun> {
        let large = (0..40).map(|number| {
            project_run(LARGE, &format!("large-{number:02}"), Priority::Medium, number)
        });
        let small = (0..4).map(|number| {
            project_run(SMALL, &format!("small-{number}"), Priority::Medium, since + number)
        });
        large.chain(small).collect()
    }

    fn small_places(waiting: &[ProjectRun], active: &[ProjectId], now: i64) -> Vec<usize> {
        let place =
            |number| runs_ahead_in_turn(&format!("small-{number}"), waiting, active, at(now));
        (0..4).map(place).collect()
    }

    #[test]
    fn a_small_project_does_not_wait_for_the_backlog_of_a_large_one() {
        let waiting = backlog(100);
        assert_eq!(small_places(&waiting, &[], 200), [1, 3, 5, 7]);
        // Both slots have agents of the large project.
        assert_eq!(small_places(&waiting, &[LARGE, LARGE], 200), [0, 1, 3, 5]);
        assert_eq!(small_places(&waiting, &[SMALL, SMALL], 200), [3, 5, 7, 9]);
    }

    #[test]
    fn projects_take_turns_again_once_all_runs_have_reached_the_first_level() {
        let waiting = backlog(900);
        assert_eq!(small_places(&waiting, &[], 1_000), [40, 41, 42, 43], "a level apart");
        assert_eq!(small_places(&waiting, &[], 3_600), [1, 3, 5, 7]);
    }

    #[test]
    fn urgent_runs_of_one_project_come_before_the_turns_of_others() {
        let mut waiting = backlog(100);
        waiting.push(project_run(LARGE, "urgent", Priority::Critical, 150));
        assert_eq!(runs_ahead_in_turn("urgent", &waiting, &[LARGE, LARGE], at(200)), 0);
        assert_eq!(small_places(&waiting, &[], 200), [1, 3, 5, 7]);
    }

    proptest! {
        #[test]
        fn every_run_has_its_own_place_in_turn(all in runs(), projects in 1..4_u128, now in 0..20_000_i64) {
            let assign = |(number, run): (u128, WaitingRun)| {
                ProjectRun { project: ProjectId(Uuid::from_u128(number % projects)), run }
            };
            let all: Vec<_> = (0..).zip(all).map(assign).collect();
            let place = |it: &ProjectRun| runs_ahead_in_turn(&it.run.holder, &all, &[], at(now));
            let mut places: Vec<_> = all.iter().map(place).collect();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..all.len()));
        }
    }

    #[test]
    fn every_run_reaches_the_first_level() {
        for (priority, first, steps) in [
            (Priority::Critical, 1, 0),
            (Priority::High, 2, 1),
            (Priority::Medium, 3, 2),
            (Priority::Low, 4, 3),
        ] {
            let (mut waited, mut levels) = (TimeDelta::seconds(-5), Vec::new());
            while let Some(time) = time_at_level(priority, waited) {
                levels.push(queue_level(priority, waited));
                waited = waited.max(TimeDelta::zero()) + time;
            }
            assert_eq!(levels, (2..=first).rev().collect::<Vec<_>>(), "{priority}");
            assert_eq!(queue_level(priority, waited), 1);
            assert_eq!(waited.max(TimeDelta::zero()), AGEING_STEP * steps);
        }
    }

    #[test]
    fn a_low_run_passes_newer_urgent_ones_after_half_an_hour() {
        let old = run("old", Priority::Low, 0);
        let urgent = run("urgent", Priority::Critical, 1_790);
        assert_eq!(runs_ahead(&old, [&urgent], at(1_799)), 1);
        assert_eq!(runs_ahead(&old, [&urgent], at(1_800)), 0);
    }
}
