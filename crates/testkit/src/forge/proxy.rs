//! Proxy in front of a forge, which loses, refuses or holds requests, and loses, doubles, reorders or
//! delays webhooks.
//!
//! A held request gives an exact point at which a test can kill a process: before the forge has seen the
//! request, or after it has responded and before anybody got the response. The product is unchanged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fake_github::lock;

/// Path of webhooks, which go to the Tamma server.
const HOOKS: &str = "/hooks/";

/// Headers that belong to one connection, or that the next one sets itself.
const OWN_HEADERS: [&str; 6] =
    ["host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect"];

/// Fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyFault {
    /// The connection breaks before the forge gets the request.
    LoseRequest,
    /// The effect happens, and the connection breaks before the response.
    LoseAnswer,
    /// The forge asks to slow down. Nothing happens.
    SlowDown,
    /// The request waits for [`ForgeProxy::release`] before the forge gets it.
    HoldRequest,
    /// The response waits for [`ForgeProxy::release`].
    HoldAnswer,
}

/// Request that a fault is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPattern {
    /// Method.
    pub method: &'static str,
    /// End of the path. A `*` stands for one part.
    pub path: &'static str,
    /// Text that path or body contains, such as the name of a repository.
    pub text: String,
}

/// End of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldEnd {
    /// The request or the response is passed on.
    Pass,
    /// The connection breaks.
    Break,
}

/// Handling of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WebhookFault {
    /// Each is passed on.
    #[default]
    None,
    /// None is passed on.
    Lose,
    /// Each is passed on twice.
    Double,
    /// Each second one is passed on before the one before it.
    Reorder,
    /// All are kept until [`ForgeProxy::flush_webhooks`].
    Delay,
}

/// Proxy. Dropping it ends it.
#[derive(Debug)]
pub struct ForgeProxy {
    url: String,
    shared: Arc<ProxyState>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct ProxyState {
    forge: String,
    http: reqwest::Client,
    faults: Mutex<Vec<(RequestPattern, ProxyFault)>>,
    held: Mutex<Option<HeldRequest>>,
    is_down: AtomicBool,
    webhooks: Mutex<WebhookState>,
}

#[derive(Debug)]
struct HeldRequest {
    pattern: RequestPattern,
    end: oneshot::Sender<HoldEnd>,
}

#[derive(Debug, Default)]
struct WebhookState {
    /// Address of the Tamma server; webhooks are lost without one.
    receiver: Option<String>,
    fault: WebhookFault,
    kept: VecDeque<Webhook>,
    arrived: usize,
}

#[derive(Debug, Clone)]
struct Webhook {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl ForgeProxy {
    /// Starts a proxy on a loopback address in front of the forge at an address.
    pub async fn start(forge: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let none = reqwest::redirect::Policy::none();
        let shared = Arc::new(ProxyState {
            forge: forge.trim_end_matches('/').to_owned(),
            http: reqwest::Client::builder().no_proxy().redirect(none).build()?,
            faults: Mutex::default(),
            held: Mutex::default(),
            is_down: AtomicBool::new(false),
            webhooks: Mutex::default(),
        });
        let app = Router::new()
            .fallback(handle)
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        let server = tokio::spawn(async move {
            // Ends with the process, or when the proxy is dropped.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { url, shared, server })
    }

    /// Returns its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Plans a fault of the next request that matches.
    pub fn inject(&self, pattern: RequestPattern, fault: ProxyFault) {
        lock(&self.shared.faults).push((pattern, fault));
    }

    /// Removes all faults that did not happen, and returns their requests.
    pub fn clear(&self) -> Vec<RequestPattern> {
        let left = std::mem::take(&mut *lock(&self.shared.faults));
        left.into_iter().map(|(pattern, _)| pattern).collect()
    }

    /// Returns `true` if faults are left that did not happen.
    pub fn has_faults(&self) -> bool {
        !lock(&self.shared.faults).is_empty()
    }

    /// Returns the pattern of the request that is held.
    pub fn held(&self) -> Option<RequestPattern> {
        lock(&self.shared.held).as_ref().map(|it| it.pattern.clone())
    }

    /// Ends the hold. Nothing happens if its sender is gone.
    pub fn release(&self, end: HoldEnd) {
        if let Some(held) = lock(&self.shared.held).take() {
            // The receiver is gone if the sender of the request is.
            let _ = held.end.send(end);
        }
    }

    /// Breaks all connections while the forge is down.
    pub fn set_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Sends webhooks to a Tamma server, with a fault.
    pub fn pass_webhooks(&self, receiver: &str, fault: WebhookFault) {
        let mut webhooks = lock(&self.shared.webhooks);
        webhooks.receiver = Some(receiver.trim_end_matches('/').to_owned());
        webhooks.fault = fault;
        webhooks.arrived = 0;
        webhooks.kept.clear();
    }

    /// Passes kept webhooks on, the newest first, and returns the number of webhooks that arrived.
    pub async fn flush_webhooks(&self) -> usize {
        let (receiver, kept, arrived) = {
            let mut webhooks = lock(&self.shared.webhooks);
            let kept = std::mem::take(&mut webhooks.kept);
            (webhooks.receiver.clone(), kept, webhooks.arrived)
        };
        for webhook in kept.iter().rev() {
            send_webhook(&self.shared.http, receiver.as_deref(), webhook).await;
        }
        arrived
    }
}

impl Drop for ForgeProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl RequestPattern {
    fn matches(&self, method: &Method, path: &str, body: &[u8]) -> bool {
        if method.as_str() != self.method || !ends_with_parts(path, self.path) {
            return false;
        }
        let text = self.text.as_bytes();
        path.contains(&self.text) || body.windows(text.len().max(1)).any(|it| it == text)
    }
}

/// Returns `true` if a path ends with the parts of a pattern.
fn ends_with_parts(path: &str, pattern: &str) -> bool {
    let mut parts = path.rsplit('/');
    pattern.rsplit('/').filter(|it| !it.is_empty()).all(|wanted| {
        parts.next().is_some_and(|part| wanted == part || (wanted == "*" && !part.is_empty()))
    })
}

async fn handle(
    State(shared): State<Arc<ProxyState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path().starts_with(HOOKS) {
        let webhook = Webhook { path: uri.path().to_owned(), headers, body };
        receive_webhook(&shared, webhook).await;
        return Response::new(Body::empty());
    }
    if shared.is_down.load(Ordering::SeqCst) {
        return broken();
    }
    let planned = take_fault(&shared, &method, uri.path(), &body);
    let held = match &planned {
        Some((pattern, ProxyFault::HoldRequest)) => hold(&shared, pattern).await,
        Some((_, ProxyFault::LoseRequest)) => HoldEnd::Break,
        Some((_, ProxyFault::SlowDown)) => {
            let refused = Response::builder().status(429).header("retry-after", "1");
            return refused.body(Body::empty()).unwrap_or_default();
        }
        Some((_, ProxyFault::LoseAnswer | ProxyFault::HoldAnswer)) | None => HoldEnd::Pass,
    };
    if held == HoldEnd::Break {
        return broken();
    }
    let Ok(response) = pass_on(&shared, method, &uri, &headers, body).await else {
        return broken();
    };
    let held = match &planned {
        Some((pattern, ProxyFault::HoldAnswer)) => hold(&shared, pattern).await,
        Some((_, ProxyFault::LoseAnswer)) => HoldEnd::Break,
        _ => HoldEnd::Pass,
    };
    if held == HoldEnd::Break || shared.is_down.load(Ordering::SeqCst) {
        return broken();
    }
    response
}

/// Takes the first planned fault of a request. Only one request is held at a time.
fn take_fault(
    shared: &ProxyState,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Option<(RequestPattern, ProxyFault)> {
    let is_holding = lock(&shared.held).is_some();
    let mut faults = lock(&shared.faults);
    let position = faults.iter().position(|(pattern, fault)| {
        let is_hold = matches!(fault, ProxyFault::HoldRequest | ProxyFault::HoldAnswer);
        !(is_hold && is_holding) && pattern.matches(method, path, body)
    })?;
    Some(faults.remove(position))
}

/// Waits for the end of a hold.
async fn hold(shared: &ProxyState, pattern: &RequestPattern) -> HoldEnd {
    let (end, ended) = oneshot::channel();
    *lock(&shared.held) = Some(HeldRequest { pattern: pattern.clone(), end });
    ended.await.unwrap_or(HoldEnd::Break)
}

/// Sends a request to the forge and returns its response.
async fn pass_on(
    shared: &ProxyState,
    method: Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response> {
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    let mut request = shared.http.request(method, format!("{}{path}", shared.forge));
    for (name, value) in headers {
        if !OWN_HEADERS.contains(&name.as_str()) {
            request = request.header(name, value);
        }
    }
    let answer = request.body(body).send().await?;
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if !OWN_HEADERS.contains(&name.as_str()) {
            response = response.header(name, value);
        }
    }
    Ok(response.body(Body::from(answer.bytes().await?))?)
}

/// Passes a webhook on, or keeps or loses it.
async fn receive_webhook(shared: &ProxyState, webhook: Webhook) {
    let (receiver, due) = {
        let mut webhooks = lock(&shared.webhooks);
        webhooks.arrived += 1;
        let due = match webhooks.fault {
            WebhookFault::None => vec![webhook],
            WebhookFault::Lose => Vec::new(),
            WebhookFault::Double => vec![webhook.clone(), webhook],
            WebhookFault::Reorder => {
                if let Some(older) = webhooks.kept.pop_front() {
                    vec![webhook, older]
                } else {
                    webhooks.kept.push_back(webhook);
                    Vec::new()
                }
            }
            WebhookFault::Delay => {
                webhooks.kept.push_back(webhook);
                Vec::new()
            }
        };
        (webhooks.receiver.clone(), due)
    };
    for webhook in &due {
        send_webhook(&shared.http, receiver.as_deref(), webhook).await;
    }
}

async fn send_webhook(http: &reqwest::Client, receiver: Option<&str>, webhook: &Webhook) {
    let Some(receiver) = receiver else { return };
    let mut request = http.post(format!("{receiver}{}", webhook.path));
    for (name, value) in &webhook.headers {
        if !OWN_HEADERS.contains(&name.as_str()) {
            request = request.header(name, value);
        }
    }
    // A server that is down loses it.
    let _ = request.body(webhook.body.clone()).send().await;
}

/// Returns a response whose body breaks off.
fn broken() -> Response {
    let lost = stream::iter([Err::<Bytes, _>(std::io::Error::other("connection lost"))]);
    Response::new(Body::from_stream(lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_end_of_a_path() {
        for (path, pattern, matches) in [
            ("/api/v1/repos/a/b/pulls", "/pulls", true),
            ("/api/v1/repos/a/b/pulls/7", "/pulls", false),
            ("/api/v1/repos/a/b/pulls/7/merge", "/pulls/*/merge", true),
            ("/api/v1/repos/a/b/issues/7/merge", "/pulls/*/merge", false),
            ("/merge", "/pulls/*/merge", false),
        ] {
            assert_eq!(ends_with_parts(path, pattern), matches, "{path} {pattern}");
        }
    }

    #[test]
    fn a_pattern_names_a_repository_in_path_or_body() {
        let pattern =
            RequestPattern { method: "POST", path: "/graphql", text: "\"shop\"".to_owned() };
        assert!(pattern.matches(&Method::POST, "/api/graphql", b"{\"name\":\"shop\"}"));
        assert!(!pattern.matches(&Method::POST, "/api/graphql", b"{\"name\":\"shop-2\"}"));
        assert!(!pattern.matches(&Method::GET, "/api/graphql", b"{\"name\":\"shop\"}"));
    }
}
