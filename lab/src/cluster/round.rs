//! Rounds: in each, one part is struck and every task moves on by one job.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::State;
use tamma_testkit::Cluster;
use tamma_testkit::cluster::DATABASE;
use tokio::time::{sleep, timeout};

use super::lane::{Lane, Stage};
use super::report::{Report, Round};
use super::strike::Strike;
use super::striker::Striker;
use crate::chaos::examination::{Baseline, Examiner, RunRule};
use crate::chaos::finding::Findings;
use crate::support::fleet::first_task;
use crate::support::leftover;

/// Time within which every task must go on after a strike.
const RESUME_LIMIT: Duration = Duration::from_mins(3);

/// Time within which the database says where the tasks stand, or is asked again.
const QUERY_LIMIT: Duration = Duration::from_secs(10);

/// Pause between two looks at the tasks.
const POLL: Duration = Duration::from_millis(250);

/// One in this number of tasks needs approval by a person.
const APPROVED: u32 = 4;

/// Number of jobs of a task that wait at a hold.
const JOBS: usize = 5;

/// Number of tasks that are added or examined at the same time.
const AT_ONCE: usize = 4;

/// Delay between the release of the tasks and a strike that hits them on their way.
const ON_THE_WAY: Duration = Duration::from_millis(700);

/// Way in which a strike is made. It changes each time that the strike comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// `true` if the strike hits tasks on their way, and not at their jobs.
    on_the_way: bool,
    /// Number that chooses the victim among equals.
    victim: usize,
}

impl Turn {
    /// Returns the turn after `made` strikes, if `kinds` different strikes take turns.
    pub(crate) fn new(made: usize, kinds: usize) -> Self {
        let (cycle, position) = (made / kinds, made % kinds);
        // The victim changes half as often, so that each is hit in both ways.
        Self { on_the_way: !(position + cycle).is_multiple_of(2), victim: position + cycle / 2 }
    }
}

/// Takes the tasks in flight through strikes.
pub(crate) struct RoundRunner {
    striker: Striker,
    lanes: Vec<Lane>,
    baseline: Baseline,
    /// Number of the next task.
    next: u32,
}

impl RoundRunner {
    /// Records two undisturbed tasks as the baseline, and adds the first tasks. They wait at different
    /// jobs.
    pub(crate) async fn start(striker: Striker, tasks: u32) -> Result<Self> {
        let (lanes, baseline) = (Vec::new(), Baseline::default());
        let mut runner = Self { striker, lanes, baseline, next: first_task() };
        runner.record_baseline().await?;
        let (cluster, upstream) = (&runner.striker.cluster, runner.striker.upstream());
        let first = runner.next;
        let lanes = (0..tasks).map(|at| async move {
            let passed = usize::try_from(at)? % JOBS;
            let needs_person = passed == 0 && at.is_multiple_of(2);
            Lane::add(cluster, Some(upstream), first + at, needs_person, passed).await
        });
        let lanes: Vec<_> = stream::iter(lanes).buffered(AT_ONCE).try_collect().await?;
        runner.next += tasks;
        runner.lanes = lanes;
        Ok(runner)
    }

    async fn record_baseline(&mut self) -> Result<()> {
        for needs_person in [false, true] {
            let (cluster, upstream) = (&self.striker.cluster, self.striker.upstream());
            let mut lane = Lane::add(cluster, Some(upstream), self.next, needs_person, 0).await?;
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

    /// Lets every task move on by one job without a strike, for comparison.
    pub(crate) async fn undisturbed(&mut self, report: &mut Report) -> Result<()> {
        self.settle(now(), report).await?;
        let began = now();
        self.release().await?;
        let times = self.settle(began, report).await?;
        Report::print_undisturbed(&times)
    }

    /// Makes a strike.
    pub(crate) async fn round(
        &mut self,
        strike: Strike,
        Turn { on_the_way, victim }: Turn,
        report: &mut Report,
    ) -> Result<()> {
        if on_the_way {
            self.release().await?;
            sleep(ON_THE_WAY).await;
        }
        let in_flight = self.in_flight().await;
        let victims = self.striker.aim(strike, victim);
        let interrupted = in_flight
            .iter()
            .filter(|task| victims.as_ref().is_none_or(|victims| victims.contains(*task)))
            .count();
        let began = now();
        self.striker.strike(strike, &in_flight).await?;
        for lane in &mut self.lanes {
            lane.note(strike);
        }
        let mut findings = Findings::default();
        for host in self.striker.revive().await? {
            if !strike.may_end_worker() {
                findings.add_lost(format!("the process on `{host}`, which ended"));
            }
        }
        for lane in self.lanes.iter().filter(|lane| lane.runs_unapproved()) {
            findings.add_unapproved(format!("a run of task {}", lane.case.task));
        }
        report.add_findings(strike, &findings)?;
        if !on_the_way {
            self.release().await?;
        }
        let times = self.settle(began, report).await?;
        report.add_round(Round { strike, interrupted, times })
    }

    /// Lets all tasks complete, examines them, and looks for processes that are left.
    pub(crate) async fn finish(&mut self, report: &mut Report) -> Result<()> {
        let tasks: Vec<_> = self.lanes.iter().map(|lane| lane.case.task.to_string()).collect();
        while !self.lanes.is_empty() {
            self.release().await?;
            self.wait_and_examine(now(), report).await?;
        }
        let left = leftover::runs().into_iter().filter(|run| tasks.contains(&run.task));
        let mut findings = Findings::default();
        findings.orphaned.extend(left.map(|run| format!("{} of task {}", run.pid, run.task)));
        report.add_last(&findings)
    }

    /// Lets all tasks move on by one job.
    async fn release(&mut self) -> Result<()> {
        let cluster = &self.striker.cluster;
        try_join_all(self.lanes.iter_mut().map(|lane| lane.release(cluster))).await.map(drop)
    }

    /// Returns the tasks that are not completed.
    async fn in_flight(&self) -> Vec<String> {
        let cluster = &self.striker.cluster;
        let mut tasks = Vec::new();
        for lane in &self.lanes {
            let is_completed =
                lane.stage == Stage::End && matches!(lane.is_settled(cluster).await, Ok(Ok(true)));
            if !is_completed {
                tasks.push(lane.case.task.to_string());
            }
        }
        tasks
    }

    /// Waits until all tasks are at their next jobs, replaces completed ones, and returns how long each
    /// took since a moment.
    async fn settle(&mut self, since: Instant, report: &mut Report) -> Result<Vec<Duration>> {
        let wanted = self.lanes.len();
        let times = self.wait_and_examine(since, report).await?;
        let (cluster, upstream) = (&self.striker.cluster, self.striker.upstream());
        let first = self.next;
        let count = u32::try_from(wanted - self.lanes.len())?;
        let new = (first..first + count).map(|number| {
            Lane::add(cluster, Some(upstream), number, number.is_multiple_of(APPROVED), 0)
        });
        let new: Vec<_> = stream::iter(new).buffered(AT_ONCE).try_collect().await?;
        self.next += count;
        self.lanes.extend(new);
        Ok(times)
    }

    /// Waits until all tasks are at their next jobs, and examines those that are completed. A task that
    /// does not get there counts as lost.
    async fn wait_and_examine(
        &mut self,
        since: Instant,
        report: &mut Report,
    ) -> Result<Vec<Duration>> {
        let mut waiting: Vec<_> = std::mem::take(&mut self.lanes);
        let (mut settled, mut times) = (Vec::new(), Vec::new());
        while !waiting.is_empty() {
            let cluster = &self.striker.cluster;
            // The database may be restarting. Then nothing is known about tasks that are not at a job.
            let states = stored_states(cluster, &waiting).await.unwrap_or_default();
            let mut still = Vec::new();
            for lane in waiting {
                let (task, took) = (lane.case.task, since.elapsed());
                let is_settled = match states.get(&task) {
                    _ if lane.is_at_job() => Some(true),
                    Some(state) => lane.is_settled_in(*state),
                    None => Some(false),
                };
                if is_settled == Some(true) {
                    times.push(took);
                    settled.push(lane);
                } else if is_settled.is_none() || took > RESUME_LIMIT {
                    let lane = lane
                        .describe(cluster)
                        .await
                        .unwrap_or_else(|error| format!("task {task} cannot be read: {error:#}"));
                    report.add_lost_task(&format!("after {} s, {lane}", took.as_secs()))?;
                } else {
                    still.push(lane);
                }
            }
            waiting = still;
            if !waiting.is_empty() {
                sleep(POLL).await;
            }
        }
        let (completed, lanes): (Vec<_>, _) =
            settled.into_iter().partition(|lane| lane.stage == Stage::End);
        self.lanes = lanes;
        let cluster = &self.striker.cluster;
        let examiner = Examiner::new(cluster, &self.baseline, cluster.tamma_pids());
        let examined = completed.iter().map(|lane| examiner.examine(&lane.case, lane.rule));
        let examined: Vec<_> = stream::iter(examined).buffered(AT_ONCE).collect().await;
        for (lane, findings) in completed.iter().zip(examined) {
            report.add_task(lane.case.task, findings)?;
        }
        Ok(times)
    }
}

/// Returns the states of those tasks that are not at a job, in one query: many tasks are looked at often.
async fn stored_states(cluster: &Cluster, lanes: &[Lane]) -> Result<BTreeMap<TaskId, State>> {
    let ids: Vec<_> = lanes
        .iter()
        .filter(|lane| !lane.is_at_job())
        .map(|lane| format!("'{}'", lane.case.task))
        .collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let sql = format!(
        "SELECT coalesce(json_object_agg(id, state), '{{}}') FROM tasks WHERE id IN ({})",
        ids.join(", ")
    );
    let rows = timeout(QUERY_LIMIT, cluster.postgres()?.query(DATABASE, &sql)).await??;
    Ok(serde_json::from_str(&rows)?)
}

/// Waits until a task is at its stage.
async fn wait_for(cluster: &Cluster, lane: &Lane) -> Result<()> {
    let since = now();
    while !lane.is_settled(cluster).await?? {
        ensure!(since.elapsed() < RESUME_LIMIT, "task {} does not go on", lane.case.task);
        sleep(POLL).await;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "measures durations")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strike_hits_every_victim_at_its_job_and_on_its_way() {
        for (kinds, victims) in [(24, 2), (24, 3), (23, 2), (22, 3), (1, 3)] {
            for position in 0..kinds {
                for (on_the_way, victim) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
                    let is_made = (0..2 * victims).any(|cycle| {
                        let turn = Turn::new(cycle * kinds + position, kinds);
                        turn.on_the_way == on_the_way && turn.victim % victims == victim
                    });
                    assert!(is_made, "{kinds} strikes, strike {position}, victim {victim}");
                }
            }
        }
    }
}
