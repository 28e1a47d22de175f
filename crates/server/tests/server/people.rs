//! Personal access tokens, on every interface, until they are revoked.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tamma_core::actor::Actor;
use tamma_core::ids::{Digest, Name, ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task_loop::{TaskReceived, begin};
use tamma_core::version::Edition;
use tempfile::TempDir;
use uuid::Uuid;

use crate::browser::Browser;
use crate::test_server::{TestServer, config, new_id, read};
use crate::world;

const SERVER: &str = "the-own-token-of-the-server";

/// Roles: Ada is an approver, Max a member and Vera a viewer.
pub(crate) const PEOPLE: &str = "people:\n  everybody: viewer\n  named:\n    Ada: approver\n    Max: member\n    Vera: viewer\n";

/// Server with a token, and a project with different roles.
pub(crate) struct Team {
    pub(crate) server: TestServer,
    pub(crate) folder: TempDir,
    pub(crate) project: Uuid,
}

impl Team {
    pub(crate) async fn new() -> Self {
        let server = TestServer::with(config("127.0.0.1:0", Some(SERVER))).await;
        let folder = tempfile::tempdir().expect("directory");
        std::fs::write(folder.path().join("tamma.yaml"), PEOPLE).expect("written");
        let body = json!({ "name": "greeter", "repository": folder.path() });
        let team = Self { server, folder, project: Uuid::nil() };
        let (status, project) = team.post("/projects", SERVER, "Grace", &body).await;
        assert_eq!(status, 200, "{project}");
        let project = project["id"].as_str().expect("ID").parse().expect("ID");
        Self { project, ..team }
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        token: &str,
        person: &str,
        body: &Value,
    ) -> (u16, Value) {
        let request = self.server.request(Method::POST, path).bearer_auth(token);
        let request = request.header("Tamma-Person", person).json(body);
        read(request.send().await.expect("response")).await
    }

    /// Issues a token.
    pub(crate) async fn add(&self, name: &str) -> String {
        let (status, issued) =
            self.post("/people", SERVER, "Grace", &json!({ "name": name })).await;
        assert_eq!((status, &issued["name"]), (200, &json!(name)), "{issued}");
        issued["token"].as_str().expect("token").to_owned()
    }

    /// Stores a task whose plan awaits approval. It has no workflow.
    async fn waiting(&self) -> Uuid {
        let (id, rules) = (new_id(), Rules::default());
        let task =
            json!({ "id": id, "project": self.project, "title": "Greet", "type": "feature" });
        let received = TaskReceived {
            task: TaskId(id),
            project: ProjectId(self.project),
            priority: tamma_core::task::Priority::Medium,
            at: chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000),
            by: Actor::Tamma,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let mut first = begin(&received, &rules);
        first.next.plan = Some(world::plan(1));
        first.next.pin = Some(world::pin(1));
        let task = serde_json::from_value(task).expect("task");
        self.server.store.insert_task(&task, &first, &rules).await.expect("written");
        id
    }

    /// Calls a tool of the MCP server.
    async fn call(&self, token: &str, tool: &str, arguments: &Value) -> Response {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments },
        });
        let url = format!("{}/mcp", self.server.url);
        let request = self.server.http.post(url).bearer_auth(token).header("Tamma-Person", "Ada");
        let request = request.header("accept", "application/json, text/event-stream");
        request.json(&message).send().await.expect("response")
    }

    /// Calls a tool that must be refused and returns the error text.
    async fn refused(&self, token: &str, tool: &str, arguments: &Value) -> String {
        let answer: Value = self.call(token, tool, arguments).await.json().await.expect("JSON");
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["content"][0]["text"].as_str().expect("text").to_owned()
    }

    /// Signs in with a token, under the name of another person.
    pub(crate) async fn browser(&self, token: &str) -> Browser {
        let mut browser = Browser::new(&self.server);
        let fields = format!("name=Ada&token={token}&to=%2F");
        let response = browser.post("/hello", "/hello", &fields).await;
        assert_eq!(response.status(), 303);
        browser
    }
}

#[tokio::test]
async fn a_personal_token_overrides_the_name_in_the_request() {
    let team = Team::new().await;
    let (ada, vera) = (team.add("Ada").await, team.add("Vera").await);
    let id = new_id();
    let task = json!({ "id": id, "title": "Greet the world" });
    let (status, problem) = team.post("/tasks", &vera, "Ada", &task).await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:forbidden")));
    assert_eq!(problem["detail"], "Vera is a viewer and does not have the work permission.");
    let (status, added) = team.post("/tasks", &ada, "Grace", &task).await;
    assert_eq!(status, 201, "{added}");
    let history = team.server.request(Method::GET, &format!("/tasks/{id}/history"));
    let (_, history) = read(history.bearer_auth(&vera).send().await.expect("response")).await;
    assert_eq!(history["entries"][0]["actor"], json!({ "person": "Ada" }));
    // The server's token can act for others, with their permissions.
    let other = json!({ "id": new_id(), "title": "Greet the world" });
    assert_eq!(team.post("/tasks", SERVER, "Ada", &other).await.0, 201);
    assert_eq!(team.post("/tasks", SERVER, "Vera", &other).await.0, 403);
    team.server.end().await;
}

#[tokio::test]
async fn only_operators_issue_and_revoke_tokens() {
    let team = Team::new().await;
    let ada = team.add("Ada").await;
    let of = |name: &str| json!({ "name": name });
    for path in ["/people", "/people/revocations"] {
        let (status, problem) = team.post(path, &ada, "Grace", &of("Max")).await;
        assert_eq!((status, &problem["type"]), (403, &json!("tamma:operator")), "{path}");
    }
    let list = async |token: &str| {
        let request = team.server.request(Method::GET, "/people").bearer_auth(token);
        read(request.send().await.expect("response")).await
    };
    assert_eq!(list(&ada).await.0, 403);
    let (status, people) = list(SERVER).await;
    assert_eq!(status, 200);
    assert_eq!(people["people"][0]["added_by"], "Grace");
    assert!(!people.to_string().contains(&ada), "a token is shown only once: {people}");
    // One token per person; names are compared without case and spaces.
    assert_eq!(team.post("/people", SERVER, "Grace", &of(" ada ")).await.0, 422);
    assert_eq!(team.post("/people", SERVER, "Grace", &of("A\nda")).await.0, 422);
    assert_eq!(team.post("/people/revocations", SERVER, "Grace", &of("Max")).await.0, 404);
    // A lost token is replaced.
    assert_eq!(team.post("/people/revocations", SERVER, "Grace", &of("Ada")).await.0, 200);
    assert_ne!(team.add("Ada").await, ada);
    team.server.end().await;
}

#[tokio::test]
async fn every_interface_refuses_the_same_action_to_the_same_person() {
    let team = Team::new().await;
    let (max, vera, task) = (team.add("Max").await, team.add("Vera").await, team.waiting().await);
    let plan = world::plan(1).hash.to_string();
    let path = format!("/tasks/{task}/actions");

    let detail = "Max is a member and does not have the decide permission.";
    let approve = json!({ "approve": { "plan": plan } });
    let (status, problem) = team.post(&path, &max, "Ada", &approve).await;
    assert_eq!((status, &problem["detail"]), (403, &json!(detail)));
    let arguments = json!({ "task": task, "plan": plan });
    let error = team.refused(&max, "approve_plan", &arguments).await;
    assert!(error.starts_with(detail), "{error}");
    let mut browser = team.browser(&max).await;
    let form = format!("action=approve&plan={plan}");
    let page = browser.post("/", &path, &form).await;
    assert_eq!(page.status(), 403);
    assert!(page.text().await.expect("page").contains(detail));

    let detail = "Vera is a viewer and does not have the work permission.";
    let cancel = json!({ "cancel": { "reason": "no" } });
    let (status, problem) = team.post(&path, &vera, "Ada", &cancel).await;
    assert_eq!((status, &problem["detail"]), (403, &json!(detail)));
    let arguments = json!({ "task": task, "action": cancel });
    let error = team.refused(&vera, "answer_task", &arguments).await;
    assert!(error.starts_with(detail), "{error}");
    let mut browser = team.browser(&vera).await;
    let page = browser.post("/", &path, "action=cancel&reason=no").await;
    assert_eq!(page.status(), 403);
    assert!(page.text().await.expect("page").contains(detail));
    let conversation = new_id();
    let say = |message: String| json!({ "conversation": conversation, "message": message });
    let ask = say(format!("cancel task {task}"));
    let (status, reply) = team.post("/chat", &vera, "Ada", &ask).await;
    assert_eq!(status, 200, "{reply}");
    assert!(reply["proposal"]["command"].is_string(), "{reply}");
    let (status, problem) = team.post("/chat", &vera, "Ada", &say("yes".to_owned())).await;
    assert_eq!((status, &problem["detail"]), (403, &json!(detail)));
    // Refused actions leave no history. A permitted action reaches the workflow.
    let history = team.server.store.history(TaskId(task), 0, 100).await.expect("history");
    assert_eq!(history.len(), 1, "{history:?}");
    let ada = team.add("Ada").await;
    assert_eq!(team.post(&path, &ada, "Vera", &approve).await.0, 500);
    team.server.end().await;
}

#[tokio::test]
async fn viewers_and_members_cannot_change_protected_data() {
    let team = Team::new().await;
    let (max, vera) = (team.add("Max").await, team.add("Vera").await);
    let new = json!({ "kind": "convention", "text": "Names are short.", "globs": ["src/**"] });
    assert_eq!(team.post("/knowledge", &vera, "Ada", &new).await.0, 403);
    let (status, entry) = team.post("/knowledge", &max, "Ada", &new).await;
    assert!(status < 300, "{entry}");
    // Imported entries keep their status, so approved ones need the decide permission.
    let import = json!({ "entries": [] });
    assert_eq!(team.post("/knowledge/import", &max, "Ada", &import).await.0, 200);
    let of_an_entry = ["kind", "text", "scope", "globs", "severity"];
    let mut approved = json!({ "id": new_id(), "status": "approved" });
    for field in of_an_entry {
        approved[field] = entry[field].clone();
    }
    let import = json!({ "entries": [approved] });
    let (status, problem) = team.post("/knowledge/import", &max, "Ada", &import).await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:forbidden")), "{problem}");
    let project = json!({ "name": "mine", "repository": "/mine" });
    assert_eq!(team.post("/projects", &max, "Ada", &project).await.0, 403);
    assert_eq!(team.post("/alerts/test", &vera, "Ada", &json!({})).await.0, 403);
    team.server.end().await;
}

#[tokio::test]
async fn only_an_operator_registers_projects_and_takes_over_none() {
    let team = Team::new().await;
    let (ada, path) = (team.add("Ada").await, team.folder.path().display().to_string());
    // Ada approves in this project, and could approve nothing in another.
    let other = json!({ "name": "other", "repository": "/other" });
    let (status, problem) = team.post("/projects", &ada, "Ada", &other).await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:operator")), "{problem}");
    let takeover = json!({ "id": team.project, "name": "greeter", "repository": "/evil" });
    assert_eq!(team.post("/projects", &ada, "Ada", &takeover).await.0, 403);
    // An operator who acts for somebody has that person's rights in a registered project.
    assert_eq!(team.post("/projects", SERVER, "Vera", &takeover).await.0, 403);
    let rename = json!({ "name": "renamed", "repository": path });
    assert_eq!(team.post("/projects", SERVER, "Vera", &rename).await.0, 403);
    for address in ["--upload-pack=touch /tmp/x", "ext::sh -c x", "http://a/b", "relative"] {
        let project = json!({ "name": "odd", "repository": address });
        assert_eq!(team.post("/projects", SERVER, "Ada", &project).await.0, 422, "{address}");
    }
    let project = json!({ "name": "far", "repository": "https://ann:s3cret@git.example/far" });
    let (status, registered) = team.post("/projects", SERVER, "Ada", &project).await;
    assert_eq!(status, 200, "{registered}");
    let request = team.server.request(Method::GET, "/projects").bearer_auth(&ada);
    let (_, listed) = read(request.send().await.expect("response")).await;
    let projects = listed["projects"].as_array().expect("projects").iter();
    let addresses: Vec<_> = projects.map(|project| project["repository"].clone()).collect();
    assert_eq!(addresses, [json!("https://***@git.example/far"), json!(path)]);
    assert!(!registered.to_string().contains("s3cret"), "{registered}");
    team.server.end().await;
}

#[tokio::test]
async fn revocation_ends_requests_sessions_and_streams_immediately() {
    let team = Team::new().await;
    let (ada, max) = (team.add("Ada").await, team.add("Max").await);
    let task = team.waiting().await;
    let (mut browser, mut other) = (team.browser(&ada).await, team.browser(&max).await);
    assert_eq!(browser.get("/inbox").await.0, 200);
    let board = browser.send(Method::GET, "/live/board", &[], None).await;
    assert_eq!(board.status(), 200);
    let events = team.server.request(Method::GET, &format!("/tasks/{task}/events"));
    let events = events.bearer_auth(&ada).send().await.expect("response");
    let theirs = other.send(Method::GET, "/live/board", &[], None).await;
    let revoke = json!({ "name": "Ada" });
    assert_eq!(team.post("/people/revocations", SERVER, "Grace", &revoke).await.0, 200);

    let request = team.server.request(Method::GET, "/tasks").bearer_auth(&ada);
    let (status, problem) = read(request.send().await.expect("response")).await;
    assert_eq!((status, &problem["type"]), (401, &json!("tamma:token")));
    assert_eq!(team.call(&ada, "list_tasks", &json!({})).await.status(), 401);
    let page = browser.send(Method::GET, "/inbox", &[], None).await;
    assert_eq!(page.headers()["location"], "/hello?to=%2Finbox");
    let again = browser.post("/hello", "/hello", &format!("token={ada}")).await;
    assert_eq!(again.status(), 403);
    for stream in [board, events] {
        let end = stream.bytes_stream().for_each(async |_| ());
        let ended = tokio::time::timeout(Duration::from_secs(10), end).await;
        assert!(ended.is_ok(), "the stream did not end");
    }
    // Other sessions stay open.
    assert_eq!(other.get("/inbox").await.0, 200);
    let mut theirs = theirs.bytes_stream();
    let quiet = tokio::time::timeout(Duration::from_millis(300), theirs.next()).await;
    assert!(quiet.is_err(), "the other stream ended or sent data");
    drop(theirs);
    team.server.end().await;
}

#[tokio::test]
async fn a_session_ends_with_the_servers_token() {
    let server = TestServer::new().await;
    let (browser, name) = (Digest::of(b"browser"), "Ada".parse::<Name>().expect("name"));
    let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
    let soon = chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::days(40_000);
    let now = soon - chrono::TimeDelta::days(1);
    let store = &server.store;
    store.open_session(browser, &name, Some(old), soon).await.expect("opened");
    let person = async |token| {
        let session = store.session(browser, token, now).await.expect("response");
        session.map(|session| session.person.to_string())
    };
    assert_eq!(person(Some(old)).await.as_deref(), Some("Ada"));
    assert_eq!(person(Some(new)).await, None);
    assert_eq!(person(None).await, None);
    assert!(store.session(browser, Some(old), soon).await.expect("response").is_none());
    server.end().await;
}

#[tokio::test]
async fn a_server_without_a_token_refuses_unknown_tokens() {
    let server = TestServer::new().await;
    let request = server.request(Method::GET, "/tasks").bearer_auth("tamma_guessed");
    assert_eq!(read(request.send().await.expect("response")).await.0, 401);
    let (status, issued) = server.post("/people", &json!({ "name": "Ada" })).await;
    assert_eq!(status, 200, "{issued}");
    let token = issued["token"].as_str().expect("token");
    let request = server.request(Method::GET, "/people").bearer_auth(token);
    assert_eq!(read(request.send().await.expect("response")).await.0, 403);
    server.end().await;
}

#[tokio::test]
async fn with_configuration_errors_only_operators_can_act_and_only_to_stop_tasks() {
    let team = Team::new().await;
    let (ada, task) = (team.add("Ada").await, team.waiting().await);
    let broken = format!("{PEOPLE}  everyone: viewer\n");
    std::fs::write(team.folder.path().join("tamma.yaml"), broken).expect("written");
    let path = format!("/tasks/{task}/actions");
    let plan = world::plan(1).hash.to_string();
    let (approve, cancel) =
        (json!({ "approve": { "plan": plan } }), json!({ "cancel": { "reason": "no" } }));
    for (token, action) in [(&ada[..], &approve), (&ada, &cancel), (SERVER, &approve)] {
        let (status, problem) = team.post(&path, token, "Ada", action).await;
        assert_eq!((status, &problem["type"]), (409, &json!("tamma:unruled")), "{problem}");
        let hint = problem["what_to_do"].as_str().expect("hint");
        assert!(hint.starts_with("Run `tamma config check`"), "{hint}");
        assert_eq!(problem["problems"][0]["line"], 7, "{problem}");
    }
    // The request reaches the workflow, which does not exist.
    for action in [cancel, json!({ "pause": {} })] {
        assert_eq!(team.post(&path, SERVER, "Grace", &action).await.0, 500);
    }
    team.server.end().await;
}
