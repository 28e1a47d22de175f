//! A server of a test's own, and a client for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tamma_server::{Config, Error, Server};
use tamma_store::Store;
use tamma_testkit::postgres::Database;
use tamma_testkit::temporal;
use temporalio_client::{Client, ClientOptions, Connection, ConnectionOptions, Url};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) struct Stage {
    pub(crate) url: String,
    pub(crate) store: Store,
    pub(crate) http: reqwest::Client,
    stop: CancellationToken,
    served: JoinHandle<Result<(), Error>>,
    // Dropped last, since the others are connected to it.
    _database: Database,
}

pub(crate) fn config(address: &str, token: Option<&str>) -> Config {
    Config {
        address: address.parse().expect("an address"),
        token: token.map(str::to_owned),
        environment: BTreeMap::new(),
        pace: tamma_flow::Pace::default(),
        objects: tamma_store::Objects::new("/nowhere"),
        public_url: None,
        person: None,
        terminal: None,
        look: None,
    }
}

pub(crate) async fn engine() -> Client {
    let address = temporal::server().expect("a durable engine");
    let url: Url = format!("http://{address}").parse().expect("an address");
    let options = ConnectionOptions::new(url).identity("test").build();
    let connection = Connection::connect(options).await.expect("connected");
    Client::new(connection, ClientOptions::new("default").build()).expect("a client")
}

/// A number that no other test has.
#[expect(clippy::disallowed_methods, reason = "workflows of all tests share one engine")]
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// A store without a server.
pub(crate) async fn ground() -> (Database, Store) {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    (database, store)
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(config("127.0.0.1:0", None)).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let (database, store) = ground().await;
        Self::on(config, database, store).await
    }

    /// On a store in which something has happened before.
    pub(crate) async fn on(config: Config, database: Database, store: Store) -> Self {
        let server = Server::bind(config, store.clone(), engine().await).await.expect("bound");
        let address: SocketAddr = server.address();
        let stop = CancellationToken::new();
        let served = tokio::spawn(server.run(stop.clone()));
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { url: format!("http://{address}"), store, http, stop, served, _database: database }
    }

    /// Another server on the same store.
    pub(crate) async fn beside(&self, config: Config) -> Beside {
        let server = Server::bind(config, self.store.clone(), engine().await).await.expect("bound");
        let (url, stop) = (format!("http://{}", server.address()), CancellationToken::new());
        let served = tokio::spawn(server.run(stop.clone()));
        Beside { url, stop, served }
    }

    /// Stops the server, and keeps the store for the next one.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        (&mut self.served).await.expect("no panic").expect("ended well");
        self.served = tokio::spawn(async { Ok(()) });
    }

    /// Stops the server, and sees to it that it ends well.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.served.await.expect("no panic").expect("ended well");
        self.store.close().await;
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/api/v1{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        read(self.request(Method::GET, path).send().await.expect("an answer")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.request(Method::POST, path).header("Tamma-Person", "Ada").json(body);
        read(request.send().await.expect("an answer")).await
    }

    /// Registers a project with a name of its own, and returns its id.
    pub(crate) async fn project(&self, repository: &str) -> Uuid {
        let body = json!({ "name": "greeter", "repository": repository });
        let (status, project) = self.post("/projects", &body).await;
        assert_eq!(status, 200, "{project}");
        project["id"].as_str().expect("an id").parse().expect("an id")
    }
}

/// A server beside the one of a stage.
pub(crate) struct Beside {
    pub(crate) url: String,
    stop: CancellationToken,
    served: JoinHandle<Result<(), Error>>,
}

impl Beside {
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.served.await.expect("no panic").expect("ended well");
    }
}

pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let is_problem = response
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes() == b"application/problem+json");
    assert_eq!(is_problem, status >= 400, "only problems are problem documents");
    let text = response.text().await.expect("a text");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
