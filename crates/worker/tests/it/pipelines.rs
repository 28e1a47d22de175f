//! Pipelines of stories on real components, with a scripted agent.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tamma_core::cost::Tokens;
use tamma_core::ids::PipelineId;
use tamma_core::pipeline::{
    BUILT_IN_PIPELINE, GateAnswer, NodeStatus, PhaseStatus, PipelineRequest, PipelineRun,
    PipelineState, PipelineVerdict,
};
use tamma_core::task_loop::State;
use tamma_core::version::Edition;
use tamma_flow::pipeline::{
    PipelineAction, PipelineActionRequest, PipelineInput, PipelineResponse, PipelineWorkflow,
};
use tamma_flow::{TASK_QUEUE, pipeline_workflow_id};
use tamma_store::StoryPipeline;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_testkit::sample::sample_script;
use temporalio_client::{
    Client, WorkflowExecuteUpdateOptions, WorkflowHandle, WorkflowStartOptions,
};
use uuid::Uuid;

use crate::cluster::{Cluster, until};

const FEATURE: &str = "plans/features/wishlist";
const STORY: &str = "WISH-001";
const WORKFLOW_DIR: &str = "plans/features/wishlist/stories/WISH-001/_workflow";

pub(crate) type PipelineHandle = WorkflowHandle<Client, PipelineWorkflow>;

pub(crate) fn pipeline_id() -> PipelineId {
    PipelineId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_00aa))
}

/// Returns a case that logs its start outside the worktree and ends with these steps.
fn phase_case(cluster_log: &str, command: &str, steps: Vec<AgentStep>) -> PromptCase {
    let log = AgentStep::Append { path: PathBuf::from(cluster_log), line: command.to_owned() };
    PromptCase::new(format!("Execute command: {command}"), std::iter::once(log).chain(steps))
}

fn say(text: &str) -> AgentStep {
    AgentStep::Say(text.to_owned())
}

fn end() -> AgentStep {
    let tokens = Tokens { input: 90, output: 10, ..Tokens::default() };
    AgentStep::End { tokens: Some(tokens) }
}

/// Script whose phases succeed: four with their last line, one with `submit_signal`.
pub(crate) fn successful_script(log: &str) -> Script {
    let line = |text: &str| vec![say(&format!("Some work.\n\n{text}")), end()];
    let submit = AgentStep::Tool {
        name: "submit_signal".to_owned(),
        args: serde_json::json!({ "result": "success" }),
    };
    Script::from_cases([
        phase_case(log, "/pm-story", line("PM COMPLETE")),
        phase_case(log, "/elab-story", line("ELAB PASS")),
        phase_case(log, "/dev-implement-story", line("DOCUMENTATION COMPLETE")),
        phase_case(log, "/dev-code-review", vec![submit, say("Reviewed."), end()]),
        phase_case(log, "/qa-verify-story", line("QA PASS")),
    ])
}

/// Cluster whose agent logs the commands that it is given.
pub(crate) async fn cluster(script: impl FnOnce(&str) -> Script) -> (Cluster, PathBuf) {
    let cluster = Cluster::start(&Script::default()).await;
    let log = cluster.scratch_file("phases.log");
    cluster.replace_script(&script(&log.display().to_string()));
    (cluster, log)
}

pub(crate) fn commands(log: &PathBuf) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Starts a run of the story through the built-in pipeline.
pub(crate) async fn start(
    cluster: &Cluster,
    client: &Client,
    range: (u8, u8),
    approve: &[u8],
) -> PipelineHandle {
    start_pipeline(cluster, client, BUILT_IN_PIPELINE, range, approve).await
}

/// Starts a run of the story, after an earlier one if there is any.
pub(crate) async fn start_pipeline(
    cluster: &Cluster,
    client: &Client,
    name: &str,
    (from, to): (u8, u8),
    approve: &[u8],
) -> PipelineHandle {
    let (rules, project) = (cluster.rules(), cluster.project.id);
    let id = pipeline_id();
    let story = cluster.store.ensure_pipeline(id, project, FEATURE, STORY).await.unwrap();
    cluster.store.save_rules(&rules).await.unwrap();
    let request = PipelineRequest {
        definition: rules.pipeline(name).unwrap(),
        feature_dir: FEATURE.to_owned(),
        story_id: STORY.to_owned(),
        from,
        to,
        approve: approve.iter().copied().collect::<BTreeSet<_>>(),
    };
    let run = match &story.run {
        Some(earlier) => earlier.continue_with(request).unwrap(),
        None => PipelineRun::new(request).unwrap(),
    };
    let input = PipelineInput {
        pipeline: id,
        project,
        number: story.number + 1,
        started_by: "Ann".parse().unwrap(),
        at: chrono::Utc::now(),
        rules,
        tuning: cluster.tuning,
        edition: Edition::NEWEST,
        run,
        base: story.base,
    };
    let options = WorkflowStartOptions::new(TASK_QUEUE, pipeline_workflow_id(id)).build();
    client.start_workflow(PipelineWorkflow::run, input, options).await.unwrap();
    client.get_workflow_handle::<PipelineWorkflow>(pipeline_workflow_id(id))
}

pub(crate) async fn act(
    handle: &PipelineHandle,
    action: PipelineAction,
) -> Result<PipelineRun, String> {
    let (at, by) = (chrono::Utc::now(), "Bo".parse().unwrap());
    let request = PipelineActionRequest { at, by, action };
    let options = WorkflowExecuteUpdateOptions::builder().build();
    let response: Result<PipelineResponse, _> =
        handle.execute_update(PipelineWorkflow::act, request, options).await;
    response.map_err(|error| format!("{error:?}"))?
}

/// Waits until the stored run satisfies a condition.
pub(crate) async fn until_run(
    cluster: &Cluster,
    is_reached: impl Fn(&PipelineRun) -> bool,
) -> StoryPipeline {
    until(async || {
        let story = cluster.store.pipeline(pipeline_id()).await.ok()?;
        story.run.as_ref().is_some_and(&is_reached).then_some(story)
    })
    .await
}

/// Waits until a run has ended and its branch is delivered.
pub(crate) async fn until_delivered(
    cluster: &Cluster,
    number: u32,
) -> (StoryPipeline, PipelineRun) {
    let story = until(async || {
        let story = cluster.store.pipeline(pipeline_id()).await.ok()?;
        let is_over = story.run.as_ref().is_some_and(|run| run.state.is_over());
        (story.number == number && is_over && story.commit.is_some()).then_some(story)
    })
    .await;
    let run = story.run.clone().unwrap();
    (story, run)
}

/// Reads a file of the delivered branch in the project's repository.
fn delivered_file(cluster: &Cluster, story: &StoryPipeline, name: &str) -> String {
    let object = format!("{}:{WORKFLOW_DIR}/{name}", story.branch.clone().unwrap());
    cluster.project.repository.git(&["show", &object]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_story_goes_through_six_phases_and_leaves_its_files() {
    let (cluster, log) = cluster(successful_script).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start(&cluster, &client, (1, 6), &[]).await;
            let (story, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            let signals: Vec<_> =
                run.records.values().filter_map(|record| record.signal.as_deref()).collect();
            assert_eq!(
                signals,
                [
                    "PM COMPLETE",
                    "ELAB PASS",
                    "DOCUMENTATION COMPLETE",
                    "CODE REVIEW PASS",
                    "QA PASS",
                    "WORKFLOW COMPLETE"
                ]
            );
            assert_eq!(
                commands(&log),
                [
                    "/pm-story",
                    "/elab-story",
                    "/dev-implement-story",
                    "/dev-code-review",
                    "/qa-verify-story"
                ]
            );
            let state = delivered_file(&cluster, &story, "STATE.md");
            assert!(state.contains("status: complete") && state.contains("6_done:"), "{state}");
            let context = delivered_file(&cluster, &story, "AGENT-CONTEXT.md");
            assert!(context.contains("story_id: WISH-001"), "{context}");
            for (phase, signal) in [(1, "PM COMPLETE"), (4, "CODE REVIEW PASS")] {
                let output = delivered_file(&cluster, &story, &format!("PHASE-{phase}-OUTPUT.md"));
                assert_eq!(output.trim_end().lines().last(), Some(signal), "{output}");
            }
            let tokens = delivered_file(&cluster, &story, "TOKEN-LOG.md");
            assert!(tokens.contains("| 1. PM Generate |"), "{tokens}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phase_without_a_signal_stops_the_run_and_a_later_run_continues_there() {
    let unclear = |log: &str| {
        let mut script = successful_script(log);
        let vague = vec![say("ELAB PASS\nAll good, I think!"), end()];
        script.cases[1] = phase_case(log, "/elab-story", vague);
        script
    };
    let (cluster, log) = cluster(unclear).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start(&cluster, &client, (1, 2), &[]).await;
            let (_, run) = until_delivered(&cluster, 1).await;
            let reason = "no clear signal".to_owned();
            let stopped =
                PipelineState::Stopped { phase: 2, verdict: PipelineVerdict::Failed, reason };
            assert_eq!(run.state, stopped);
            assert_eq!(commands(&log), ["/pm-story", "/elab-story"], "nothing is retried");
            cluster.replace_script(&successful_script(&log.display().to_string()));
            start(&cluster, &client, (2, 2), &[]).await;
            let (_, run) = until_delivered(&cluster, 2).await;
            assert_eq!(run.state, PipelineState::Complete);
            assert_eq!(run.records[&1].status, PhaseStatus::Complete);
            assert_eq!(commands(&log), ["/pm-story", "/elab-story", "/elab-story"]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_waits_for_a_person_and_a_cancelled_run_ends() {
    let (cluster, log) = cluster(successful_script).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start(&cluster, &client, (1, 3), &[1, 2]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtGate(1)).await;
            assert!(commands(&log).is_empty(), "no phase starts before its gate");
            act(&handle, PipelineAction::Answer(GateAnswer::Skip)).await.unwrap();
            until_run(&cluster, |run| run.state == PipelineState::AtGate(2)).await;
            act(&handle, PipelineAction::Cancel).await.unwrap();
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.records[&1].reason.as_deref(), Some("skipped by Bo"));
            assert!(matches!(&run.state, PipelineState::Stopped { phase: 2, reason, .. }
                if reason == "cancelled by Bo"));
            assert!(commands(&log).is_empty());
        })
        .await;
}

const OWN_PIPELINE: &str = "\
pipelines:
  own:
    phases:
      - { id: build, runner: command, run: 'mkdir -p out && echo {STORY_ID} > out/story', outputs: [out/story] }
      - { id: tasks, runner: tasks }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_story_is_built_and_split_into_tasks_that_run_in_order() {
    let task = |key: &str, depends_on: &[&str]| {
        serde_json::json!({
            "key": key, "title": format!("Greet {key}"), "description": "Add the name.",
            "acceptance_criteria": ["The name is greeted."], "depends_on": depends_on,
            "estimated_lines": 1,
        })
    };
    let split = serde_json::json!({ "tasks": [task("second", &["first"]), task("first", &[])] });
    let mut script = sample_script(1);
    let case = PromptCase::new("Split the story WISH-001", [AgentStep::Submit(split)]);
    script.cases.insert(0, case);
    let cluster = Cluster::start_with(&script, OWN_PIPELINE).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start_pipeline(&cluster, &client, "own", (1, 2), &[]).await;
            let story = until_run(&cluster, |run| run.state == PipelineState::AtSplit(2)).await;
            let run = story.run.unwrap();
            assert_eq!(run.records[&1].signal.as_deref(), Some("BUILD COMPLETE"));
            assert!(run.graphs[&2].nodes.iter().all(|node| node.task.is_none()));
            act(&handle, PipelineAction::Answer(GateAnswer::Continue)).await.unwrap();
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            let nodes = &run.graphs[&2].nodes;
            assert!(nodes.iter().all(|node| node.status == NodeStatus::Complete), "{nodes:?}");
            let [second, first] = [&nodes[0], &nodes[1]].map(|node| node.task.unwrap());
            let stored = cluster.store.task(second).await.unwrap();
            assert_eq!(stored.task.depends_on, [first]);
            assert_eq!(stored.task.metadata["story"], STORY);
            let received = cluster.history(second).await[0].at;
            let ended = cluster.history(first).await;
            let completed = ended.iter().find(|it| it.to == State::Completed).unwrap();
            assert!(completed.at <= received, "the second task starts after the first");
        })
        .await;
}
