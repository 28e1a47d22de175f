//! Stories that are split into tasks: their order, their branches, and their end.

use serde_json::{Value, json};
use tamma_core::actor::Actor;
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_core::pipeline::{GateAnswer, NodeStatus, PipelineRun, PipelineState};
use tamma_core::task_loop::State;
use tamma_engine::mirror::task_branch;
use tamma_flow::pipeline::PipelineAction;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::sample::sample_plan;

use crate::cluster::{Cluster, until};
use crate::pipelines::{STORY, act, pipeline_id, start_pipeline, until_delivered, until_run};

const OWN_PIPELINE: &str = "\
pipelines:
  own:
    phases:
      - { id: build, runner: command, run: 'mkdir -p out && echo {STORY_ID} > out/story', outputs: [out/story] }
      - { id: tasks, runner: tasks }
      - { id: list, runner: command, run: 'cat names.txt' }
";

fn task(key: &str, depends_on: &[&str]) -> Value {
    json!({
        "key": key, "title": format!("Greet {key}"), "description": "Add the name.",
        "acceptance_criteria": ["The name is greeted."], "depends_on": depends_on,
        "estimated_lines": 1,
    })
}

/// Script that splits the story into these tasks, plans them all alike, and implements them with
/// these steps.
fn script(tasks: &[Value], work: impl IntoIterator<Item = PromptCase>) -> Script {
    let split = AgentStep::Submit(json!({ "tasks": tasks }));
    let plan = AgentStep::Plan(Box::new(sample_plan(1)));
    let cases =
        [PromptCase::new("Split the story WISH-001", [split]), PromptCase::new(PLANNER, [plan])];
    Script::from_cases(cases.into_iter().chain(work))
}

/// Step that adds a name to the list.
fn add(name: &str) -> AgentStep {
    AgentStep::Append { path: "names.txt".into(), line: name.to_owned() }
}

/// Returns the file with the names on a branch in the project's repository.
fn names(cluster: &Cluster, branch: &str) -> String {
    let object = format!("{branch}:names.txt");
    cluster.project.repository.git(&["show", &object]).unwrap()
}

fn task_of(run: &PipelineRun, key: &str) -> TaskId {
    let node = run.graphs[&2].nodes.iter().find(|node| node.key == key).unwrap();
    node.task.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_and_a_later_phase_see_the_work_of_the_tasks_before_them() {
    let tasks = [task("second", &["first"]), task("first", &[])];
    let script = script(&tasks, [PromptCase::new(IMPLEMENTER, [add("cy")])]);
    let cluster = Cluster::start_with(&script, OWN_PIPELINE).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start_pipeline(&cluster, &client, "own", (1, 3), &[]).await;
            let story = until_run(&cluster, |run| run.state == PipelineState::AtSplit(2)).await;
            let run = story.run.unwrap();
            assert_eq!(run.records[&1].signal.as_deref(), Some("BUILD COMPLETE"));
            assert!(run.graphs[&2].nodes.iter().all(|node| node.task.is_none()));
            act(&handle, PipelineAction::Answer(GateAnswer::Continue)).await.unwrap();
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            let nodes = &run.graphs[&2].nodes;
            assert!(nodes.iter().all(|node| node.status == NodeStatus::Complete), "{nodes:?}");
            let [first, second] = ["first", "second"].map(|key| task_of(&run, key));
            let stored = cluster.store.task(second).await.unwrap();
            assert_eq!(stored.task.depends_on, [first]);
            assert_eq!(stored.task.metadata["story"], STORY);
            let received = cluster.history(second).await[0].at;
            let ended = cluster.history(first).await;
            let completed = ended.iter().find(|it| it.to == State::Completed).unwrap();
            assert!(completed.at <= received, "the second task starts after the first");
            let branch = cluster.store.task_branch(first).await.unwrap();
            assert_eq!(names(&cluster, &branch), "ann\nbo\ncy");
            let branch = cluster.store.task_branch(second).await.unwrap();
            assert_eq!(names(&cluster, &branch), "ann\nbo\ncy\ncy", "it has the first one's line");
            assert_eq!(names(&cluster, &task_branch(pipeline_id().as_task())), "ann\nbo\ncy\ncy");
            let output = run.records[&3].work.output.as_ref().unwrap();
            let output = cluster.store.text(output).await.unwrap();
            assert_eq!(output, "ann\nbo\ncy\ncy\n\nLIST COMPLETE\n");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_conflicts_with_another_fails_and_starts_again_from_its_work() {
    let tasks = [task("cy", &[]), task("dee", &[])];
    let work =
        ["cy", "dee"].map(|name| PromptCase::new(format!("# Task: Greet {name}"), [add(name)]));
    let cluster = Cluster::start_with(&script(&tasks, work), OWN_PIPELINE).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start_pipeline(&cluster, &client, "own", (2, 2), &[]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtSplit(2)).await;
            act(&handle, PipelineAction::Answer(GateAnswer::Continue)).await.unwrap();
            let (_, run) = until_delivered(&cluster, 1).await;
            let nodes = &run.graphs[&2].nodes;
            let failed = nodes.iter().find(|it| it.status == NodeStatus::Failed).unwrap();
            let reason = "not merged into the story's branch: conflict in names.txt";
            assert_eq!(failed.reason.as_deref(), Some(reason), "{nodes:?}");
            assert_eq!(run.graphs[&2].keys(NodeStatus::Complete).len(), 1);
            assert!(run.state.needs_person());
            let handle = start_pipeline(&cluster, &client, "own", (2, 2), &[]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtSplit(2)).await;
            act(&handle, PipelineAction::Answer(GateAnswer::Continue)).await.unwrap();
            let (_, run) = until_delivered(&cluster, 2).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.graphs);
            let listed = names(&cluster, &task_branch(pipeline_id().as_task()));
            assert_eq!(listed.lines().count(), 4, "{listed}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_pipeline_cancels_its_tasks_and_says_why() {
    let cluster = Cluster::start_with(&Script::default(), OWN_PIPELINE).await;
    let marker = cluster.scratch_file("started");
    let started = AgentStep::WriteUnasked { path: marker.clone(), content: String::new() };
    let work = [PromptCase::new(IMPLEMENTER, [started, AgentStep::Hang])];
    cluster.replace_script(&script(&[task("cy", &[]), task("dee", &["cy"])], work));
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start_pipeline(&cluster, &client, "own", (2, 2), &[]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtSplit(2)).await;
            act(&handle, PipelineAction::Answer(GateAnswer::Continue)).await.unwrap();
            until(async || marker.exists().then_some(())).await;
            act(&handle, PipelineAction::Cancel).await.unwrap();
            let (_, run) = until_delivered(&cluster, 1).await;
            assert!(matches!(&run.state, PipelineState::Stopped { reason, by: Some(by), .. }
                if reason == "cancelled by Bo" && by.as_str() == "Bo"));
            assert_eq!(run.graphs[&2].keys(NodeStatus::Failed), ["cy"]);
            assert_eq!(run.graphs[&2].keys(NodeStatus::Skipped), ["dee"]);
            let entries = cluster.history(task_of(&run, "cy")).await;
            let cancelled =
                entries.iter().find(|it| it.name == EntryName::SmTaskCancelled).unwrap();
            assert_eq!(cancelled.actor, Actor::Person("Bo".parse().unwrap()));
            let reason = cancelled.reason.as_deref();
            assert_eq!(reason, Some("the pipeline of WISH-001 was cancelled"));
        })
        .await;
}
