//! Story that is split into tasks with dependencies, some of which fail.
//!
//! The first run completes what the failures leave possible. In the full experiment, a person fixes the
//! cause and resumes the story, and the second run starts only what is missing. Order, overlap and
//! repetition are judged by the processes of the agents and by the history of each task.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tamma_core::ids::{PipelineId, TaskId};
use tamma_core::pipeline::{NodeStatus, PipelineRun, PipelineState};
use tamma_core::plan::{FileAction, Plan};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_testkit::Cluster;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tamma_testkit::sample::{sample_change, sample_plan};

use super::client::{FinishedRun, StoryClient, TIMEOUT};
use super::project::{AgentLog, StoryProject};

/// Story of the tasks.
const STORY: &str = "TASKS-001";

/// Number of tasks that run at the same time.
const PARALLEL: usize = 3;

/// Name that a task adds.
pub(crate) const NAME: &str = "cy";

/// Name that the gate rejects.
const WRONG: &str = "wrong";

/// Task of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedTask {
    pub(crate) key: &'static str,
    depends_on: &'static [&'static str],
    fails: bool,
}

pub(crate) const fn task(key: &'static str, depends_on: &'static [&'static str]) -> PlannedTask {
    PlannedTask { key, depends_on, fails: false }
}

const fn failing(key: &'static str, depends_on: &'static [&'static str]) -> PlannedTask {
    PlannedTask { key, depends_on, fails: true }
}

/// Twelve tasks; two fail, and three cannot start because of them.
const ALL: &[PlannedTask] = &[
    // Not in the order of their dependencies.
    task("T11", &["T06", "T10"]),
    task("T01", &[]),
    task("T02", &["T01"]),
    task("T03", &["T01"]),
    failing("T04", &["T02"]),
    task("T05", &["T02", "T03"]),
    task("T06", &["T04"]),
    task("T07", &["T05"]),
    failing("T08", &["T03"]),
    task("T09", &["T08", "T05"]),
    task("T10", &["T07"]),
    task("T12", &[]),
];

/// Tasks of the quick slice.
const QUICK: &[PlannedTask] =
    &[task("T03", &["T02"]), task("T01", &[]), failing("T02", &["T01"]), task("T04", &[])];

/// Time in which a task was in work.
#[derive(Debug, Clone, Copy)]
struct WorkPeriod {
    started: DateTime<Utc>,
    closed: DateTime<Utc>,
}

/// Runs the story.
pub(crate) async fn run(cluster: &Cluster, number: u32, quick: bool) -> Result<String> {
    let tasks = if quick { QUICK } else { ALL };
    let (name, repository) = ("story-tasks", Repository::new()?);
    let pipeline = format!(
        "scrum_master:\n  task_loop: {{ max_iterations: 1 }}\n\
         pipelines:\n  split:\n    phases:\n      - {{ id: tasks, runner: tasks, parallel: {PARALLEL} }}\n"
    );
    let gates = format!("  names: {{ command: '! grep -rq {WRONG} names', kind: tests }}\n");
    let configure = |config: ProjectConfig| config.gates(gates).more(&pipeline);
    let script = |_: &AgentLog| script(tasks, true);
    let project = StoryProject::new(cluster, number, name, repository, script, configure).await?;
    let client = StoryClient { cluster, project: name };
    let id = client.start(STORY, &["--pipeline", "split"]).await?;
    client.until(id, |run| run.state == PipelineState::AtSplit(1)).await?;
    ensure!(started(cluster, id).await?.is_empty(), "a task started before a person approved it");
    client.act(&["answer", STORY, "continue"]).await?;
    abandon_failing(&client, id, tasks).await?;
    let first = client.finished(id, 1).await?;
    let failed: BTreeSet<&str> = tasks.iter().filter(|it| it.fails).map(|it| it.key).collect();
    let possible = possible(tasks);
    for task in tasks {
        let expected = match task.key {
            key if failed.contains(key) => NodeStatus::Failed,
            key if possible.contains(key) => NodeStatus::Complete,
            _ => NodeStatus::Skipped,
        };
        let found = status(&first.run, task.key)?;
        ensure!(found == expected, "{} is {found} instead of {expected}", task.key);
    }
    let reason = format!("{} of {} tasks failed", failed.len(), tasks.len());
    let stop = match &first.run.state {
        PipelineState::Stopped { phase: 1, reason, .. } => reason.clone(),
        state => bail!("the run is {state:?}"),
    };
    ensure!(stop.starts_with(&reason), "the run stopped: {stop}");
    check_branches(cluster, &project, &first).await?;
    let mut all = periods(cluster, &project, &first).await?;
    let most = check_order(tasks, &all)?;
    let done = format!("{} of {} tasks, at most {most} at once", possible.len(), tasks.len());
    if quick {
        return Ok(done);
    }

    // A person fixes the cause, and continues.
    let before = process_counts(&project, &first, &possible)?;
    project.project.write_script(&self::script(tasks, false))?;
    client.act(&["resume", STORY]).await?;
    client.until(id, |run| run.state == PipelineState::AtSplit(1)).await?;
    client.act(&["answer", STORY, "continue"]).await?;
    let second = client.finished(id, 2).await?;
    let state = second.run.describe_state();
    ensure!(second.run.state == PipelineState::Complete, "the resumed run is {state}");
    for task in tasks {
        let found = status(&second.run, task.key)?;
        ensure!(found == NodeStatus::Complete, "{} is {found}", task.key);
    }
    check_branches(cluster, &project, &second).await?;
    let after = process_counts(&project, &second, &possible)?;
    ensure!(before == after, "completed tasks were repeated: {before:?}, then {after:?}");
    all.extend(periods(cluster, &project, &second).await?);
    let most = check_order(tasks, &all)?.max(most);
    Ok(format!("{} tasks in 2 runs, at most {most} at once", tasks.len()))
}

/// Returns the script of the planners and implementers. Each task writes a file of its own.
fn script(tasks: &[PlannedTask], breaks: bool) -> Script {
    let submit = AgentStep::Submit(split(tasks));
    let mut cases = vec![PromptCase::new(format!("Split the story {STORY}"), [submit])];
    for task in tasks {
        let content = if task.fails && breaks { WRONG } else { NAME };
        let path = file(task.key).into();
        let write = AgentStep::Write { path, content: format!("{content}\n") };
        cases.extend(task_cases(task, vec![write]));
    }
    Script::from_cases(cases)
}

/// Returns the split that the planner submits.
pub(crate) fn split(tasks: &[PlannedTask]) -> Value {
    let story_task = |task: &PlannedTask| -> Value {
        json!({
            "key": task.key, "title": title(task),
            "description": "Add a list of names.",
            "acceptance_criteria": ["The list has a name."],
            "depends_on": task.depends_on, "estimated_lines": 1,
        })
    };
    json!({ "tasks": tasks.iter().map(story_task).collect::<Vec<_>>() })
}

/// Returns the cases of a task's planner and implementer.
pub(crate) fn task_cases(task: &PlannedTask, implement: Vec<AgentStep>) -> [PromptCase; 2] {
    let file_changes = vec![sample_change(file(task.key), FileAction::Create)];
    let plan = Plan { file_changes, ..sample_plan(1) };
    // The heading of a planner's prompt continues with the type of the task.
    let heading = format!("# Task: {}", title(task));
    [
        PromptCase::new(format!("{heading} ("), [AgentStep::Plan(Box::new(plan))]),
        PromptCase::new(format!("{heading}\n"), implement),
    ]
}

pub(crate) fn title(task: &PlannedTask) -> String {
    format!("List the names of {}", task.key)
}

/// Returns the file that a task writes.
pub(crate) fn file(key: &str) -> String {
    format!("names/{key}.txt")
}

/// Abandons the tasks that fail, once they ask what to do.
async fn abandon_failing(
    client: &StoryClient<'_>,
    id: PipelineId,
    tasks: &[PlannedTask],
) -> Result<()> {
    for task in tasks.iter().filter(|task| task.fails) {
        let run = client.until(id, |run| node(run, task.key).is_some()).await?;
        let task_id = node(&run, task.key).context("the task has not started")?;
        let asks = |task_loop: &TaskLoop| {
            ensure!(!task_loop.state.is_terminal(), "{} is {}", task.key, task_loop.state);
            let is_asking = task_loop.open_question.is_some() && task_loop.active_job.is_none();
            Ok(task_loop.state == State::HumanEscalation && is_asking)
        };
        client.cluster.wait_for_task(task_id, TIMEOUT, asks).await?;
        let task_id = task_id.to_string();
        client
            .cluster
            .cli
            .run(&["answer", &task_id, "abandon", "--reason", "it is the wrong name"])
            .await?;
    }
    Ok(())
}

/// Returns the ID of a task that has started.
fn node(run: &PipelineRun, key: &str) -> Option<TaskId> {
    run.graphs.get(&1)?.nodes.iter().find(|node| node.key == key)?.task
}

fn status(run: &PipelineRun, key: &str) -> Result<NodeStatus> {
    let graph = run.graphs.get(&1).context("the story was not split")?;
    let node = graph.nodes.iter().find(|node| node.key == key);
    Ok(node.with_context(|| format!("{key} is missing"))?.status)
}

/// Returns the IDs of all started tasks.
async fn started(cluster: &Cluster, id: PipelineId) -> Result<Vec<TaskId>> {
    let run = cluster.store.pipeline(id).await?.run.context("no run is stored")?;
    Ok(run.graphs.values().flat_map(|graph| &graph.nodes).filter_map(|node| node.task).collect())
}

/// Returns the keys that can be completed although some tasks fail.
fn possible(tasks: &[PlannedTask]) -> BTreeSet<&'static str> {
    let mut done = BTreeSet::new();
    loop {
        let can_run =
            |task: &&PlannedTask| !task.fails && task.depends_on.iter().all(|it| done.contains(it));
        let next: BTreeSet<_> = tasks.iter().filter(can_run).map(|task| task.key).collect();
        if next == done {
            return done;
        }
        done = next;
    }
}

/// Returns the work periods of the tasks that started in a run: from the first process of an agent to
/// the closing entry of the history.
async fn periods(
    cluster: &Cluster,
    project: &StoryProject,
    finished: &FinishedRun,
) -> Result<BTreeMap<String, WorkPeriod>> {
    let graph = finished.run.graphs.get(&1).context("the story was not split")?;
    let mut all = BTreeMap::new();
    for node in &graph.nodes {
        let Some(task) = node.task else { continue };
        let first = project.log.starts(task)?.into_iter().next();
        let started = first.with_context(|| format!("{} has started no agent", node.key))?.at;
        let history = cluster.history(task).await?;
        let closed = history.iter().find(|entry| entry.to.is_terminal());
        let closed = closed.with_context(|| format!("{} is not closed", node.key))?.at;
        all.insert(node.key.clone(), WorkPeriod { started, closed });
    }
    Ok(all)
}

/// Checks that no task began before its dependencies were closed, and that the limit was kept. Returns
/// the largest number of tasks in work at the same time.
fn check_order(tasks: &[PlannedTask], periods: &BTreeMap<String, WorkPeriod>) -> Result<usize> {
    for task in tasks {
        let Some(own) = periods.get(task.key) else { continue };
        for dependency in task.depends_on {
            let other = periods.get(*dependency);
            let other = other.with_context(|| format!("{dependency} never ran"))?;
            ensure!(
                other.closed <= own.started,
                "{} began at {}, before {dependency} was closed at {}",
                task.key,
                own.started,
                other.closed
            );
        }
    }
    // The number in work only rises when a task begins.
    let at_start = |one: &WorkPeriod| {
        let overlaps = |it: &&WorkPeriod| it.started <= one.started && one.started < it.closed;
        periods.values().filter(overlaps).count()
    };
    let most = periods.values().map(at_start).max().unwrap_or_default();
    ensure!(most <= PARALLEL, "{most} tasks were in work at once, and {PARALLEL} are allowed");
    ensure!(most > 1, "independent tasks did not run at the same time");
    Ok(most)
}

/// Checks that the branch of each completed task has its file, and that the story's branch has them
/// all.
async fn check_branches(
    cluster: &Cluster,
    project: &StoryProject,
    finished: &FinishedRun,
) -> Result<()> {
    let graph = finished.run.graphs.get(&1).context("the story was not split")?;
    for node in graph.nodes.iter().filter(|node| node.status == NodeStatus::Complete) {
        let task = node.task.with_context(|| format!("{} has no ID", node.key))?;
        for branch in [&cluster.store.task_branch(task).await?, &finished.branch] {
            let object = format!("{branch}:{}", file(&node.key));
            let found = project.project.repository.git(&["show", &object]).unwrap_or_default();
            ensure!(found == NAME, "{} has `{found}` on {branch}", node.key);
        }
    }
    Ok(())
}

/// Returns how many processes were started for tasks, by key.
fn process_counts(
    project: &StoryProject,
    finished: &FinishedRun,
    keys: &BTreeSet<&'static str>,
) -> Result<BTreeMap<&'static str, usize>> {
    let count = |key: &&'static str| -> Result<_> {
        let task = node(&finished.run, key).with_context(|| format!("{key} has no ID"))?;
        Ok((*key, project.log.starts(task)?.len()))
    };
    keys.iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(started: i64, closed: i64) -> WorkPeriod {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).expect("a time");
        WorkPeriod { started: at(started), closed: at(closed) }
    }

    fn order(periods: &[(&str, WorkPeriod)]) -> Result<usize> {
        let free = ["a", "c", "d", "e"].map(|key| task(key, &[]));
        let tasks = [&free[..], &[task("b", &["a"])]].concat();
        check_order(&tasks, &periods.iter().map(|(key, it)| ((*key).to_owned(), *it)).collect())
    }

    #[test]
    fn two_of_twelve_tasks_fail_and_three_depend_on_them() {
        assert_eq!(ALL.len(), 12);
        assert_eq!(ALL.iter().filter(|task| task.fails).count(), 2);
        let expected = ["T01", "T02", "T03", "T05", "T07", "T10", "T12"];
        assert_eq!(possible(ALL), expected.into());
        assert_eq!(possible(QUICK), ["T01", "T04"].into());
    }

    #[test]
    fn a_task_that_begins_too_early_is_an_error() {
        let apart = [("a", period(0, 10)), ("b", period(10, 20)), ("c", period(5, 15))];
        assert_eq!(order(&apart).expect("in order"), 2);
        let early = [("a", period(0, 10)), ("b", period(9, 20)), ("c", period(5, 15))];
        assert!(order(&early).is_err());
    }

    #[test]
    fn too_many_tasks_at_once_are_an_error() {
        let [a, c, d] = [("a", period(0, 10)), ("c", period(1, 10)), ("d", period(2, 10))];
        assert_eq!(order(&[a, c, d]).expect("within the limit"), 3);
        let e = ("e", period(3, 9));
        assert!(order(&[a, c, d, e]).is_err());
        assert!(order(&[a]).is_err(), "nothing ran at the same time");
    }
}
