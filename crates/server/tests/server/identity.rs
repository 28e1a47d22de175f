//! Sign-in with an identity provider, on every interface, until a group, the provider or an operator
//! ends it.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tamma_core::operator::OperatorConfig;

use crate::fake_provider::FakeProvider;
use crate::test_server::{TestServer, config, new_id, read};

/// Time within which the tests expect a right to be gone.
const SOON: Duration = Duration::from_secs(20);

/// Server with an identity provider, and a project `greeter` in which leads decide and staff read.
struct Company {
    server: TestServer,
    provider: FakeProvider,
    http: reqwest::Client,
    _folder: tempfile::TempDir,
}

/// Answer to a browser that came back from the provider.
struct Returned {
    status: u16,
    text: String,
    /// Session, as the header that a browser sends.
    session: String,
}

impl Company {
    async fn new() -> Self {
        let provider = FakeProvider::start().await;
        let text = format!(
            "identity:
  check_seconds: 1
  hosts: [127.0.0.1]
  providers:
    - name: company
      label: Company SSO
      issuer: {}
      client_id: tamma
      roles:
        - {{ group: leads, role: approver, projects: [greeter] }}
        - {{ group: staff, role: viewer }}
",
            provider.issuer()
        );
        let mut config = config("127.0.0.1:0", None);
        config.operator = OperatorConfig::parse(&text).expect("valid");
        let server = TestServer::with(config).await;
        let folder = tempfile::tempdir().expect("directory");
        server.project(&folder.path().display().to_string()).await;
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("client");
        Self { server, provider, http, _folder: folder }
    }

    async fn get(&self, path: &str, cookie: &str) -> Response {
        let request = self.http.get(format!("{}{path}", self.server.url)).header("cookie", cookie);
        request.send().await.expect("response")
    }

    /// Sends a browser to the provider. Returns its cookie, and the values of the request.
    async fn begin(&self) -> (String, Value) {
        let response = self.get("/sign-in/company?to=%2Fprojects", "").await;
        assert_eq!(response.status(), 303);
        let cookie = cookies(&response).join("; ");
        let to = response.headers()["location"].to_str().expect("text");
        assert!(to.starts_with(&format!("{}/authorize?", self.provider.issuer())), "{to}");
        let to = reqwest::Url::parse(to).expect("URL");
        let values = to.query_pairs().map(|(name, value)| (name.into_owned(), json!(value)));
        (cookie, Value::Object(values.collect()))
    }

    /// Lets a browser come back.
    async fn finish(&self, cookie: &str, query: &str) -> Returned {
        let response = self.get(&format!("/sign-in/company/callback?{query}"), cookie).await;
        let status = response.status().as_u16();
        let session = cookies(&response).into_iter().find(|it| it.starts_with("tamma="));
        let text = response.text().await.expect("text");
        Returned { status, text, session: session.unwrap_or_default() }
    }

    async fn sign_in(&self, person: &str) -> Returned {
        let (cookie, request) = self.begin().await;
        let nonce = request["nonce"].as_str().expect("nonce").to_owned();
        self.provider.content().nonces.insert(person.to_owned(), nonce);
        let state = request["state"].as_str().expect("state");
        self.finish(&cookie, &format!("code={person}&state={state}")).await
    }

    async fn sees_projects(&self, session: &str) -> bool {
        self.get("/projects", session).await.status() == 200
    }

    async fn call(&self, method: Method, path: &str, token: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}{path}", self.server.url);
        let request = self.http.request(method, url).bearer_auth(token);
        let request = request.header("accept", "application/json, text/event-stream");
        let response = request.json(body).send().await.expect("response");
        if path == "/mcp" {
            return (response.status().as_u16(), response.json().await.unwrap_or_default());
        }
        read(response).await
    }

    /// Signs in the device of ada.
    async fn device_token(&self) -> String {
        let post = async |path: &str, body: Value| {
            let url = format!("{}/sign-in/company/{path}", self.server.url);
            self.http.post(url).json(&body).send().await.expect("response")
        };
        let started: Value = post("device", json!({})).await.json().await.expect("JSON");
        assert_eq!(started["user_code"], "ABCD-EFGH");
        let poll = json!({ "secret": started["secret"] });
        assert_eq!(post("device/token", poll.clone()).await.status(), 202);
        self.provider.content().confirmed.insert("ada".to_owned());
        let mut answer = post("device/token", poll.clone()).await;
        while answer.status() == 202 {
            answer = post("device/token", poll.clone()).await;
        }
        assert_eq!(post("device/token", poll).await.status(), 403, "the code works once");
        let session: Value = answer.json().await.expect("JSON");
        assert_eq!(session["person"], "ada");
        session["token"].as_str().expect("token").to_owned()
    }

    async fn operator(&self, path: &str, body: &Value) -> (u16, Value) {
        self.server.post(path, body).await
    }
}

fn cookies(response: &Response) -> Vec<String> {
    let all = response.headers().get_all("set-cookie").iter();
    let all = all.map(|cookie| cookie.to_str().expect("text"));
    all.filter_map(|cookie| cookie.split(';').next().map(str::to_owned)).collect()
}

/// Waits until a condition holds.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn nobody_gets_in_until_one_of_their_groups_has_a_role() {
    let company = Company::new().await;
    company.provider.set_groups("eve", &["guests"]);
    let refused = company.sign_in("eve").await;
    assert_eq!((refused.status, refused.session.as_str()), (403, ""));
    assert!(refused.text.contains("None of your groups at Company SSO has a role here."));
    let (_, people) = company.server.get("/people").await;
    assert_eq!(people["accounts"], json!([]), "nothing is made for them");
    company.provider.set_groups("ada", &["leads", "guests"]);
    let ada = company.sign_in("ada").await;
    assert_eq!(ada.status, 200, "{}", ada.text);
    assert!(ada.text.contains("url=/projects"), "{}", ada.text);
    assert!(company.sees_projects(&ada.session).await);
    let (_, people) = company.server.get("/people").await;
    assert_eq!(people["accounts"][0]["name"], "ada");
    let account = company.get("/account", &ada.session).await.text().await.expect("text");
    assert!(account.contains("identity provider"), "{account}");
    let page = company.get("/hello", "").await.text().await.expect("text");
    assert!(page.contains("Sign in with Company SSO"), "{page}");
    company.server.end().await;
}

#[tokio::test]
async fn a_sign_in_counts_once_and_only_in_the_browser_that_began_it() {
    let company = Company::new().await;
    company.provider.set_groups("ada", &["leads"]);
    let (cookie, request) = company.begin().await;
    assert_eq!(request["code_challenge_method"], "S256");
    let nonce = request["nonce"].as_str().expect("nonce").to_owned();
    company.provider.content().nonces.insert("ada".to_owned(), nonce);
    let query = format!("code=ada&state={}", request["state"].as_str().expect("state"));
    let (other, _) = company.begin().await;
    for (cookie, query) in [
        (other.as_str(), query.as_str()),
        ("", query.as_str()),
        (cookie.as_str(), "code=ada&state=guessed"),
        (cookie.as_str(), "code=ada"),
    ] {
        let refused = company.finish(cookie, query).await;
        assert_eq!((refused.status, refused.session.as_str()), (403, ""), "{query}");
    }
    assert_eq!(company.finish(&cookie, &query).await.status, 200);
    assert_eq!(company.finish(&cookie, &query).await.status, 403, "the state is used up");
    company.server.end().await;
}

#[tokio::test]
async fn an_address_cannot_begin_to_sign_in_without_end() {
    let company = Company::new().await;
    let mut begun = 0;
    let refused = loop {
        let response = company.get("/sign-in/company", "").await;
        if response.status() != 303 {
            break response;
        }
        begun += 1;
        assert!(begun <= 100, "never refused");
    };
    assert_eq!(refused.status(), 429);
    assert!(begun >= 50, "people behind one proxy share their address");
    company.server.end().await;
}

#[tokio::test]
async fn a_token_of_the_provider_that_was_meant_for_something_else_signs_nobody_in() {
    let company = Company::new().await;
    company.provider.set_groups("ada", &["leads"]);
    for (claim, value) in [
        ("aud", json!("other")),
        ("iss", json!("http://evil.example")),
        ("nonce", json!("of another sign-in")),
        ("exp", json!(1)),
        ("azp", json!("other")),
        // The claims about the person are those of somebody else.
        ("sub", json!("grace")),
    ] {
        company.provider.content().forged = [(claim, value)].into();
        let refused = company.sign_in("ada").await;
        assert_eq!((refused.status, refused.session.as_str()), (403, ""), "{claim}");
    }
    company.provider.content().forged.clear();
    assert_eq!(company.sign_in("ada").await.status, 200);
    company.server.end().await;
}

#[tokio::test]
async fn access_ends_with_the_group_on_every_interface() {
    let company = Company::new().await;
    company.provider.set_groups("ada", &["leads"]);
    let session = company.sign_in("ada").await.session;
    let token = company.device_token().await;
    let new = json!({ "label": "laptop" });
    let (status, own) = company.call(Method::POST, "/api/v1/tokens", &token, &new).await;
    assert_eq!(status, 200, "{own}");
    let own = own["secret"].as_str().expect("token").to_owned();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                       "params": { "name": "list_tasks", "arguments": {} } });
    assert_eq!(company.call(Method::POST, "/mcp", &token, &list).await.0, 200);
    let (status, _) = company.call(Method::GET, "/api/v1/tasks", &own, &json!({})).await;
    assert_eq!(status, 200, "a token of her own has the roles of her groups");
    let stream = company.get("/live/board", &session).await;
    assert_eq!(stream.status(), 200);
    company.provider.set_groups("ada", &["guests"]);
    eventually("pages stay", async || !company.sees_projects(&session).await).await;
    for token in [&token, &own] {
        eventually("a token stays", async || {
            company.call(Method::GET, "/api/v1/tasks", token, &json!({})).await.0 == 401
        })
        .await;
        assert_eq!(company.call(Method::POST, "/mcp", token, &list).await.0, 401);
    }
    let mut chunks = stream.bytes_stream();
    let ended = async { while chunks.next().await.is_some() {} };
    tokio::time::timeout(SOON, ended).await.expect("the stream ends");
    assert_eq!(company.sign_in("ada").await.status, 403);
    // A weaker group is not the end, and takes the decisions away.
    company.provider.set_groups("ada", &["staff"]);
    let session = company.sign_in("ada").await.session;
    assert!(company.sees_projects(&session).await);
    let task = json!({ "project": "greeter", "title": "Greet", "id": new_id() });
    let (status, problem) = company.call(Method::POST, "/api/v1/tasks", &own, &task).await;
    assert_eq!(status, 403, "{problem}");
    company.server.end().await;
}

#[tokio::test]
async fn a_login_outlives_access_tokens_and_ends_when_the_provider_refuses() {
    let company = Company::new().await;
    company.provider.set_groups("ada", &["leads"]);
    // Too short to be used again, so that each check refreshes.
    company.provider.content().lifetime = 10;
    let session = company.sign_in("ada").await.session;
    eventually("no refresh", async || {
        assert!(company.sees_projects(&session).await);
        company.provider.content().refreshed > 1
    })
    .await;
    company.provider.content().groups.remove("ada");
    eventually("the login stays", async || !company.sees_projects(&session).await).await;
    company.server.end().await;
}

#[tokio::test]
async fn a_logout_at_the_provider_ends_its_sessions() {
    let company = Company::new().await;
    for person in ["ada", "bob"] {
        company.provider.set_groups(person, &["staff"]);
    }
    let ada = company.sign_in("ada").await.session;
    let bob = company.sign_in("bob").await.session;
    let log_out = async |token: String| {
        let url = format!("{}/sign-in/company/logout", company.server.url);
        let body = format!("logout_token={token}");
        let kind = "application/x-www-form-urlencoded";
        let request = company.http.post(url).header("content-type", kind).body(body);
        request.send().await.expect("response").status().as_u16()
    };
    let mut claims = company.provider.claims("ada");
    // An identity is no logout.
    assert_eq!(log_out(company.provider.sign(&claims)).await, 400);
    claims["events"] = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    let mut stranger = claims.clone();
    stranger["aud"] = json!("other");
    assert_eq!(log_out(company.provider.sign(&stranger)).await, 400);
    assert_eq!(log_out(FakeProvider::start().await.sign(&claims)).await, 400, "another key");
    assert!(company.sees_projects(&ada).await);
    assert_eq!(log_out(company.provider.sign(&claims)).await, 200);
    assert!(!company.sees_projects(&ada).await);
    assert!(company.sees_projects(&bob).await);
    eventually("tokens stay", async || company.provider.content().revoked == ["ada"]).await;
    assert!(company.server.store.take_ended_logins(9).await.expect("read").is_empty());
    company.server.end().await;
}

#[tokio::test]
async fn a_name_in_use_is_not_taken_over_until_an_operator_links_it() {
    let company = Company::new().await;
    company.server.grant("greeter", "Ada", "approver").await;
    company.provider.set_groups("ada", &["staff"]);
    let refused = company.sign_in("ada").await;
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("already in use"), "{}", refused.text);
    let link = json!({ "name": "Ada", "provider": "company", "subject": "ada" });
    assert_eq!(company.operator("/people/identities", &link).await.0, 200);
    let session = company.sign_in("ada").await.session;
    let page = company.get("/account", &session).await.text().await.expect("text");
    assert!(page.contains("Signed in as Ada"), "{page}");
    company.server.end().await;
}

#[tokio::test]
async fn a_deactivated_account_has_nothing_left_at_once() {
    let company = Company::new().await;
    company.provider.set_groups("ada", &["leads"]);
    let session = company.sign_in("ada").await.session;
    let token = company.device_token().await;
    let stream = company.get("/live/board", &session).await;
    let unknown = company.operator("/people/deactivations", &json!({ "name": "adda" })).await;
    assert_eq!(unknown.0, 404);
    let name = json!({ "name": "ADA" });
    assert_eq!(company.operator("/people/deactivations", &name).await.0, 200);
    assert!(!company.sees_projects(&session).await);
    assert_eq!(company.call(Method::GET, "/api/v1/tasks", &token, &json!({})).await.0, 401);
    let mut chunks = stream.bytes_stream();
    let ended = async { while chunks.next().await.is_some() {} };
    tokio::time::timeout(SOON, ended).await.expect("the stream ends");
    let refused = company.sign_in("ada").await;
    assert!(refused.status == 403 && refused.text.contains("deactivated"), "{}", refused.text);
    assert_eq!(company.operator("/people/activations", &name).await.0, 200);
    assert_eq!(company.sign_in("ada").await.status, 200);
    company.server.end().await;
}

#[tokio::test]
async fn a_token_with_a_limit_has_less_than_its_owner_and_makes_no_other() {
    let company = Company::new().await;
    company.server.grant("greeter", "Max", "approver").await;
    let max = company.server.token_of("Max").await;
    let past = json!({ "label": "ci", "expires_at": "2020-01-01T00:00:00Z" });
    assert_eq!(company.call(Method::POST, "/api/v1/tokens", &max, &past).await.0, 422);
    let new = json!({ "label": "ci", "role": "viewer" });
    let (status, created) = company.call(Method::POST, "/api/v1/tokens", &max, &new).await;
    assert_eq!(status, 200, "{created}");
    let secret = created["secret"].as_str().expect("token");
    let none = json!({});
    assert_eq!(company.call(Method::GET, "/api/v1/tasks", secret, &none).await.0, 200);
    let task = json!({ "title": "Greet", "id": new_id() });
    assert_eq!(company.call(Method::POST, "/api/v1/tasks", secret, &task).await.0, 403);
    let more = json!({ "label": "more" });
    assert_eq!(company.call(Method::POST, "/api/v1/tokens", secret, &more).await.0, 409);
    let (_, list) = company.call(Method::GET, "/api/v1/tokens", &max, &none).await;
    assert_eq!(list["tokens"][0]["label"], "ci");
    assert!(list["tokens"][0]["last_used_at"].is_string(), "{list}");
    let others = company.call(Method::GET, "/api/v1/tokens?person=Ada", &max, &none).await;
    assert_eq!(others.0, 403);
    let id = json!({ "id": created["token"]["id"] });
    let revoked = company.call(Method::POST, "/api/v1/tokens/revocations", &max, &id).await;
    assert_eq!(revoked.0, 200);
    assert_eq!(company.call(Method::GET, "/api/v1/tasks", secret, &none).await.0, 401);
    // A service account has tokens, and no session.
    let robot = json!({ "name": "robot", "service": true });
    let (status, robot) = company.operator("/people", &robot).await;
    assert_eq!(status, 200, "{robot}");
    let robot = robot["token"].as_str().expect("token");
    company.server.grant("greeter", "robot", "viewer").await;
    assert_eq!(company.call(Method::GET, "/api/v1/tasks", robot, &none).await.0, 200);
    let (status, problem) = company.call(Method::POST, "/api/v1/tokens", robot, &more).await;
    let detail = problem["detail"].as_str().expect("detail");
    assert!(status == 409 && detail.starts_with("A service account cannot"), "{problem}");
    let another = |name: &str| json!({ "label": "runner-2", "person": name });
    assert_eq!(company.operator("/tokens", &another("ROBOT")).await.0, 200);
    let (status, problem) = company.operator("/tokens", &another("robbot")).await;
    assert_eq!(status, 422, "a typing error makes no new person: {problem}");
    let hint = problem["what_to_do"].as_str().expect("hint");
    assert!(hint.contains("tamma person add"), "{hint}");
    let mut browser = crate::browser::Browser::anonymous(&company.server);
    let response = browser.post("/hello", "/hello", &format!("token={robot}&to=%2F")).await;
    assert_eq!(response.status(), 403);
    let link = company.call(Method::POST, "/api/v1/sign-in-links", robot, &none).await;
    assert_eq!(link.0, 409, "nor with a link");
    let deactivated = async || {
        let request = company.server.request(Method::GET, "/tokens?person=robot");
        let request = request.header("Tamma-Person", "Grace");
        let (_, list) = read(request.send().await.expect("response")).await;
        list["tokens"][0]["account_deactivated"].clone()
    };
    assert_eq!(deactivated().await, Value::Null);
    let name = json!({ "name": "Robot" });
    assert_eq!(company.operator("/people/deactivations", &name).await.0, 200);
    assert_eq!(deactivated().await, true);
    assert_eq!(company.operator("/people/activations", &name).await.0, 200);
    let link = json!({ "name": "robot", "provider": "company", "subject": "max" });
    assert_eq!(company.operator("/people/identities", &link).await.0, 422, "nor as somebody");
    company.server.end().await;
}

#[tokio::test]
async fn the_access_check_explains_its_decision() {
    let company = Company::new().await;
    company.provider.set_groups("ada", &["leads"]);
    company.sign_in("ada").await;
    let (_, projects) = company.server.get("/projects").await;
    let project = projects["projects"][0]["id"].as_str().expect("ID").parse().expect("ID");
    let task = crate::people::store_waiting_task(&company.server, project).await;
    let check = async |person: &str, action: &str| {
        let path = format!("/access/check?person={person}&action={action}&task={task}");
        let request = company.server.request(Method::GET, &path).header("Tamma-Person", "Grace");
        read(request.send().await.expect("response")).await
    };
    let (status, approves) = check("ada", "approve").await;
    assert_eq!((status, &approves["allowed"]), (200, &json!(true)), "{approves}");
    let reasons = approves["reasons"].to_string();
    assert!(reasons.contains("A group at company gives ada the role approver."), "{reasons}");
    let (_, refused) = check("Bob", "approve").await;
    assert_eq!(
        (&refused["allowed"], &refused["required_role"]),
        (&json!(false), &json!("approver"))
    );
    assert!(refused["reasons"].to_string().contains("Bob has no role in greeter."), "{refused}");
    assert_eq!(check("ada", "fly").await.0, 422);
    company.operator("/people/deactivations", &json!({ "name": "ada" })).await;
    assert_eq!(check("ada", "read").await.1["allowed"], false);
    company.server.end().await;
}
