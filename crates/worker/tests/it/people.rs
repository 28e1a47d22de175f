//! Actions of people: approve, pause, cancel and answer.

use tamma_core::approval::ApprovalScope;
use tamma_core::history::EntryName as N;
use tamma_core::ids::PlanHash;
use tamma_core::task_loop::{Action, State};
use tamma_testkit::agent::{AgentStep, PromptCase};
use tamma_testkit::sample::sample_script;
use temporalio_client::WorkflowGetResultOptions;

use crate::stage::{Stage, agents, until};

fn approve(binding: ApprovalScope) -> Action {
    Action::Approve { scope: binding, reason: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_medium_risk_plan_waits_for_approval_of_its_hash() {
    let stage = Stage::set(&sample_script(7)).await;
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    let handle = stage.begin(&client, task).await;
    let ended = stage
        .play(async {
            let binding = stage.until(id, State::AwaitingApproval).await.current_scope();
            let binding = until(async || stage.machine(id).await.open_question.and(binding)).await;
            let other = ApprovalScope { plan: PlanHash::of(b"another plan"), ..binding };
            let refused = stage.ask(&handle, "Ann", approve(other)).await.unwrap_err();
            assert!(refused.contains("the plan has changed since you saw it"), "{refused}");
            let standing = stage.ask(&handle, "Ann", approve(binding)).await.unwrap();
            assert_eq!(standing.plan, Some(binding.plan));
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let decisions = stage.cluster.store.decisions(id).await.unwrap();
    assert_eq!(decisions.len(), 1);
    assert_eq!(decisions[0].by.as_deref(), Some("Ann"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_stops_the_agent_and_a_resumed_task_continues() {
    let mut script = sample_script(1);
    let stage_file = |stage: &Stage, name: &str| stage.aside(name);
    let stage = Stage::set(&script).await;
    let (begun, go) = (stage_file(&stage, "begun"), stage_file(&stage, "go"));
    let held = vec![
        AgentStep::WriteUnasked { path: begun.clone(), content: String::new() },
        AgentStep::AwaitFile(go.clone()),
    ];
    let when = "You are implementing".to_owned();
    script.cases.insert(0, PromptCase { when, unless: Some(go.clone()), steps: held });
    stage.rewrite(&script);
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    let handle = stage.begin(&client, task).await;
    let ended = stage
        .play(async {
            until(async || begun.exists().then_some(())).await;
            stage.until(id, State::InProgress).await;
            stage.ask(&handle, "Ann", Action::Pause).await.unwrap();
            until(async || agents(&stage).is_empty().then_some(())).await;
            let machine = stage.machine(id).await;
            assert!(machine.paused.is_some() && !machine.state.is_terminal());
            let again = stage.ask(&handle, "Ann", Action::Pause).await.unwrap_err();
            assert!(again.contains("the task is already paused"), "{again}");
            std::fs::write(&go, "").unwrap();
            stage.ask(&handle, "Ann", Action::Resume).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Completed);
    let names = stage.names(id).await;
    assert_eq!(names.iter().filter(|name| **name == N::SmTaskPaused).count(), 1);
    assert_eq!(names.iter().filter(|name| **name == N::SmTaskCompleted).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_ends_after_its_agent_and_saves_its_work() {
    let stage = Stage::set(&sample_script(1)).await;
    let begun = stage.aside("begun");
    let held = vec![
        AgentStep::Write { path: "unfinished.txt".into(), content: "half\n".to_owned() },
        AgentStep::WriteUnasked { path: begun.clone(), content: String::new() },
        AgentStep::Hang,
    ];
    let mut script = sample_script(1);
    let when = "You are implementing".to_owned();
    script.cases.insert(0, PromptCase { when, unless: None, steps: held });
    stage.rewrite(&script);
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    let handle = stage.begin(&client, task).await;
    let ended = stage
        .play(async {
            until(async || begun.exists().then_some(())).await;
            stage.until(id, State::InProgress).await;
            let cancel = Action::Cancel { reason: "not wanted any more".parse().unwrap() };
            stage.ask(&handle, "Ann", cancel).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(ended.state, State::Cancelled);
    assert_eq!(stage.machine(id).await.state, State::Cancelled);
    let names = stage.names(id).await;
    assert!(names.ends_with(&[N::SmTaskCancelled, N::SmLearningCaptured]), "{names:?}");
    assert!(agents(&stage).is_empty());
    let saved = stage.salvaged(id, "unfinished.txt");
    assert_eq!(saved, "half");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_gets_the_gate_failure_and_fixes_it() {
    let stage = Stage::set(&sample_script(1)).await;
    let tried = stage.aside("tried");
    let wrong = vec![
        AgentStep::Write { path: "names.txt".into(), content: String::new() },
        AgentStep::WriteUnasked { path: tried.clone(), content: String::new() },
    ];
    let mut script = sample_script(1);
    let when = "You are implementing".to_owned();
    script.cases.insert(0, PromptCase { when, unless: Some(tried), steps: wrong });
    // The second run fixes it only if its prompt contains the failure.
    script.cases[2].when = "Gate `check` failed".to_owned();
    stage.rewrite(&script);
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    let handle = stage.begin(&client, task).await;
    let ended = stage.play(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(ended.state, State::Completed);
    let machine = stage.machine(id).await;
    assert_eq!(machine.iterations, 2);
    let names = stage.names(id).await;
    assert!(names.contains(&N::SmGatesFailed));
    let range = format!("main..tamma/{id}");
    assert_eq!(stage.project.repository.git(&["rev-list", "--count", &range]).unwrap(), "2");
}
