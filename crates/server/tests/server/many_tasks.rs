//! Many tasks: views, grouping, bulk actions, the palette, and decisions in the inbox.

use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::task::{Priority, TaskEdit};
use tamma_core::task_loop::Action;

use crate::browser::{Browser, StoredTask, local_config};
use crate::oversight::closed_task;
use crate::test_server::{TestServer, new_id};

#[tokio::test]
async fn cards_show_project_priority_and_labels_and_the_board_can_be_grouped() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let labels = json!({ "title": "Greet", "labels": ["good first issue", "<b>ui</b>"] });
    let mut task = StoredTask::new(&server, project, labels).await;
    task.apply(|world| {
        let priority = Some(Priority::Critical);
        world.ask(Action::Edit(TaskEdit { priority, ..TaskEdit::default() }));
    })
    .await;
    let mut browser = Browser::new(&server);
    let html = browser.page("/").await;
    for part in ["href=\"/?project=greeter\"", "p-critical", "/?label=good+first+issue"] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(html.contains("&#60;b&#62;ui") && !html.contains("<b>ui</b>"), "{html}");
    assert!(html.contains("name=\"task\"") && html.contains("form=\"bulk\""), "{html}");
    // Only tasks with the label.
    let html = browser.page("/?label=good+first+issue").await;
    assert!(html.contains(&format!("card-{}", task.id)), "{html}");
    assert!(browser.page("/?label=other").await.contains("No matching tasks"));
    // Columns of priorities are targets of a move, even if they are empty.
    let html = browser.page("/?group=priority&sort=priority").await;
    for priority in ["critical", "high", "medium", "low"] {
        assert!(html.contains(&format!("data-priority=\"{priority}\"")), "{priority}: {html}");
    }
    assert!(!browser.page("/").await.contains("data-priority"), "phases are no targets");
    assert!(browser.page("/?group=project").await.contains(">greeter <"));
    assert!(browser.page("/?group=person").await.contains("Not waiting on anyone"));
    server.end().await;
}

#[tokio::test]
async fn a_saved_view_belongs_to_the_person_who_saved_it() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    let mut ada = Browser::new(&server);
    let view = "name=%3Ci%3EMine&query=waits%3Dperson%26group%3Dproject%26to%3Dhttp%3A%2F%2Fevil";
    let saved = ada.post("/", "/views", view).await;
    assert_eq!(saved.status(), 303);
    assert_eq!(saved.headers()["location"], "/?waits=person&group=project");
    let html = ada.page("/").await;
    let link = "<a href=\"/?waits=person&#38;group=project\">&#60;i&#62;Mine</a>";
    assert!(html.contains(link), "{html}");
    let mut grace = Browser::signed_in(&server, &server.token_of("Grace").await).await;
    server.grant("greeter", "Grace", "member").await;
    assert!(!grace.page("/").await.contains("Mine"));
    let removed = ada.post("/", "/views/remove", "name=%3Ci%3EMine").await;
    assert_eq!(removed.status(), 303);
    ada.page("/").await;
    assert!(!ada.page("/").await.contains("Mine"));
    assert_eq!(ada.post("/", "/views", "name=&query=").await.status(), 422);
    server.end().await;
}

#[tokio::test]
async fn a_bulk_action_has_a_result_for_each_task_and_decides_nothing() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let closed = closed_task(&server, project).await.id;
    let unknown = new_id();
    let body = json!({ "tasks": [closed, unknown, closed], "action": { "pause": {} } });
    let (status, response) = server.post("/tasks/actions", &body).await;
    assert_eq!(status, 200, "{response}");
    let results = response["results"].as_array().expect("results");
    let tasks: Vec<&Value> = results.iter().map(|result| &result["task"]).collect();
    assert_eq!(tasks, [&json!(closed), &json!(unknown)], "each task once, in order");
    assert_eq!(results[0]["problem"]["status"], 409, "{response}");
    assert_eq!(results[1]["problem"]["status"], 404, "{response}");
    for refused in [
        json!({ "tasks": [closed], "action": { "approve": { "plan": "01234567" } } }),
        json!({ "tasks": [closed], "action": { "edit": { "title": "One for all" } } }),
        json!({ "tasks": [], "action": { "pause": {} } }),
    ] {
        assert_eq!(server.post("/tasks/actions", &refused).await.0, 422, "{refused}");
    }
    let mut browser = Browser::new(&server);
    let form = format!("task={closed}&action=pause&query=group%3Dproject");
    let response = browser.post("/", "/tasks/bulk", &form).await;
    let html = response.text().await.expect("page");
    assert!(html.contains("0 of 1 task") && html.contains("the task is closed"), "{html}");
    assert!(html.contains("href=\"/?group=project\""), "{html}");
    // A cancellation is confirmed, with what it means for each task.
    let open = StoredTask::new(&server, project, json!({ "title": "<i>Greet" })).await.id;
    let form = format!("task={open}&task={closed}&action=cancel&reason=%22obsolete%22");
    let html = browser.post("/", "/tasks/bulk", &form).await.text().await.expect("page");
    assert!(html.contains("Nothing has been cancelled yet"), "{html}");
    assert!(html.contains("&#60;i&#62;Greet") && html.contains("stops for good"), "{html}");
    assert!(html.contains("Not possible now: the task is closed"), "{html}");
    assert!(html.contains("value=\"&#34;obsolete&#34;\""), "{html}");
    let (_, detail) = server.get(&format!("/tasks/{open}")).await;
    assert_eq!(detail["state"], "pending", "{detail}");
    let form = format!("task={open}&action=cancel");
    assert_eq!(browser.post("/", "/tasks/bulk", &form).await.status(), 422, "no reason");
    server.end().await;
}

#[tokio::test]
async fn an_invalid_edit_is_refused_before_it_reaches_the_workflow() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    let path = format!("/tasks/{}/actions", task.id);
    for edit in [json!({}), json!({ "title": "two\nlines" }), json!({ "add_labels": ["a,b"] })] {
        let (status, problem) = server.post(&path, &json!({ "edit": edit })).await;
        assert_eq!(status, 422, "{problem}");
    }
    // The page offers the title only until there is a plan.
    let mut browser = Browser::new(&server);
    let page = format!("/tasks/{}", task.id);
    assert!(browser.page(&page).await.contains("name=\"title\" value=\"Greet\""));
    let mut task = task;
    task.add_plan("Kindly", 7).await;
    let html = browser.page(&page).await;
    assert!(!html.contains("name=\"title\"") && html.contains("name=\"labels\""), "{html}");
    server.end().await;
}

#[tokio::test]
async fn the_inbox_shows_the_plan_with_the_forms_that_decide_on_it() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    task.add_plan("Kindly <script>", 7).await;
    let hash = task.task_loop().plan.as_ref().expect("plan").hash.to_string();
    let html = Browser::new(&server).page("/inbox").await;
    let plan = html.find("Kindly &#60;script&#62;").expect("the plan");
    let approve = html.find("name=\"action\" value=\"approve\"").expect("the form");
    assert!(plan < approve, "the plan comes before its approval: {html}");
    assert!(html.contains(&format!("name=\"plan\" value=\"{hash}\"")), "{html}");
    for part in ["value=\"reject\"", "value=\"ask_changes\"", "name=\"back\" value=\"/inbox\""] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(html.contains("data-question=\"1-"), "{html}");
    server.end().await;
}

#[tokio::test]
async fn the_palette_finds_tasks_that_the_person_can_read() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let task = StoredTask::new(&server, project, json!({ "title": "Greet <b>the</b> moon" })).await;
    StoredTask::new(&server, project, json!({ "title": "Paint the shed" })).await;
    let mut browser = Browser::new(&server);
    let html = browser.page("/palette?text=moon").await;
    assert!(html.contains(&format!("href=\"/tasks/{}\"", task.id)), "{html}");
    assert!(html.contains("Greet &#60;b&#62;the") && !html.contains("shed"), "{html}");
    assert!(browser.page("/palette").await.contains("Paint the shed"));
    let mut stranger = Browser::signed_in(&server, &server.token_of("Mallory").await).await;
    let response = stranger.send(Method::GET, "/palette?text=moon", &[], None).await;
    assert!(!response.text().await.expect("page").contains("Greet"));
    server.end().await;
}
