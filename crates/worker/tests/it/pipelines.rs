//! Pipelines of stories on real components, with a scripted agent.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tamma_core::cost::{Cost, Tokens};
use tamma_core::ids::PipelineId;
use tamma_core::pipeline::files;
use tamma_core::pipeline::{
    BUILT_IN_PIPELINE, GateAnswer, PhaseStatus, PipelineRequest, PipelineRun, PipelineState,
    PipelineVerdict,
};
use tamma_core::version::Edition;
use tamma_flow::pipeline::{
    PipelineAction, PipelineActionRequest, PipelineInput, PipelineResponse, PipelineWorkflow,
};
use tamma_flow::{TASK_QUEUE, WorkflowTuning, pipeline_workflow_id};
use tamma_store::StoryPipeline;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_worker::FaultInjection;
use temporalio_client::errors::WorkflowStartError;
use temporalio_client::{
    Client, WorkflowDescribeOptions, WorkflowExecuteUpdateOptions, WorkflowGetResultOptions,
    WorkflowHandle, WorkflowStartOptions,
};
use uuid::Uuid;

use crate::cluster::{Cluster, until};

const FEATURE: &str = "plans/features/wishlist";
pub(crate) const STORY: &str = "WISH-001";
const STORY_DIR: &str = "plans/features/wishlist/stories/WISH-001";
const WORKFLOW_DIR: &str = "plans/features/wishlist/stories/WISH-001/_workflow";

pub(crate) type PipelineHandle = WorkflowHandle<Client, PipelineWorkflow>;

pub(crate) fn pipeline_id() -> PipelineId {
    PipelineId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_00aa))
}

/// Returns a case that logs its start outside the worktree and ends with these steps.
fn phase_case(cluster_log: &str, command: &str, steps: Vec<AgentStep>) -> PromptCase {
    let log = AgentStep::Append { path: PathBuf::from(cluster_log), line: command.to_owned() };
    let told = format!("Execute command: {command} {FEATURE} {STORY}");
    PromptCase::new(told, std::iter::once(log).chain(steps))
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
        phase_case(log, "/pm-story generate", line("PM COMPLETE")),
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
        carried: None,
    };
    // The workflow of the run before closes a moment after it has said that the run is over.
    until(async || {
        let options = WorkflowStartOptions::new(TASK_QUEUE, pipeline_workflow_id(id)).build();
        match client.start_workflow(PipelineWorkflow::run, input.clone(), options).await {
            Err(WorkflowStartError::AlreadyStarted { .. }) => None,
            started => Some(started.unwrap()),
        }
    })
    .await;
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
        (story.number == number && is_over && !story.is_live).then_some(story)
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

/// Checks that a file has these lines, whatever their indentation.
fn assert_lines(text: &str, expected: &[&str]) {
    for line in expected {
        assert!(text.lines().any(|it| it.trim() == *line), "{line} is missing:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_story_goes_through_six_phases_and_leaves_its_files() {
    let (cluster, log) = cluster(successful_script).await;
    let own_file = format!("{STORY_DIR}/{STORY}.md");
    let text = "---\ntitle: A wish list\nstatus: ready\n---\nPeople keep wishes.\n";
    cluster.project.repository.write(&own_file, text).unwrap();
    cluster.project.repository.commit("story").unwrap();
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
                    "/pm-story generate",
                    "/elab-story",
                    "/dev-implement-story",
                    "/dev-code-review",
                    "/qa-verify-story"
                ]
            );
            let state = delivered_file(&cluster, &story, "STATE.md");
            assert_lines(&state, &["status: complete", "current_phase: 7"]);
            let stored = files::parse_state(&run, &state).unwrap();
            assert_eq!(stored.len(), 6);
            for (phase, record) in &stored {
                let expected = &run.records[phase];
                assert_eq!(record.status, PhaseStatus::Complete);
                assert_eq!(record.signal, expected.signal);
                assert_eq!(record.completed_at, expected.completed_at);
                assert!(record.completed_at.is_some());
                assert_eq!(record.work.tokens(), expected.work.tokens());
            }
            let context = delivered_file(&cluster, &story, "AGENT-CONTEXT.md");
            assert_lines(
                &context,
                &[
                    "feature_dir: plans/features/wishlist",
                    "story_id: WISH-001",
                    "story_path: plans/features/wishlist/stories/WISH-001",
                    "workflow_path: plans/features/wishlist/stories/WISH-001/_workflow",
                    "state_path: plans/features/wishlist/stories/WISH-001/_workflow/STATE.md",
                    "current_phase: 7",
                    "from_phase: 1",
                    "to_phase: 6",
                    "approve_phases: []",
                ],
            );
            let object = format!("{}:{own_file}", story.branch.clone().unwrap());
            let own = cluster.project.repository.git(&["show", &object]).unwrap();
            assert!(own.contains("\nstatus: done\n"), "{own}");
            for (phase, signal) in [(1, "PM COMPLETE"), (4, "CODE REVIEW PASS")] {
                let output = delivered_file(&cluster, &story, &format!("PHASE-{phase}-OUTPUT.md"));
                assert_eq!(output.trim_end().lines().last(), Some(signal), "{output}");
            }
            let tokens = delivered_file(&cluster, &story, "TOKEN-LOG.md");
            assert!(tokens.contains("| 1. PM Generate | 90 | 10 | 100 |"), "{tokens}");
            assert!(tokens.contains("| Total | 450 | 50 | 500 |"), "{tokens}");
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
            let stopped = PipelineState::Stopped {
                phase: 2,
                verdict: PipelineVerdict::Failed,
                reason,
                by: None,
            };
            assert_eq!(run.state, stopped);
            assert_eq!(commands(&log), ["/pm-story generate", "/elab-story"], "nothing is retried");
            cluster.replace_script(&successful_script(&log.display().to_string()));
            start(&cluster, &client, (2, 2), &[]).await;
            let (_, run) = until_delivered(&cluster, 2).await;
            assert_eq!(run.state, PipelineState::Complete);
            assert_eq!(run.records[&1].status, PhaseStatus::Complete);
            assert_eq!(commands(&log), ["/pm-story generate", "/elab-story", "/elab-story"]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phase_whose_worker_fails_after_its_agent_never_runs_again() {
    let (mut cluster, log) = cluster(successful_script).await;
    // Every step after the end of an agent fails once.
    let steps = ["agent ended", "answer put aside", "answer kept", "committed", "handed over"];
    let left = Arc::new(Mutex::new(BTreeSet::from(steps)));
    let failing = left.clone();
    cluster.fault_injection =
        FaultInjection::when(move |step| failing.lock().unwrap().remove(step));
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start(&cluster, &client, (1, 6), &[]).await;
            let (story, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            assert_eq!(*left.lock().unwrap(), BTreeSet::new(), "every step has failed");
            assert_eq!(
                commands(&log),
                [
                    "/pm-story generate",
                    "/elab-story",
                    "/dev-implement-story",
                    "/dev-code-review",
                    "/qa-verify-story"
                ]
            );
            let tokens: Vec<_> = run.records.values().map(|it| it.work.tokens()).collect();
            assert_eq!(tokens, [100, 100, 100, 100, 100, 0], "the usage is recovered too");
            let output = delivered_file(&cluster, &story, "PHASE-1-OUTPUT.md");
            assert_eq!(output, "Some work.\n\nPM COMPLETE");
            let leftovers = cluster.config().data_dir.join("answers");
            assert_eq!(std::fs::read_dir(leftovers).unwrap().count(), 0);
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

/// Runs one phase with these steps and returns its record. The run stops there, or ends.
async fn run_phase(
    cluster: &Cluster,
    client: &Client,
    number: u32,
    steps: Vec<AgentStep>,
) -> PipelineRun {
    let log = cluster.scratch_file("phases.log").display().to_string();
    let mut script = successful_script(&log);
    script.cases[1] = phase_case(&log, "/elab-story", steps);
    cluster.replace_script(&script);
    start(cluster, client, (2, 3), &[]).await;
    until_delivered(cluster, number).await.1
}

async fn output(cluster: &Cluster, run: &PipelineRun, phase: u8) -> String {
    let output = run.records[&phase].work.output.as_ref().unwrap();
    cluster.store.text(output).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phase_that_is_blocked_fails_or_crashes_stops_the_run_with_its_output() {
    let (cluster, log) = cluster(successful_script).await;
    let client = cluster.client().await;
    let cases = [
        (vec![say("Read it.\nELAB BLOCKED: no design"), end()], PhaseStatus::Blocked, "no design"),
        (
            vec![say("ELAB FAILED: it contradicts itself"), end()],
            PhaseStatus::Failed,
            "it contradicts itself",
        ),
        (vec![say("ELAB PASS\nI think."), end()], PhaseStatus::Failed, "no clear signal"),
        (
            // The answer to the request shows that the message has arrived.
            vec![say("Half of it."), AgentStep::Ask { title: "more".into() }, AgentStep::Exit(3)],
            PhaseStatus::Failed,
            "crashed: ",
        ),
    ];
    cluster
        .with_worker(async {
            for (number, (steps, status, reason)) in (1..).zip(cases) {
                let AgentStep::Say(said) = steps[0].clone() else { panic!("a message") };
                let run = run_phase(&cluster, &client, number, steps).await;
                let record = &run.records[&2];
                let found = record.reason.clone().unwrap_or_default();
                assert_eq!(record.status, status, "{record:?}");
                assert!(found.starts_with(reason), "{found}");
                assert_eq!(output(&cluster, &run, 2).await, said);
                assert!(run.state.needs_person() && !run.records.contains_key(&3));
                assert_eq!(run.records[&1].status, PhaseStatus::Skipped, "before the range");
            }
            assert_eq!(commands(&log), ["/elab-story"; 4], "nothing is retried");
            let run = run_phase(&cluster, &client, 5, vec![say("ELAB PASS"), end()]).await;
            assert_eq!(run.state, PipelineState::Complete, "the range ends after phase 3");
            assert_eq!(run.records.len(), 3);
        })
        .await;
}

const SLOW_PIPELINE: &str = "\
pipelines:
  slow:
    phases:
      - { id: notes, prompt: 'Write the notes of {STORY_ID}.', model: small, timeout_seconds: 1 }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_phase_has_a_model_of_its_own_and_fails_at_its_time_limit_with_its_output() {
    let steps = [AgentStep::Describe { env: Vec::new(), files: Vec::new() }, AgentStep::Hang];
    let mut script = Script::from_cases([PromptCase::new("Write the notes of WISH-001.", steps)]);
    script.models = vec!["large".to_owned(), "small".to_owned()];
    let cluster = Cluster::start_with(&script, SLOW_PIPELINE).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start_pipeline(&cluster, &client, "slow", (1, 1), &[]).await;
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.records[&1].reason.as_deref(), Some("timed out"));
            let output = output(&cluster, &run, 1).await;
            assert!(output.contains("small"), "{output}");
            let runs = cluster.store.runs(pipeline_id().as_task()).await.unwrap();
            assert_eq!(runs[0].model.as_deref(), Some("small"));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instructions_and_state_come_from_the_repository() {
    let steps = vec![say("ELAB PASS"), end()];
    let script = Script::from_cases([PromptCase::new("Elaborate in verse.", steps)]);
    let cluster = Cluster::start(&script).await;
    let repository = &cluster.project.repository;
    repository.write(".claude/commands/elab-story.md", "Elaborate in verse.\n").unwrap();
    let state = format!(
        "---\nfeature_dir: {FEATURE}\nstory_id: {STORY}\nstatus: blocked\nphases:\n  \
         1_pm_generate:\n    status: complete\n    signal: PM COMPLETE\n    tokens_used: \
         42\ncurrent_phase: 2\n---\n"
    );
    repository.write(&format!("{WORKFLOW_DIR}/STATE.md"), &state).unwrap();
    repository.commit("state").unwrap();
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start(&cluster, &client, (2, 2), &[]).await;
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            let first = &run.records[&1];
            assert_eq!((first.status, first.work.tokens()), (PhaseStatus::Complete, 42));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_state_is_rebuilt_from_the_outputs() {
    let (cluster, _) = cluster(successful_script).await;
    let repository = &cluster.project.repository;
    repository.write(&format!("{WORKFLOW_DIR}/STATE.md"), "phases: [[[\n").unwrap();
    let output = "All requirements are there.\n\nPM COMPLETE\n";
    repository.write(&format!("{WORKFLOW_DIR}/PHASE-1-OUTPUT.md"), output).unwrap();
    repository.commit("half of a state").unwrap();
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start(&cluster, &client, (2, 2), &[]).await;
            let (story, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.records[&1].status, PhaseStatus::Complete);
            let state = delivered_file(&cluster, &story, "STATE.md");
            assert_lines(&state, &["signal: PM COMPLETE", "signal: ELAB PASS"]);
        })
        .await;
}

const CARELESS_PIPELINE: &str = "\
pipelines:
  careless:
    phases:
      - { id: build, runner: command, run: 'ln -s /etc outside; echo -----BEGIN PRIVATE KEY----- > key.txt; echo x >> tamma.yaml; echo kept > kept.txt' }
";

#[tokio::test(flavor = "multi_thread")]
async fn refused_files_fail_a_phase_and_are_not_delivered() {
    let cluster = Cluster::start_with(&Script::default(), CARELESS_PIPELINE).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start_pipeline(&cluster, &client, "careless", (1, 1), &[]).await;
            let (story, run) = until_delivered(&cluster, 1).await;
            let record = &run.records[&1];
            assert_eq!(record.status, PhaseStatus::Failed);
            let reason = record.reason.clone().unwrap();
            for expected in
                ["`outside`: change not allowed", "`tamma.yaml`: change not", "a private key"]
            {
                assert!(reason.contains(expected), "{reason}");
            }
            let branch = story.branch.unwrap();
            let repository = &cluster.project.repository;
            let changed = repository.git(&["diff", "--name-only", "main", &branch]).unwrap();
            let changed: Vec<_> =
                changed.lines().filter(|path| !path.starts_with(WORKFLOW_DIR)).collect();
            assert_eq!(changed, ["kept.txt"]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_cancelled_while_the_repository_is_unreachable() {
    let (cluster, _) = cluster(successful_script).await;
    let client = cluster.client().await;
    let repository = cluster.project.repository.path();
    let (git, away) = (repository.join(".git"), repository.join(".git-away"));
    cluster
        .with_worker(async {
            std::fs::rename(&git, &away).unwrap();
            let handle = start(&cluster, &client, (1, 2), &[1]).await;
            until_run(&cluster, |run| run.state == PipelineState::Ready).await;
            act(&handle, PipelineAction::Cancel).await.unwrap();
            let result = handle.get_result(WorkflowGetResultOptions::default()).await.unwrap();
            assert!(matches!(result.state, PipelineState::Stopped { phase: 1, .. }));
            std::fs::rename(&away, &git).unwrap();
            let handle = start(&cluster, &client, (1, 2), &[1]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtGate(1)).await;
            std::fs::rename(&git, &away).unwrap();
            act(&handle, PipelineAction::Answer(GateAnswer::Stop)).await.unwrap();
            until_run(&cluster, |run| run.state.is_over()).await;
            act(&handle, PipelineAction::Cancel).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap();
            let story = cluster.store.pipeline(pipeline_id()).await.unwrap();
            assert_eq!(story.delivery_error.as_deref(), Some("cancelled by Bo"));
            std::fs::rename(&away, &git).unwrap();
            start(&cluster, &client, (1, 1), &[]).await;
            let (story, run) = until_delivered(&cluster, 3).await;
            assert_eq!((run.state, story.delivery_error), (PipelineState::Complete, None));
        })
        .await;
}

/// Returns the ID of the newest workflow of a run.
async fn workflow_run(handle: &PipelineHandle) -> String {
    let described = handle.describe(WorkflowDescribeOptions::default()).await.unwrap();
    described.raw().workflow_execution_info.clone().unwrap().execution.unwrap().run_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phase_that_waits_for_a_quota_continues_as_new() {
    let (mut cluster, log) = cluster(successful_script).await;
    cluster.tuning = WorkflowTuning { history_events: 1, ..cluster.tuning };
    let client = cluster.client().await;
    // Longer than a worker needs to start on a busy machine.
    let until = chrono::Utc::now() + chrono::TimeDelta::seconds(8);
    cluster.store.block_provider("scripted", until).await.unwrap();
    cluster
        .with_worker(async {
            let handle = start(&cluster, &client, (1, 2), &[]).await;
            let first = workflow_run(&handle).await;
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            assert_ne!(workflow_run(&handle).await, first, "it never continued as new");
            assert_eq!(commands(&log), ["/pm-story generate", "/elab-story"]);
        })
        .await;
}

/// Returns the script of a story whose first phase has this cost, and then ends like this.
fn script_with_cost(log: &str, cost: &str, last: AgentStep) -> Script {
    let usage = AgentStep::Usage { cost: cost.to_owned() };
    let first = vec![usage, say("Some work.\n\nPM COMPLETE"), last];
    Script::from_cases([phase_case(log, "/pm-story generate", first)])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_phase_costs_before_a_quota_ends_it_is_charged() {
    let reset = chrono::Utc::now() + chrono::TimeDelta::seconds(5);
    let exhausted = AgentStep::Fail {
        code: 429,
        message: "too many requests".to_owned(),
        data: Some(serde_json::json!({ "resetAt": reset })),
    };
    let (cluster, log) = cluster(|log| script_with_cost(log, "1.5", exhausted)).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            start(&cluster, &client, (1, 1), &[]).await;
            let key = pipeline_id().as_task();
            let runs = async || cluster.store.runs(key).await.unwrap();
            until(async || runs().await.first().is_some_and(|run| run.end.is_some()).then_some(()))
                .await;
            let end = AgentStep::End { tokens: None };
            cluster.replace_script(&script_with_cost(&log.display().to_string(), "0.5", end));
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            let usage = run.records[&1].work.usage.expect("usage");
            assert_eq!(usage.cost, Cost::Known("2".parse().unwrap()));
            let attempts: Vec<_> = runs().await.iter().map(|run| run.number.attempt).collect();
            assert_eq!(attempts, [1, 2]);
        })
        .await;
}
