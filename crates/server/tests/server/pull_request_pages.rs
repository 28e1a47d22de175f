//! Pull requests on the pages.

use serde_json::json;
use tamma_core::forge::{
    CheckFact, CheckResult, Mergeability, PullRequestFacts, PullRequestStatus, ReviewFact,
    ReviewVerdict, ThreadFact,
};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::merge_queue::{MergeQueue, QueuePause};
use tamma_core::rules::{DeliveryMode, Rules};
use tamma_core::task_loop::State;
use tamma_store::{MergeQueueId, NewPullRequest};

use crate::browser::{Browser, StoredTask, local_config};
use crate::test_server::TestServer;
use crate::world;

const HOSTILE: &str = "<script>alert(1)</script>";

fn facts() -> PullRequestFacts {
    let head = "a".repeat(40).parse().expect("commit");
    PullRequestFacts {
        number: 7,
        status: PullRequestStatus::Open,
        draft: false,
        head,
        base: "b".repeat(40).parse().expect("commit"),
        mergeability: Mergeability::Conflicting,
        checks: vec![CheckFact {
            name: format!("ci {HOSTILE}"),
            id: "1".to_owned(),
            required: true,
            result: CheckResult::Failed,
        }],
        reviews: vec![ReviewFact {
            by: "ada".to_owned(),
            commit: head,
            verdict: ReviewVerdict::ChangesRequested,
            can_write: true,
        }],
        threads: vec![ThreadFact {
            id: "t1".to_owned(),
            last_comment: "c1".to_owned(),
            by: "grace".to_owned(),
            can_write: true,
            bot: false,
            resolved: false,
            answered: false,
        }],
        queued: false,
        incomplete: false,
    }
}

#[tokio::test]
async fn a_pull_request_is_shown_with_its_checks_reviews_and_threads() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let task = json!({ "title": "Greet friends", "description": "all of them" });
    let stored = StoredTask::new(&server, project, task).await;
    let task = TaskId(stored.id);
    let mut browser = Browser::new(&server);
    let html = browser.page("/pull-requests").await;
    assert!(html.contains("No open pull requests"), "{html}");

    let opened = NewPullRequest {
        task,
        project: ProjectId(project),
        forge: "code".to_owned(),
        repository: "acme/shop".to_owned(),
        number: 7,
        url: "javascript:alert(1)".to_owned(),
        branch: format!("tamma/{}", stored.id),
        base_branch: "main".to_owned(),
    };
    server.store.save_pull_request(&opened).await.expect("saved");
    let observed = server.store.pull_request(task).await.expect("read").expect("stored");
    server.store.record_observation(&observed, &facts(), None, true).await.expect("recorded");

    let list = browser.page("/pull-requests").await;
    for shown in ["1 open, 1 with failed checks", "Greet friends", "acme/shop", "checks failed"] {
        assert!(list.contains(shown), "{shown}: {list}");
    }
    let page = browser.page(&format!("/tasks/{}", stored.id)).await;
    for shown in ["Pull request</h2>", "#7", "requested changes", "not answered yet", "Conflict"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    // Names and addresses come from the forge.
    for html in [&list, &page] {
        assert!(!html.contains("javascript:alert") && !html.contains(HOSTILE), "{html}");
    }
    server.end().await;
}

#[tokio::test]
async fn answers_about_a_pull_request_say_what_the_machine_would_do() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut rules = Rules::default();
    rules.delivery.mode = DeliveryMode::PullRequest;
    let task = json!({ "title": "Greet friends" });
    let mut stored = StoredTask::with_rules(&server, project, task, rules).await;
    stored.add_plan("Kindly", 7).await;
    // Somebody else pushed to the branch.
    stored
        .apply(|world| {
            world.walk(State::AwaitingMerge);
            let facts = PullRequestFacts { head: world::commit(99), ..world.facts() };
            world.observe(facts);
        })
        .await;
    let html = Browser::new(&server).page(&format!("/tasks/{}", stored.id)).await;
    for shown in [
        "Take over commits",
        "Their commits become part of the change. Gates and review run again.",
        "Stop following it",
        "The task is completed, and the pull request stays as it is.",
    ] {
        assert!(html.contains(shown), "{shown}: {html}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_merge_queue_that_stopped_is_in_the_inbox_until_it_goes_on() {
    let server = TestServer::with(local_config()).await;
    let project = ProjectId(server.project("/nowhere").await);
    let queue = MergeQueueId {
        forge: "code".to_owned(),
        repository: "acme/shop".to_owned(),
        branch: "main".to_owned(),
    };
    let stopped = MergeQueue {
        pause: Some(QueuePause {
            reason: format!("the branch has another tree {HOSTILE}"),
            by: None,
            is_incident: true,
            at: chrono::DateTime::UNIX_EPOCH,
        }),
        ..MergeQueue::new(4)
    };
    let store = &server.store;
    store.save_merge_queue(&queue, project, &stopped).await.expect("saved");
    let mut browser = Browser::new(&server);
    let html = browser.page("/inbox").await;
    for shown in ["Merge queue of main in acme/shop", "/merge-queues", "another tree"] {
        assert!(html.contains(shown), "{shown}: {html}");
    }
    assert!(!html.contains(HOSTILE), "{html}");
    let (_, inbox) = server.get("/inbox").await;
    assert_eq!(inbox["merge_queues"][0]["incident"], true, "{inbox}");

    store.save_merge_queue(&queue, project, &MergeQueue::new(4)).await.expect("saved");
    let html = browser.page("/inbox").await;
    assert!(!html.contains("Merge queue of main"), "{html}");
    let (_, inbox) = server.get("/inbox").await;
    assert_eq!(inbox["merge_queues"], json!(null), "{inbox}");
    server.end().await;
}
