//! A task's whole way, without anybody.

use tamma_core::log::EntryName as N;
use tamma_core::task_loop::State;
use temporalio_client::{WorkflowFetchHistoryOptions, WorkflowGetResultOptions};

use crate::stage::{Stage, script};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_low_risk_goes_all_the_way_by_itself() {
    let stage = Stage::set(&script(1)).await;
    let client = stage.client().await;
    let task = stage.task(1);
    let id = task.id;
    let handle = stage.begin(&client, task).await;
    let ended = stage.play(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(ended.state, State::Completed);
    assert_eq!(
        stage.names(id).await,
        [
            N::SmTaskReceived,
            N::SmTaskAssigned,
            N::SmPlanStarted,
            N::SmPlanGenerated,
            N::SmKnowledgeChecked,
            N::SmApprovalAuto,
            N::SmApprovalGranted,
            N::SmImplementationStarted,
            N::SmImplementationCompleted,
            N::SmReviewStarted,
            N::SmReviewPassed,
            N::SmStateTransition,
            N::SmDelivered,
            N::SmLearningCaptured,
            N::SmTaskCompleted,
        ]
    );
    // The branch is in the user's own repository, and has exactly one commit.
    let branch = format!("tamma/{id}");
    let list = stage.repository.git(&["log", "--format=%s", &format!("main..{branch}")]).unwrap();
    assert_eq!(list, "Greet Cy");
    let names = stage.repository.git(&["show", &format!("{branch}:names.txt")]).unwrap();
    assert_eq!(names, "ann\nbo\ncy");
    // What it costs the engine.
    let history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let events = history.into_events().await.unwrap();
    println!("history events: {}", events.len());
    assert!(events.len() <= 66, "{} history events", events.len());
}
