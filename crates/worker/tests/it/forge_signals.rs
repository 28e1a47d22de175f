//! News from a forge for tasks that do not wait for it.

use tamma_core::forge::{Mergeability, PullRequestFacts, PullRequestStatus};
use tamma_core::pull_request::QueueResult;
use tamma_core::task_loop::State;
use tamma_flow::{ForgeSignal, TaskWorkflow};
use tamma_testkit::sample::sample_script;
use temporalio_client::{WorkflowGetResultOptions, WorkflowSignalOptions};

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn news_for_a_task_without_a_pull_request_changes_nothing() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let commit = |digit: &str| digit.repeat(40).parse().unwrap();
    let facts = PullRequestFacts {
        number: 7,
        status: PullRequestStatus::Merged { commit: commit("1"), by: "ann".to_owned() },
        draft: false,
        head: commit("2"),
        base: commit("3"),
        mergeability: Mergeability::Clean,
        checks: Vec::new(),
        reviews: Vec::new(),
        threads: Vec::new(),
        queued: false,
        incomplete: false,
    };
    let observed = ForgeSignal::Observed(Box::new(facts));
    let landed = QueueResult::Landed { head: commit("2"), commit: commit("1") };
    let settled = ForgeSignal::QueueSettled(landed);
    for signal in [observed.clone(), settled, observed] {
        let options = WorkflowSignalOptions::builder().build();
        handle.signal(TaskWorkflow::observe_forge, signal, options).await.unwrap();
    }
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    assert_eq!(cluster.task_loop(id).await.pull_request, None);
    // Nothing of it is in the history.
    assert_eq!(cluster.entry_names(id).await.len(), 15);
}
