//! Personal access tokens, on every interface, until they are revoked.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tamma_core::actor::Actor;
use tamma_core::approval::Pin;
use tamma_core::ids::{Digest, Name, ProjectId, Reference, TaskId};
use tamma_core::requested_permissions::append_permissions;
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Outcome, State, TaskReceived, begin};
use tamma_core::version::Edition;
use tempfile::TempDir;
use uuid::Uuid;

use crate::browser::{Browser, StoredTask};
use crate::pipelines::{at_gate, save};
use crate::test_server::{TestServer, config, new_id, read};
use crate::world;

const SERVER: &str = "the-own-token-of-the-server";

/// Roles: Ada is an approver, Max a member and Vera a viewer.
pub(crate) const PEOPLE: &str = "people:\n  everybody: viewer\n  named:\n    Ada: approver\n    Max: member\n    Vera: viewer\n";

/// Stores a task whose plan awaits approval. It has no workflow, and cannot get one, because its rules
/// are not saved: an action on it fails at once.
pub(crate) async fn store_waiting_task(server: &TestServer, project: Uuid) -> Uuid {
    let (id, rules) = (new_id(), Rules::default());
    let task = json!({ "id": id, "project": project, "title": "Greet", "type": "feature" });
    let received = TaskReceived {
        task: TaskId(id),
        project: ProjectId(project),
        priority: tamma_core::task::Priority::Medium,
        at: chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000),
        by: Actor::Tamma,
        auth: None,
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    let mut first = begin(&received, &rules);
    first.next.plan = Some(world::plan(1));
    first.next.pin = Some(world::pin(1));
    let task = serde_json::from_value(task).expect("task");
    server.store.insert_task(&task, &first, &rules).await.expect("written");
    id
}

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
        let import = json!({ "project": "greeter" });
        let (status, access) = team.post("/access/import", SERVER, "Grace", &import).await;
        assert_eq!(status, 200, "{access}");
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

    async fn waiting(&self) -> Uuid {
        store_waiting_task(&self.server, self.project).await
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
        Browser::signed_in(&self.server, token).await
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
    let how = json!({ "method": "own_token", "via": "api" });
    assert_eq!(history["entries"][0]["auth"], how);
    // So does the MCP server, and the history says that it was used.
    let added = team.call(&ada, "add_task", &json!({ "title": "Greet Cy" })).await;
    let added: Value = added.json().await.expect("JSON");
    let text = added["result"]["content"][0]["text"].as_str().expect("text");
    let added: Value = serde_json::from_str(text).expect("JSON");
    let id = added["task"]["id"].as_str().expect("ID");
    let history = team.server.request(Method::GET, &format!("/tasks/{id}/history"));
    let (_, history) = read(history.bearer_auth(&vera).send().await.expect("response")).await;
    assert_eq!(history["entries"][0]["actor"], json!({ "person": "Ada" }));
    let how = json!({ "method": "own_token", "via": "mcp" });
    assert_eq!(history["entries"][0]["auth"], how);
    // The server's token acts under any name, with the rights of an operator.
    let other = json!({ "id": new_id(), "title": "Greet the world" });
    assert_eq!(team.post("/tasks", SERVER, "Vera", &other).await.0, 201);
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
    let (status, problem) = team.post("/people/revocations", SERVER, "Grace", &of("Max")).await;
    assert_eq!(status, 404);
    let hint = problem["what_to_do"].as_str().expect("hint");
    assert!(hint.contains("tamma person deactivate"), "{hint}");
    // A lost token is replaced.
    assert_eq!(team.post("/people/revocations", SERVER, "Grace", &of("Ada")).await.0, 200);
    assert_ne!(team.add("Ada").await, ada);
    team.server.end().await;
}

#[tokio::test]
async fn a_revocation_ends_every_token_of_a_person_and_of_a_service_account() {
    let team = Team::new().await;
    let first = team.add("Ada").await;
    let new = json!({ "label": "laptop" });
    let (status, second) = team.post("/tokens", &first, "Ada", &new).await;
    assert_eq!(status, 200, "{second}");
    let second = second["secret"].as_str().expect("token");
    let robot = json!({ "name": "nightly", "service": true });
    let (status, robot) = team.post("/people", SERVER, "Grace", &robot).await;
    assert_eq!(status, 200, "{robot}");
    let robot = robot["token"].as_str().expect("token");
    let status_of = async |token: &str| {
        let request = team.server.request(Method::GET, "/tasks").bearer_auth(token);
        request.send().await.expect("response").status().as_u16()
    };
    for token in [first.as_str(), second, robot] {
        assert_ne!(status_of(token).await, 401);
    }
    for name in ["ada", "nightly"] {
        let revoke = json!({ "name": name });
        assert_eq!(team.post("/people/revocations", SERVER, "Grace", &revoke).await.0, 200);
        assert_eq!(team.post("/people/revocations", SERVER, "Grace", &revoke).await.0, 404);
    }
    for token in [first.as_str(), second, robot] {
        assert_eq!(status_of(token).await, 401);
    }
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
    // Refused actions leave no history. A permitted action reaches the workflow, which does not exist
    // and cannot be recovered, because the rules of the task were not saved.
    let history = team.server.store.history(TaskId(task), 0, 100).await.expect("history");
    assert_eq!(history.len(), 1, "{history:?}");
    let ada = team.add("Ada").await;
    assert_eq!(team.post(&path, &ada, "Vera", &approve).await.0, 404);
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
    for address in ["--upload-pack=touch /tmp/x", "ext::sh -c x", "http://a/b", "relative"] {
        let project = json!({ "name": "odd", "repository": address });
        assert_eq!(team.post("/projects", SERVER, "Ada", &project).await.0, 422, "{address}");
    }
    let project = json!({ "name": "far", "repository": "https://ann:s3cret@git.example/far" });
    let (status, registered) = team.post("/projects", SERVER, "Ada", &project).await;
    assert_eq!(status, 200, "{registered}");
    let addresses = async |token: &str| {
        let request = team.server.request(Method::GET, "/projects").bearer_auth(token);
        let (_, listed) = read(request.send().await.expect("response")).await;
        let projects = listed["projects"].as_array().expect("projects").iter();
        projects.map(|project| project["repository"].clone()).collect::<Vec<_>>()
    };
    let far = json!("https://***@git.example/far");
    assert_eq!(addresses(SERVER).await, [far, json!(path)]);
    assert_eq!(addresses(&ada).await, [json!(path)], "a repository by URL gives nobody a role");
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
async fn sign_out_ends_the_streams_of_operators_too() {
    let team = Team::new().await;
    for token in [SERVER.to_owned(), team.add("Ada").await] {
        let mut browser = team.browser(&token).await;
        let board = browser.send(Method::GET, "/live/board", &[], None).await;
        assert_eq!(board.status(), 200);
        assert_eq!(browser.post("/inbox", "/goodbye", "").await.status(), 303);
        let end = board.bytes_stream().for_each(async |_| ());
        let ended = tokio::time::timeout(Duration::from_secs(10), end).await;
        assert!(ended.is_ok(), "the stream did not end");
    }
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
    let session = tamma_store::NewSession {
        hash: browser,
        person: &name,
        proof: tamma_store::SessionProof::Token(old),
        kind: tamma_store::SessionKind::Web,
        client: None,
        until: soon,
    };
    store.open_session(session).await.expect("opened");
    let person = async |token| {
        let session = store.session(browser, token, now).await.expect("response");
        session.map(|session| session.person.to_string())
    };
    assert_eq!(person(old).await.as_deref(), Some("Ada"));
    assert_eq!(person(new).await, None);
    assert!(store.session(browser, old, soon).await.expect("response").is_none());
    server.end().await;
}

#[tokio::test]
async fn a_broken_or_missing_configuration_changes_nobodys_rights() {
    let team = Team::new().await;
    let (ada, mallory) = (team.add("Ada").await, team.add("Mallory").await);
    let task = team.waiting().await;
    let path = format!("/tasks/{task}/actions");
    let plan = world::plan(1).hash.to_string();
    let approve = json!({ "approve": { "plan": plan } });
    let file = team.folder.path().join("tamma.yaml");
    let promoted = "people: { everybody: approver }\n";
    for text in [Some("people: [nonsense\n"), Some(promoted), None] {
        match text {
            Some(text) => std::fs::write(&file, text).expect("written"),
            None => std::fs::remove_file(&file).expect("removed"),
        }
        // The request of an approver reaches the workflow, which does not exist and cannot be
        // recovered without rules.
        assert_eq!(team.post(&path, &ada, "Ada", &approve).await.0, 404, "{text:?}");
        let (status, problem) = team.post(&path, &mallory, "Ada", &approve).await;
        assert_eq!((status, &problem["type"]), (403, &json!("tamma:forbidden")), "{text:?}");
    }
    // An operator imports the file, and nobody else.
    std::fs::write(&file, promoted).expect("written");
    let import = json!({ "project": "greeter" });
    assert_eq!(team.post("/access/import", &ada, "Ada", &import).await.0, 403);
    let (status, access) = team.post("/access/import", SERVER, "Grace", &import).await;
    assert_eq!(status, 200, "{access}");
    assert_eq!(access["projects"][0]["everybody"], "approver");
    assert_eq!(team.post(&path, &mallory, "Ada", &approve).await.0, 404);
    team.server.end().await;
}

#[tokio::test]
async fn a_task_cannot_take_the_id_of_an_unreadable_task_or_pipeline() {
    let team = Team::new().await;
    let (eve, task) = (team.add("Eve").await, team.waiting().await);
    let elsewhere = json!({ "name": "elsewhere", "repository": "/elsewhere" });
    assert_eq!(team.post("/projects", SERVER, "Grace", &elsewhere).await.0, 200);
    for grant in [
        json!({ "project": "greeter", "person": null, "role": null }),
        json!({ "project": "elsewhere", "person": "Eve", "role": "member" }),
    ] {
        let (status, access) = team.post("/access", SERVER, "Grace", &grant).await;
        assert_eq!(status, 200, "{access}");
    }
    // Runs are stored under the IDs of tasks and of pipelines.
    let pipeline = save(&team.server, team.project, 1, at_gate()).await;
    for id in [task, pipeline] {
        let new = json!({ "id": id, "project": "elsewhere", "title": "Mine" });
        let (status, problem) = team.post("/tasks", &eve, "Eve", &new).await;
        assert_eq!(status, 409, "{problem}");
        assert!(problem.to_string().contains("is already used"), "{problem}");
        assert!(!problem.to_string().contains("Greet"), "{problem}");
    }
    // It still is the task of its project.
    let path = format!("/tasks/{task}");
    let shown = team.server.request(Method::GET, &path).bearer_auth(SERVER);
    let (_, shown) = read(shown.send().await.expect("response")).await;
    assert_eq!(shown["title"], "Greet", "{shown}");
    team.server.end().await;
}

#[tokio::test]
async fn only_an_approver_replies_to_a_question_that_grants_permissions() {
    let team = Team::new().await;
    let (ada, max) = (team.add("Ada").await, team.add("Max").await);
    let subjects = ["command: git push".to_owned()];
    let granting = append_permissions("May I?", &subjects);
    let policy = team.server.store.save_rules(&Rules::default().without_secrets()).await;
    let pin = Pin { policy: policy.expect("stored"), ..world::pin(1) };
    let ask = async |pin: Pin, question: Reference| {
        let title = json!({ "title": "Greet" });
        let mut task = StoredTask::new(&team.server, team.project, title).await;
        task.apply(|world| {
            world.walk(State::Assigned);
            world.done(Outcome::Prepared(pin));
            world.done(Outcome::QuestionAsked { question, default_answer: None });
        })
        .await;
        task.id
    };
    for (text, of_a_member) in [("Tabs or spaces?", 404), (granting.as_str(), 403)] {
        let question = team.server.store.save_text(text).await.expect("stored");
        // Its rules are not saved: a permitted reply reaches the workflow, which does not exist and
        // cannot be recovered.
        let path = format!("/tasks/{}/actions", ask(world::pin(1), question.clone()).await);
        let reply = json!({ "reply": { "text": "yes" } });
        let (status, problem) = team.post(&path, &max, "Max", &reply).await;
        assert_eq!(status, of_a_member, "{problem}");
        assert_eq!(team.post(&path, &ada, "Ada", &reply).await.0, 404);
        let path = format!("/tasks/{}", ask(pin, question).await);
        let page = team.browser(&max).await.page(&path).await;
        assert_eq!(page.contains("value=\"reply\""), of_a_member == 404, "{page}");
    }
    team.server.end().await;
}

#[tokio::test]
async fn an_approver_of_one_project_does_not_decide_for_all_projects() {
    let team = Team::new().await;
    let ada = team.add("Ada").await;
    let new = json!({
        "kind": "convention", "text": "Names are short.", "globs": ["src/**"], "organisation": true,
    });
    let (status, entry) = team.post("/knowledge", &ada, "Ada", &new).await;
    assert!(status < 300, "she proposes it: {entry}");
    let path = format!("/knowledge/{}/decision", entry["id"].as_str().expect("ID"));
    let approve = json!({ "status": "approved", "revision": entry["revision"] });
    let (status, problem) = team.post(&path, &ada, "Ada", &approve).await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:operator")), "{problem}");
    let page = format!("/knowledge/{}", entry["id"].as_str().expect("ID"));
    let mut browser = team.browser(&ada).await;
    assert!(!browser.page(&page).await.contains("/decisions"), "no form");
    let (status, entry) = team.post(&path, SERVER, "Grace", &approve).await;
    assert_eq!(status, 200, "{entry}");
    team.server.end().await;
}

#[tokio::test]
async fn a_repository_file_grants_no_role_until_an_operator_imports_it() {
    let server = TestServer::with(config("127.0.0.1:0", None)).await;
    let folder = tempfile::tempdir().expect("directory");
    std::fs::write(folder.path().join("tamma.yaml"), PEOPLE).expect("written");
    let empty = tempfile::tempdir().expect("directory");
    for (name, repository) in [("greeter", folder.path()), ("empty", empty.path())] {
        let project = json!({ "name": name, "repository": repository });
        assert_eq!(server.post("/projects", &project).await.0, 200);
    }
    let ada = server.token_of("Ada").await;
    let tasks = async || {
        let request = server.request(Method::GET, "/tasks").bearer_auth(&ada);
        read(request.send().await.expect("response")).await.0
    };
    assert_eq!(tasks().await, 403);
    let (status, problem) = server.post("/access/import", &json!({ "project": "empty" })).await;
    let detail = format!("No tamma.yaml at {}.", empty.path().display());
    assert_eq!((status, &problem["detail"]), (422, &json!(detail)));
    let (status, access) = server.post("/access/import", &json!({ "project": "greeter" })).await;
    assert_eq!(status, 200, "{access}");
    assert_eq!(tasks().await, 200);
    server.end().await;
}

#[tokio::test]
async fn a_role_is_taken_away_under_any_spelling_of_the_name() {
    let team = Team::new().await;
    let elodie = team.add("Élodie").await;
    let grant = |person: &str, role: Option<&str>| json!({ "project": "greeter", "person": person, "role": role });
    let (status, access) =
        team.post("/access", SERVER, "Grace", &grant("Élodie", Some("approver"))).await;
    assert_eq!(status, 200, "{access}");
    let (status, access) = team.post("/access", SERVER, "Grace", &grant("éLODIE", None)).await;
    assert_eq!(status, 200, "{access}");
    assert_eq!(access["projects"][0]["named"]["Élodie"], Value::Null, "{access}");
    assert_eq!(access["changes"][0]["person"], "Élodie");
    let new = json!({ "kind": "convention", "text": "Names are short.", "globs": ["src/**"] });
    assert_eq!(team.post("/knowledge", &elodie, "Grace", &new).await.0, 403, "only a viewer");
    team.server.end().await;
}

#[tokio::test]
async fn roles_change_by_recorded_events_and_at_once() {
    let team = Team::new().await;
    let (ada, eve) = (team.add("Ada").await, team.add("Eve").await);
    let change = async |token: &str, person: Option<&str>, role: Option<&str>| {
        let grant = json!({ "project": "greeter", "person": person, "role": role });
        team.post("/access", token, "Grace", &grant).await
    };
    let tasks = async |token: &str| {
        let request = team.server.request(Method::GET, "/tasks").bearer_auth(token);
        read(request.send().await.expect("response")).await.0
    };
    for (person, role) in [(Some("Eve"), Some("approver")), (None, None)] {
        let (status, problem) = change(&ada, person, role).await;
        assert_eq!((status, &problem["type"]), (403, &json!("tamma:administrator")), "{problem}");
    }
    assert_eq!(change(SERVER, Some("Eve"), Some("operator")).await.0, 422, "not granted");
    assert_eq!(change(SERVER, Some("Eve"), None).await.0, 404, "she has none of her own");
    assert_eq!(tasks(&eve).await, 200, "everybody is a viewer");
    let (status, access) = change(SERVER, None, None).await;
    assert_eq!(status, 200, "{access}");
    assert_eq!(tasks(&eve).await, 403);
    assert_eq!(change(SERVER, Some("eve"), Some("member")).await.0, 200);
    assert_eq!(tasks(&eve).await, 200);
    let (_, access) = change(SERVER, Some("eve"), Some("member")).await;
    let changes = access["changes"].as_array().expect("changes");
    // Four roles were imported; an unchanged role is no event.
    assert_eq!(changes.len(), 6, "{access}");
    let newest = &changes[0];
    assert_eq!((&newest["person"], &newest["role"]), (&json!("eve"), &json!("member")));
    assert_eq!((&newest["by"], &newest["auth_method"]), (&json!("Grace"), &json!("server_token")));
    assert_eq!(changes[5]["source"], "imported");
    team.server.end().await;
}

#[tokio::test]
async fn a_stream_ends_when_the_role_behind_it_is_taken_away() {
    let team = Team::new().await;
    let (ada, max) = (team.add("Ada").await, team.add("Max").await);
    let mut browser = team.browser(&max).await;
    let board = browser.send(Method::GET, "/live/board", &[], None).await;
    assert_eq!(board.status(), 200);
    let events =
        team.server.request(Method::GET, &format!("/tasks/{}/events", team.waiting().await));
    let events = events.bearer_auth(&ada).send().await.expect("response");
    let revoke = json!({ "project": "greeter", "person": "Max" });
    assert_eq!(team.post("/access", SERVER, "Grace", &revoke).await.0, 200);
    let end = board.bytes_stream().for_each(async |_| ());
    assert!(tokio::time::timeout(Duration::from_secs(10), end).await.is_ok(), "still open");
    let quiet = events.bytes_stream().skip(1).for_each(async |_| ());
    let quiet = tokio::time::timeout(Duration::from_millis(300), quiet).await;
    assert!(quiet.is_err(), "the stream of somebody else ended");
    team.server.end().await;
}
