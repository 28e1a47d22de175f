//! Waits of a project with few tasks behind the backlog of another one, with and without turns of
//! projects (docs/operating.md#order-between-projects).
//!
//! Agents are held until all tasks are queued, so that the order alone decides who waits. Two queues are
//! measured: that of planners, in the worker, and that of implementing agents, in Temporal. The latter has
//! a control: the same with Temporal's fairness off.
#![expect(clippy::print_stdout, reason = "an experiment prints its figures")]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_core::ids::ProjectId;
use tamma_core::time::Timestamp;
use tamma_flow::AGENT_TASK_QUEUE;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::project::ScriptedProject;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{sample_plan, sample_task, sample_work};
use tamma_testkit::temporal::ProjectTurns;
use tamma_testkit::wait_until;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;

use crate::support::bench::cluster::{self, BenchCluster, Durability};
use crate::support::bench::load::{events, start_workflow};
use crate::support::bench::meter;
use crate::support::bench::temporal::TemporalArgs;
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// Tasks of the large project.
const LARGE: RangeInclusive<u64> = 1..=40;

/// Tasks of a small project whose plans wait behind those of the large one.
const PLANNED: RangeInclusive<u64> = 101..=104;

/// Tasks of a small project whose runs wait behind those of all others.
const LATE: RangeInclusive<u64> = 201..=204;

/// Number of agent slots.
const SLOTS: usize = 2;

/// Number of tasks that are added at the same time.
const CONCURRENT: usize = 10;

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Longest median wait of a small project, relative to the one that it is compared with.
const MAX_RATIO: f64 = 0.5;

/// Files that release the planners and the implementing agents.
const PLAN: &str = "release-planners";
const WORK: &str = "release-agents";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    temporal: TemporalArgs,
}

/// Waits from the release of the agents to the start of each run.
struct TurnWaits {
    /// Planners of the small project, and of the large one.
    plans: [Vec<Duration>; 2],
    /// Implementing agents of the small project, and of the others, until the small project's last one
    /// started.
    runs: [Vec<Duration>; 2],
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    println!("machine: {}", meter::machine());
    let on = Box::pin(measure(arguments.temporal.with_turns(ProjectTurns::On))).await?;
    let off = Box::pin(measure(arguments.temporal.with_turns(ProjectTurns::Off))).await?;
    Ok(judge(&on, &off))
}

/// Measures the waits on a new cluster.
async fn measure(temporal: TemporalArgs) -> Result<TurnWaits> {
    let cluster = BenchCluster::start_with(Durability::Fast, 1, temporal).await?;
    let script = script(cluster.folder());
    cluster.project.write_script(&script)?;
    let planned = add_project(&cluster, 2, "planned", &script).await?;
    let late = add_project(&cluster, 3, "late", &script).await?;
    let mut worker = cluster.start_worker_with_slots(SLOTS).await?;

    add_tasks(&cluster, &cluster.project, LARGE).await?;
    add_tasks(&cluster, &planned, PLANNED).await?;
    let all = LARGE.count() + PLANNED.count();
    wait_for_states(&cluster, &["planning"], all).await.context("not all planners are queued")?;
    let released = release(&cluster, PLAN).await?;
    // Two of them start, and wait.
    let queued = ["validated", "in_progress"];
    wait_for_states(&cluster, &queued, all).await.context("not all runs are queued")?;
    let plans = starts(&cluster, "plan", released).await?;

    let workflows = add_tasks(&cluster, &late, LATE).await?;
    wait_until("the runs of the small project", TIMEOUT, async || {
        for workflow in &workflows {
            if !is_run_queued(&cluster, workflow).await? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await?;
    let released = release(&cluster, WORK).await?;
    let runs = wait_until("the agents of the small project", TIMEOUT, async || {
        let runs = starts(&cluster, "implement", released).await?;
        let of_late = runs.iter().filter(|(project, _)| *project == late.id).count();
        Ok((of_late >= LATE.count()).then_some(runs))
    })
    .await?;
    worker.kill().await?;
    Ok(TurnWaits { plans: waits(&plans, planned.id), runs: waits(&runs, late.id) })
}

/// Returns the script of agents that wait until they are released.
fn script(folder: &Path) -> Script {
    let usage = AgentStep::Usage { cost: "0.01".to_owned() };
    let hold = |name: &str| AgentStep::AwaitFile(folder.join(name));
    let plan = sample_plan(1);
    let work: Vec<_> =
        [hold(WORK)].into_iter().chain(sample_work(&plan)).chain([usage.clone()]).collect();
    let planning = [hold(PLAN), usage, AgentStep::Plan(Box::new(plan))];
    Script::from_cases([PromptCase::new(PLANNER, planning), PromptCase::new(IMPLEMENTER, work)])
}

async fn add_project(
    cluster: &BenchCluster,
    number: u32,
    name: &str,
    script: &Script,
) -> Result<ScriptedProject> {
    cluster.cluster.add_project(number, name, Repository::new()?, script, |config| config).await
}

/// Adds tasks of a project, and returns the IDs of their workflows.
async fn add_tasks(
    cluster: &BenchCluster,
    project: &ScriptedProject,
    numbers: RangeInclusive<u64>,
) -> Result<Vec<String>> {
    let rules = project.rules(&BTreeMap::new())?;
    stream::iter(numbers)
        .map(|number| {
            let task = sample_task(cluster::id(number), project.id);
            start_workflow(&cluster.client, &rules, task)
        })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

/// Waits until a number of tasks are in one of these states.
async fn wait_for_states(cluster: &BenchCluster, states: &[&str], tasks: usize) -> Result<()> {
    let sql = format!("SELECT count(*) FROM tasks WHERE state IN ('{}')", states.join("', '"));
    wait_until("the tasks", TIMEOUT, async || {
        let count: usize = meter::sql(&cluster.database, &sql).await?.parse()?;
        Ok((count >= tasks).then_some(()))
    })
    .await
}

/// Lets the agents go on that wait for a file, and returns the time.
async fn release(cluster: &BenchCluster, file: &str) -> Result<Timestamp> {
    let at = cluster.store().now().await?;
    std::fs::write(cluster.folder().join(file), "")?;
    Ok(at)
}

/// Returns whether a workflow has requested its implementing agent.
async fn is_run_queued(cluster: &BenchCluster, workflow: &str) -> Result<bool> {
    let events = events(cluster, workflow).await?;
    Ok(events.iter().filter_map(|event| event.attributes.as_ref()).any(|attributes| {
        let Attributes::ActivityTaskScheduledEventAttributes(it) = attributes else { return false };
        it.task_queue.as_ref().is_some_and(|queue| queue.name == AGENT_TASK_QUEUE)
    }))
}

/// Returns the project of each task whose first run of this kind started after a time, and the time
/// until then.
async fn starts(
    cluster: &BenchCluster,
    mode: &str,
    since: Timestamp,
) -> Result<Vec<(ProjectId, Duration)>> {
    let since = since.to_rfc3339();
    let sql = format!(
        "SELECT project, (extract(epoch FROM min(started_at) - timestamptz '{since}') * 1000)::bigint \
         FROM runs WHERE mode = '{mode}' GROUP BY task, project \
         HAVING min(started_at) >= timestamptz '{since}'"
    );
    let text = meter::sql(&cluster.database, &sql).await?;
    let parse = |line: &str| -> Result<(ProjectId, Duration)> {
        let (project, wait) = line.split_once('|').context("unexpected output of `psql`")?;
        Ok((ProjectId(project.parse()?), Duration::from_millis(wait.parse()?)))
    };
    text.lines().map(parse).collect()
}

/// Returns the waits of a project, and those of the others.
fn waits(starts: &[(ProjectId, Duration)], project: ProjectId) -> [Vec<Duration>; 2] {
    [true, false].map(|is_own| {
        let starts = starts.iter().filter(|(of, _)| (*of == project) == is_own);
        starts.map(|(_, wait)| *wait).collect()
    })
}

fn median(waits: &[Duration]) -> f64 {
    percentile(waits, 50).unwrap_or_default().as_secs_f64()
}

fn judge(on: &TurnWaits, off: &TurnWaits) -> Verdict {
    let mut rows = vec![["", "small", "p50 ms", "large", "p50 ms"].map(str::to_owned).to_vec()];
    for (name, [small, large]) in [
        ("planners, fairness on", &on.plans),
        ("planners, fairness off", &off.plans),
        ("agents, fairness on", &on.runs),
        ("agents, fairness off", &off.runs),
    ] {
        let mut row = vec![name.to_owned()];
        for waits in [small, large] {
            row.extend([waits.len().to_string(), ms(percentile(waits, 50))]);
        }
        rows.push(row);
    }
    println!("\n{}", table(&rows));
    let [small, others] = &on.runs;
    let [small_off, others_off] = &off.runs;
    println!(
        "fairness on: {} runs of other projects started before the last of the {} runs of the small one; \
         off: {}",
        others.len(),
        small.len(),
        others_off.len()
    );
    let runs = median(small) / median(small_off);
    let plans = [on, off].map(|waits| median(&waits.plans[0]) / median(&waits.plans[1]));
    // Otherwise the control shows nothing.
    let is_control = median(small_off) > median(others_off);
    let passed = is_control && runs <= MAX_RATIO && plans.iter().all(|ratio| *ratio <= MAX_RATIO);
    Verdict::new(
        passed,
        format!(
            "{} runs behind the backlog of another project wait {:.2} s at p50 with fairness and {:.2} s \
             without: ratio {runs:.2}; {} plans wait {:.2} and {:.2} times as long as those of the \
             backlog (at most {MAX_RATIO})",
            small.len(),
            median(small),
            median(small_off),
            on.plans[0].len(),
            plans[0],
            plans[1],
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(runs: [u64; 2], plans: [u64; 2]) -> TurnWaits {
        let seconds = |waits: [u64; 2]| waits.map(|wait| vec![Duration::from_secs(wait)]);
        TurnWaits { plans: seconds(plans), runs: seconds(runs) }
    }

    #[test]
    fn a_small_project_must_wait_clearly_less_than_without_fairness() {
        let off = || measured([20, 10], [2, 10]);
        assert!(judge(&measured([2, 10], [2, 10]), &off()).passed);
        assert!(!judge(&measured([15, 10], [2, 10]), &off()).passed);
        assert!(!judge(&measured([2, 10], [9, 10]), &off()).passed);
    }

    #[test]
    fn a_control_without_waits_shows_nothing() {
        assert!(!judge(&measured([2, 10], [2, 10]), &measured([5, 10], [2, 10])).passed);
    }
}
