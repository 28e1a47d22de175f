//! The client against responses in the shape of GitLab's documentation.

use serde_json::{Value, json};
use tamma_core::forge::{CheckResult, ForgeKind, Mergeability, PullRequestStatus, ReviewVerdict};
use tamma_core::ids::CommitId;
use tamma_core::rules::MergeMethod;

use super::super::fake_server::{FakeRequest, FakeResponse, FakeServer};
use super::super::{CommentTarget, Error, MergeOutcome, NewChange, ObservedChange};

const HEAD: &str = "6dcb09b5b57875f334f61aebed695e2e4193db5e";
const OLD: &str = "1111111111111111111111111111111111111111";
const BASE: &str = "aa218f56b14c9653891f9e74264a383fa43fefbd";

fn head() -> CommitId {
    HEAD.parse().unwrap()
}

fn merge_request(state: &str) -> Value {
    json!({
        "iid": 7, "web_url": "https://gitlab.example/team/sub/app/-/merge_requests/7",
        "state": state, "title": "Draft: Sort", "draft": true, "sha": HEAD, "target_branch": "main",
        "has_conflicts": false, "merge_status": "can_be_merged",
        "detailed_merge_status": "need_rebase", "merge_commit_sha": null,
        "squash_commit_sha": if state == "merged" { json!(BASE) } else { Value::Null },
        "head_pipeline": { "id": 50, "sha": HEAD, "status": "running" },
    })
}

/// Returns the method and the path below the project.
fn path(request: &FakeRequest) -> String {
    request.call.split('?').next().unwrap().replace("/projects/team%2Fsub%2Fapp", ":")
}

fn respond(request: &FakeRequest) -> FakeResponse {
    let ann = json!({ "id": 2, "username": "ann" });
    let us = json!({ "id": 1, "username": "tamma" });
    match path(request).as_str() {
        "GET /user" => FakeResponse::json(200, &us)
            .with("ratelimit-limit", "2000")
            .with("ratelimit-remaining", "500"),
        "GET :" => {
            FakeResponse::json(200, &json!({ "only_allow_merge_if_pipeline_succeeds": true }))
        }
        "GET :/merge_requests/7" => FakeResponse::json(200, &merge_request("opened")),
        "GET :/repository/branches/main" => {
            FakeResponse::json(200, &json!({ "commit": { "id": BASE } }))
        }
        "GET :/repository/commits/6dcb09b5b57875f334f61aebed695e2e4193db5e/statuses" => {
            let status = |id: u64, name: &str, status: &str, allow_failure: bool| json!({ "id": id, "name": name, "status": status, "allow_failure": allow_failure });
            FakeResponse::json(
                200,
                &json!([
                    status(1, "build", "failed", false),
                    status(2, "build", "running", false),
                    status(3, "lint", "failed", true),
                    status(4, "tamma", "failed", false),
                ]),
            )
        }
        "GET :/merge_requests/7/discussions" => {
            let note = |id: u64, author: &Value, body: &str, system: bool| {
                json!({
                    "id": id, "body": body, "author": author, "system": system,
                    "resolvable": !system, "resolved": false,
                    "created_at": "2026-11-17T09:30:00Z",
                    "position": { "new_path": "src/lib.rs", "new_line": 3 },
                })
            };
            FakeResponse::json(
                200,
                &json!([
                    { "id": "d1", "notes": [note(10, &ann, "Why?", false)] },
                    { "id": "d2", "notes": [note(11, &ann, "approved this merge request", true)] },
                ]),
            )
        }
        "GET :/merge_requests/7/approvals" => {
            FakeResponse::json(200, &json!({ "approved_by": [{ "user": ann }] }))
        }
        "GET :/merge_requests/7/reviewers" => {
            FakeResponse::json(200, &json!([{ "user": ann, "state": "approved" }]))
        }
        "GET :/merge_requests/7/versions" => FakeResponse::json(
            200,
            &json!([
                { "head_commit_sha": HEAD, "created_at": "2026-11-17T10:00:00Z" },
                { "head_commit_sha": OLD, "created_at": "2026-11-17T09:00:00Z" },
            ]),
        ),
        "GET :/members/all/2" => {
            FakeResponse::json(200, &json!({ "access_level": 40, "state": "active" }))
        }
        "GET :/jobs/2/trace" => FakeResponse::text(200, "error: no"),
        _ => FakeResponse::json(404, &json!({ "message": "404 Not found" })),
    }
}

#[tokio::test]
async fn facts_bind_approvals_to_the_commit_that_was_there() {
    let server = FakeServer::start(respond).await;
    let forge = server.forge(ForgeKind::Gitlab);
    let change = |cursor| ObservedChange { number: 7, cursor };
    let observation = forge.observe("team/sub/app", &[change(None)]).await.unwrap();
    assert_eq!(observation.quota_left, Some(0.25));
    let [(facts, cursor)] = observation.changes.as_slice() else { panic!("{observation:?}") };
    assert_eq!((facts.head, facts.base), (head(), BASE.parse().unwrap()));
    assert_eq!((&facts.status, facts.draft), (&PullRequestStatus::Open, true));
    assert_eq!(facts.mergeability, Mergeability::Behind);
    let checks: Vec<_> =
        facts.checks.iter().map(|it| (it.name.as_str(), it.required, it.result)).collect();
    assert_eq!(
        checks,
        [("build", true, CheckResult::Pending), ("lint", false, CheckResult::Passed)]
    );
    let [review] = facts.reviews.as_slice() else { panic!("{:?}", facts.reviews) };
    assert_eq!((review.verdict, review.can_write), (ReviewVerdict::Approved, true));
    assert_eq!(review.commit.to_string(), OLD);
    let [thread] = facts.threads.as_slice() else { panic!("{:?}", facts.threads) };
    assert_eq!((thread.id.as_str(), thread.can_write, thread.answered), ("d1", true, false));
    let again = forge.observe("team/sub/app", &[change(cursor.clone())]).await.unwrap();
    assert!(again.changes.is_empty());
    let comments = forge.thread_comments("team/sub/app", 7, &["d1".to_owned()]).await.unwrap();
    assert_eq!(comments[0].position, Some(("src/lib.rs".to_owned(), 3)));
    assert!(comments[0].can_write, "{comments:?}");
    let log = forge.failed_check_log("team/sub/app", &facts.checks[0].id).await.unwrap();
    assert_eq!(log, "error: no");
    assert_eq!(server.requests()[0].header("private-token"), Some("t0ken"));
}

#[tokio::test]
async fn duplicate_is_a_conflict() {
    let server = FakeServer::start(|request| match path(request).as_str() {
        "POST :/merge_requests" => {
            let reason = "Another open merge request already exists for this source branch: !7";
            FakeResponse::json(409, &json!({ "message": [reason] }))
        }
        "GET :/merge_requests" => FakeResponse::json(200, &json!([merge_request("opened")])),
        _ => respond(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Gitlab);
    let change = NewChange {
        branch: "tamma/t-1".to_owned(),
        base: "main".to_owned(),
        title: "Sort".to_owned(),
        body: String::new(),
        labels: vec!["a".to_owned(), "b".to_owned()],
        reviewers: Vec::new(),
    };
    let error = forge.open_change("team/sub/app", &change).await;
    assert!(matches!(error, Err(Error::Conflict { .. })), "{error:?}");
    let body = server.requests().pop().unwrap().body;
    assert_eq!((&body["title"], &body["labels"]), (&json!("Sort"), &json!("a,b")));
    let found = forge.find_change("team/sub/app", "tamma/t-1", "main").await.unwrap().unwrap();
    assert_eq!((found.number, found.head, found.open), (7, head(), true));
}

#[tokio::test]
async fn merge_request_of_a_fork_is_not_ours() {
    let server = FakeServer::start(|request| match path(request).as_str() {
        "GET :/merge_requests" => {
            let (mut own, mut fork) = (merge_request("opened"), merge_request("opened"));
            (own["source_project_id"], own["target_project_id"]) = (json!(3), json!(3));
            (fork["source_project_id"], fork["target_project_id"]) = (json!(4), json!(3));
            fork["iid"] = json!(8);
            FakeResponse::json(200, &json!([fork, own]))
        }
        _ => respond(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Gitlab);
    let found = forge.find_change("team/sub/app", "tamma/t-1", "main").await.unwrap().unwrap();
    assert_eq!(found.number, 7);
}

async fn merge(status: u16, answer: Value, state: &'static str) -> Result<MergeOutcome, Error> {
    let server = FakeServer::start(move |request| match path(request).as_str() {
        "PUT :/merge_requests/7/merge" => {
            assert_eq!(request.body["sha"], HEAD);
            FakeResponse::json(status, &answer)
        }
        "GET :/merge_requests/7" => FakeResponse::json(200, &merge_request(state)),
        _ => respond(request),
    })
    .await;
    server.forge(ForgeKind::Gitlab).merge("team/sub/app", 7, head(), MergeMethod::Squash).await
}

#[tokio::test]
async fn merge_maps_refusals_and_finds_a_merge_that_happened() {
    let commit: CommitId = BASE.parse().unwrap();
    let no = || json!({ "message": "405 Method Not Allowed" });
    let merged = merge(200, merge_request("merged"), "merged").await;
    assert_eq!(merged.unwrap(), MergeOutcome::Merged(commit));
    assert_eq!(merge(405, no(), "merged").await.unwrap(), MergeOutcome::Merged(commit));
    assert!(matches!(merge(405, no(), "opened").await, Err(Error::Refused { .. })));
    assert!(matches!(merge(409, no(), "opened").await, Err(Error::Conflict { .. })));
    assert!(matches!(merge(401, no(), "opened").await, Err(Error::Forbidden { .. })));
}

#[tokio::test]
async fn issues_and_merge_requests_have_notes_of_their_own() {
    let server = FakeServer::start(|request| {
        let us = json!({ "id": 1, "username": "tamma" });
        let written = json!({ "id": 12, "author": us, "created_at": "2026-11-17T09:30:00Z" });
        match path(request).as_str() {
            "GET :/issues/7/notes" | "GET :/merge_requests/7/notes" => {
                FakeResponse::json(200, &json!([]))
            }
            "POST :/issues/7/notes" | "POST :/merge_requests/7/notes" => {
                FakeResponse::json(201, &written)
            }
            _ => respond(request),
        }
    })
    .await;
    let forge = server.forge(ForgeKind::Gitlab);
    for target in [CommentTarget::Issue(7), CommentTarget::PullRequest(7)] {
        let id = forge.upsert_comment("team/sub/app", &target, "k", "Hello").await.unwrap();
        assert_eq!(id, "12");
    }
    let written = server.requests().into_iter().filter(|it| it.call.starts_with("POST"));
    let written: Vec<_> = written.map(|it| (path(&it), it.body["body"].clone())).collect();
    let text = json!("Hello\n\n<!-- tamma:k -->");
    assert_eq!(
        written,
        [
            ("POST :/issues/7/notes".to_owned(), text.clone()),
            ("POST :/merge_requests/7/notes".to_owned(), text),
        ]
    );
}
