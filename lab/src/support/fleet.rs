//! Tasks in flight on a cluster: each waits at a job, moves on when it is released, and is examined once
//! it is completed.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_testkit::Cluster;
use tokio::time::sleep;

use crate::chaos::examination::{Baseline, Examiner, RunRule};
use crate::chaos::finding::Findings;
use crate::cluster::lane::{Lane, Stage};

/// Time within which every task must get to its next job.
const MOVE_LIMIT: Duration = Duration::from_mins(5);

/// Pause between two looks at the tasks.
const POLL: Duration = Duration::from_millis(250);

/// Returns the number of the first task. All numbers have the same length, so that no folder's name begins
/// with another's. Experiments that run at the same time have other tasks, because their processes are found
/// by the tasks' IDs.
pub(crate) fn first_task() -> u32 {
    1_000_000_001 + std::process::id() % 300_000 * 10_000
}

/// One in this number of later tasks needs approval by a person.
const APPROVED: u32 = 4;

/// Number of jobs of a task that wait at a hold.
const JOBS: usize = 5;

/// Number of tasks that are added or examined at the same time.
const AT_ONCE: usize = 4;

/// Tasks in flight.
#[derive(Debug)]
pub(crate) struct TaskFleet {
    pub(crate) cluster: Cluster,
    pub(crate) lanes: Vec<Lane>,
    baseline: Baseline,
    /// Number of the next task.
    next: u32,
    pub(crate) tally: FleetTally,
}

/// What was found so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FleetTally {
    /// Number of examined tasks.
    pub(crate) tasks: usize,
    pub(crate) lost: usize,
    pub(crate) doubled: usize,
    /// Skipped gates, runs without approval, and processes that were left.
    pub(crate) other: usize,
    /// Number of runs that started or ended more than once.
    pub(crate) reruns: usize,
}

impl FleetTally {
    /// Returns `true` if nothing is wrong.
    pub(crate) fn is_clean(self) -> bool {
        self.lost + self.doubled + self.other == 0
    }
}

impl TaskFleet {
    /// Adds the first tasks. They wait at different jobs.
    pub(crate) async fn start(cluster: Cluster, tasks: u32) -> Result<Self> {
        let first = first_task();
        let lanes = (0..tasks).map(|at| {
            let cluster = &cluster;
            async move {
                let passed = usize::try_from(at)? % JOBS;
                let needs_person = passed == 0 && at.is_multiple_of(2);
                Lane::add(cluster, None, first + at, needs_person, passed).await
            }
        });
        let lanes: Vec<_> = stream::iter(lanes).buffered(AT_ONCE).try_collect().await?;
        let (baseline, next) = (Baseline::default(), first + tasks);
        Ok(Self { cluster, lanes, baseline, next, tally: FleetTally::default() })
    }

    /// Takes two tasks to their end without a disturbance, and keeps their histories for comparison.
    pub(crate) async fn record_baseline(&mut self) -> Result<()> {
        for needs_person in [false, true] {
            let cluster = &self.cluster;
            let mut lane = Lane::add(cluster, None, self.next, needs_person, 0).await?;
            self.next += 1;
            while lane.stage != Stage::End {
                lane.release(cluster).await?;
                if lane.stage == Stage::Approval || lane.stage == Stage::End {
                    wait_for(cluster, &lane).await?;
                }
            }
            let findings = Examiner::new(cluster, &self.baseline, cluster.tamma_pids())
                .examine(&lane.case, RunRule::Once)
                .await?;
            ensure!(findings.is_clean(), "an undisturbed task has findings: {findings:?}");
            let entries = cluster.history(lane.case.task).await?;
            let names = entries.into_iter().map(|entry| entry.name).collect();
            *self.baseline.of_mut(needs_person) = Some(names);
        }
        Ok(())
    }

    /// Notes what may happen more than once to the tasks in flight.
    pub(crate) fn note(&mut self, rule: RunRule) {
        for lane in &mut self.lanes {
            lane.rule = lane.rule.max(rule);
        }
    }

    /// Lets the tasks move on by one job, except those at a stage that is to be kept.
    pub(crate) async fn release(&mut self, is_kept: impl Fn(Stage) -> bool) -> Result<()> {
        let cluster = &self.cluster;
        let moving = self.lanes.iter_mut().filter(|lane| !is_kept(lane.stage));
        try_join_all(moving.map(|lane| lane.release(cluster))).await.map(drop)
    }

    /// Waits until all tasks are at their stages. Those that do not get there count as lost, and are no
    /// longer in flight.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let (since, mut waiting) = (now(), std::mem::take(&mut self.lanes));
        while !waiting.is_empty() {
            let looks = join_all(waiting.iter().map(|lane| lane.is_settled(&self.cluster))).await;
            let mut still = Vec::new();
            for (lane, look) in waiting.into_iter().zip(looks) {
                match look {
                    Ok(Ok(true)) => self.lanes.push(lane),
                    Ok(Err(error)) => self.add_lost(&format!("{error:#}"))?,
                    // A server or the database may be restarting.
                    Ok(Ok(false)) | Err(_) if since.elapsed() > MOVE_LIMIT => {
                        let (task, stage) = (lane.case.task, lane.stage);
                        let limit = MOVE_LIMIT.as_secs();
                        self.add_lost(&format!(
                            "task {task} did not get to {stage:?} within {limit} s"
                        ))?;
                    }
                    Ok(Ok(false)) | Err(_) => still.push(lane),
                }
            }
            waiting = still;
            if !waiting.is_empty() {
                sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// Examines the completed tasks, which are no longer in flight, and returns their number.
    pub(crate) async fn examine_completed(&mut self) -> Result<u32> {
        let lanes = std::mem::take(&mut self.lanes);
        let (completed, lanes): (Vec<_>, _) =
            lanes.into_iter().partition(|lane| lane.stage == Stage::End);
        self.lanes = lanes;
        let cluster = &self.cluster;
        let examiner = Examiner::new(cluster, &self.baseline, cluster.tamma_pids());
        let examined = completed.iter().map(|lane| examiner.examine(&lane.case, lane.rule));
        let examined: Vec<_> = stream::iter(examined).buffered(AT_ONCE).collect().await;
        for (lane, findings) in completed.iter().zip(examined) {
            self.tally.tasks += 1;
            match findings {
                Ok(findings) => self.add(&lane.case.task.to_string(), &findings)?,
                Err(error) => self.add_lost(&format!("task {}: {error:#}", lane.case.task))?,
            }
        }
        Ok(u32::try_from(completed.len())?)
    }

    /// Adds tasks, which wait at their first job.
    pub(crate) async fn refill(&mut self, count: u32) -> Result<()> {
        let (cluster, first) = (&self.cluster, self.next);
        let new = (first..first + count)
            .map(|number| Lane::add(cluster, None, number, number.is_multiple_of(APPROVED), 0));
        let new: Vec<_> = stream::iter(new).buffered(AT_ONCE).try_collect().await?;
        self.next += count;
        self.lanes.extend(new);
        Ok(())
    }

    /// Lets all tasks complete, and examines them.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        while !self.lanes.is_empty() {
            self.release(|_| false).await?;
            self.settle().await?;
            self.examine_completed().await?;
        }
        Ok(())
    }

    fn add_lost(&mut self, why: &str) -> Result<()> {
        let mut findings = Findings::default();
        findings.add_lost(why);
        self.add("task", &findings)
    }

    fn add(&mut self, about: &str, findings: &Findings) -> Result<()> {
        let Findings { lost, duplicated, orphaned, skipped, unapproved, notes } = findings;
        self.tally.lost += lost.len();
        self.tally.doubled += duplicated.len();
        self.tally.other += orphaned.len() + skipped.len() + unapproved.len();
        self.tally.reruns += notes.len();
        let mut out = std::io::stdout().lock();
        for failure in findings.failures() {
            writeln!(out, "  {about}: {failure}")?;
        }
        Ok(())
    }
}

/// Waits until a task is at its stage.
async fn wait_for(cluster: &Cluster, lane: &Lane) -> Result<()> {
    let since = now();
    while !lane.is_settled(cluster).await?? {
        ensure!(since.elapsed() < MOVE_LIMIT, "task {} does not go on", lane.case.task);
        sleep(POLL).await;
    }
    Ok(())
}

/// Returns the current time, to measure durations.
#[expect(clippy::disallowed_methods, reason = "measures durations")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
