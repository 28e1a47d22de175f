//! Metrics, computed only from task history.
//!
//! Each metric has a target that the dashboard shows beside it. A metric without data is `None`,
//! which is not zero.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::cost::Usd;
use crate::history::{EntryData, EntryName, HistoryEntry};
use crate::ids::TaskId;
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
}

/// Computes the metrics. The entries of each task must be in order.
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
    ratings: Vec<u64>,
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
        match (entry.name, &entry.data) {
            (EntryName::SmPlanAdjusted, _) => self.plan_revisions += 1,
            (EntryName::SmApprovalRequested, _) => {
                self.open_approvals.insert(entry.task, entry.at);
            }
            (_, EntryData::Lessons(lessons)) => self.with_lessons += u64::from(*lessons > 0),
            (_, EntryData::Spend(spend)) => self.cost += spend.usd,
            (_, EntryData::Rating(stars)) => self.ratings.push(u64::from(*stars)),
            _ => {}
        }
    }

    fn finish(mut self) -> Metrics {
        let percent = |part: u64, total: u64| (part * 100).checked_div(total);
        let stars: u64 = self.ratings.iter().sum();
        let rated = self.ratings.len() as u64;
        Metrics {
            ended: self.ended,
            completion_rate: percent(self.completed, self.ended),
            retries_per_100_tasks: percent(self.plan_revisions, self.ended),
            lesson_rate: percent(self.with_lessons, self.ended),
            approval_turnaround_ms: percentile(&mut self.turnarounds, 50),
            transition_latency_ms: percentile(&mut self.latencies, 99),
            rating_hundredths: percent(stars, rated),
            cost_per_completed: self.cost.checked_div(self.completed),
        }
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
