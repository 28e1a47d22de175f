//! Metrics, computed only from task history.
//!
//! Each metric has a target that the dashboard shows beside it. A metric without data is `None`,
//! which is not zero.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::cause::AlertCause;
use crate::cost::Usd;
use crate::history::{EntryData, EntryName, HistoryEntry};
use crate::ids::{Name, TaskId};
use crate::state::State;
use crate::time::Timestamp;

/// History entry with the time at which it was saved.
#[derive(Debug, Clone, Copy)]
pub struct TimedEntry<'a> {
    /// Entry of the history.
    pub entry: &'a HistoryEntry,
    /// Time of saving; the difference to the time of the event is the latency.
    pub recorded_at: Timestamp,
}

/// Metrics. Rates are percentages, and times are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Closed tasks.
    pub ended: u64,
    /// Completed tasks, in percent of closed tasks. Target: over 85.
    pub completion_rate: Option<u64>,
    /// Plan revisions per 100 closed tasks. Target: under 150.
    pub retries_per_100_tasks: Option<u64>,
    /// Closed tasks with at least one lesson, in percent. Target: over 90.
    pub lesson_rate: Option<u64>,
    /// Median time from a request for approval to its answer. Target: under 5 min.
    pub approval_turnaround_ms: Option<u64>,
    /// 99th percentile of the time from a transition to its saving. Target: under 100 ms.
    pub transition_latency_ms: Option<u64>,
    /// Mean rating, in hundredths. Target: over 400.
    pub rating_hundredths: Option<u64>,
    /// Cost of all tasks per completed task.
    pub cost_per_completed: Option<Usd>,
    /// Councils that were convened.
    #[serde(default)]
    pub councils: u64,
    /// Councils after which the task passed the state that had called them.
    #[serde(default)]
    pub councils_resolved: u64,
    /// Councils after which the task needed a person or another council, or was closed.
    #[serde(default)]
    pub councils_unresolved: u64,
}

/// Counts that the metrics are computed from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricCounts {
    /// Closed tasks.
    pub ended: u64,
    /// Completed tasks.
    pub completed: u64,
    /// Plan revisions by Tamma.
    pub plan_revisions: u64,
    /// Tasks with at least one lesson.
    pub with_lessons: u64,
    /// Cost of all tasks.
    pub cost: Usd,
    /// Median time from a request for approval to its answer.
    pub approval_turnaround_ms: Option<u64>,
    /// 99th percentile of the time from a transition to its saving.
    pub transition_latency_ms: Option<u64>,
    /// Ratings, the newest of each task by each person.
    pub rated: u64,
    /// Sum of these ratings.
    pub stars: u64,
    /// Councils that were convened.
    pub councils: u64,
    /// Councils after which the task passed the state that had called them.
    pub councils_resolved: u64,
    /// Councils after which the task needed a person or another council, or was closed.
    pub councils_unresolved: u64,
}

/// Computes the metrics from entries. The entries of each task must be in order.
///
/// The store counts in SQL; this function defines the result.
pub fn compute<'a>(log: impl IntoIterator<Item = TimedEntry<'a>>) -> Metrics {
    let mut tally = MetricsTally::default();
    for logged in log {
        tally.add(&logged);
    }
    tally.finish()
}

#[derive(Default)]
struct MetricsTally {
    completed: u64,
    ended: u64,
    plan_revisions: u64,
    with_lessons: u64,
    cost: Usd,
    open_approvals: BTreeMap<TaskId, Timestamp>,
    turnarounds: Vec<u64>,
    latencies: Vec<u64>,
    councils: u64,
    councils_resolved: u64,
    councils_unresolved: u64,
    /// State that called the last council of each task, while its effect is unknown.
    open_councils: BTreeMap<TaskId, State>,
    /// Newest rating of each task by each person.
    ratings: BTreeMap<(TaskId, Name), u64>,
}

impl MetricsTally {
    fn add(&mut self, timed: &TimedEntry<'_>) {
        let entry = timed.entry;
        if entry.trigger.is_some() {
            self.latencies.push(whole_milliseconds(timed.recorded_at - entry.at));
            if entry.to.is_terminal() {
                self.ended += 1;
                self.completed += u64::from(entry.to == State::Completed);
            }
            // Any transition that leaves the question answers it.
            if let Some(requested_at) = self.open_approvals.remove(&entry.task) {
                self.turnarounds.push(whole_milliseconds(entry.at - requested_at));
            }
        }
        self.add_council(entry);
        match (entry.name, &entry.data) {
            // A person's edit is not a retry.
            (EntryName::SmPlanAdjusted, _) => {
                self.plan_revisions += u64::from(!matches!(entry.actor, Actor::Person(_)));
            }
            (EntryName::SmApprovalRequested, _) => {
                self.open_approvals.insert(entry.task, entry.at);
            }
            (_, EntryData::Lessons(lessons)) => self.with_lessons += u64::from(*lessons > 0),
            (_, EntryData::Spend(spend)) => self.cost += spend.usd,
            (_, EntryData::Rating(stars)) => {
                if let Actor::Person(person) = &entry.actor {
                    self.ratings.insert((entry.task, person.clone()), u64::from(*stars));
                }
            }
            _ => {}
        }
    }

    /// Follows the councils of a task.
    fn add_council(&mut self, entry: &HistoryEntry) {
        let convened = entry.name == EntryName::SmCouncilConvened;
        if let Some(from) = self.open_councils.get(&entry.task).copied() {
            let asks_person = entry.to == State::HumanEscalation
                && entry.from != State::HumanEscalation
                && entry.data != EntryData::Cause(AlertCause::AgentQuestion);
            if convened || asks_person || matches!(entry.to, State::Failed | State::Cancelled) {
                self.councils_unresolved += 1;
                self.open_councils.remove(&entry.task);
            } else if entry.name == passing_entry(from) {
                self.councils_resolved += 1;
                self.open_councils.remove(&entry.task);
            }
        }
        if convened {
            self.councils += 1;
            self.open_councils.insert(entry.task, entry.from);
        }
    }

    fn finish(mut self) -> Metrics {
        Metrics::from(MetricCounts {
            ended: self.ended,
            completed: self.completed,
            plan_revisions: self.plan_revisions,
            with_lessons: self.with_lessons,
            cost: self.cost,
            approval_turnaround_ms: percentile(&mut self.turnarounds, 50),
            transition_latency_ms: percentile(&mut self.latencies, 99),
            rated: self.ratings.len() as u64,
            stars: self.ratings.values().sum(),
            councils: self.councils,
            councils_resolved: self.councils_resolved,
            councils_unresolved: self.councils_unresolved,
        })
    }
}

impl From<MetricCounts> for Metrics {
    fn from(counts: MetricCounts) -> Self {
        let percent = |part: u64, total: u64| (part * 100).checked_div(total);
        Self {
            ended: counts.ended,
            completion_rate: percent(counts.completed, counts.ended),
            retries_per_100_tasks: percent(counts.plan_revisions, counts.ended),
            lesson_rate: percent(counts.with_lessons, counts.ended),
            approval_turnaround_ms: counts.approval_turnaround_ms,
            transition_latency_ms: counts.transition_latency_ms,
            rating_hundredths: percent(counts.stars, counts.rated),
            cost_per_completed: counts.cost.checked_div(counts.completed),
            councils: counts.councils,
            councils_resolved: counts.councils_resolved,
            councils_unresolved: counts.councils_unresolved,
        }
    }
}

/// Returns the entry that shows that a task has passed the state that called a council.
fn passing_entry(called_in: State) -> EntryName {
    match called_in {
        State::Planning => EntryName::SmPlanGenerated,
        State::AwaitingApproval => EntryName::SmApprovalGranted,
        State::Validated | State::InProgress => EntryName::SmImplementationCompleted,
        State::Testing => EntryName::SmReviewStarted,
        State::Approved | State::Committing => EntryName::SmDelivered,
        _ => EntryName::SmReviewPassed,
    }
}

fn whole_milliseconds(time: TimeDelta) -> u64 {
    u64::try_from(time.num_milliseconds()).unwrap_or_default()
}

/// Returns the smallest value that is at least as large as `percent` of all values.
fn percentile(values: &mut [u64], percent: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied()
}
