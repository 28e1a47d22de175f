//! Pages in a browser without JavaScript.

use reqwest::Method;
use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_store::{LineKind, NewLine, NewRun, RunNumber, RunUpdate, RunningCall};

use crate::browser::{Browser, StoredTask, between, local_config};
use crate::test_server::{TestServer, config, new_id};

const HOSTILE: &str = "Greet <script>alert(1)</script> & \"friends\"";

#[tokio::test]
async fn every_page_has_security_headers_and_escapes_hostile_text() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let description = "**bold** [x](javascript:alert(1)) <img src=x onerror=alert(1)>";
    let task =
        json!({ "title": HOSTILE, "description": description, "acceptance_criteria": [HOSTILE] });
    let mut stored = StoredTask::new(&server, project, task).await;
    stored.add_plan(HOSTILE, 7).await;
    let id = stored.id;
    // A run with a hostile log line, and a change with hostile content.
    let number = RunNumber { job_number: 4, attempt: 1 };
    let (agent, mode) = ("claude-code".to_owned(), "implement".to_owned());
    let (task, at) = (TaskId(id), stored.now());
    let run = NewRun { task, number, at, agent, model: None, tier: None, mode, worker: None };
    server.store.begin_run(&run).await.expect("started");
    let text = format!("{HOSTILE}\u{1b}[31m</hx-partial>");
    let hostile_call = json!({
        "status": "failed", "kind": "execute", "title": HOSTILE, "input": HOSTILE,
        "output": HOSTILE, "locations": [HOSTILE],
        "edits": [{ "path": HOSTILE, "added": 1, "removed": 0, "diff": format!("+{HOSTILE}") }],
    });
    let hostile_plan = json!({ "document": "plan", "content": { "summary": HOSTILE } });
    let lines = [
        (1, LineKind::Said, Some(json!({ "json": HOSTILE }))),
        (2, LineKind::Tool, Some(hostile_call)),
        (3, LineKind::Document, Some(hostile_plan)),
    ];
    let line = |(sequence, kind, data)| NewLine { sequence, at, kind, text: text.clone(), data };
    let running = vec![RunningCall { title: HOSTILE.to_owned(), kind: None, since: at }];
    let update =
        RunUpdate { lines: lines.map(line).into(), running: Some(running), ..RunUpdate::default() };
    server.store.append_run_update(task, number, &update).await.expect("stored");
    let patch = format!("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+{HOSTILE}\n");
    let record =
        tamma_core::review::record::CheckRecord::Review(tamma_core::review::record::ReviewCheck {
            commit: "a".repeat(40).parse().expect("commit"),
            verdict: tamma_core::review::evaluate(tamma_core::review::ReviewInputs::default()),
            diff: Some(server.store.save_text(&patch).await.expect("stored")),
            is_diff_truncated: false,
            validator: None,
            second: None,
        });
    server.store.save_check(task, 7, 1, &record).await.expect("stored");

    let mut browser = Browser::new(&server);
    let parts = ["", "/plan", "/plan/edit", "/change", "/review", "/log", "/events"];
    let pages =
        ["/", "/inbox", "/projects", "/engines", "/knowledge", "/knowledge/new", "/figures"];
    let pages = pages.into_iter().chain(["/chat", "/tasks/new", "/?text=friends&phase=approve"]);
    let pages: Vec<String> = pages
        .map(str::to_owned)
        .chain(parts.iter().map(|part| format!("/tasks/{id}{part}")))
        .chain([format!("/runs/{id}-4")])
        .collect();
    for page in &pages {
        let response = browser.send(Method::GET, page, &[], None).await;
        let policy = response.headers()["content-security-policy"].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        let status = response.status();
        let html = response.text().await.expect("page");
        assert_eq!(status, 200, "{page}: {html}");
        for forbidden in
            ["<script>alert", "<img src=x", "href=\"javascript:", " style=", "onerror=\""]
        {
            assert!(!html.contains(forbidden), "{page} has {forbidden}");
        }
    }
    // The hostile text is shown, escaped.
    for (part, text) in [
        ("/log", "Greet &#60;script&#62;alert(1)"),
        ("/change", "Greet &#60;script&#62;alert(1)"),
        ("", "&#60;img src=x"),
    ] {
        let html = browser.page(&format!("/tasks/{id}{part}")).await;
        assert!(html.contains(text), "{part}: {html}");
    }
    let (status, html) = browser.get("/nothing-here").await;
    assert_eq!(status, 404);
    assert!(html.contains("Page not found"), "{html}");
    let unknown = new_id();
    for part in parts {
        let (status, html) = browser.get(&format!("/tasks/{unknown}{part}")).await;
        assert_eq!(status, 404, "{part}");
        assert!(html.contains("Cannot find") && html.contains("Go to board"), "{html}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_task_is_added_with_a_form_and_forged_forms_are_refused() {
    let server = TestServer::with(local_config()).await;
    server.project("/nowhere").await;
    let mut browser = Browser::new(&server);
    let fields = "title=Greet+the+world&project=greeter&type=feature&priority=medium";
    let added = browser.post("/tasks/new", "/tasks", fields).await;
    assert_eq!(added.status(), 303);
    let path = added.headers()["location"].to_str().expect("location").to_owned();
    let html = browser.page(&path).await;
    assert!(html.contains("Greet the world") && html.contains("Task added."), "{html}");
    // The notice is shown once.
    let html = browser.page(&path).await;
    assert!(!html.contains("Task added."), "{html}");
    // The error is shown, and the input is kept.
    let wrong = "title=&project=greeter&type=feature&priority=medium&description=Kindly";
    let wrong = browser.post("/tasks/new", "/tasks", wrong).await;
    assert_eq!(wrong.status(), 422);
    let html = wrong.text().await.expect("page");
    assert!(html.contains("The title must be one line") && html.contains("Kindly"), "{html}");
    // A form without the CSRF token, one with the token of another browser, and one from another site.
    let form = "action=cancel&reason=no";
    let actions = format!("{path}/actions");
    let forged = browser.send(Method::POST, &actions, &[], Some(form)).await;
    assert_eq!(forged.status(), 403);
    let other = Browser::new(&server).page("/").await;
    let secret = between(&other, "name=\"csrf\" value=\"", "\"");
    let stolen = format!("csrf={secret}&{form}");
    let stolen = browser.send(Method::POST, &actions, &[], Some(&stolen)).await;
    assert_eq!(stolen.status(), 403);
    let html = browser.page(&path).await;
    let secret = between(&html, "name=\"csrf\" value=\"", "\"").to_owned();
    let right = format!("csrf={secret}&{form}");
    for (name, value) in [("origin", "http://evil.example"), ("origin", "null")] {
        let far = browser.send(Method::POST, &actions, &[(name, value)], Some(&right)).await;
        assert_eq!(far.status(), 403, "{name}: {value}");
    }
    let (_, detail) = server.get(&path).await;
    assert_eq!(detail["state"], "pending", "the task is not cancelled");
    server.end().await;
}

#[tokio::test]
async fn an_approval_names_the_plan_hash_and_a_stale_one_is_refused() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut stored = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    stored.add_plan("First thoughts", 7).await;
    let path = format!("/tasks/{}", stored.id);
    let mut browser = Browser::new(&server);
    let html = browser.page(&path).await;
    let hash = stored.task_loop().plan.as_ref().expect("plan").hash.to_string();
    assert!(html.contains("Approve plan 1") && html.contains("First thoughts"), "{html}");
    assert!(html.contains(&format!("name=\"plan\" value=\"{hash}\"")), "{html}");
    // The page shows the consequence of each answer and every risk factor.
    assert!(html.contains("starts when a slot is free"), "{html}");
    for factor in ["Files changed", "7 files; 6 or more: 1 point", "File limit", "Critical files"] {
        assert!(html.contains(factor), "{factor}");
    }
    assert!(!html.contains("threshold"), "internal names are not shown");
    // The plan is revised in the meantime.
    stored
        .apply(|world| {
            let scope = world.binding();
            let changes = crate::world::note();
            world.ask(tamma_core::task_loop::Action::RevisePlan { scope, changes });
        })
        .await;
    stored.add_plan("Second thoughts", 8).await;
    let now = stored.task_loop().plan.as_ref().expect("plan").version;
    let fields = format!("action=approve&plan={hash}&reason=It+looks+good+to+me");
    let stale = browser.post(&path, &format!("{path}/actions"), &fields).await;
    assert_eq!(stale.status(), 409);
    let html = stale.text().await.expect("page");
    let message =
        format!("Plan {now} has replaced the plan you were reading. Nothing was changed.");
    assert!(html.contains(&message) && html.contains("Read the new plan"), "{html}");
    assert!(html.contains("It looks good to me"), "the text is kept: {html}");
    // Both plans can be compared.
    let html = browser.page(&format!("{path}/plan")).await;
    assert!(html.contains("First thoughts") && html.contains("Second thoughts"), "{html}");
    server.end().await;
}

#[tokio::test]
async fn a_viewer_sees_no_buttons_and_is_refused() {
    let server = TestServer::with(local_config()).await;
    let folder = tempfile::tempdir().expect("directory");
    let rules = "people:\n  everybody: viewer\n  named: { Grace: approver }\n";
    std::fs::write(folder.path().join("tamma.yaml"), rules).expect("written");
    let project = server.project(&folder.path().display().to_string()).await;
    let mut stored = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    stored.add_plan("Kindly", 7).await;
    let path = format!("/tasks/{}", stored.id);
    let mut browser = Browser::signed_in(&server, &server.token_of("Ada").await).await;
    let html = browser.page(&path).await;
    assert!(html.contains("Waiting on Grace."), "{html}");
    assert!(!html.contains(&format!("action=\"{path}/actions\"")), "{html}");
    let html = browser.page("/").await;
    assert!(html.contains("Waiting on Grace"), "{html}");
    let html = browser.page("/inbox").await;
    assert!(!html.contains("id=\"ask-") && html.contains("Waiting on others"), "{html}");
    assert!(!browser.page("/tasks/new").await.contains("Add task"));
    let hash = stored.task_loop().plan.as_ref().expect("plan").hash.to_string();
    for form in [format!("action=approve&plan={hash}"), "action=cancel&reason=no".to_owned()] {
        let response = browser.post(&path, &format!("{path}/actions"), &form).await;
        assert_eq!(response.status(), 403, "{form}");
        let html = response.text().await.expect("page");
        assert!(html.contains("Ada is a viewer"), "{html}");
    }
    let add = "title=Greet&project=greeter&type=feature&priority=medium";
    let added = browser.post("/tasks/new", "/tasks", add).await;
    assert!(added.status().is_client_error(), "{}", added.status());
    assert!(added.text().await.expect("page").contains("Ada is a viewer"));
    // The file alone gives nobody a role; a granted one applies immediately.
    let rules = rules.replace("Grace", "Ada");
    std::fs::write(folder.path().join("tamma.yaml"), rules).expect("written");
    assert!(browser.page(&path).await.contains("Waiting on Grace."));
    server.grant("greeter", "Ada", "approver").await;
    let html = browser.page(&path).await;
    assert!(html.contains("Approve plan 1") && !html.contains("Waiting on Grace"), "{html}");
    let html = browser.page("/inbox").await;
    assert!(html.contains("id=\"ask-") && !html.contains("Waiting on others"), "{html}");
    server.end().await;
}

#[tokio::test]
async fn the_board_is_filtered_and_searched() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut ids = Vec::new();
    for (title, kind, label) in [
        ("Round totals", "bugfix", "money"),
        ("Greet customers", "feature", "kind"),
        ("Greet guests", "docs", "kind"),
    ] {
        let task = json!({ "title": title, "type": kind, "labels": [label] });
        ids.push(StoredTask::new(&server, project, task).await);
    }
    ids[1].add_plan("Kindly", 7).await;
    let mut browser = Browser::new(&server);
    for (query, expected) in [
        ("", vec!["Round totals", "Greet customers", "Greet guests"]),
        ("?text=greet", vec!["Greet customers", "Greet guests"]),
        ("?text=gre+cust", vec!["Greet customers"]),
        ("?text=greet+label%3Akind&type=docs", vec!["Greet guests"]),
        ("?text=label%3Amoney", vec!["Round totals"]),
        ("?type=bugfix", vec!["Round totals"]),
        ("?waits=person", vec!["Greet customers"]),
        ("?risk=medium&project=greeter", vec!["Greet customers"]),
        ("?phase=receive", vec!["Round totals", "Greet guests"]),
        ("?priority=critical", vec![]),
        ("?text=%22%27%3B--%3Cscript%3E", vec![]),
    ] {
        let html = browser.page(&format!("/{query}")).await;
        for title in ["Round totals", "Greet customers", "Greet guests"] {
            let is_there = html.contains(&format!("data-item>{title}</a>"));
            assert_eq!(is_there, expected.contains(&title), "{query}: {title}");
        }
        assert_eq!(html.contains("No matching tasks"), expected.is_empty(), "{query}");
    }
    assert!(browser.page("/").await.contains("Needs you"));
    // A full or short ID leads to the task.
    let id = ids[0].id;
    for digits in [id.to_string(), id.simple().to_string()[24..].to_owned()] {
        let response = browser.send(Method::GET, &format!("/?text={digits}"), &[], None).await;
        assert_eq!(response.status(), 303);
        assert_eq!(response.headers()["location"], format!("/tasks/{id}"));
    }
    let (status, html) = browser.get("/?project=nobody").await;
    assert_eq!(status, 404);
    assert!(html.contains("Cannot find project"), "{html}");
    server.end().await;
}

#[tokio::test]
async fn cards_show_spend_and_budget_and_the_agents_page_shows_workers() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut stored = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    stored.add_plan("Kindly", 7).await;
    let mut browser = Browser::new(&server);
    let limit = tamma_core::budget::task_limit(
        stored.task_loop().risk_level(),
        &stored.task_loop().granted,
        &tamma_core::rules::Rules::default(),
    );
    let limit = tamma_core::format::format_usd(limit.usd.expect("limit"));
    let html = browser.page("/").await;
    assert!(html.contains(&format!(" of {limit}</span>")), "{html}");
    // No workers first, then one.
    assert!(browser.page("/engines").await.contains("No workers online"));
    server.store.record_heartbeat("lovelace-7", 3, "bubblewrap; filtered").await.expect("stored");
    let number = RunNumber { job_number: 4, attempt: 1 };
    let run = NewRun {
        task: TaskId(stored.id),
        number,
        at: stored.now(),
        agent: "claude-code".to_owned(),
        model: Some("opus".to_owned()),
        tier: None,
        mode: "plan".to_owned(),
        worker: Some("lovelace-7".to_owned()),
    };
    server.store.begin_run(&run).await.expect("started");
    // The cost of a run grows with its model calls.
    let page = format!("/tasks/{}", stored.id);
    assert!(!browser.page(&page).await.contains("of input cached"));
    for (input, cached, cost, share) in [(300, 100, "0.42", 25), (400, 1_600, "1.3", 80)] {
        let tokens = Tokens { input, cached, output: 50, ..Tokens::default() };
        let usage = Usage { tokens, cost: Cost::Known(cost.parse().expect("money")) };
        let update = RunUpdate { usage: Some((usage, true)), ..RunUpdate::default() };
        server.store.append_run_update(TaskId(stored.id), number, &update).await.expect("stored");
        let html = browser.page(&page).await;
        let cost = tamma_core::format::format_usd(cost.parse().expect("money"));
        let expected = format!("{cost} so far · {share}% of input cached");
        assert!(html.contains(&expected), "{expected}: {html}");
        assert!(html.contains(&format!("({share}% cached)")), "{html}");
    }
    let html = browser.page("/engines").await;
    assert!(html.contains("lovelace-7") && html.contains("1 of 3 slots"), "{html}");
    assert!(html.contains("Sandbox: bubblewrap; filtered"), "{html}");
    assert!(html.contains("plan with claude-code, opus"), "{html}");
    server.store.remove_worker("lovelace-7").await.expect("stored");
    let html = browser.page("/engines").await;
    assert!(html.contains("The worker of these runs is offline"), "{html}");
    server.end().await;
}

#[tokio::test]
async fn sign_in_needs_the_token_once_per_session() {
    let token = "a-token-that-is-long-enough";
    let server = TestServer::with(config("127.0.0.1:0", Some(token))).await;
    let mut browser = Browser::new(&server);
    let response = browser.send(Method::GET, "/inbox", &[], None).await;
    assert_eq!(response.status(), 303);
    assert_eq!(response.headers()["location"], "/hello?to=%2Finbox");
    // Before that, there is nothing to navigate to.
    let html = browser.page("/hello").await;
    assert!(html.contains("class=\"brand\"") && html.contains("name=\"token\""), "{html}");
    for hidden in ["<nav", "New task", "id=\"find\"", "Export all data", "<script"] {
        assert!(!html.contains(hidden), "{hidden}: {html}");
    }
    let wrong = browser.post("/hello", "/hello", "name=Ada&token=guess&to=%2Finbox").await;
    assert_eq!(wrong.status(), 403);
    let elsewhere = format!("name=Ada&token={token}&to=%2F%2Fevil.example");
    let right = browser.post("/hello", "/hello", &elsewhere).await;
    assert_eq!(
        (right.status().as_u16(), &right.headers()["location"]),
        (303, &"/".parse().expect("ok"))
    );
    let html = browser.page("/inbox").await;
    assert!(html.contains("Ada"), "{html}");
    // Live updates need a session too.
    let mut stranger = Browser::new(&server);
    for path in ["/live/board", "/live/inbox", "/live/engines"] {
        assert_eq!(stranger.get(path).await.0, 303, "{path}");
    }
    let left = browser.post("/inbox", "/goodbye", "").await;
    assert_eq!(left.status(), 303);
    assert_eq!(browser.get("/inbox").await.0, 303);
    server.end().await;
}
