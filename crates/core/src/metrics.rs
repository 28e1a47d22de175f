//! How well it goes, computed from the log and from nothing else.
//!
//! The figures are those the product is judged by, each with its goal, so that a board can show
//! both. What there is no case of yet has no figure, which is not zero.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::cost::Usd;
use crate::ids::TaskId;
use crate::log::{Entry, EntryName, Fact};
use crate::state::State;
use crate::time::Timestamp;

/// An entry with the moment it was written down.
#[derive(Debug, Clone, Copy)]
pub struct Logged<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// When it was written down; the difference to when it happened is the latency.
    pub at: Timestamp,
}

/// The figures. A share is in percent, a time in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Tasks that have ended.
    pub ended: u64,
    /// Of those, the share that was completed. Goal: over 85.
    pub completion_rate: Option<u64>,
    /// Adjusted plans for every hundred tasks that have ended. Goal: under 150.
    pub retries_per_100_tasks: Option<u64>,
    /// The share of ended tasks, succeeded or not, that left at least one lesson. Goal: over 90.
    pub lesson_rate: Option<u64>,
    /// The median from asking for an approval to its answer. Goal: under 5 minutes.
    pub approval_turnaround_ms: Option<u64>,
    /// The 99th percentile from a transition to its being written down. Goal: under 100.
    pub transition_latency_ms: Option<u64>,
    /// The mean of people's ratings, in hundredths. Goal: over 400.
    pub rating_hundredths: Option<u64>,
    /// What all tasks have cost for each one that was completed.
    pub cost_per_completed: Option<Usd>,
}

/// Computes the figures from entries, in the order of each task.
pub fn compute<'a>(log: impl IntoIterator<Item = Logged<'a>>) -> Metrics {
    let mut tally = Tally::default();
    for logged in log {
        tally.add(&logged);
    }
    tally.finish()
}

#[derive(Default)]
struct Tally {
    completed: u64,
    ended: u64,
    adjusted: u64,
    taught: u64,
    cost: Usd,
    asked: BTreeMap<TaskId, Timestamp>,
    turnarounds: Vec<u64>,
    latencies: Vec<u64>,
    ratings: Vec<u64>,
}

impl Tally {
    fn add(&mut self, logged: &Logged<'_>) {
        let entry = logged.entry;
        if entry.on.is_some() {
            self.latencies.push(milliseconds(logged.at - entry.at));
            if entry.to.is_terminal() {
                self.ended += 1;
                self.completed += u64::from(entry.to == State::Completed);
            }
            // Whatever leaves the question behind has answered it.
            if let Some(asked) = self.asked.remove(&entry.task) {
                self.turnarounds.push(milliseconds(entry.at - asked));
            }
        }
        match (entry.name, &entry.data) {
            (EntryName::SmPlanAdjusted, _) => self.adjusted += 1,
            (EntryName::SmApprovalRequested, _) => {
                self.asked.insert(entry.task, entry.at);
            }
            (_, Fact::Lessons(lessons)) => self.taught += u64::from(*lessons > 0),
            (_, Fact::Spend(spend)) => self.cost += spend.usd,
            (_, Fact::Rating(stars)) => self.ratings.push(u64::from(*stars)),
            _ => {}
        }
    }

    fn finish(mut self) -> Metrics {
        let percent = |part: u64, whole: u64| (part * 100).checked_div(whole);
        let stars: u64 = self.ratings.iter().sum();
        let rated = self.ratings.len() as u64;
        Metrics {
            ended: self.ended,
            completion_rate: percent(self.completed, self.ended),
            retries_per_100_tasks: percent(self.adjusted, self.ended),
            lesson_rate: percent(self.taught, self.ended),
            approval_turnaround_ms: percentile(&mut self.turnarounds, 50),
            transition_latency_ms: percentile(&mut self.latencies, 99),
            rating_hundredths: percent(stars, rated),
            cost_per_completed: self.cost.shared_by(self.completed),
        }
    }
}

fn milliseconds(time: TimeDelta) -> u64 {
    u64::try_from(time.num_milliseconds()).unwrap_or_default()
}

/// The smallest value that so many percent of the values do not pass.
fn percentile(values: &mut [u64], percent: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied()
}
