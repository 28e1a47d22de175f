//! The client against responses in the shape of GitHub's documentation.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tamma_core::forge::{CheckResult, ForgeKind, Mergeability, PullRequestStatus, ReviewVerdict};
use tamma_core::ids::CommitId;
use tamma_core::rules::MergeMethod;

use super::super::fake_server::{FakeRequest, FakeResponse, FakeServer};
use super::super::{
    AppCredentials, CheckReport, CommentTarget, Error, Forge, ForgeCredential, MergeOutcome,
    NewChange, ObservedChange,
};
use crate::forge::api::now;
use crate::forge::github_app::tests::make_keys;

const HEAD: &str = "6dcb09b5b57875f334f61aebed695e2e4193db5e";
const BASE: &str = "aa218f56b14c9653891f9e74264a383fa43fefbd";

fn head() -> CommitId {
    HEAD.parse().unwrap()
}

fn pull() -> Value {
    json!({
        "number": 7, "html_url": "https://github.com/acme/app/pull/7", "state": "open",
        "head": { "sha": HEAD },
    })
}

fn new_change() -> NewChange {
    NewChange {
        branch: "tamma/t-1".to_owned(),
        base: "main".to_owned(),
        title: "Sort".to_owned(),
        body: "Text".to_owned(),
        labels: vec!["tamma".to_owned()],
        reviewers: vec!["ann".to_owned()],
    }
}

fn not_found() -> FakeResponse {
    FakeResponse::json(404, &json!({ "message": "Not Found" }))
}

#[tokio::test]
async fn pull_request_is_opened_and_found() {
    let server = FakeServer::start(|request| match request.call.split('?').next().unwrap() {
        "POST /repos/acme/app/pulls" => FakeResponse::json(201, &pull()),
        "GET /repos/acme/app/pulls" => FakeResponse::json(200, &json!([pull()])),
        // Labels and reviewers can be refused.
        _ => not_found(),
    })
    .await;
    let forge = server.forge(ForgeKind::Github);
    let opened = forge.open_change("acme/app", &new_change()).await.unwrap();
    let found = forge.find_change("acme/app", "tamma/t-1", "main").await.unwrap();
    assert_eq!(found.as_ref(), Some(&opened));
    assert_eq!((opened.number, opened.head, opened.open), (7, head(), true));
    let requests = server.requests();
    assert_eq!(requests[0].header("authorization"), Some("Bearer t0ken"));
    assert_eq!(requests[0].body["head"], "tamma/t-1");
    assert_eq!(requests[1].body, json!({ "labels": ["tamma"] }));
    assert_eq!(requests[2].body, json!({ "reviewers": ["ann"] }));
    assert!(requests[3].call.contains("head=acme%3Atamma%2Ft-1&base=main&state=all"));
}

#[tokio::test]
async fn second_pull_request_of_a_branch_is_a_conflict() {
    let server = FakeServer::start(|_| {
        let message = "A pull request already exists for acme:tamma/t-1.";
        let error = json!({ "resource": "PullRequest", "code": "custom", "message": message });
        FakeResponse::json(422, &json!({ "message": "Validation Failed", "errors": [error] }))
    })
    .await;
    let error = server.forge(ForgeKind::Github).open_change("acme/app", &new_change()).await;
    assert!(matches!(error, Err(Error::Conflict { .. })), "{error:?}");
    assert_eq!(server.calls().len(), 1);
}

fn merge_facts(extra: &Value) -> FakeResponse {
    let mut pull = json!({ "id": "PR_7", "state": "OPEN", "headRefOid": HEAD });
    for (key, value) in extra.as_object().unwrap() {
        pull[key] = value.clone();
    }
    FakeResponse::json(200, &json!({ "data": { "repository": { "pullRequest": pull } } }))
}

async fn merge(
    respond: impl Fn(&FakeRequest) -> FakeResponse + Send + Sync + 'static,
) -> Result<MergeOutcome, Error> {
    let server = FakeServer::start(respond).await;
    server.forge(ForgeKind::Github).merge("acme/app", 7, head(), MergeMethod::Squash).await
}

#[tokio::test]
async fn merge_has_the_expected_head_and_maps_refusals() {
    let merged = merge(|request| {
        if request.call == "POST /graphql" {
            return merge_facts(&json!({ "isMergeQueueEnabled": false }));
        }
        assert_eq!(request.call, "PUT /repos/acme/app/pulls/7/merge");
        assert_eq!(request.body, json!({ "sha": HEAD, "merge_method": "squash" }));
        FakeResponse::json(200, &json!({ "sha": BASE, "merged": true }))
    })
    .await;
    assert_eq!(merged.unwrap(), MergeOutcome::Merged(BASE.parse().unwrap()));
    let refuse = |status: u16| {
        move |request: &FakeRequest| match request.call.as_str() {
            "POST /graphql" => merge_facts(&json!({})),
            _ => FakeResponse::json(status, &json!({ "message": "no" })),
        }
    };
    assert!(matches!(merge(refuse(409)).await, Err(Error::Conflict { .. })));
    assert!(matches!(merge(refuse(405)).await, Err(Error::Refused { .. })));
    assert!(matches!(merge(refuse(502)).await, Err(Error::Unreachable { .. })));
    let base_moved = merge(|request| match request.call.as_str() {
        "POST /graphql" => merge_facts(&json!({})),
        _ => FakeResponse::json(405, &json!({ "message": "Base branch was modified. Try again." })),
    });
    assert!(matches!(base_moved.await, Err(Error::Conflict { .. })));
    let moved = merge(|_| merge_facts(&json!({ "headRefOid": BASE }))).await;
    assert!(matches!(moved, Err(Error::Conflict { .. })));
    let done = json!({ "state": "MERGED", "mergeCommit": { "oid": BASE } });
    let done = merge(move |_| merge_facts(&done)).await;
    assert_eq!(done.unwrap(), MergeOutcome::Merged(BASE.parse().unwrap()));
}

#[tokio::test]
async fn required_queue_is_used() {
    let queued = merge(|request| {
        assert_eq!(request.call, "POST /graphql");
        if request.body["query"].as_str().unwrap().contains("enqueuePullRequest") {
            assert_eq!(request.body["variables"], json!({ "id": "PR_7", "head": HEAD }));
            let entry = json!({ "enqueuePullRequest": { "mergeQueueEntry": { "id": "MQE_1" } } });
            FakeResponse::json(200, &json!({ "data": entry }))
        } else {
            merge_facts(&json!({ "isMergeQueueEnabled": true, "isInMergeQueue": false }))
        }
    })
    .await;
    assert_eq!(queued.unwrap(), MergeOutcome::Queued);
}

#[tokio::test]
async fn lost_scopes_and_rate_limits_are_named() {
    let server = FakeServer::start(|_| {
        FakeResponse::json(403, &json!({ "message": "Resource not accessible" }))
            .with("x-accepted-oauth-scopes", "repo")
            .with("x-oauth-scopes", "read:user")
    })
    .await;
    let error = server.forge(ForgeKind::Github).find_change("acme/app", "b", "main").await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`find a pull request`") && error.contains("`repo`"), "{error}");
    assert!(!error.contains("t0ken"));

    let server = FakeServer::start(|_| {
        FakeResponse::json(403, &json!({ "message": "You have exceeded a secondary rate limit" }))
            .with("retry-after", "30")
    })
    .await;
    let error = server.forge(ForgeKind::Github).find_change("acme/app", "b", "main").await;
    let Err(Error::RateLimited { until, .. }) = error else { panic!("{error:?}") };
    let seconds = (until - now()).num_seconds();
    assert!((20..=30).contains(&seconds), "{seconds}");
}

fn observed() -> Value {
    let ann = json!({ "__typename": "User", "login": "ann" });
    let us = json!({ "__typename": "User", "login": "tamma" });
    let run = |id: u64, name: &str, conclusion: &str| {
        json!({
            "__typename": "CheckRun", "databaseId": id, "name": name, "status": "COMPLETED",
            "conclusion": conclusion, "isRequired": name == "build",
        })
    };
    let status = json!({
        "__typename": "StatusContext", "id": "SC_1", "context": "deploy", "state": "PENDING",
        "isRequired": false,
    });
    let contexts = json!({
        "totalCount": 4, "pageInfo": { "hasNextPage": false },
        "nodes": [run(1, "build", "FAILURE"), run(2, "build", "SUCCESS"), run(3, "tamma", "FAILURE"), status],
    });
    json!({
        "number": 7, "state": "OPEN", "isDraft": false, "headRefOid": HEAD, "baseRefOid": HEAD,
        "baseRefName": "main", "baseRef": { "target": { "oid": BASE } },
        "mergeable": "UNKNOWN", "mergeStateStatus": "UNKNOWN",
        "commits": { "nodes": [{ "commit": { "oid": HEAD, "statusCheckRollup": { "contexts": contexts } } }] },
        "reviews": { "totalCount": 1, "nodes": [{
            "databaseId": 5, "author": ann, "state": "CHANGES_REQUESTED", "body": "",
            "authorCanPushToRepository": true, "commit": { "oid": HEAD },
        }] },
        "reviewThreads": { "totalCount": 1, "nodes": [{
            "id": "PRRT_1", "isResolved": false, "comments": { "nodes": [
                { "databaseId": 10, "author": ann, "body": "Why?" },
                { "databaseId": 11, "author": us, "body": "Because.\n\n<!-- tamma:k -->" },
            ] },
        }] },
        "comments": { "totalCount": 2, "nodes": [
            { "databaseId": 20, "author": { "__typename": "Bot", "login": "ci" }, "body": "Coverage" },
            { "databaseId": 21, "author": ann, "body": "<!-- tamma:k -->" },
        ] },
    })
}

fn observing(request: &FakeRequest) -> FakeResponse {
    match request.call.split('?').next().unwrap() {
        "POST /graphql" => {
            let pulls = json!({ "p7": observed(), "p8": null });
            let errors =
                json!([{ "type": "NOT_FOUND", "path": ["repository", "p8"], "message": "no" }]);
            FakeResponse::json(200, &json!({ "data": { "repository": pulls }, "errors": errors }))
                .with("x-ratelimit-limit", "5000")
                .with("x-ratelimit-remaining", "4000")
        }
        "GET /user" => FakeResponse::json(200, &json!({ "login": "tamma" })),
        "GET /repos/acme/app/rules/branches/main" => {
            let rule = json!({
                "type": "required_status_checks",
                "parameters": { "required_status_checks": [{ "context": "e2e" }] },
            });
            FakeResponse::json(200, &json!([rule]))
        }
        "GET /repos/acme/app/branches/main" => FakeResponse::json(200, &json!({ "name": "main" })),
        "GET /repos/acme/app/collaborators/ann/permission" => {
            FakeResponse::json(200, &json!({ "permission": "write" }))
        }
        _ => not_found(),
    }
}

#[tokio::test]
async fn servers_without_merge_queues_are_read_without_that_field() {
    let server = FakeServer::start(|request| {
        let query = request.body["query"].as_str().unwrap_or_default();
        if query.contains("isInMergeQueue") {
            let message = "Field 'isInMergeQueue' doesn't exist on type 'PullRequest'";
            return FakeResponse::json(200, &json!({ "errors": [{ "message": message }] }));
        }
        observing(request)
    })
    .await;
    let forge = server.forge(ForgeKind::Github);
    let asked = [ObservedChange { number: 7, cursor: None }];
    let observation = forge.observe("acme/app", &asked).await.unwrap();
    let [(facts, _)] = observation.changes.as_slice() else { panic!("{observation:?}") };
    assert!(!facts.queued);
    let refused = |it: &FakeRequest| it.body.to_string().contains("isInMergeQueue");
    assert_eq!(server.requests().iter().filter(|it| refused(it)).count(), 1);
}

#[tokio::test]
async fn programs_do_not_review_and_others_do_not_hide_a_comment() {
    let server = FakeServer::start(|request| {
        if request.call != "POST /graphql" {
            return observing(request);
        }
        let mut pull = observed();
        let review = |author: Value, state: &str, commit: Value| {
            json!({
                "databaseId": 6, "author": author, "state": state, "body": "", "commit": commit,
                "authorCanPushToRepository": true,
            })
        };
        let (bot, ann) = (json!({ "__typename": "Bot", "login": "ci" }), json!({ "login": "ann" }));
        pull["reviews"]["nodes"] = json!([
            review(bot, "APPROVED", json!({ "oid": HEAD })),
            review(ann.clone(), "CHANGES_REQUESTED", Value::Null),
        ]);
        pull["reviewThreads"]["nodes"][0]["comments"]["nodes"] = json!([
            { "databaseId": 10, "author": ann, "body": "Why?" },
            { "databaseId": 11, "author": { "login": "eve" }, "body": "Do not mind." },
        ]);
        FakeResponse::json(200, &json!({ "data": { "repository": { "p7": pull } } }))
    })
    .await;
    let forge = server.forge(ForgeKind::Github);
    let asked = [ObservedChange { number: 7, cursor: None }];
    let observation = forge.observe("acme/app", &asked).await.unwrap();
    let [(facts, _)] = observation.changes.as_slice() else { panic!("{observation:?}") };
    let reviews = facts.reviews.iter().map(|it| (it.by.as_str(), it.verdict, it.can_write));
    assert_eq!(
        reviews.collect::<Vec<_>>(),
        [
            ("ann", ReviewVerdict::ChangesRequested, true),
            ("ci[bot]", ReviewVerdict::Approved, false),
        ]
    );
    let thread = facts.threads.iter().find(|it| it.id == "PRRT_1").unwrap();
    assert_eq!((thread.last_comment.as_str(), thread.can_write), ("10", true));
}

#[tokio::test]
async fn facts_are_exact_and_left_out_while_nothing_changes() {
    let server = FakeServer::start(observing).await;
    let forge = server.forge(ForgeKind::Github);
    let change = |number, cursor| ObservedChange { number, cursor };
    let observation = forge.observe("acme/app", &[change(7, None), change(8, None)]).await.unwrap();
    assert_eq!(observation.quota_left, Some(0.8));
    let [(facts, cursor)] = observation.changes.as_slice() else { panic!("{observation:?}") };
    assert_eq!((facts.number, facts.head.to_string().as_str()), (7, HEAD));
    assert_eq!((facts.base.to_string().as_str(), &facts.status), (BASE, &PullRequestStatus::Open));
    assert_eq!(facts.mergeability, Mergeability::Unknown);
    let checks: Vec<_> = facts
        .checks
        .iter()
        .map(|it| (it.name.as_str(), it.id.as_str(), it.required, it.result))
        .collect();
    assert_eq!(
        checks,
        [
            ("build", "2", true, CheckResult::Passed),
            ("deploy", "status:SC_1", false, CheckResult::Pending),
            ("e2e", "missing:e2e", true, CheckResult::Pending),
        ]
    );
    let [review] = facts.reviews.as_slice() else { panic!("{:?}", facts.reviews) };
    assert_eq!((review.verdict, review.can_write), (ReviewVerdict::ChangesRequested, true));
    let threads: Vec<_> = facts
        .threads
        .iter()
        .map(|it| {
            (
                it.id.as_str(),
                it.last_comment.as_str(),
                it.by.as_str(),
                it.can_write,
                it.bot,
                it.answered,
            )
        })
        .collect();
    assert_eq!(
        threads,
        [
            ("PRRT_1", "10", "ann", true, false, true),
            ("comment:20", "20", "ci[bot]", false, true, false),
            // A marker that somebody else copied does not hide a comment.
            ("comment:21", "21", "ann", true, false, false),
        ]
    );
    let before = server.calls().len();
    let again = forge.observe("acme/app", &[change(7, cursor.clone())]).await.unwrap();
    assert!(again.changes.is_empty());
    assert_eq!(server.calls().len(), before + 1);
}

#[tokio::test]
async fn issues_are_read_with_validators_and_without_pull_requests() {
    let server = FakeServer::start(|request| {
        if request.header("if-none-match") == Some("\"v1\"") {
            return FakeResponse::text(304, "");
        }
        let at = "2026-11-17T09:00:00Z";
        let user = json!({ "login": "ann", "type": "User" });
        let issue = |number: u64| {
            json!({
                "number": number, "title": "Bug", "body": null, "user": user, "state": "open",
                "html_url": "https://github.com/acme/app/issues/1", "updated_at": at,
                "labels": [{ "name": "tamma" }],
            })
        };
        match request.call.split('?').next().unwrap() {
            "GET /repos/acme/app/issues" => {
                let mut pull = issue(2);
                pull["pull_request"] = json!({});
                FakeResponse::json(200, &json!([issue(1), pull])).with("etag", "\"v1\"")
            }
            "GET /repos/acme/app/issues/comments" => {
                let comment = json!({
                    "id": 9, "body": "@tamma go", "user": user,
                    "issue_url": "https://api.github.com/repos/acme/app/issues/1",
                });
                FakeResponse::json(200, &json!([comment])).with("etag", "\"v1\"")
            }
            "GET /repos/acme/app/issues/1/events" => {
                let set = |label: &str| {
                    json!({ "event": "labeled", "actor": user, "label": { "name": label } })
                };
                FakeResponse::json(200, &json!([set("Tamma"), { "event": "closed" }]))
            }
            _ => observing(request),
        }
    })
    .await;
    let forge = server.forge(ForgeKind::Github);
    let since = "2026-11-17T08:00:00Z".parse().unwrap();
    let first = forge.list_intake("acme/app", since).await.unwrap();
    let second = forge.list_intake("acme/app", since).await.unwrap();
    assert_eq!(first, second);
    let [issue] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!((issue.number, issue.by.as_str(), issue.can_write), (1, "ann", true));
    assert_eq!(issue.comments[0].text, "@tamma go");
    let labelled_by = forge.label_writer("acme/app", 1, "tamma").await.unwrap();
    assert_eq!(labelled_by.as_deref(), Some("ann"));
    assert_eq!(forge.label_writer("acme/app", 1, "bug").await.unwrap(), None);
    let sent = server.requests().into_iter().filter(|it| it.header("if-none-match").is_some());
    assert_eq!(sent.count(), 2);
}

#[tokio::test]
async fn account_without_a_name_is_an_error() {
    let server = FakeServer::start(|_| FakeResponse::json(200, &json!({}))).await;
    for kind in [ForgeKind::Github, ForgeKind::Gitea] {
        let read = server.forge(kind).thread_comments("acme/app", 7, &[]).await;
        assert!(matches!(read, Err(Error::Unreadable { .. })), "{read:?}");
    }
}

/// Returns who set the label at nine o'clock, after another event and the last edit.
async fn label_writer(
    event: Value,
    edited_at: &'static str,
    editor: &'static str,
) -> Option<String> {
    let server = FakeServer::start(move |request| match request.call.split('?').next().unwrap() {
        "GET /repos/acme/app/issues/1/events" => {
            let set = json!({
                "event": "labeled", "actor": { "login": "ann", "type": "User" },
                "label": { "name": "tamma" }, "created_at": "2026-11-17T09:00:00Z",
            });
            FakeResponse::json(200, &json!([set, event]))
        }
        "POST /graphql" => {
            let issue = json!({ "lastEditedAt": edited_at, "editor": { "login": editor } });
            FakeResponse::json(200, &json!({ "data": { "repository": { "issue": issue } } }))
        }
        _ => observing(request),
    })
    .await;
    server.forge(ForgeKind::Github).label_writer("acme/app", 1, "tamma").await.unwrap()
}

#[tokio::test]
async fn label_does_not_count_for_a_text_that_nobody_with_access_saw() {
    let (before, after) = ("2026-11-17T08:59:00Z", "2026-11-17T09:01:00Z");
    let closed = json!({ "event": "closed" });
    let by = Some("ann".to_owned());
    assert_eq!(label_writer(closed.clone(), before, "eve").await, by);
    assert_eq!(label_writer(closed.clone(), after, "ann").await, by);
    assert_eq!(label_writer(closed, after, "eve").await, None);
    let renamed = json!({ "event": "renamed", "actor": { "login": "eve", "type": "User" } });
    assert_eq!(label_writer(renamed, before, "eve").await, None);
}

#[tokio::test]
async fn comment_is_written_once_and_never_that_of_somebody_else() {
    let server = FakeServer::start(|request| match request.call.split('?').next().unwrap() {
        "GET /repos/acme/app/issues/1/comments" => {
            let comment = |id: u64, by: &str, body: &str| {
                json!({ "id": id, "body": body, "user": { "login": by, "type": "User" } })
            };
            FakeResponse::json(
                200,
                &json!([
                    comment(1, "mallory", "x\n<!-- tamma:t-1 -->"),
                    comment(2, "tamma", "Old\n\n<!-- tamma:t-1 -->"),
                ]),
            )
        }
        "PATCH /repos/acme/app/issues/comments/2" => FakeResponse::json(200, &json!({ "id": 2 })),
        "POST /repos/acme/app/issues/1/comments" => FakeResponse::json(201, &json!({ "id": 3 })),
        _ => observing(request),
    })
    .await;
    let forge = server.forge(ForgeKind::Github);
    let target = CommentTarget::Issue(1);
    let write = |marker: &'static str, body: &'static str| {
        let (forge, target) = (forge.clone(), target.clone());
        async move { forge.upsert_comment("acme/app", &target, marker, body).await.unwrap() }
    };
    assert_eq!(write("t-1", "Old").await, "2");
    assert_eq!(write("t-1", "New").await, "2");
    assert_eq!(write("t-2", "Other").await, "3");
    let writes: Vec<String> =
        server.calls().into_iter().filter(|it| !it.starts_with("GET")).collect();
    assert_eq!(
        writes,
        ["PATCH /repos/acme/app/issues/comments/2", "POST /repos/acme/app/issues/1/comments"]
    );
}

#[tokio::test]
async fn log_is_read_from_its_redirect_without_the_credential() {
    let server = FakeServer::start(|request| match request.call.as_str() {
        "GET /repos/acme/app/actions/jobs/2/logs" => {
            FakeResponse::text(302, "").with("location", "/blob?sig=1")
        }
        "GET /blob?sig=1" => FakeResponse::text(200, "x\n".repeat(100_000) + "error: no"),
        "GET /repos/acme/app/actions/jobs/3/logs" => {
            FakeResponse::text(302, "").with("location", "http://logs.example/")
        }
        _ => not_found(),
    })
    .await;
    let forge = server.forge(ForgeKind::Github);
    let log = forge.failed_check_log("acme/app", "2").await.unwrap();
    assert!(log.len() <= 64 * 1024 && log.ends_with("error: no"));
    let blob = server.requests().pop().unwrap();
    assert_eq!(blob.header("authorization"), None);
    let unsafe_redirect = forge.failed_check_log("acme/app", "3").await;
    assert!(matches!(unsafe_redirect, Err(Error::Unreadable { .. })), "{unsafe_redirect:?}");
}

#[tokio::test]
async fn branch_advances_only_from_the_expected_commit() {
    let server = FakeServer::start(|request| match request.call.split('?').next().unwrap() {
        "GET /repos/acme/app/git/ref/heads/main" => {
            FakeResponse::json(200, &json!({ "object": { "sha": BASE } }))
        }
        "PATCH /repos/acme/app/git/refs/heads/main" => {
            assert_eq!(request.body, json!({ "sha": HEAD, "force": false }));
            FakeResponse::json(422, &json!({ "message": "Update is not a fast forward" }))
        }
        _ => FakeResponse::json(200, &json!({ "status": "ahead" })),
    })
    .await;
    let forge = server.forge(ForgeKind::Github);
    let base: CommitId = BASE.parse().unwrap();
    forge.advance_branch("acme/app", "main", head(), base).await.unwrap();
    let other = "1".repeat(40).parse().unwrap();
    let moved = forge.advance_branch("acme/app", "main", other, head()).await;
    assert!(matches!(moved, Err(Error::Conflict { .. })), "{moved:?}");
    let raced = forge.advance_branch("acme/app", "main", base, head()).await;
    assert!(matches!(raced, Err(Error::Conflict { .. })), "{raced:?}");
}

#[tokio::test]
async fn app_exchanges_its_token_once_and_again_before_it_ends() {
    let issued = AtomicU64::new(0);
    let server = FakeServer::start(move |request| match request.call.split('?').next().unwrap() {
        "POST /app/installations/9/access_tokens" => {
            assert!(request.header("authorization").unwrap().starts_with("Bearer ey"));
            let number = issued.fetch_add(1, Ordering::SeqCst);
            // The first one ends too soon to be used twice.
            let minutes = if number == 0 { 5 } else { 60 };
            let end = now() + chrono::TimeDelta::minutes(minutes);
            let token = json!({ "token": format!("ghs_{number}"), "expires_at": end });
            FakeResponse::json(201, &token)
        }
        "GET /repos/acme/app/commits/6dcb09b5b57875f334f61aebed695e2e4193db5e/check-runs" => {
            FakeResponse::json(200, &json!({ "total_count": 0, "check_runs": [] }))
        }
        "POST /repos/acme/app/check-runs" => FakeResponse::json(201, &json!({ "id": 44 })),
        _ => not_found(),
    })
    .await;
    let [private_key, _] = make_keys();
    let mut settings = server.settings(ForgeKind::Github);
    settings.credential =
        ForgeCredential::App(AppCredentials { id: 7, installation: 9, private_key });
    let forge = Forge::open(&settings).unwrap();
    let mut logins = Vec::new();
    for _ in 0..3 {
        let login = forge.git_login().await.unwrap();
        assert_eq!(login.user, "x-access-token");
        logins.push(login.password);
    }
    assert_eq!(logins, ["ghs_0", "ghs_1", "ghs_1"]);
    let report = CheckReport {
        name: "tamma".to_owned(),
        commit: head(),
        passed: Some(false),
        title: "2 findings".to_owned(),
        summary: "Text".to_owned(),
        details_url: None,
        annotations: Vec::new(),
    };
    assert_eq!(forge.publish_check("acme/app", &report).await.unwrap(), "44");
    let body = server.requests().pop().unwrap().body;
    assert_eq!(body["conclusion"], "failure");
    assert_eq!(body["head_sha"], HEAD);
}
