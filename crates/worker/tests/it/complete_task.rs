//! Complete task without people.

use tamma_core::history::EntryName as N;
use tamma_core::review::record::CheckRecord;
use tamma_core::task_loop::State;
use tamma_testkit::sample::sample_script;
use temporalio_client::{WorkflowFetchHistoryOptions, WorkflowGetResultOptions};

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_low_risk_task_completes_by_itself() {
    let cluster = Cluster::start(&sample_script(1)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    assert_eq!(
        cluster.entry_names(id).await,
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
    // The branch in the user's repository has exactly one commit.
    let branch = format!("tamma/{id}");
    let list = cluster
        .project
        .repository
        .git(&["log", "--format=%s", &format!("main..{branch}")])
        .unwrap();
    assert_eq!(list, "Greet Cy");
    let names = cluster.project.repository.git(&["show", &format!("{branch}:names.txt")]).unwrap();
    assert_eq!(names, "ann\nbo\ncy");
    // The task is pinned to its prompts, and the validator judged the criteria that the plan proposes.
    let prompts = cluster.task_loop(id).await.pin.and_then(|pin| pin.prompts).unwrap();
    let prompts = cluster.store.text_by_hash(prompts).await.unwrap();
    assert!(prompts.contains("You are the planner"), "{prompts}");
    let checks = cluster.store.checks(id).await.unwrap();
    let criteria = checks.into_iter().find_map(|check| match check.record {
        CheckRecord::Review(review) => Some(review.verdict.inputs.criteria),
        CheckRecord::Gates(_) => None,
    });
    let criteria = criteria.unwrap();
    assert_eq!((criteria.len(), &*criteria[0].text), (1, "Every listed name is greeted."));
    assert!(criteria[0].is_met(), "{criteria:?}");
    // Number of history events in Temporal.
    let history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let events = history.into_events().await.unwrap();
    println!("history events: {}", events.len());
    assert!(events.len() <= 66, "{} history events", events.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_replaces_prompts_if_the_worker_allows_it() {
    let mut cluster =
        Cluster::start_with(&sample_script(1), "prompts: { implement: own.md }\n").await;
    cluster.allow_project_prompts = true;
    let prompt = "You are implementing {{ task.title }} our way: {{ plan.summary }}\n";
    cluster.project.repository.write("own.md", prompt).unwrap();
    cluster.project.repository.commit("a prompt").unwrap();
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    let result =
        cluster.with_worker(handle.get_result(WorkflowGetResultOptions::default())).await.unwrap();
    assert_eq!(result.state, State::Completed);
    let prompts = cluster.task_loop(id).await.pin.and_then(|pin| pin.prompts).unwrap();
    let prompts = cluster.store.text_by_hash(prompts).await.unwrap();
    assert!(prompts.contains("our way"), "{prompts}");
}
