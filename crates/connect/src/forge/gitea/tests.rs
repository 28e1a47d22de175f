//! The client against responses in the shape of Gitea 1.27.

use serde_json::{Value, json};
use tamma_core::forge::{CheckResult, ForgeKind, Mergeability, PullRequestStatus, ReviewVerdict};
use tamma_core::ids::CommitId;
use tamma_core::rules::MergeMethod;

use super::super::fake_server::{FakeRequest, FakeResponse, FakeServer};
use super::super::{
    ChangeUpdate, CheckReport, CommentTarget, Error, MergeOutcome, NewChange, ObservedChange,
};

const HEAD: &str = "6dcb09b5b57875f334f61aebed695e2e4193db5e";
const BASE: &str = "aa218f56b14c9653891f9e74264a383fa43fefbd";

fn head() -> CommitId {
    HEAD.parse().unwrap()
}

fn pull(merged: bool) -> Value {
    json!({
        "number": 7, "html_url": "https://git.example/acme/app/pulls/7", "title": "WIP: Sort",
        "state": if merged { "closed" } else { "open" }, "draft": false, "merged": merged,
        "mergeable": false, "merge_commit_sha": if merged { json!(BASE) } else { Value::Null },
        "merged_by": { "login": "ann" },
        "head": { "label": "tamma/t-1", "ref": "tamma/t-1", "sha": HEAD },
        "base": { "label": "main", "ref": "main", "sha": BASE },
    })
}

fn path(request: &FakeRequest) -> &str {
    request.call.split('?').next().unwrap()
}

/// An open pull request with one status, one review with a comment on a line, and one comment.
fn respond(request: &FakeRequest) -> FakeResponse {
    let (ann, us) = (json!({ "login": "ann" }), json!({ "login": "tamma" }));
    let status = json!({
        "id": 31, "status": "failure", "context": "CI / build (pull_request)", "description": "Failing",
        "target_url": "/acme/app/actions/runs/3/jobs/4",
    });
    match path(request) {
        "GET /user" => FakeResponse::json(200, &us),
        "GET /repos/acme/app/pulls/7" => FakeResponse::json(200, &pull(false)),
        "GET /repos/acme/app/branches/main" => {
            let contexts = json!(["CI / *", "e2e"]);
            let branch = json!({ "enable_status_check": true, "status_check_contexts": contexts });
            FakeResponse::json(200, &branch)
        }
        "GET /repos/acme/app/commits/6dcb09b5b57875f334f61aebed695e2e4193db5e/status" => {
            FakeResponse::json(200, &json!({ "total_count": 1, "statuses": [status] }))
        }
        "GET /repos/acme/app/commits/6dcb09b5b57875f334f61aebed695e2e4193db5e/statuses" => {
            FakeResponse::json(200, &json!([status]))
        }
        "GET /repos/acme/app/pulls/7/reviews" => FakeResponse::json(
            200,
            &json!([{
                "id": 5, "user": ann, "state": "REQUEST_CHANGES", "body": "Please fix",
                "commit_id": HEAD, "dismissed": false, "comments_count": 2,
            }]),
        ),
        "GET /repos/acme/app/pulls/7/reviews/5/comments" => {
            let comment = |id: u64, user: &Value, body: &str| {
                json!({
                    "id": id, "user": user, "body": body, "resolver": null, "path": "src/lib.rs",
                    "position": 3, "original_position": 0,
                })
            };
            let own = "Done\n\n<!-- tamma:k -->";
            FakeResponse::json(200, &json!([comment(11, &us, own), comment(10, &ann, "Why?")]))
        }
        "GET /repos/acme/app/issues/7/comments" => {
            FakeResponse::json(200, &json!([{ "id": 20, "user": ann, "body": "Hello" }]))
        }
        // The bot is no administrator.
        "GET /repos/acme/app/collaborators/ann/permission" => {
            FakeResponse::json(403, &json!({ "message": "Only admins can query all permissions" }))
        }
        "GET /repos/acme/app/assignees" => FakeResponse::json(200, &json!([ann])),
        "GET /repos/acme/app/actions/jobs/4/logs" => FakeResponse::text(200, "error: no"),
        "POST /repos/acme/app/actions/runs/3/jobs/4/rerun" => FakeResponse::json(201, &json!({})),
        _ => FakeResponse::json(404, &json!({ "message": "not found" })),
    }
}

#[tokio::test]
async fn facts_have_patterns_of_required_checks_and_conversations() {
    let server = FakeServer::start(respond).await;
    let forge = server.forge(ForgeKind::Gitea);
    let change = |cursor| ObservedChange { number: 7, cursor };
    let observation = forge.observe("acme/app", &[change(None)]).await.unwrap();
    let [(facts, cursor)] = observation.changes.as_slice() else { panic!("{observation:?}") };
    assert_eq!((facts.head, facts.base), (head(), BASE.parse().unwrap()));
    assert_eq!(facts.status, PullRequestStatus::Open);
    // A conflict looks like a check for conflicts that has not finished.
    assert_eq!(facts.mergeability, Mergeability::Unknown);
    let checks: Vec<_> =
        facts.checks.iter().map(|it| (it.name.as_str(), it.required, it.result)).collect();
    assert_eq!(
        checks,
        [
            ("CI / build (pull_request)", true, CheckResult::Failed),
            ("e2e", true, CheckResult::Pending),
        ]
    );
    let [review] = facts.reviews.as_slice() else { panic!("{:?}", facts.reviews) };
    assert_eq!((review.verdict, review.can_write), (ReviewVerdict::ChangesRequested, true));
    let threads: Vec<_> = facts
        .threads
        .iter()
        .map(|it| (it.id.as_str(), it.last_comment.as_str(), it.can_write, it.answered))
        .collect();
    assert_eq!(
        threads,
        [
            ("10", "10", true, true),
            ("review:5", "5", true, false),
            ("comment:20", "20", true, false),
        ]
    );
    let again = forge.observe("acme/app", &[change(cursor.clone())]).await.unwrap();
    assert!(again.changes.is_empty());

    let comments = forge.thread_comments("acme/app", 7, &["10".to_owned()]).await.unwrap();
    let [comment] = comments.as_slice() else { panic!("{comments:?}") };
    assert_eq!(comment.position, Some(("src/lib.rs".to_owned(), 3)));
    assert!(comment.can_write, "{comment:?}");
    let check = facts.checks[0].id.clone();
    assert_eq!(forge.failed_check_log("acme/app", &check).await.unwrap(), "error: no");
    forge.rerun_check("acme/app", &check).await.unwrap();
}

#[tokio::test]
async fn duplicate_is_a_conflict_and_a_draft_has_a_prefix() {
    let server = FakeServer::start(|request| match path(request) {
        "POST /repos/acme/app/pulls" => {
            FakeResponse::json(409, &json!({ "message": "pull request already exists" }))
        }
        _ => respond(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Gitea);
    let change = NewChange {
        branch: "tamma/t-1".to_owned(),
        base: "main".to_owned(),
        title: "Sort".to_owned(),
        body: String::new(),
        labels: Vec::new(),
        reviewers: Vec::new(),
    };
    let error = forge.open_change("acme/app", &change).await;
    assert!(matches!(error, Err(Error::Conflict { .. })), "{error:?}");
    let request = server.requests().pop().unwrap();
    assert_eq!(request.body["title"], "Sort");
    assert_eq!(request.header("authorization"), Some("token t0ken"));
}

#[tokio::test]
async fn pull_request_is_found_by_its_branches_in_any_state() {
    let server = FakeServer::start(|request| match path(request) {
        "GET /repos/acme/app/pulls/main/tamma/t-1" => FakeResponse::json(200, &pull(true)),
        "GET /repos/acme/app/pulls" => FakeResponse::json(200, &json!([pull(false)])),
        _ => respond(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Gitea);
    let found = forge.find_change("acme/app", "tamma/t-1", "main").await.unwrap().unwrap();
    assert_eq!((found.number, found.open), (7, false));
    let other = forge.find_change("acme/app", "tamma/t-2", "main").await.unwrap();
    assert_eq!(other, None);
}

#[tokio::test]
async fn pull_request_of_a_fork_is_not_ours() {
    let server = FakeServer::start(|request| match path(request) {
        "GET /repos/acme/app/pulls" => {
            let (mut own, mut fork) = (pull(false), pull(false));
            (own["head"]["repo_id"], own["base"]["repo_id"]) = (json!(3), json!(3));
            (fork["head"]["repo_id"], fork["base"]["repo_id"]) = (json!(4), json!(3));
            fork["number"] = json!(8);
            FakeResponse::json(200, &json!([fork, own]))
        }
        _ => respond(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Gitea);
    let found = forge.find_change("acme/app", "tamma/t-1", "main").await.unwrap().unwrap();
    assert_eq!(found.number, 7);
}

async fn merge(status: u16, message: &'static str, merged: bool) -> Result<MergeOutcome, Error> {
    let server = FakeServer::start(move |request| match path(request) {
        "POST /repos/acme/app/pulls/7/merge" => {
            assert_eq!(request.body, json!({ "Do": "rebase", "head_commit_id": HEAD }));
            FakeResponse::json(status, &json!({ "message": message }))
        }
        "GET /repos/acme/app/pulls/7" => FakeResponse::json(200, &pull(merged)),
        _ => respond(request),
    })
    .await;
    server.forge(ForgeKind::Gitea).merge("acme/app", 7, head(), MergeMethod::Rebase).await
}

#[tokio::test]
async fn refused_merge_is_read_again() {
    let commit: CommitId = BASE.parse().unwrap();
    assert_eq!(merge(200, "", true).await.unwrap(), MergeOutcome::Merged(commit));
    assert_eq!(merge(405, "", true).await.unwrap(), MergeOutcome::Merged(commit));
    assert!(matches!(merge(405, "User not allowed", false).await, Err(Error::Refused { .. })));
    assert!(matches!(merge(409, "", false).await, Err(Error::Conflict { .. })));
    // For a moment after a push, it does not know whether the branches conflict.
    let busy = merge(405, "Please try again later", false).await;
    assert!(matches!(busy, Err(Error::Conflict { .. })));
}

#[tokio::test]
async fn a_draft_of_a_person_stays_a_draft() {
    let server = FakeServer::start(|request| match path(request) {
        "GET /repos/acme/app/pulls/7" => {
            let mut draft = pull(false);
            draft["draft"] = json!(true);
            FakeResponse::json(200, &draft)
        }
        "PATCH /repos/acme/app/pulls/7" => FakeResponse::json(201, &pull(false)),
        _ => respond(request),
    })
    .await;
    let update = ChangeUpdate { title: Some("Sort names".to_owned()), ..ChangeUpdate::default() };
    server.forge(ForgeKind::Gitea).update_change("acme/app", 7, &update).await.unwrap();
    assert_eq!(server.requests().pop().unwrap().body, json!({ "title": "WIP: Sort names" }));
}

#[tokio::test]
async fn reply_joins_its_conversation_and_resolves_it() {
    let server = FakeServer::start(|request| match path(request) {
        "POST /repos/acme/app/pulls/7/comments/10/replies" => {
            FakeResponse::json(201, &json!({ "id": 12 }))
        }
        "POST /repos/acme/app/pulls/comments/10/resolve" => FakeResponse::text(204, ""),
        _ => respond(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Gitea);
    let target = CommentTarget::Thread { number: 7, thread: "10".to_owned(), resolve: true };
    let id = forge.upsert_comment("acme/app", &target, "other", "Fixed").await.unwrap();
    assert_eq!(id, "12");
    assert!(server.calls().contains(&"POST /repos/acme/app/pulls/comments/10/resolve".to_owned()));
    // The reply with this marker is there already.
    let known = forge.upsert_comment("acme/app", &target, "k", "Done").await.unwrap();
    assert_eq!(known, "11");
}

#[tokio::test]
async fn a_change_that_was_pushed_is_marked_as_merged() {
    let server = FakeServer::start(|request| match path(request) {
        "POST /repos/acme/app/pulls/7/merge" => FakeResponse::text(200, ""),
        _ => respond(request),
    })
    .await;
    server.forge(ForgeKind::Gitea).mark_merged("acme/app", 7, head()).await.unwrap();
    let sent = server.requests().pop().unwrap().body;
    assert_eq!(sent, json!({ "Do": "manually-merged", "MergeCommitID": head().to_string() }));
}

#[tokio::test]
async fn reply_is_a_comment_in_versions_without_replies() {
    for status in [404, 405] {
        let server = FakeServer::start(move |request| match path(request) {
            "POST /repos/acme/app/pulls/7/comments/10/replies" => FakeResponse::text(status, ""),
            "POST /repos/acme/app/issues/7/comments" => {
                FakeResponse::json(201, &json!({ "id": 21 }))
            }
            _ => respond(request),
        })
        .await;
        let forge = server.forge(ForgeKind::Gitea);
        let target = CommentTarget::Thread { number: 7, thread: "10".to_owned(), resolve: false };
        let id = forge.upsert_comment("acme/app", &target, "other", "Fixed").await.unwrap();
        assert_eq!(id, "21", "{status}");
    }
}

#[tokio::test]
async fn same_status_is_not_published_again() {
    let server = FakeServer::start(|request| match path(request) {
        "POST /repos/acme/app/statuses/6dcb09b5b57875f334f61aebed695e2e4193db5e" => {
            FakeResponse::json(201, &json!({ "id": 32 }))
        }
        _ => respond(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Gitea);
    let report = |name: &str, title: &str| CheckReport {
        name: name.to_owned(),
        commit: head(),
        passed: Some(false),
        title: title.to_owned(),
        summary: String::new(),
        details_url: None,
        annotations: Vec::new(),
    };
    let known =
        forge.publish_check("acme/app", &report("CI / build (pull_request)", "Failing")).await;
    assert_eq!(known.unwrap(), "31");
    assert_eq!(forge.publish_check("acme/app", &report("tamma", "No")).await.unwrap(), "32");
    assert!(!forge.capabilities().ref_cas);
    let advanced = forge.advance_branch("acme/app", "main", head(), head()).await;
    assert!(matches!(advanced, Err(Error::Refused { .. })));
}

#[tokio::test]
async fn changed_issues_are_all_read_and_sorted_by_their_change() {
    let server = FakeServer::start(|request| {
        let issue = |number: u64, minute: u64| {
            json!({
                "number": number, "title": "Sort", "body": "", "state": "open", "labels": [],
                "user": { "login": "ann" }, "html_url": "https://git.example/acme/app/issues/1",
                "updated_at": format!("2026-11-17T09:{minute:02}:00Z"),
            })
        };
        match path(request) {
            "GET /repos/acme/app/issues" if request.call.contains("page=2") => {
                FakeResponse::json(200, &json!([issue(1, 1)]))
            }
            "GET /repos/acme/app/issues" => {
                // The forge sorts by creation, newest first.
                let page: Vec<_> = (2..52).rev().map(|number| issue(number, 60 - number)).collect();
                FakeResponse::json(200, &json!(page))
            }
            "GET /repos/acme/app/issues/comments" => FakeResponse::json(200, &json!([])),
            _ => respond(request),
        }
    })
    .await;
    let since = "2026-11-17T09:00:00Z".parse().unwrap();
    let issues = server.forge(ForgeKind::Gitea).list_intake("acme/app", since).await.unwrap();
    assert_eq!(issues.len(), 51);
    assert_eq!(issues[0].number, 1, "the oldest change is first");
    assert!(issues.is_sorted_by_key(|it| it.updated_at));
    // Changes that the forge showed late are read too.
    let first = server.requests().into_iter().find(|it| it.call.contains("/issues?"));
    let call = first.expect("a list of issues").call;
    assert!(call.contains("08%3A58%3A00") || call.contains("08:58:00"), "{call}");
}
