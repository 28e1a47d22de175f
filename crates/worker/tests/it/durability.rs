//! Durability: worker restarts, continue-as-new, and replay of stored histories.

use std::path::PathBuf;

use tamma_core::budget::Grant;
use tamma_core::cause::AlertCause;
use tamma_core::task_loop::{Action, State};
use tamma_engine::process::{self, ProcessRecords};
use tamma_flow::pipeline::PipelineWorkflow;
use tamma_flow::{TaskWorkflow, WorkflowTuning};
use tamma_testkit::agent::{AgentStep, PromptCase};
use tamma_testkit::sample::sample_script;
use tamma_worker::Error;
use temporalio_client::{
    WorkflowDescribeOptions, WorkflowFetchHistoryOptions, WorkflowGetResultOptions, WorkflowHistory,
};
use temporalio_sdk::workflow_replayer::{WorkflowReplayer, WorkflowReplayerOptions};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, Handle, agents, until};

/// Returns the directory of stored histories.
fn histories() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/histories")
}

/// Stores the history of a workflow, if enabled by `just gen-histories`.
pub(crate) async fn store_history(history: WorkflowHistory, name: &str) {
    if std::env::var_os("TAMMA_KEEP_HISTORIES").is_none() {
        return;
    }
    let json = history.to_json().await.unwrap();
    std::fs::create_dir_all(histories()).unwrap();
    std::fs::write(histories().join(name), json).unwrap();
}

/// Returns the history of a task's workflow, which is fetched when it is read.
fn history(handle: &Handle) -> WorkflowHistory {
    handle.fetch_history(WorkflowFetchHistoryOptions::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_worker_on_the_same_folder_is_refused() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let config = cluster.config();
    let _first = ProcessRecords::open(&config.data_dir).await.unwrap().claim().unwrap();
    let client = cluster.client().await;
    let stop = CancellationToken::new();
    let second = Box::pin(tamma_worker::run(config, cluster.store.clone(), client, stop)).await;
    assert!(matches!(second, Err(Error::Process(process::Error::InUse { .. }))), "{second:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_worker_continues_after_a_stop() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let (started, proceed) = (cluster.scratch_file("begun"), cluster.scratch_file("go"));
    let waiting_steps = vec![
        AgentStep::WriteUnasked { path: started.clone(), content: String::new() },
        AgentStep::AwaitFile(proceed.clone()),
    ];
    let mut script = sample_script(1);
    let when = "You are implementing".to_owned();
    script
        .cases
        .insert(0, PromptCase { when, unless: Some(proceed.clone()), steps: waiting_steps });
    cluster.replace_script(&script);
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    cluster.with_worker(until(async || started.exists().then_some(()))).await;
    assert!(agents(&cluster).is_empty(), "the worker left its agent behind");
    std::fs::write(&proceed, "").unwrap();
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    let range = format!("main..{}", cluster.store.task_branch(id).await.unwrap());
    assert_eq!(cluster.project.repository.git(&["rev-list", "--count", &range]).unwrap(), "1");
    store_history(history(&handle), "compact-second-worker.json").await;
}

/// Returns the current run ID of the workflow.
async fn run_of(handle: &Handle) -> String {
    let described = handle.describe(WorkflowDescribeOptions::default()).await.unwrap();
    let info = described.raw().workflow_execution_info.clone().unwrap();
    info.execution.unwrap().run_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_continues_as_new_without_loss() {
    let mut cluster = Cluster::start(&sample_script(7)).await;
    cluster.tuning = WorkflowTuning { history_events: 8, ..cluster.tuning };
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let first = run_of(&handle).await;
    let result = cluster
        .with_worker(async {
            let scope = cluster.until_state(id, State::AwaitingApproval).await.current_scope();
            let scope = until(async || cluster.task_loop(id).await.open_question.and(scope)).await;
            for _ in 0..3 {
                cluster.request_action(&handle, "Ann", Action::Pause).await.unwrap();
                cluster.request_action(&handle, "Ann", Action::Resume).await.unwrap();
            }
            let approve = Action::Approve { scope, reason: None };
            cluster.request_action(&handle, "Ann", approve).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    assert_eq!(result.state, State::Completed);
    let last = run_of(&handle).await;
    assert_ne!(first, last, "it never continued as new");
    let log = cluster.history(id).await;
    let sequences: Vec<_> = log.iter().map(|entry| entry.sequence).collect();
    assert_eq!(sequences, (1..=cluster.task_loop(id).await.entry_count).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_kills_its_workers_is_a_question_and_not_tried_again() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    // The second job prepares the task. Six processes have started it, and none has ended it.
    for number in 0..6 {
        let process = format!("process {number}");
        cluster.store.begin_inline_job((id, 2), &process).await.unwrap();
    }
    let handle = cluster.start_task(&client, task).await;
    cluster
        .with_worker(async {
            let asked = cluster.until_state(id, State::HumanEscalation).await;
            let question = asked.open_question.unwrap();
            assert_eq!(
                (question.cause, question.resume_state),
                (AlertCause::WorkersLost, State::Assigned)
            );
            let entries = cluster.history(id).await;
            let explains = |reason: &str| reason.contains("so it is not retried");
            assert!(entries.iter().any(|entry| entry.reason.as_deref().is_some_and(explains)));
            // A person can let it run again, which is another job.
            let retry = Action::Retry { grant: Grant::default() };
            cluster.request_action(&handle, "Ann", retry).await.unwrap();
            cluster.until_state(id, State::Completed).await;
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_to_keep() {
    // One history of each kind, stored by `just gen-histories`. Those without `compact` in their name are
    // of workflows that started with `WorkflowTuning::compact_history` off.
    let cluster = Cluster::start(&sample_script(1)).await;
    let client = cluster.client().await;
    let handle = cluster.start_task(&client, cluster.task(1)).await;
    cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    store_history(history(&handle), "compact-low-risk.json").await;

    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    let task = cluster.task(2);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    cluster
        .with_worker(async {
            let scope = cluster.until_state(id, State::AwaitingApproval).await.current_scope();
            let scope = until(async || cluster.task_loop(id).await.open_question.and(scope)).await;
            cluster.request_action(&handle, "Ann", Action::Pause).await.unwrap();
            cluster.request_action(&handle, "Bo", Action::Resume).await.unwrap();
            store_history(history(&handle), "compact-waits-for-approval.json").await;
            let approve = Action::Approve { scope, reason: None };
            cluster.request_action(&handle, "Ann", approve).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap()
        })
        .await;
    store_history(history(&handle), "compact-approved-by-a-person.json").await;
}

/// Fails if a workflow, or the commands of its state machine, no longer fit an old history. Such a
/// change needs a patch (`ctx.patched`) or a new edition. Do not change the history: it is what
/// running tasks and pipelines have.
#[tokio::test]
async fn histories_of_this_version_replay() {
    let mut names: Vec<_> =
        std::fs::read_dir(histories()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() >= 8, "stored histories are missing: {names:?}");
    for path in names {
        let history = WorkflowHistory::from_json(&std::fs::read(&path).unwrap()).unwrap();
        let options = WorkflowReplayerOptions::new().register_workflow::<TaskWorkflow>().unwrap();
        let options = options.register_workflow::<PipelineWorkflow>().unwrap();
        // Sealed histories and those that were stored without keys.
        let converter = tamma_keys::data_converter(tamma_testkit::keys::test_keys());
        let options = options.data_converter(converter).build();
        let replayer = WorkflowReplayer::new(options).unwrap();
        let replayed = replayer.replay_workflow(history).await;
        assert!(replayed.is_ok(), "{}: {replayed:?}", path.display());
    }
}
