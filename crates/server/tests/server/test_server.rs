//! Server and HTTP client of one test.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use reqwest::header::AUTHORIZATION;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tamma_server::{ApiServer, Error, ServerConfig};
use tamma_store::Store;
use tamma_testkit::postgres::TestDatabase;
use tamma_testkit::temporal;
use temporalio_client::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Running server with its own database, and an HTTP client.
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) store: Store,
    /// Client that sends the default token, if the server has it and the request has no other.
    pub(crate) http: reqwest::Client,
    /// Set if the server has the default token.
    pub(crate) has_default_token: bool,
    stop: CancellationToken,
    served: JoinHandle<Result<(), Error>>,
    // Dropped last, because the other fields have connections to it.
    _database: TestDatabase,
}

/// Token that a test server has, unless the test chooses another one.
pub(crate) const OPERATOR_TOKEN: &str = "operator-token-of-the-test-server";

pub(crate) fn config(address: &str, token: Option<&str>) -> ServerConfig {
    ServerConfig {
        address: address.parse().expect("address"),
        token: token.unwrap_or(OPERATOR_TOKEN).to_owned(),
        environment: BTreeMap::new(),
        operator: tamma_testkit::operator::test_operator(),
        keys: tamma_testkit::keys::test_keys(),
        workflow_tuning: tamma_flow::WorkflowTuning::default(),
        // These tasks have no workflows.
        reconcile_interval: std::time::Duration::from_hours(24),
        objects: tamma_store::ObjectStorage::new("/nowhere"),
        public_url: None,
        terminal: None,
        inspect_repository: None,
        read_remote_config: None,
        read_commit_file: None,
        forges: "/nowhere".into(),
        policies: BTreeMap::new(),
        acme: "/nowhere".into(),
    }
}

/// Connects to the shared Temporal server.
pub(crate) async fn temporal_client() -> Client {
    let address = temporal::server_address().expect("Temporal server");
    temporal::connect(&address).await.expect("connected")
}

/// Generates an ID that no other test uses.
#[expect(clippy::disallowed_methods, reason = "all tests share one Temporal server")]
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// Creates a database without a server.
pub(crate) async fn fresh_database() -> (TestDatabase, Store) {
    let database = TestDatabase::fresh().await.expect("database");
    let store = database.store().await.expect("store");
    (database, store)
}

impl TestServer {
    pub(crate) async fn new() -> Self {
        Self::with(config("127.0.0.1:0", None)).await
    }

    pub(crate) async fn with(config: ServerConfig) -> Self {
        let (database, store) = Box::pin(fresh_database()).await;
        Box::pin(Self::on_database(config, database, store)).await
    }

    /// Starts a server on an existing database.
    pub(crate) async fn on_database(
        config: ServerConfig,
        database: TestDatabase,
        store: Store,
    ) -> Self {
        let has_default_token = config.token == OPERATOR_TOKEN;
        let server =
            ApiServer::bind(config, store.clone(), temporal_client().await).await.expect("bound");
        let address: SocketAddr = server.address();
        let stop = CancellationToken::new();
        let served = tokio::spawn(server.run(stop.clone()));
        let http = reqwest::Client::builder().no_proxy();
        let http = if has_default_token {
            let bearer = format!("Bearer {OPERATOR_TOKEN}").parse().expect("header");
            http.default_headers([(AUTHORIZATION, bearer)].into_iter().collect())
        } else {
            http
        };
        Self {
            url: format!("http://{address}"),
            store,
            http: http.build().expect("client"),
            has_default_token,
            stop,
            served,
            _database: database,
        }
    }

    /// Starts another server on the same database.
    pub(crate) async fn start_another(&self, config: ServerConfig) -> ExtraServer {
        let server = ApiServer::bind(config, self.store.clone(), temporal_client().await)
            .await
            .expect("bound");
        let (url, stop) = (format!("http://{}", server.address()), CancellationToken::new());
        let served = tokio::spawn(server.run(stop.clone()));
        ExtraServer { url, stop, served }
    }

    /// Stops the server and keeps the database for the next one.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        (&mut self.served).await.expect("no panic").expect("clean exit");
        self.served = tokio::spawn(async { Ok(()) });
    }

    /// Stops the server and checks that it exits cleanly.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.served.await.expect("no panic").expect("clean exit");
        self.store.close().await;
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/api/v1{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        read(self.request(Method::GET, path).send().await.expect("response")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.request(Method::POST, path).header("Tamma-Person", "Ada").json(body);
        read(request.send().await.expect("response")).await
    }

    /// Issues a personal access token.
    pub(crate) async fn token_of(&self, name: &str) -> String {
        let (status, issued) = self.post("/people", &json!({ "name": name })).await;
        assert_eq!((status, &issued["name"]), (200, &json!(name)), "{issued}");
        issued["token"].as_str().expect("token").to_owned()
    }

    /// Grants a role in a project.
    pub(crate) async fn grant(&self, project: &str, person: &str, role: &str) {
        let grant = json!({ "project": project, "person": person, "role": role });
        let (status, access) = self.post("/access", &grant).await;
        assert_eq!(status, 200, "{access}");
    }

    /// Registers the project `greeter`, imports the roles in its configuration, and returns its ID.
    pub(crate) async fn project(&self, repository: &str) -> Uuid {
        let body = json!({ "name": "greeter", "repository": repository });
        let (status, project) = self.post("/projects", &body).await;
        assert_eq!(status, 200, "{project}");
        let config = std::fs::read_to_string(format!("{repository}/tamma.yaml"));
        if config.is_ok_and(|text| text.contains("people:")) {
            let import = json!({ "project": "greeter" });
            let (status, access) = self.post("/access/import", &import).await;
            assert_eq!(status, 200, "{access}");
        }
        project["id"].as_str().expect("ID").parse().expect("ID")
    }
}

/// Additional server on the same database.
pub(crate) struct ExtraServer {
    pub(crate) url: String,
    stop: CancellationToken,
    served: JoinHandle<Result<(), Error>>,
}

impl ExtraServer {
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.served.await.expect("no panic").expect("clean exit");
    }
}

pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let is_problem = response
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes() == b"application/problem+json");
    assert_eq!(is_problem, status >= 400, "error responses, and only those, are problem documents");
    let text = response.text().await.expect("text");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
