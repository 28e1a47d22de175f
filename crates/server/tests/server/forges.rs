//! Forges: webhooks, pull requests, issues and verdicts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tamma_connect::forge::{ForgeCredential, ForgeSettings, Forges};
use tamma_core::aftercare::AftercareKind;
use tamma_core::forge::ForgeKind;
use tamma_core::gate::{GateKind, GateStatus, GateVerdict};
use tamma_core::ids::{Digest, ProjectId, TaskId};
use tamma_core::review::record::{BaselineSource, CheckRecord, GateRecord, GatesCheck};
use tamma_core::time::Timestamp;
use tamma_server::ServerConfig;
use tamma_store::{AftercareFinding, NewPullRequest, StoredStatus};
use tamma_testkit::wait::wait_until;
use tempfile::TempDir;
use tokio::time::Instant;
use uuid::Uuid;

use crate::browser::StoredTask;
use crate::fake_forge::{FakeForge, REPOSITORY, new_comment, new_issue, new_label, new_pull};
use crate::test_server::{TestServer, config, new_id, read};

pub(crate) const SECRET: &str = "secret of the webhooks";

/// Server with a forge, and a project in it.
pub(crate) struct ForgeServer {
    pub(crate) server: TestServer,
    pub(crate) forge: FakeForge,
    pub(crate) project: Uuid,
    _folder: TempDir,
}

/// Configures a server with a forge. `rules` are the configuration of its projects.
pub(crate) fn forge_config(
    folder: &TempDir,
    settings: &ForgeSettings,
    rules: &'static str,
) -> ServerConfig {
    Forges::open(folder.path()).save(settings).expect("saved");
    ServerConfig {
        forges: folder.path().to_owned(),
        read_remote_config: Some(Arc::new(move |_| {
            Box::pin(async move { Ok(Some(rules.to_owned())) })
        })),
        ..config("127.0.0.1:0", None)
    }
}

/// Returns the settings of a fake, which the server calls `gitea`.
pub(crate) fn fake_settings(forge: &FakeForge) -> ForgeSettings {
    ForgeSettings {
        name: "gitea".to_owned(),
        kind: ForgeKind::Gitea,
        url: "https://forge.example".to_owned(),
        api: Some(forge.api()),
        credential: ForgeCredential::Token("t0ken-of-the-forge".to_owned()),
        webhook_secret: Some(SECRET.to_owned()),
    }
}

impl ForgeServer {
    /// Starts a server. `rules` are the configuration of the project.
    pub(crate) async fn new(rules: &'static str) -> Self {
        let forge = FakeForge::start().await;
        let folder = tempfile::tempdir().expect("folder");
        let config = forge_config(&folder, &fake_settings(&forge), rules);
        let server = TestServer::with(config).await;
        let project = server.project(&format!("https://forge.example/{REPOSITORY}.git")).await;
        Self { server, forge, project, _folder: folder }
    }

    /// Sends a webhook with a signature, and returns the status.
    pub(crate) async fn send_hook(
        &self,
        forge: &str,
        delivery: &str,
        secret: &str,
        body: &Value,
    ) -> u16 {
        self.send_hook_to(&self.server.url, (forge, delivery, secret), body).await
    }

    /// Sends a webhook to a server.
    pub(crate) async fn send_hook_to(
        &self,
        url: &str,
        (forge, delivery, secret): (&str, &str, &str),
        body: &Value,
    ) -> u16 {
        let body = body.to_string();
        let request = reqwest::Client::builder().no_proxy().build().expect("client");
        let request = request
            .post(format!("{url}/hooks/forges/{forge}"))
            .header("x-gitea-delivery", delivery)
            .header("x-gitea-event", "pull_request")
            .header("x-gitea-signature", signature(secret, body.as_bytes()))
            .body(body);
        let response = request.send().await.expect("response");
        let status = response.status().as_u16();
        if status >= 400 {
            let text = response.text().await.expect("text");
            assert!(!text.contains("gitea") && !text.contains(SECRET), "no details: {text}");
        }
        status
    }

    /// Adds a task with a pull request.
    pub(crate) async fn add_pull_request(&self, number: u64, head: &str) -> TaskId {
        self.forge.content().pulls.push(new_pull(number, head));
        let task = TaskId(new_id());
        let new = json!({ "id": task.0, "title": "Greet" });
        assert_eq!(self.server.post("/tasks", &new).await.0, 201);
        let opened = NewPullRequest {
            task,
            project: ProjectId(self.project),
            forge: "gitea".to_owned(),
            repository: REPOSITORY.to_owned(),
            number,
            url: format!("https://forge.example/{REPOSITORY}/pulls/{number}"),
            branch: "tamma/1".to_owned(),
            base_branch: "main".to_owned(),
        };
        self.server.store.save_pull_request(&opened).await.expect("saved");
        task
    }
}

/// Signs a body as Gitea does: HMAC with SHA-256, in hexadecimal digits.
fn signature(secret: &str, body: &[u8]) -> String {
    let pad = |with: u8| {
        let mut block = [with; 64];
        for (byte, key) in block.iter_mut().zip(secret.bytes()) {
            *byte ^= key;
        }
        block
    };
    let bytes = |digest: Digest| {
        let digits = digest.to_string();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
        (0..64).step_by(2).map(byte).collect::<Vec<u8>>()
    };
    let inner = bytes(Digest::of(&[&pad(0x36)[..], body].concat()));
    Digest::of(&[&pad(0x5c)[..], &inner[..]].concat()).to_string()
}

pub(crate) fn pull_hook(number: u64) -> Value {
    json!({ "pull_request": { "number": number }, "repository": { "full_name": REPOSITORY } })
}

pub(crate) fn issue_hook(number: u64) -> Value {
    json!({ "issue": { "number": number }, "repository": { "full_name": REPOSITORY } })
}

#[tokio::test]
async fn a_webhook_leads_to_facts_for_the_workflow_at_once() {
    let delivery = ForgeServer::new("delivery: {}\n").await;
    let task = delivery.add_pull_request(5, &"a".repeat(40)).await;
    let started = Instant::now();
    assert_eq!(delivery.send_hook("gitea", "1", SECRET, &pull_hook(5)).await, 204);
    let observed = async |want: StoredStatus| {
        wait_until("the poller", Duration::from_secs(10), async || {
            let stored = delivery.server.store.pull_request(task).await?.expect("pull request");
            let is_delivered = stored.delivered.is_some() && stored.delivered == stored.facts_hash;
            Ok((stored.status == want && is_delivered).then_some(stored))
        })
        .await
        .expect("observed")
    };
    observed(StoredStatus::Open).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    // Everybody who can read the task sees the facts, and nobody sees the credential.
    let (_, detail) = delivery.server.get(&format!("/tasks/{}", task.0)).await;
    assert_eq!(detail["pull_request"]["number"], 5, "{detail}");
    assert_eq!(detail["pull_request"]["mergeability"], "clean");
    let (_, list) = delivery.server.get("/pull-requests?status=open&project=greeter").await;
    assert_eq!(list["pull_requests"][0]["task"], json!(task.0), "{list}");
    let (_, list) = delivery.server.get("/pull-requests?status=merged").await;
    assert_eq!(list, json!({ "pull_requests": [] }));
    assert_eq!(delivery.server.get("/pull-requests?status=lost").await.0, 422);
    let (_, forges) = delivery.server.get("/forges").await;
    assert_eq!(forges["forges"][0]["name"], "gitea", "{forges}");
    assert_eq!(forges["forges"][0]["repositories"], json!([REPOSITORY]));
    assert!(!forges.to_string().contains("t0ken"), "{forges}");

    // A merge by a person is recorded, with the commit.
    {
        let mut content = delivery.forge.content();
        let pull = &mut content.pulls[0];
        pull["state"] = json!("closed");
        pull["merged"] = json!(true);
        pull["merge_commit_sha"] = json!("c".repeat(40));
        pull["merged_by"] = json!({ "login": "ada" });
    }
    assert_eq!(delivery.send_hook("gitea", "2", SECRET, &pull_hook(5)).await, 204);
    let merged = observed(StoredStatus::Merged).await;
    assert_eq!(merged.merged_commit.map(|it| it.to_string()), Some("c".repeat(40)));
    let store = &delivery.server.store;
    let watched = store.watched_merges(Timestamp::UNIX_EPOCH).await.expect("list");
    assert_eq!(watched.len(), 1, "effects of the merge are traced");

    // What happened to it is on the task and in the metrics.
    let finding = AftercareFinding {
        task,
        project: merged.project,
        kind: AftercareKind::Revert,
        commit: "d".repeat(40).parse().expect("commit"),
        detail: "Revert it (Ann)".to_owned(),
        found_at: Timestamp::UNIX_EPOCH,
    };
    assert!(store.record_aftercare(&finding).await.expect("recorded"));
    let (_, detail) = delivery.server.get(&format!("/tasks/{}", task.0)).await;
    assert_eq!(detail["aftercare"][0]["kind"], "revert", "{detail}");
    let (_, metrics) = delivery.server.get("/metrics").await;
    assert_eq!(metrics["aftercare"]["merged"], 1, "{metrics}");
    assert_eq!(metrics["aftercare"]["reverted"], 1, "{metrics}");
    delivery.server.end().await;
}

#[tokio::test]
async fn a_webhook_without_a_valid_signature_learns_and_changes_nothing() {
    let delivery = ForgeServer::new("delivery: {}\n").await;
    let hook = pull_hook(5);
    assert_eq!(delivery.send_hook("gitea", "1", "another secret", &hook).await, 401);
    assert_eq!(delivery.send_hook("github", "1", SECRET, &hook).await, 401);
    // A delivery that is sent again gets the same answer, and is recorded once.
    assert_eq!(delivery.send_hook("gitea", "1", SECRET, &hook).await, 204);
    assert_eq!(delivery.send_hook("gitea", "1", SECRET, &hook).await, 204);
    let is_new = delivery.server.store.accept_webhook("gitea", "1", "pull_request").await;
    assert!(!is_new.expect("stored"), "recorded before");
    assert_eq!(delivery.forge.content().pulls_read, 0, "it is not a pull request of Tamma");
    delivery.server.end().await;
}

#[tokio::test]
async fn an_issue_with_the_label_becomes_one_task_with_one_comment() {
    let delivery = ForgeServer::new("delivery:\n  intake:\n    label: tamma\n").await;
    {
        let mut content = delivery.forge.content();
        content.writers.push("ada".to_owned());
        content.issues.push(new_issue(7, "eve", "tamma"));
        content.issues.push(new_issue(8, "eve", "question"));
        // A template set the label for somebody who cannot push.
        content.issues.push(new_issue(9, "eve", "tamma"));
        content.labelled.push(new_label(7, "ada", "tamma"));
        content.labelled.push(new_label(9, "eve", "tamma"));
        content.comments.push(new_comment(1, 7, "eve", &json!("Please!")));
    }
    let server = &delivery.server;
    let mut hooks = 0;
    let task = wait_until("the task", Duration::from_mins(1), async || {
        hooks += 1;
        let id = format!("hook-{hooks}");
        assert_eq!(delivery.send_hook("gitea", &id, SECRET, &issue_hook(7)).await, 204);
        let claimed = server.store.issue_task("gitea", REPOSITORY, 7).await?;
        let (_, list) = server.get("/tasks").await;
        let is_added = list["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty());
        let content = delivery.forge.content();
        let is_told = content.comments.iter().any(|it| it["user"]["login"] == "tamma");
        Ok(claimed.filter(|_| is_added && is_told).map(|it| it.task))
    });
    let task = task.await.expect("task");

    let (_, list) = server.get("/tasks").await;
    assert_eq!(list["tasks"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["tasks"][0]["id"], json!(task.0));
    let (_, detail) = server.get(&format!("/tasks/{}", task.0)).await;
    assert_eq!(detail["title"], "Greet the world");
    assert_eq!(detail["description"], "Kindly.");
    assert_eq!(detail["issue_number"], 7);
    // Its author is the account that set the label, with the way it came.
    let (_, history) = server.get(&format!("/tasks/{}/history", task.0)).await;
    assert_eq!(history["entries"][0]["actor"], json!({ "person": "ada@gitea" }));
    let how = json!({ "method": "forge_account", "via": "issue" });
    assert_eq!(history["entries"][0]["auth"], how);
    {
        let content = delivery.forge.content();
        let own = content.comments.iter().filter(|it| it["user"]["login"] == "tamma");
        let own: Vec<_> = own.collect();
        assert_eq!(own.len(), 1, "{own:?}");
        let text = own[0]["body"].as_str().expect("text");
        assert!(text.contains("| Status | Pending |"), "{text}");
        assert!(text.ends_with(&format!("<!-- tamma:{}/progress -->", task.0)), "{text}");
        assert!(!text.contains('@'), "no mention: {text}");
    }
    delivery.server.end().await;
}

#[tokio::test]
async fn only_a_mention_by_somebody_who_can_push_makes_an_issue_a_task() {
    let delivery = ForgeServer::new("delivery:\n  intake:\n    mention: tamma\n").await;
    {
        let mut content = delivery.forge.content();
        content.writers.push("ada".to_owned());
        content.issues.extend([new_issue(7, "eve", "bug"), new_issue(8, "eve", "bug")]);
        content.comments.push(new_comment(1, 7, "eve", &json!("@tamma do it")));
        content.comments.push(new_comment(2, 8, "ada", &json!("@tamma do it")));
    }
    let store = &delivery.server.store;
    assert_eq!(delivery.send_hook("gitea", "1", SECRET, &issue_hook(8)).await, 204);
    wait_until("the task", Duration::from_mins(1), async || {
        let claimed = store.issue_task("gitea", REPOSITORY, 8).await?;
        Ok(match claimed {
            Some(claimed) => store.is_task_id_used(claimed.task).await?.then_some(()),
            None => None,
        })
    })
    .await
    .expect("task");
    assert_eq!(store.issue_task("gitea", REPOSITORY, 7).await.expect("read"), None);
    let (_, list) = delivery.server.get("/tasks").await;
    assert_eq!(list["tasks"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["tasks"][0]["type"], "bugfix");
    delivery.server.end().await;
}

#[tokio::test]
async fn a_verdict_is_exported_as_junit_and_sarif() {
    let server = TestServer::new().await;
    let project = server.project("/nowhere").await;
    let task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await.id;
    let path = |format: &str| format!("/tasks/{task}/verdict?format={format}");
    assert_eq!(server.get(&path("junit")).await.0, 404, "nothing was checked yet");
    assert_eq!(server.get(&path("html")).await.0, 422);
    let gate = GateRecord {
        verdict: GateVerdict {
            status: GateStatus::Failed,
            new: ["greets".to_owned()].into(),
            ..GateVerdict::not_applicable("tests", GateKind::Tests)
        },
        command: "cargo test".to_owned(),
        exit_code: Some(1),
        duration_ms: 10,
        tests: None,
        passed_tests: ["waves".to_owned()].into(),
        baseline: BaselineSource::NotNeeded,
        was_rerun: false,
        output: "1 failed".to_owned(),
    };
    let check = GatesCheck {
        commit: "a".repeat(40).parse().expect("commit"),
        base: "b".repeat(40).parse().expect("commit"),
        gates: vec![gate],
        duration_ms: 10,
        files: None,
    };
    let record = CheckRecord::Gates(check);
    server.store.save_check(TaskId(task), 1, 1, &record).await.expect("saved");
    let request = server.request(reqwest::Method::GET, &path("junit"));
    let response = request.send().await.expect("response");
    assert_eq!(response.headers()["content-type"], "application/xml");
    let (status, junit) = read(response).await;
    assert_eq!(status, 200);
    let junit = junit.as_str().expect("text");
    assert!(junit.contains(r#"tests="2" failures="1""#), "{junit}");
    let (status, sarif) = server.get(&path("sarif")).await;
    assert_eq!((status, &sarif["version"]), (200, &json!("2.1.0")));
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "gate/tests", "{sarif}");
    server.end().await;
}
