//! Tasks that wait for other tasks.

use tamma_core::task::Task;
use tamma_core::task_loop::{Action, State};
use tamma_flow::{TaskWorkflow, workflow_id};
use tamma_testkit::sample::sample_script;
use temporalio_client::{Client, WorkflowFetchHistoryOptions};
use temporalio_common::protos::temporal::api::enums::v1::EventType;

use crate::cluster::{Cluster, Handle, until};
use crate::pipeline_durability::{WEEK, fast_forward, settled_events};

/// Events of one request to a worker that cannot run the job yet: a timer, a local activity and
/// workflow tasks.
const EVENTS_PER_REQUEST: usize = 10;

/// Starts a task that waits for a person, and one that depends on it. Returns once the second one
/// waits.
async fn start_tasks(cluster: &Cluster, client: &Client) -> (Handle, Handle) {
    let first = cluster.task(1);
    let second = Task { depends_on: vec![first.id], ..cluster.task(2) };
    let id = first.id;
    let handle = cluster.start_task(client, first).await;
    cluster.until_state(id, State::AwaitingApproval).await;
    let waiting = cluster.start_task(client, second).await;
    until(async || {
        let history = waiting.fetch_history(WorkflowFetchHistoryOptions::default());
        let events = history.into_events().await.ok()?;
        events.iter().any(|event| event.event_type() == EventType::TimerStarted).then_some(())
    })
    .await;
    (handle, waiting)
}

/// Approves the first task, and waits until it is completed.
async fn complete_first(cluster: &Cluster, handle: &Handle) {
    let id = cluster.task(1).id;
    let scope = until(async || {
        let task_loop = cluster.task_loop(id).await;
        task_loop.open_question.as_ref().and(task_loop.current_scope())
    })
    .await;
    let approve = Action::Approve { scope, reason: None };
    cluster.request_action(handle, "Ann", approve).await.unwrap();
    cluster.until_state(id, State::Completed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_task_starts_as_soon_as_the_other_one_is_completed() {
    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let (handle, waiting) = start_tasks(&cluster, &client).await;
            assert_eq!(cluster.task_loop(cluster.task(2).id).await.state, State::Pending);
            complete_first(&cluster, &handle).await;
            // Its next request would be minutes later.
            cluster.until_state(cluster.task(2).id, State::AwaitingApproval).await;
            let history = waiting.fetch_history(WorkflowFetchHistoryOptions::default());
            let events = history.into_events().await.unwrap();
            let count =
                |kind: EventType| events.iter().filter(|event| event.event_type() == kind).count();
            assert_eq!(count(EventType::WorkflowExecutionSignaled), 1);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_a_month_adds_hardly_any_events_and_no_writes() {
    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    let second = cluster.task(2).id;
    cluster
        .with_worker(async {
            let (handle, waiting) = start_tasks(&cluster, &client).await;
            // The first week has the alerts of the task's timeout, and the shorter waits.
            fast_forward(&client, &workflow_id(second), WEEK).await;
            let facts = async |handle: &Handle| {
                let events = settled_events::<TaskWorkflow>(handle).await.len();
                (events, cluster.store.task(second).await.unwrap().step)
            };
            let (before, step) = facts(&waiting).await;
            assert!(before < 40 * EVENTS_PER_REQUEST, "{before} events");
            fast_forward(&client, &workflow_id(second), 3 * WEEK).await;
            let (after, last_step) = facts(&waiting).await;
            // One request per day.
            assert!(after - before <= 22 * EVENTS_PER_REQUEST, "{} events", after - before);
            assert_eq!(last_step, step, "waiting writes to the database");
            complete_first(&cluster, &handle).await;
            // Its next request would be hours later.
            cluster.until_state(second, State::AwaitingApproval).await;
        })
        .await;
}
