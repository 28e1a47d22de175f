//! Browser without JavaScript, and a task that a test moves step by step.

use std::collections::BTreeMap;

use reqwest::{Method, Response, StatusCode};
use serde_json::json;
use tamma_core::actor::Actor;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::plan::{FileChange, Plan};
use tamma_core::rules::Rules;
use tamma_core::task_loop::{
    Outcome, State, Step, StepRecord, TaskLoop, TaskReceived, Timestamp, begin,
};
use tamma_core::version::Edition;
use tamma_server::ServerConfig;
use tamma_store::Store;
use tamma_testkit::sample_plan;
use uuid::Uuid;

use crate::test_server::{OPERATOR_TOKEN, TestServer, config, new_id};
use crate::world::{self, World};

/// Signs Ada in with the default token, and returns the cookie of her session.
pub(crate) async fn session_cookie(url: &str) -> String {
    let mut browser = Browser::at(url);
    let fields = format!("name=Ada&token={OPERATOR_TOKEN}&to=%2F");
    let response = browser.post("/hello", "/hello", &fields).await;
    assert_eq!(response.status(), 303);
    format!("tamma={}", browser.cookies["tamma"])
}

/// Browser that keeps cookies and does not follow redirects. If the server has the default token, Ada
/// has signed in.
pub(crate) struct Browser {
    http: reqwest::Client,
    url: String,
    /// Set until Ada has signed in.
    signs_in: bool,
    pub(crate) cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn new(server: &TestServer) -> Self {
        Self { signs_in: server.has_default_token, ..Self::at(&server.url) }
    }

    /// Browser that nobody has signed in with.
    pub(crate) fn anonymous(server: &TestServer) -> Self {
        Self::at(&server.url)
    }

    fn at(url: &str) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("client");
        Self { http, url: url.to_owned(), signs_in: false, cookies: BTreeMap::new() }
    }

    /// Signs in with a token, under the name of another person.
    pub(crate) async fn signed_in(server: &TestServer, token: &str) -> Self {
        let mut browser = Self::at(&server.url);
        let fields = format!("name=Grace&token={token}&to=%2F");
        let response = browser.post("/hello", "/hello", &fields).await;
        assert_eq!(response.status(), 303);
        browser
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Response {
        if std::mem::take(&mut self.signs_in) {
            let cookie = Box::pin(session_cookie(&self.url)).await;
            let (name, value) = cookie.split_once('=').expect("cookie");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        let cookies: Vec<_> =
            self.cookies.iter().map(|(name, it)| format!("{name}={it}")).collect();
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            let kind = "application/x-www-form-urlencoded";
            request = request.header("content-type", kind).body(body.to_owned());
        }
        let response = request.send().await.expect("response");
        for value in response.headers().get_all("set-cookie") {
            let text = value.to_str().expect("text");
            assert!(text.contains("HttpOnly") && text.contains("SameSite=Strict"), "{text}");
            let (name, rest) = text.split_once('=').expect("cookie");
            let value = rest.split(';').next().unwrap_or_default();
            if text.contains("Max-Age=0;") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        response
    }

    pub(crate) async fn get(&mut self, path: &str) -> (StatusCode, String) {
        let response = self.send(Method::GET, path, &[], None).await;
        (response.status(), response.text().await.expect("page"))
    }

    /// Loads a page and checks that its status is 200.
    pub(crate) async fn page(&mut self, path: &str) -> String {
        let (status, html) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {html}");
        html
    }

    /// Submits a form of a page, with the CSRF token of that page.
    pub(crate) async fn post(&mut self, page: &str, path: &str, fields: &str) -> Response {
        let (_, html) = self.get(page).await;
        let secret = between(&html, "name=\"csrf\" value=\"", "\"").to_owned();
        let body = format!("csrf={secret}&{fields}");
        self.send(Method::POST, path, &[], Some(&body)).await
    }
}

/// Returns the text between two markers.
pub(crate) fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no `{start}` in {text}"));
    rest.split(end).next().unwrap_or_default()
}

/// Configuration of a server with the default token.
pub(crate) fn local_config() -> ServerConfig {
    config("127.0.0.1:0", None)
}

/// Task that is stored as its workflow would store it, without a workflow.
pub(crate) struct StoredTask {
    pub(crate) id: Uuid,
    store: Store,
    world: World,
    steps: u64,
}

impl StoredTask {
    pub(crate) async fn new(server: &TestServer, project: Uuid, task: serde_json::Value) -> Self {
        Self::with_rules(server, project, task, Rules::default()).await
    }

    pub(crate) async fn with_rules(
        server: &TestServer,
        project: Uuid,
        task: serde_json::Value,
        rules: Rules,
    ) -> Self {
        let (id, rules) = (new_id(), rules.without_secrets());
        server.store.save_rules(&rules).await.expect("stored");
        let received = TaskReceived {
            task: TaskId(id),
            project: ProjectId(project),
            priority: tamma_core::task::Priority::Medium,
            at: world::minute(0),
            by: Actor::Person("Ada".parse().expect("name")),
            auth: None,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let first = begin(&received, &rules);
        let mut value = json!({ "id": id, "project": project, "type": "feature" });
        let fields = value.as_object_mut().expect("fields");
        fields.extend(task.as_object().expect("fields").clone());
        let task = serde_json::from_value(value).expect("task");
        server.store.insert_task(&task, &first, &rules).await.expect("written");
        let world = World {
            received,
            it: first.next,
            rules,
            now: world::minute(0),
            commands: first.commands,
            taken: Vec::new(),
            log: first.entries,
        };
        Self { id, store: server.store.clone(), world, steps: 0 }
    }

    /// Applies events to the task and stores the step.
    pub(crate) async fn apply(&mut self, change: impl FnOnce(&mut World)) -> &TaskLoop {
        let before = self.world.log.len();
        self.world.now += chrono::TimeDelta::seconds(1);
        change(&mut self.world);
        self.steps += 1;
        let step = Step {
            next: self.world.it.clone(),
            commands: self.world.commands.clone(),
            entries: self.world.log[before..].to_vec(),
        };
        let record = StepRecord::new(self.steps, self.world.now, step.clone());
        self.store.save_steps(&[record], &self.world.rules).await.expect("written");
        &self.world.it
    }

    /// Stores a plan that changes `files` files and awaits approval.
    pub(crate) async fn add_plan(&mut self, summary: &str, files: usize) -> &TaskLoop {
        let change = |number| FileChange {
            path: format!("src/{number}.rs"),
            action: tamma_core::plan::FileAction::Modify,
            description: "change of the task".to_owned(),
            estimated_lines: 3,
        };
        let plan = Plan {
            summary: summary.to_owned(),
            approach: "Carefully.".to_owned(),
            file_changes: (0..files).map(change).collect(),
            testing_strategy: "As always.".to_owned(),
            ..sample_plan(0)
        };
        let version = self.world.it.plan.as_ref().map_or(1, |plan| plan.version + 1);
        self.store.save_plan(TaskId(self.id), (version, None), &plan).await.expect("stored");
        let plan_text = self.store.save_text("a plan").await.expect("stored");
        let policy = self.store.save_rules(&self.world.rules).await.expect("stored");
        self.apply(|world| {
            let outline = plan.summarize(version, plan_text, &world.rules);
            if world.it.state == State::Pending {
                world.walk(State::Assigned);
                let pin = tamma_core::approval::Pin { policy, ..world::pin(1) };
                world.done(Outcome::Prepared(pin));
            }
            world.done(Outcome::Planned(outline));
            world.done(Outcome::Checked { blockers: 0, warnings: 0 });
        })
        .await
    }

    pub(crate) fn task_loop(&self) -> &TaskLoop {
        &self.world.it
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.world.now
    }
}
