//! Access matrix: every route, page and MCP tool, as six callers.
//!
//! Routes come from the table that the router refuses by, and tools from the MCP server. The expected
//! answers are in `access_matrix.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tamma_testkit::sample_plan;
use tempfile::TempDir;
use uuid::Uuid;

use crate::browser::{Browser, StoredTask};
use crate::people::store_waiting_task;
use crate::pipelines::{at_gate, save};
use crate::test_server::{TestServer, config, new_id, read};
use crate::world;

const EXPECTED: &str = include_str!("access_matrix.txt");

const AUDITED: &str = include_str!("audit_matrix.txt");

const OPERATOR: &str = "the-own-token-of-the-server";

/// Callers, in the order of the columns.
const CALLERS: [&str; 6] = ["nobody", "other", "viewer", "member", "approver", "operator"];

/// Word in everything that belongs to the project.
const MARKER: &str = "Zanzibar";

/// Story of the project.
const STORY: &str = "WISH-001";

/// Response to one caller.
struct Answer {
    granted: bool,
    text: String,
}

struct Matrix {
    server: TestServer,
    _folder: TempDir,
    tokens: BTreeMap<&'static str, String>,
    task: Uuid,
    /// Task for actions. Without a worker, each one on a task with a workflow would time out.
    acted_on: Uuid,
    /// Hash of its plan.
    plan: String,
    pipeline: Uuid,
    entry: Value,
}

impl Matrix {
    async fn new() -> Self {
        let server = TestServer::with(config("127.0.0.1:0", Some(OPERATOR))).await;
        let folder = tempfile::tempdir().expect("directory");
        let repository = folder.path().join(MARKER);
        std::fs::create_dir(&repository).expect("created");
        let people = "people: { named: { viewer: viewer, member: member, approver: approver } }\n";
        std::fs::write(repository.join("tamma.yaml"), people).expect("written");
        let this = Self {
            server,
            _folder: folder,
            tokens: BTreeMap::new(),
            task: Uuid::nil(),
            acted_on: Uuid::nil(),
            plan: String::new(),
            pipeline: Uuid::nil(),
            entry: Value::Null,
        };
        let post = async |path: &str, body: Value| {
            let request = this.server.request(Method::POST, path).bearer_auth(OPERATOR);
            let request = request.header("Tamma-Person", "Grace").json(&body);
            let (status, answer) = read(request.send().await.expect("response")).await;
            assert_eq!(status, 200, "{path}: {answer}");
            answer
        };
        let project =
            post("/projects", json!({ "name": "greeter", "repository": repository })).await;
        post("/access/import", json!({ "project": "greeter" })).await;
        post("/projects", json!({ "name": "elsewhere", "repository": "/elsewhere" })).await;
        let grant = json!({ "project": "elsewhere", "person": "other", "role": "member" });
        post("/access", grant).await;
        let mut tokens = BTreeMap::from([("operator", OPERATOR.to_owned())]);
        for name in ["other", "viewer", "member", "approver"] {
            let issued = post("/people", json!({ "name": name })).await;
            tokens.insert(name, issued["token"].as_str().expect("token").to_owned());
        }
        let new = json!({
            "kind": "convention", "text": format!("{MARKER} names are short."),
            "globs": ["src/**"], "project": "greeter",
        });
        let entry = post("/knowledge", new).await;
        let project: Uuid = project["id"].as_str().expect("ID").parse().expect("ID");
        let titled = json!({ "title": format!("{MARKER} greets") });
        let mut task = StoredTask::new(&this.server, project, titled).await;
        task.add_plan(MARKER, 7).await;
        let acted_on = store_waiting_task(&this.server, project).await;
        let plan = world::plan(1).hash.to_string();
        let mut run = at_gate();
        let output = this.server.store.save_text(MARKER).await.expect("stored");
        run.records.get_mut(&1).expect("record").work.output = Some(output);
        let pipeline = save(&this.server, project, 1, run).await;
        let task = task.id;
        Self { tokens, task, acted_on, plan, pipeline, entry, ..this }
    }

    fn fill(&self, method: &str, path: &str) -> String {
        let id = if path.contains("/tasks/") && method == "POST" {
            self.acted_on.to_string()
        } else if path.contains("/tasks/") {
            self.task.to_string()
        } else if path.contains("/runs/") {
            format!("{}-1", self.task)
        } else if path.contains("/pipelines/") {
            self.pipeline.to_string()
        } else if path.contains("/knowledge/") {
            self.entry["id"].as_str().expect("ID").to_owned()
        } else {
            "greeter".to_owned()
        };
        let filled = path.replace("{id}", &id).replace("{run}", "1").replace("{phase}", "1");
        let filled = filled.replace("{file}", "1").replace("{provider}", "company");
        filled.replace("{version}", "0").replace("{name}", "app.css").replace("{*path}", "nothing")
    }

    /// Content of an entry that the caller sends, with an ID.
    fn sent_entry(&self, id: &Value, status: &str) -> Value {
        let mut sent = json!({ "id": id, "status": status });
        for field in ["kind", "text", "scope", "globs", "severity"] {
            sent[field] = self.entry[field].clone();
        }
        sent
    }

    /// Query and body of a request to the API.
    fn request(&self, line: &str, caller: &str) -> (&'static str, Option<Value>) {
        let entry = || json!({ "project": "greeter", "kind": "convention", "text": "Short.", "globs": ["a/**"] });
        let body = match line {
            "POST /api/v1/tasks" => json!({ "project": "greeter", "title": "Greet" }),
            "POST /api/v1/tasks/actions" => {
                json!({ "tasks": [self.acted_on], "action": { "pause": {} } })
            }
            "POST /api/v1/tasks/{id}/actions" => json!({ "pause": {} }),
            "POST /api/v1/tasks/{id}/actions approve" => {
                json!({ "approve": { "plan": self.plan } })
            }
            "GET /api/v1/export task" | "GET /api/v1/audit task" | "GET /api/v1/permissions" => {
                return (QUERY_OF_TASK, None);
            }
            "POST /api/v1/knowledge" => entry(),
            "PUT /api/v1/knowledge/{id}" => {
                let edited = self.sent_entry(&self.entry["id"], "pending");
                json!({ "revision": self.entry["revision"], "entry": edited })
            }
            "POST /api/v1/knowledge/{id}/decision" => {
                json!({ "status": "approved", "revision": self.entry["revision"] })
            }
            "POST /api/v1/knowledge/import" => json!({ "project": "greeter", "entries": [] }),
            "POST /api/v1/knowledge/import approved" => {
                let new = self.sent_entry(&json!(new_id()), "approved");
                json!({ "project": "greeter", "entries": [new] })
            }
            "POST /api/v1/knowledge/import organisation" => {
                let mut new = self.sent_entry(&json!(new_id()), "approved");
                // Everybody with a role reads it.
                new["scope"] = json!("organisation");
                new["text"] = json!("Names of all projects are short.");
                json!({ "entries": [new] })
            }
            "POST /api/v1/knowledge/check" => {
                json!({ "project": "greeter", "title": "Greet", "plan": sample_plan(1) })
            }
            "POST /api/v1/chat" => {
                json!({ "conversation": new_id(), "message": "show all tasks" })
            }
            "POST /api/v1/chat task" => {
                let message = "what is its status?";
                json!({ "conversation": new_id(), "message": message, "task": self.task })
            }
            "POST /api/v1/alerts/test" | "POST /api/v1/access/import" => {
                json!({ "project": "greeter" })
            }
            "POST /api/v1/people" => json!({ "name": format!("friend of {caller}") }),
            "POST /api/v1/sign-in-links" | "POST /api/v1/projects/{id}/rules" => json!({}),
            "POST /api/v1/people/revocations"
            | "POST /api/v1/people/deactivations"
            | "POST /api/v1/people/activations" => json!({ "name": "a stranger" }),
            "POST /api/v1/people/identities" => {
                json!({ "name": "a stranger", "provider": "company", "subject": "7" })
            }
            "POST /api/v1/tokens" => json!({ "label": "laptop" }),
            "POST /api/v1/tokens/revocations" => json!({ "id": new_id() }),
            "POST /api/v1/sessions/revocations" => json!({ "id": "none" }),
            "GET /api/v1/access/check" => {
                return ("?person=viewer&action=approve&task={task}", None);
            }
            "POST /api/v1/access" => {
                json!({ "project": "greeter", "person": "Zoe", "role": "viewer" })
            }
            "POST /api/v1/organisations" => {
                json!({ "name": format!("of-{caller}"), "namespace": "default" })
            }
            "POST /api/v1/organisations/access" => {
                json!({ "organisation": "default", "person": "Zoe", "role": "viewer" })
            }
            "POST /api/v1/organisations/projects" => {
                json!({ "project": "greeter", "organisation": "default" })
            }
            "POST /api/v1/pipelines" => json!({
                "project": "greeter", "feature_dir": "plans/a", "story_id": "NEW-1",
            }),
            "POST /api/v1/pipelines/{id}/actions" => json!({ "action": "cancel" }),
            "POST /api/v1/pipelines/{id}/actions continue" => json!({ "action": "continue" }),
            "POST /api/v1/merge-queues/pause" | "POST /api/v1/merge-queues/resume" => {
                json!({ "forge": "github", "repository": "acme/shop", "branch": "main" })
            }
            "POST /api/v1/maintenance" => json!({ "reason": "new disks" }),
            "POST /api/v1/projects" => json!({ "name": "third", "repository": "/third" }),
            "* /mcp" => json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
            _ => return ("", None),
        };
        ("", Some(body))
    }

    /// Fields of a form.
    fn form(&self, line: &str) -> String {
        let revision = &self.entry["revision"];
        let entry = "kind=convention&text=Short.&scope=greeter&globs=a%2F**&severity=medium";
        match line {
            "POST /knowledge" => entry.to_owned(),
            "POST /knowledge/{id}/edit" => {
                let id = self.entry["id"].as_str().expect("ID");
                format!("{entry}&id={id}&revision={revision}")
            }
            "POST /knowledge/{id}/decisions" => format!("status=approved&revision={revision}"),
            "POST /knowledge/bulk" => {
                let id = self.entry["id"].as_str().expect("ID");
                format!("status=approved&entry={id}+{revision}")
            }
            "POST /tasks/bulk" => format!("task={}&action=pause", self.acted_on),
            "POST /views" => "name=Mine&query=waits%3Dperson".to_owned(),
            "POST /views/remove" => "name=Mine".to_owned(),
            "POST /chat" => "message=show+all+tasks".to_owned(),
            "POST /chat/confirm" => "answer=no".to_owned(),
            "POST /projects" => "name=fourth&repository=%2Ffourth".to_owned(),
            "POST /pipelines/{id}/actions" | "POST /tasks/{id}/actions" => {
                "action=cancel&reason=no".to_owned()
            }
            "POST /merge-queues" => {
                "action=pause&forge=github&repository=acme%2Fshop&branch=main".to_owned()
            }
            "POST /tasks" => "title=Greet&project=greeter&type=feature&priority=medium".to_owned(),
            "POST /tasks/{id}/plan" => format!("plan={}&reason=no&how=revise", self.plan),
            "POST /tasks/{id}/change/comments" => "file=a&side=new&line=1&text=no".to_owned(),
            "POST /tasks/{id}/change/viewed" => "file=a".to_owned(),
            "POST /hello" => format!("name=Grace&token={OPERATOR}&to=%2F"),
            "POST /preferences" => "theme=dark&keys=on".to_owned(),
            "POST /account/sessions" | "POST /account/tokens/revoke" => "id=none".to_owned(),
            "POST /account/tokens" => "label=laptop&days=1".to_owned(),
            _ => String::new(),
        }
    }

    /// Entries that the audit log got since a position, which moves on.
    async fn new_audit_entries(&self, position: &mut u64) -> Vec<Value> {
        // What has no result yet stays out, and would be missed.
        let abandoned_before = chrono::DateTime::UNIX_EPOCH;
        let store = &self.server.store;
        store.append_audit_entries(abandoned_before, 1000).await.expect("appended");
        let page = store.audit_log(*position, 1000).await.expect("page");
        *position = page.entries.last().map_or(*position, |entry| entry.position);
        let read = |content: &String| serde_json::from_str(content).expect("JSON");
        page.entries.iter().map(|entry| read(&entry.content)).collect()
    }

    /// Arguments of a tool.
    fn arguments(&self, tool: &str) -> Value {
        let (task, acted_on, plan) = (self.task, self.acted_on, &self.plan);
        match tool {
            "show_task" | "read_plan" | "read_change" | "read_events" => json!({ "task": task }),
            "add_task" => json!({ "project": "greeter", "title": "Greet" }),
            "approve_plan" | "reject_plan" | "ask_changes" => {
                json!({ "task": acted_on, "plan": plan, "reason": "no" })
            }
            "adjust_plan" => {
                json!({ "task": acted_on, "plan": plan, "adjustments": [], "reason": "no" })
            }
            "rate_task" => json!({ "task": task, "stars": 3 }),
            "show_permissions" | "apply_rules" => json!({ "project": "greeter" }),
            "answer_task" => json!({ "task": acted_on, "action": { "pause": {} } }),
            "show_pipeline" => json!({ "story": self.pipeline.to_string() }),
            "read_phase_output" => json!({ "story": self.pipeline.to_string(), "phase": 1 }),
            "run_pipeline" => {
                json!({ "project": "greeter", "feature_dir": "plans/a", "story_id": "NEW-2" })
            }
            "answer_pipeline" => {
                json!({ "story": self.pipeline.to_string(), "action": "cancel" })
            }
            "search_knowledge" => json!({ "query": "names" }),
            "propose_knowledge" => {
                json!({ "project": "greeter", "kind": "convention", "text": "Short.", "globs": ["a/**"] })
            }
            _ => json!({}),
        }
    }

    async fn send(&self, url: &str, method: Method, caller: &str, body: Option<&Value>) -> Answer {
        let mut request = self.server.http.request(method, url).header("Tamma-Person", caller);
        request = request.header("accept", "application/json, text/event-stream");
        if let Some(token) = self.tokens.get(caller) {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request.send().await.expect("response")).await
    }

    async fn call_api(&self, line: &str, caller: &str) -> Answer {
        let mut words = line.split(' ');
        let (method, path) = (words.next().expect("method"), words.next().expect("path"));
        let (query, body) = self.request(line, caller);
        let query = query.replace("{task}", &self.task.to_string());
        let url = format!("{}{}{query}", self.server.url, self.fill(method, path));
        let method = match (method, &body) {
            ("*", Some(_)) => Method::POST,
            ("*", None) => Method::GET,
            (method, _) => method.parse().expect("method"),
        };
        self.send(&url, method, caller, body.as_ref()).await
    }

    async fn call_page(&self, line: &str, caller: &str) -> Answer {
        let (method, path) = line.split_once(' ').expect("method and path");
        let path = self.fill(method, path);
        let mut browser = match self.tokens.get(caller) {
            Some(token) => Browser::signed_in(&self.server, token).await,
            None => Browser::anonymous(&self.server),
        };
        let response = if method == "GET" {
            browser.send(Method::GET, &path, &[], None).await
        } else {
            // Every page has the secret that forms need.
            browser.post("/hello", &path, &self.form(line)).await
        };
        answer(response).await
    }

    async fn call_tool(&self, tool: &str, caller: &str) -> Answer {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": self.arguments(tool) },
        });
        let url = format!("{}/mcp", self.server.url);
        self.send(&url, Method::POST, caller, Some(&message)).await
    }
}

const QUERY_OF_TASK: &str = "?project=greeter&task={task}";

/// Sentences of refusals. A subject that the caller cannot read is missing.
const REFUSALS: [&str; 8] = [
    "does not have the",
    "Only an operator of",
    "Only an administrator of",
    "Cannot find task `",
    "Cannot find pipeline `",
    "Cannot find project `",
    "Cannot find entry `",
    "does not support",
];

async fn answer(response: Response) -> Answer {
    let status = response.status().as_u16();
    let to = response.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or_default();
    let to_sign_in = to.starts_with("/hello?");
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    let text = if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        let mut stream = response.bytes_stream();
        let first = tokio::time::timeout(Duration::from_millis(200), stream.next());
        let chunk = first.await.ok().flatten().and_then(Result::ok);
        chunk.map(|chunk| String::from_utf8_lossy(&chunk).into_owned()).unwrap_or_default()
    } else {
        response.text().await.expect("text")
    };
    let refused = REFUSALS.iter().any(|refusal| text.contains(refusal));
    let denied = [401, 403, 405].contains(&status) || to_sign_in || refused;
    Answer { granted: !denied, text }
}

/// Returns true if an audit entry says who asked, how they were authenticated, from where, and what
/// came of it.
fn is_complete(entry: &Value, kind: &str) -> bool {
    let via = entry["auth"]["via"].as_str();
    entry["kind"] == kind
        && entry["person"].is_string()
        && entry["auth"]["method"].is_string()
        && via.is_some_and(|via| ["api", "web", "mcp"].contains(&via))
        && entry["address"] == "127.0.0.1"
        && entry["at"].is_string()
        && entry["subject"].is_string()
        && ["granted", "refused", "failed"].iter().any(|it| entry["outcome"]["result"] == *it)
        && (entry["outcome"]["result"] != "refused" || entry["outcome"]["policy"].is_string())
}

/// Returns the kind of entry that each route and tool leaves. All that is served must be listed.
fn audited_routes(served: &BTreeSet<String>) -> BTreeMap<&'static str, &'static str> {
    let audited: BTreeMap<&str, &str> = AUDITED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').expect("columns"))
        .map(|(what, kind)| (what.trim_end(), kind))
        .collect();
    let listed: BTreeSet<String> = audited.keys().map(|what| (*what).to_owned()).collect();
    assert_eq!(listed, *served, "audit_matrix.txt differs from what is served");
    audited
}

/// Checks that a request has left exactly one complete entry, or none, and returns their number.
fn check_entries(
    audited: &BTreeMap<&'static str, &'static str>,
    what: &str,
    caller: &str,
    new: &[Value],
) -> Result<usize, String> {
    let is_it = |route: &str| what == route || what.starts_with(&format!("{route} "));
    let (route, kind) = audited.iter().find(|(route, _)| is_it(route)).expect("route");
    let mut new: Vec<&Value> = new.iter().filter(|entry| entry["route"] == **route).collect();
    // Browsers sign in with the same route before each request.
    let signs_in = *route == "POST /hello";
    if signs_in {
        new.truncate(1);
    }
    let expected = usize::from(*kind != "-" && (caller != "nobody" || signs_in));
    if new.len() == expected && new.iter().all(|entry| is_complete(entry, kind)) {
        return Ok(expected);
    }
    Err(format!("{what} as {caller} left these audit entries: {new:?}"))
}

#[tokio::test]
async fn nobody_gets_more_than_the_access_matrix_says() {
    let matrix = Matrix::new().await;
    let lines: Vec<(&str, Vec<&str>)> = EXPECTED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (what, cells) = line.split_once("  ").expect("columns");
            (what, cells.split_whitespace().collect())
        })
        .collect();
    let listed: BTreeSet<&str> = lines.iter().map(|(what, _)| *what).collect();

    // Everything that the server serves has a line, and every line is served.
    let (url, message) = (
        format!("{}/mcp", matrix.server.url),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
    );
    let tools = matrix.send(&url, Method::POST, "operator", Some(&message)).await;
    let tools: Value = serde_json::from_str(&tools.text).expect("JSON");
    let tools = tools["result"]["tools"].as_array().expect("tools").iter();
    let tools = tools.map(|tool| format!("tool {}", tool["name"].as_str().expect("name")));
    let routes = tamma_server::access_routes().map(|(method, path)| format!("{method} {path}"));
    let served: BTreeSet<String> = routes.chain(tools).collect();
    for one in &served {
        assert!(listed.contains(one.as_str()), "`{one}` has no line in access_matrix.txt");
    }
    for one in &listed {
        let variant_of = |all: &&str| one.rsplit_once(' ').is_some_and(|(known, _)| known == *all);
        let known = served.contains(*one) || served.iter().any(|it| variant_of(&it.as_str()));
        assert!(known, "`{one}` is not served");
    }

    let audited = audited_routes(&served);
    let (mut position, mut entries) = (0, 0);
    matrix.new_audit_entries(&mut position).await;

    let (mut unexpected, mut leaks, mut granted, mut shown) = (Vec::new(), Vec::new(), 0, 0);
    for (what, cells) in &lines {
        assert_eq!(cells.len(), CALLERS.len(), "{what}");
        for (caller, cell) in CALLERS.into_iter().zip(cells) {
            let got = match what.strip_prefix("tool ") {
                Some(tool) => matrix.call_tool(tool, caller).await,
                None if what.contains(" /api/") || what.ends_with("/mcp") => {
                    matrix.call_api(what, caller).await
                }
                None => matrix.call_page(what, caller).await,
            };
            let new = matrix.new_audit_entries(&mut position).await;
            match check_entries(&audited, what, caller, &new) {
                Ok(count) => entries += count,
                Err(problem) => unexpected.push(problem),
            }
            let expected = *cell == "yes";
            granted += usize::from(got.granted);
            if got.granted != expected {
                let text: String = got.text.chars().take(300).collect();
                unexpected.push(format!("{what} as {caller}: expected {cell}, got {text}"));
            }
            let is_shown = got.text.contains(MARKER) || got.text.contains(STORY);
            shown += usize::from(is_shown && caller == "viewer");
            if is_shown && ["nobody", "other"].contains(&caller) {
                leaks.push(format!("{what} as {caller}: {}", got.text));
            }
        }
    }
    println!(
        "access-matrix: {} lines, {} requests, {granted} granted, {} unexpected, {} leaks, \
         {shown} responses with data of the project to a viewer, {entries} audit entries",
        lines.len(),
        lines.len() * CALLERS.len(),
        unexpected.len(),
        leaks.len()
    );
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
    // Otherwise the search for leaks proves nothing.
    assert!(shown >= 25, "only {shown} responses show data of the project to a viewer");
    matrix.server.end().await;
}
