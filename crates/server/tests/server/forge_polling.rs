//! Polling of forges: one server at a time, within the quota, and edits of issues.

use std::time::Duration;

use serde_json::json;
use tamma_connect::forge::{Forge, ForgeCredential, ForgeSettings, NewChange};
use tamma_core::forge::ForgeKind;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::Action;
use tamma_store::{IssueTask, NewPullRequest};
use tamma_testkit::forge::FakeGithub;
use tamma_testkit::repository::Repository;
use tamma_testkit::wait::wait_until;

use crate::browser::StoredTask;
use crate::fake_forge::{FakeForge, REPOSITORY, new_issue, new_pull};
use crate::forges::{ForgeServer, SECRET, fake_settings, forge_config, issue_hook, pull_hook};
use crate::test_server::{TestServer, new_id};
use crate::world::reason;

const WAIT: Duration = Duration::from_mins(1);

/// Waits until the stored facts have this head.
async fn wait_for_head(server: &TestServer, task: TaskId, head: &str) {
    wait_until("the facts", WAIT, async || {
        let stored = server.store.pull_request(task).await?.expect("pull request");
        let found = stored.facts.map(|facts| facts.head.to_string());
        Ok((found.as_deref() == Some(head)).then_some(()))
    })
    .await
    .expect("observed");
}

#[tokio::test]
async fn one_of_two_servers_polls_a_forge_and_the_other_takes_over() {
    let rules = "delivery: {}\n";
    let mut delivery = ForgeServer::new(rules).await;
    let first_head = "a".repeat(40);
    let task = delivery.add_pull_request(5, &first_head).await;
    assert_eq!(delivery.send_hook("gitea", "1", SECRET, &pull_hook(5)).await, 204);
    wait_for_head(&delivery.server, task, &first_head).await;

    // The second server reaches the same forge at another address, so its requests are told apart.
    let other_forge = FakeForge::start().await;
    let other_head = "d".repeat(40);
    other_forge.content().pulls.push(new_pull(5, &other_head));
    let folder = tempfile::tempdir().expect("folder");
    let config = forge_config(&folder, &fake_settings(&other_forge), rules);
    let second = delivery.server.start_another(config).await;
    for (number, digit) in ["b", "c"].into_iter().enumerate() {
        let head = digit.repeat(40);
        delivery.forge.content().pulls[0] = new_pull(5, &head);
        let id = format!("both-{number}");
        let hook = ("gitea", id.as_str(), SECRET);
        assert_eq!(delivery.send_hook_to(&second.url, hook, &pull_hook(5)).await, 204);
        wait_for_head(&delivery.server, task, &head).await;
    }
    assert_eq!(other_forge.content().pulls_read, 0, "the first server has the lease");

    // A server that stops gives its lease back.
    delivery.server.stop().await;
    let hook = ("gitea", "last", SECRET);
    assert_eq!(delivery.send_hook_to(&second.url, hook, &pull_hook(5)).await, 204);
    wait_for_head(&delivery.server, task, &other_head).await;
    second.end().await;
    delivery.server.end().await;
}

#[tokio::test]
async fn the_poller_stops_when_forty_percent_of_the_quota_are_left() {
    let github = FakeGithub::start().await.expect("fake");
    let origin = Repository::new().expect("repository");
    origin.git(&["checkout", "--quiet", "-b", "tamma/1"]).expect("branch");
    origin.write("names.txt", "ann\nbo\ncy\n").expect("written");
    origin.commit("Greet Cy").expect("commit");
    origin.git(&["checkout", "--quiet", "main"]).expect("branch");
    github.create_repository(REPOSITORY, origin.path()).expect("repository");
    let settings = ForgeSettings {
        name: "github".to_owned(),
        kind: ForgeKind::Github,
        url: github.url(),
        api: None,
        credential: ForgeCredential::Token(github.token().to_owned()),
        webhook_secret: None,
    };
    let change = NewChange {
        branch: "tamma/1".to_owned(),
        base: "main".to_owned(),
        title: "Greet Cy".to_owned(),
        body: String::new(),
        labels: Vec::new(),
        reviewers: Vec::new(),
    };
    let forge = Forge::open(&settings).expect("client");
    let opened = forge.open_change(REPOSITORY, &change).await.expect("opened");
    // Other programs of the same account used most of it.
    github.use_quota(3_100);

    let folder = tempfile::tempdir().expect("folder");
    let rules = "delivery:\n  intake:\n    label: tamma\n";
    let server = TestServer::with(forge_config(&folder, &settings, rules)).await;
    let task = TaskId(new_id());
    let project = server.project(&format!("{}/{REPOSITORY}.git", github.url())).await;
    let new = NewPullRequest {
        task,
        project: ProjectId(project),
        forge: "github".to_owned(),
        repository: REPOSITORY.to_owned(),
        number: opened.number,
        url: opened.url.clone(),
        branch: "tamma/1".to_owned(),
        base_branch: "main".to_owned(),
    };
    let added = json!({ "id": task.0, "title": "Greet" });
    assert_eq!(server.post("/tasks", &added).await.0, 201);
    server.store.save_pull_request(&new).await.expect("saved");
    server.store.mark_pull_request_dirty("github", REPOSITORY, opened.number).await.expect("hint");
    let cursor = wait_until("the pause", WAIT, async || {
        let cursor = server.store.forge_cursor("github", REPOSITORY).await?;
        Ok(cursor.blocked_until.is_some().then_some(cursor))
    })
    .await
    .expect("paused");
    assert!(cursor.quota_left.is_some_and(|left| left < 0.4), "{cursor:?}");
    assert!(cursor.blocked_until > cursor.polled_at, "{cursor:?}");
    // Nothing more is read, whatever is due.
    let calls = github.calls();
    server.store.mark_pull_request_dirty("github", REPOSITORY, opened.number).await.expect("hint");
    server.end().await;
    assert_eq!(github.calls(), calls, "the rest is for people");
}

#[tokio::test]
async fn edits_of_issues_count_if_their_author_can_push_and_are_recorded_once() {
    let delivery = ForgeServer::new("delivery:\n  intake:\n    label: tamma\n").await;
    let (server, project) = (&delivery.server, delivery.project);
    let lost = StoredTask::new(server, project, json!({ "title": "Greet" })).await;
    let mut ended = StoredTask::new(server, project, json!({ "title": "Greet" })).await;
    let outsiders = StoredTask::new(server, project, json!({ "title": "Greet" })).await;
    let cancel = Action::Cancel { reason: reason() };
    ended
        .apply(|world| {
            world.ask(cancel);
        })
        .await;
    for (number, task) in [(6, &lost), (7, &ended), (8, &outsiders)] {
        let claim = IssueTask {
            forge: "gitea".to_owned(),
            repository: REPOSITORY.to_owned(),
            number,
            task: TaskId(task.id),
            project: ProjectId(project),
            url: format!("https://forge.example/{REPOSITORY}/issues/{number}"),
            revision: "before".to_owned(),
            last_comment: None,
        };
        assert!(server.store.claim_issue(&claim).await.expect("claimed"));
    }
    {
        let mut content = delivery.forge.content();
        content.writers.push("ada".to_owned());
        let by = [(6, "ada"), (7, "ada"), (8, "eve")];
        content.issues.extend(by.map(|(number, by)| new_issue(number, by, "tamma")));
    }
    let revision = async |number: u64| {
        let found = server.store.issue_task("gitea", REPOSITORY, number).await;
        found.expect("read").expect("claimed").revision
    };
    assert_eq!(delivery.send_hook("gitea", "1", SECRET, &issue_hook(7)).await, 204);
    wait_until("the edits", WAIT, async || {
        let is_recorded = revision(7).await != "before" && revision(8).await != "before";
        Ok(is_recorded.then_some(()))
    })
    .await
    .expect("recorded");
    // The edit did not reach this task, whose workflow does not respond, so it is tried again.
    assert_eq!(revision(6).await, "before");
    // An outsider changes nothing, and neither does an edit after the end.
    for task in [&ended, &outsiders] {
        let (_, history) = server.get(&format!("/tasks/{}/history", task.id)).await;
        assert!(!history.to_string().contains("was edited"), "{history}");
    }
    let (_, list) = server.get("/tasks?limit=50").await;
    let count = list["tasks"].as_array().map_or(0, Vec::len);
    assert!(count <= 3, "no further task: {list}");
    delivery.server.end().await;
}
