//! Section 11: own pipelines, stories split into tasks, and the files beside a story.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use tamma_core::ids::TaskId;
use tamma_core::operator::OperatorConfig;
use tamma_core::pipeline::files;
use tamma_core::pipeline::{
    GateAnswer, NodeStatus, PhaseDefinition, PhaseRunner, PhaseStatus, PhaseWork, PipelineCommand,
    PipelineDefinition, PipelineEvent, PipelineReport, PipelineRequest, PipelineRun, PipelineState,
    PipelineVerdict, StoryTask, TaskGraph, TaskSplit, step,
};
use tamma_core::rules::{self, ConfigFile};
use tamma_core::task::{Priority, TaskType};
use uuid::Uuid;

use super::s11_pipeline::{
    after, answered, at, cancelled, full_run, request, statuses, stopped_by_ada, success,
};

fn story_task(key: &str, depends_on: &[&str]) -> StoryTask {
    StoryTask {
        key: key.to_owned(),
        title: format!("Task {key}"),
        description: "Do it.".to_owned(),
        r#type: TaskType::Feature,
        priority: Priority::Medium,
        acceptance_criteria: vec!["It is done.".to_owned()],
        depends_on: depends_on.iter().map(|key| (*key).to_owned()).collect(),
        estimated_lines: 10,
    }
}

fn split(tasks: &[(&str, &[&str])]) -> TaskSplit {
    TaskSplit { tasks: tasks.iter().map(|(key, needs)| story_task(key, needs)).collect() }
}

fn graph(tasks: &[(&str, &[&str])]) -> TaskGraph {
    let split = split(tasks);
    assert_eq!(split.validate(), Vec::<String>::new());
    split.graph("text:1".parse().unwrap())
}

fn phase(id: &str, runner: PhaseRunner) -> PhaseDefinition {
    PhaseDefinition { id: id.to_owned(), runner, ..PhaseDefinition::default() }
}

/// Run of a pipeline with a phase of tasks and a person's approval, at the split.
fn at_split(parallel: Option<u16>, tasks: &[(&str, &[&str])]) -> PipelineRun {
    let tasks_phase = PhaseDefinition { parallel, ..phase("tasks", PhaseRunner::Tasks) };
    let definition = PipelineDefinition {
        name: "own".to_owned(),
        phases: vec![tasks_phase, phase("sign_off", PhaseRunner::Approval)],
    };
    let request = PipelineRequest { definition, ..request(1, 2, &[]) };
    let proposed =
        PipelineEvent::SplitProposed { phase: 1, graph: graph(tasks), work: PhaseWork::default() };
    let run = PipelineRun::new(request).unwrap();
    let (run, command) = after(run, [PipelineEvent::Start, proposed]);
    assert_eq!(command, None);
    assert_eq!(run.state, PipelineState::AtSplit(1));
    run
}

fn task_id(key: &str) -> TaskId {
    let bytes = key.bytes().fold(0_u128, |sum, byte| sum * 256 + u128::from(byte));
    TaskId(Uuid::from_u128(bytes))
}

/// Plays the tasks of a run until none is left, and returns the order of their starts and the
/// largest number that ran at once.
fn play(run: &PipelineRun, failing: &[&str]) -> (PipelineRun, Vec<String>, usize) {
    let (mut run, commands) = step(run, at(), answered(GateAnswer::Continue)).unwrap();
    let (mut queue, mut order, mut most) = (commands, Vec::new(), 0);
    let mut running: Vec<String> = Vec::new();
    loop {
        for command in std::mem::take(&mut queue) {
            let PipelineCommand::StartTasks { phase, keys } = command else { continue };
            let tasks: BTreeMap<_, _> =
                keys.iter().map(|key| (key.clone(), task_id(key))).collect();
            order.extend(keys.clone());
            running.extend(keys);
            most = most.max(running.len());
            let event = PipelineEvent::TasksStarted { phase, tasks };
            run = step(&run, at(), event).unwrap().0;
        }
        if running.is_empty() {
            return (run, order, most);
        }
        let key = running.remove(0);
        let completed = !failing.contains(&key.as_str());
        (run, queue) = step(&run, at(), ended(&key, completed)).unwrap();
    }
}

fn ended(key: &str, completed: bool) -> PipelineEvent {
    PipelineEvent::TaskEnded { phase: 1, task: task_id(key), completed, reason: None }
}

fn started(keys: &[&str]) -> PipelineEvent {
    let tasks = keys.iter().map(|key| ((*key).to_owned(), task_id(key))).collect();
    PipelineEvent::TasksStarted { phase: 1, tasks }
}

const DIAMOND: &[(&str, &[&str])] =
    &[("d", &["b", "c"]), ("a", &[]), ("b", &["a"]), ("c", &["a"]), ("e", &[])];

#[test]
fn tasks_start_when_their_dependencies_are_complete() {
    let (run, order, most) = play(&at_split(None, DIAMOND), &[]);
    assert_eq!(order, ["a", "e", "b", "c", "d"]);
    assert_eq!(most, 3);
    assert_eq!(run.state, PipelineState::AtGate(2));
    assert_eq!(statuses(&run), [(1, PhaseStatus::Complete)]);
    assert_eq!(run.records[&1].signal.as_deref(), Some("TASKS COMPLETE"));
}

#[test]
fn no_more_tasks_run_than_the_limit_allows() {
    let (run, order, most) = play(&at_split(Some(1), DIAMOND), &[]);
    assert_eq!((order.len(), most), (5, 1));
    assert!(run.graphs[&1].nodes.iter().all(|node| node.status == NodeStatus::Complete));
}

#[test]
fn a_failed_task_stops_only_its_dependants() {
    let (run, order, _) = play(&at_split(None, DIAMOND), &["b"]);
    assert_eq!(order, ["a", "e", "b", "c"]);
    let reason = "1 of 5 tasks failed: b; not started: d";
    let verdict = PipelineVerdict::Failed;
    let stopped = PipelineState::Stopped { phase: 1, verdict, reason: reason.to_owned(), by: None };
    assert_eq!(run.state, stopped);
    assert!(run.state.needs_person());
    assert_eq!(run.graphs[&1].keys(NodeStatus::Complete), ["a", "c", "e"]);
}

#[test]
fn a_continued_phase_starts_the_missing_tasks_only_and_asks_again() {
    let (run, ..) = play(&at_split(None, DIAMOND), &["b"]);
    let again = run.continue_with(run.resume_request().unwrap()).unwrap();
    let (again, _) = after(again, [PipelineEvent::Start]);
    assert_eq!(again.state, PipelineState::AtSplit(1));
    let (again, order, _) = play(&again, &[]);
    assert_eq!(order, ["b", "d"]);
    assert_eq!(again.state, PipelineState::AtGate(2));
}

#[test]
fn a_person_can_skip_or_stop_the_tasks() {
    let run = at_split(None, DIAMOND);
    let (skipped, _) = after(run.clone(), [answered(GateAnswer::Skip)]);
    assert_eq!(statuses(&skipped), [(1, PhaseStatus::Skipped)]);
    assert_eq!(skipped.state, PipelineState::AtGate(2));
    let (stopped, _) = after(run, [answered(GateAnswer::Stop)]);
    assert!(stopped.state.is_over() && stopped.records.is_empty());
    let again = stopped.continue_with(stopped.resume_request().unwrap()).unwrap();
    let (_, command) = after(again, [PipelineEvent::Start]);
    let is_planned = matches!(command, Some(PipelineCommand::RunPhase { phase: 1, .. }));
    assert!(is_planned, "it is planned again");
}

#[test]
fn an_approval_phase_is_a_decision_with_a_name() {
    let (run, ..) = play(&at_split(None, DIAMOND), &[]);
    let (run, _) = after(run, [answered(GateAnswer::Continue)]);
    assert_eq!(run.state, PipelineState::Complete);
    assert_eq!(run.records[&2].reason.as_deref(), Some("approved by ada"));
    assert_eq!(run.records[&2].signal.as_deref(), Some("SIGN_OFF COMPLETE"));
}

#[test]
fn a_result_of_an_unknown_task_is_refused() {
    let (run, _) = step(&at_split(None, DIAMOND), at(), answered(GateAnswer::Continue)).unwrap();
    assert!(step(&run, at(), ended("z", true)).is_err());
}

#[test]
fn a_cancelled_run_cancels_its_tasks_and_stops_when_they_have_ended() {
    let (run, _) = step(&at_split(None, DIAMOND), at(), answered(GateAnswer::Continue)).unwrap();
    let (run, _) = step(&run, at(), started(&["a", "e"])).unwrap();
    let (run, command) = after(run, [cancelled()]);
    let (tasks, by) = (vec![task_id("a"), task_id("e")], "ada".parse().unwrap());
    assert_eq!(command, Some(PipelineCommand::CancelTasks { phase: 1, tasks, by }));
    assert_eq!(run.describe_state(), "cancelling the tasks of tasks");
    assert!(step(&run, at(), cancelled()).is_err(), "once is enough");
    let (run, commands) = step(&run, at(), ended("a", true)).unwrap();
    assert!(commands.is_empty(), "no other task starts");
    let (run, command) = after(run, [ended("e", false)]);
    assert!(matches!(command, Some(PipelineCommand::Finish { .. })));
    assert_eq!(run.state, stopped_by_ada(1, "cancelled by ada"));
    assert_eq!(statuses(&run), [(1, PhaseStatus::Blocked)]);
    assert_eq!(run.graphs[&1].keys(NodeStatus::Skipped), ["d", "b", "c"]);
    let again = run.continue_with(run.resume_request().unwrap()).unwrap();
    let (again, _) = after(again, [PipelineEvent::Start]);
    let (_, order, _) = play(&again, &[]);
    assert_eq!(order, ["b", "c", "e", "d"], "a completed task does not run again");
}

#[test]
fn a_task_that_cannot_be_merged_has_failed_with_the_reason() {
    let (run, _) = step(&at_split(None, DIAMOND), at(), answered(GateAnswer::Continue)).unwrap();
    let (run, _) = step(&run, at(), started(&["a", "e"])).unwrap();
    let reason = Some("conflict in src/lib.rs".to_owned());
    let task = task_id("e");
    let refused =
        PipelineEvent::TaskEnded { phase: 1, task, completed: false, reason: reason.clone() };
    let (run, _) = step(&run, at(), refused).unwrap();
    let node = run.graphs[&1].nodes.iter().find(|node| node.key == "e").unwrap();
    assert_eq!((node.status, &node.reason), (NodeStatus::Failed, &reason));
}

#[rstest]
#[case(split(&[]), "`tasks` has 0 items")]
#[case(split(&[("a", &[]), ("a", &[])]), "key `a` is used twice")]
#[case(split(&[("a b", &[])]), "key `a b`")]
#[case(split(&[("a", &["x"])]), "depends on unknown task `x`")]
#[case(split(&[("a", &["c"]), ("b", &["a"]), ("c", &["b"])]), "depends on itself")]
fn a_split_that_cannot_work_is_rejected(#[case] split: TaskSplit, #[case] expected: &str) {
    let errors = split.validate();
    assert!(errors.iter().any(|error| error.contains(expected)), "{errors:?}");
}

#[test]
fn a_task_without_criteria_is_rejected() {
    let mut split = split(&[("a", &[])]);
    split.tasks[0].acceptance_criteria = vec![" ".to_owned()];
    assert_eq!(split.validate(), ["task `a`: `acceptance_criteria` is empty"]);
}

#[rstest]
#[case("ä".repeat(200), true)]
#[case("ä".repeat(201), false)]
#[case(" ".to_owned(), false)]
#[case("two\nlines".to_owned(), false)]
fn titles_of_a_split_have_the_limits_of_any_task(#[case] title: String, #[case] is_valid: bool) {
    let mut split = split(&[("a", &[])]);
    split.tasks[0].title = title;
    assert_eq!(split.validate().is_empty(), is_valid);
}

proptest! {
    #[test]
    fn every_order_respects_the_graph_and_the_limit(
        edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..30),
        failing in prop::collection::vec(0..12_usize, 0..3),
        parallel in prop::option::of(1..4_u16),
    ) {
        let keys: Vec<String> = (0..12).map(|index| format!("t{index}")).collect();
        let mut needs: Vec<Vec<&str>> = vec![Vec::new(); 12];
        for (a, b) in edges {
            if a != b {
                needs[a.max(b)].push(&keys[a.min(b)]);
            }
        }
        let tasks: Vec<(&str, &[&str])> =
            keys.iter().map(String::as_str).zip(needs.iter().map(Vec::as_slice)).collect();
        let failing: Vec<&str> = failing.iter().map(|index| keys[*index].as_str()).collect();
        let (run, order, most) = play(&at_split(parallel, &tasks), &failing);
        prop_assert!(parallel.is_none_or(|limit| most <= usize::from(limit)));
        let graph = &run.graphs[&1];
        prop_assert!(graph.is_over());
        for (index, key) in order.iter().enumerate() {
            let node = graph.nodes.iter().find(|node| node.key == *key).unwrap();
            for needed in &node.depends_on {
                prop_assert!(order[..index].contains(needed) && !failing.contains(&needed.as_str()));
            }
        }
        let started = |key: &String| order.contains(key);
        for node in &graph.nodes {
            prop_assert_eq!(node.status == NodeStatus::Skipped, !started(&node.key));
        }
    }
}

// Files.

#[test]
fn the_state_file_round_trips() {
    let (run, _) = after(full_run(), [PipelineEvent::Start, success(1)]);
    let text = files::state(&run);
    assert_eq!(
        text,
        "\
---
feature_dir: plans/wishlist
story_id: WISH-001
status: running
phases:
  1_pm_generate:
    status: complete
    signal: PM COMPLETE
    completed_at: \"2026-11-16T12:00:00Z\"
    tokens_used: 100
current_phase: 2
---
"
    );
    let found = files::parse_state(&run, &text).unwrap();
    let record = &found[&1];
    assert_eq!((record.status, record.work.tokens()), (PhaseStatus::Complete, 100));
    assert_eq!(record.completed_at, Some(at()));
}

#[rstest]
#[case("")]
#[case("---\nphases: [\n---\n")]
#[case("---\nstory_id: OTHER-1\ncurrent_phase: 1\nphases: {}\n---\n")]
#[case(
    "---\nstory_id: WISH-001\ncurrent_phase: 2\nphases:\n  1_other:\n    status: complete\n---\n"
)]
#[case(
    "---\nstory_id: WISH-001\ncurrent_phase: 2\nphases:\n  9_done:\n    status: complete\n---\n"
)]
fn a_damaged_state_file_is_noticed(#[case] text: &str) {
    assert_eq!(files::parse_state(&full_run(), text), None);
}

#[test]
fn the_agent_context_has_the_nine_facts() {
    let run = PipelineRun::new(request(2, 4, &[3])).unwrap();
    let (run, _) = after(run, [PipelineEvent::Start]);
    assert_eq!(
        files::agent_context(&run, "plans/wishlist/stories/WISH-001"),
        "\
---
feature_dir: plans/wishlist
story_id: WISH-001
story_path: plans/wishlist/stories/WISH-001
workflow_path: plans/wishlist/stories/WISH-001/_workflow
state_path: plans/wishlist/stories/WISH-001/_workflow/STATE.md
current_phase: 2
from_phase: 2
to_phase: 4
approve_phases:
- 3
---
"
    );
}

#[test]
fn the_token_log_has_a_row_per_phase_and_a_total() {
    let (run, _) = after(full_run(), [PipelineEvent::Start, success(1), success(2)]);
    assert_eq!(
        files::token_log(&run),
        "\
# Token Log: WISH-001

| Phase | Input | Output | Total | Cost | Completed |
|-------|-------|--------|-------|------|-----------|
| 1. PM Generate | 90 | 10 | 100 | $0.05 | 2026-11-16T12:00:00+00:00 |
| 2. Elaboration | 90 | 10 | 100 | $0.05 | 2026-11-16T12:00:00+00:00 |
| Total | 180 | 20 | 200 | | |
"
    );
}

#[test]
fn the_status_of_a_story_is_set_in_its_front_matter() {
    let story = "---\nid: A\nstatus: draft\n---\n\nstatus: not this one\n";
    assert_eq!(
        files::set_story_status(story, "done").as_deref(),
        Some("---\nid: A\nstatus: done\n---\n\nstatus: not this one\n")
    );
    assert_eq!(files::set_story_status("# A story\n", "done"), None);
    assert_eq!(files::output_phase(&files::output_file(12)), Some(12));
    assert_eq!(files::output_phase("PHASE-x-OUTPUT.md"), None);
}

// Configuration.

fn loaded(text: &str) -> Result<rules::Rules, String> {
    let file = ConfigFile { name: "tamma.yaml", text };
    match rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default()) {
        Ok(loaded) => Ok(loaded.rules),
        Err(problems) => Err(problems.to_string()),
    }
}

#[test]
fn projects_define_their_own_pipelines() {
    let rules = loaded(
        "\
pipelines:
  release:
    phases:
      - id: notes
        title: Release notes
        prompt: Write the notes of {STORY_ID}.
        tier: simple
        model: haiku
        success_signal: NOTES COMPLETE
        outputs: [\"{STORY_PATH}/NOTES.md\"]
        timeout_seconds: 600
        max_usd: 2.50
      - id: build
        runner: command
        run: make release
        network: true
      - id: tasks
        runner: tasks
        parallel: 3
      - id: sign_off
        runner: approval
",
    )
    .unwrap();
    let pipeline = rules.pipeline("release").unwrap();
    let signals: Vec<_> = pipeline.phases.iter().map(PhaseDefinition::success_signal).collect();
    assert_eq!(
        signals,
        ["NOTES COMPLETE", "BUILD COMPLETE", "TASKS COMPLETE", "SIGN_OFF COMPLETE"]
    );
    assert_eq!(rules.pipeline_names(), ["story", "release"]);
    assert_eq!(rules.pipeline("story"), Some(PipelineDefinition::built_in()));
    assert_eq!(rules.pipeline("other"), None);
    let report = PipelineReport::new(
        &PipelineRun::new(PipelineRequest { definition: pipeline, ..request(1, 4, &[]) }).unwrap(),
    );
    assert_eq!(report.phases.len(), 4);
}

#[rstest]
#[case("- { id: a }", "an agent needs `command` or `prompt`")]
#[case("- { id: a, command: /b, prompt: c }", "use either `command` or `prompt`")]
#[case("- { id: a, runner: command }", "a command needs `run`")]
#[case("- { id: a, runner: approval, model: b }", "it has no effect with `runner: approval`")]
#[case("- { id: a, prompt: b, parallel: 2 }", "it has no effect with `runner: agent`")]
#[case("- { id: A-1, prompt: b }", "lower-case letters")]
#[case("- { id: a, command: no slash }", "use a slash and a name")]
#[case("- { id: a, prompt: b, success_signal: done }", "a line in capitals")]
#[case("- { id: a, prompt: b, agent: nobody }", "nobody")]
#[case("- { id: a, prompt: b }\n      - { id: a, prompt: c }", "phase `a` is defined twice")]
fn phases_that_cannot_work_are_refused(#[case] phases: &str, #[case] expected: &str) {
    let text = format!("pipelines:\n  own:\n    phases:\n      {phases}\n");
    let error = loaded(&text).unwrap_err();
    assert!(error.contains(expected), "{error}");
}
