//! HTTP layer that the clients of all forges share.
//!
//! A request is sent once, to the configured address only: no retries, no redirects. Bodies are
//! bounded, and every error status becomes an [`Error`] with the operation's name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tamma_core::time::Timestamp;

use super::facts::clip;
use super::{Error, ForgeCredential};

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Largest response, in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Largest error response that is read, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// End of a log that is kept, in bytes.
pub(super) const LOG_TAIL_BYTES: usize = 64 * 1024;

/// Largest log that is read, in bytes. Its end is unknown otherwise.
const MAX_LOG_BYTES: usize = 256 * 1024 * 1024;

/// Longest reason in an error, in characters.
const MAX_REASON: usize = 500;

/// Most responses that are kept with their validators, and the largest of them in bytes.
const MAX_KEPT: usize = 256;
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// Pause after a rate limit without a time, in seconds.
const DEFAULT_PAUSE: i64 = 60;

/// Header with a credential.
#[derive(Clone)]
pub(super) struct ApiLogin {
    name: HeaderName,
    value: HeaderValue,
}

impl ApiLogin {
    /// Creates a header. Values with characters that a header cannot have send nothing.
    pub(super) fn new(name: &'static str, value: &str) -> Self {
        let mut value =
            HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        Self { name: HeaderName::from_static(name), value }
    }
}

impl std::fmt::Debug for ApiLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiLogin")
    }
}

/// Request to a forge.
#[derive(Debug, Clone)]
pub(super) struct ApiRequest {
    method: Method,
    /// Path below the API's address, or a complete address.
    path: String,
    operation: &'static str,
    /// Object that is missing if the forge responds with 404.
    what: String,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
    accept: &'static str,
    /// Sends the validator of the last response.
    conditional: bool,
}

impl ApiRequest {
    pub(super) fn new(method: Method, path: impl Into<String>, operation: &'static str) -> Self {
        Self {
            method,
            path: path.into(),
            operation,
            what: "such object".to_owned(),
            query: Vec::new(),
            body: None,
            accept: "application/json",
            conditional: false,
        }
    }

    pub(super) fn get(path: impl Into<String>, operation: &'static str) -> Self {
        Self::new(Method::GET, path, operation)
    }

    pub(super) fn post(path: impl Into<String>, operation: &'static str, body: Value) -> Self {
        Self::new(Method::POST, path, operation).body(body)
    }

    /// Names the object that is missing if the forge responds with 404.
    pub(super) fn what(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    /// Sends the validator of the last response, so that an unchanged one costs no quota. Not for
    /// look-ups before an effect.
    pub(super) fn conditional(mut self) -> Self {
        self.conditional = true;
        self
    }
}

/// Complete response of a forge.
#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) headers: HeaderMap,
    pub(super) body: Arc<[u8]>,
}

impl ApiResponse {
    /// Returns a header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// Returns `true` if there is a next page. Without a `Link` header, a full page is taken as a
    /// sign of it.
    fn has_next_page(&self, found: usize, page_size: usize) -> bool {
        match self.header("link") {
            Some(link) => link.contains("rel=\"next\""),
            None => match self.header("x-next-page") {
                Some(next) => !next.is_empty(),
                None => found >= page_size,
            },
        }
    }
}

/// Returns a list if it is complete; `None` if there are more entries, or if they are hidden from us.
pub(super) fn complete_list<T>(
    listed: Result<(Vec<T>, bool), Error>,
) -> Result<Option<Vec<T>>, Error> {
    match listed {
        Ok((entries, false)) => Ok(Some(entries)),
        Ok((_, true)) | Err(Error::NotFound { .. } | Error::Forbidden { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// HTTP client of one forge. Clones share connections and validators.
#[derive(Debug, Clone)]
pub(super) struct ApiClient {
    http: reqwest::Client,
    forge: Arc<str>,
    base: Arc<str>,
    kept: Arc<Mutex<KeptResponses>>,
    /// Part of the quota that was left after the last response that told it.
    quota: Arc<Mutex<Option<f64>>>,
}

/// Responses by address, with their validators.
type KeptResponses = BTreeMap<String, (HeaderValue, Arc<[u8]>)>;

impl ApiClient {
    pub(super) fn open(forge: &str, base: &str) -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            // The credential must only go to the configured address.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent("tamma")
            .build()
            .map_err(|source| Error::Unreachable { forge: forge.to_owned(), source })?;
        let (kept, quota) = (Arc::default(), Arc::default());
        Ok(Self { http, forge: forge.into(), base: base.into(), kept, quota })
    }

    /// Returns the name of the forge.
    pub(super) fn forge(&self) -> &str {
        &self.forge
    }

    /// Returns the address of the API.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the part of the quota that is left, from 0 to 1, as of the last response.
    pub(super) fn quota_left(&self) -> Option<f64> {
        *self.quota.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and reads the response.
    pub(super) async fn send(
        &self,
        login: &ApiLogin,
        request: ApiRequest,
    ) -> Result<ApiResponse, Error> {
        let url = self.address(&request);
        let kept = if request.conditional { self.kept(&url) } else { None };
        let mut builder = self.builder(login, &request);
        if let Some((validator, _)) = &kept {
            builder = builder.header("if-none-match", validator.clone());
        }
        let response = builder.send().await.map_err(|source| self.unreachable(source))?;
        if let Some(left) = quota_left(response.headers()) {
            *self.quota.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        }
        if response.status() == StatusCode::NOT_MODIFIED
            && let Some((_, body)) = kept
        {
            return Ok(ApiResponse { headers: response.headers().clone(), body });
        }
        if !response.status().is_success() {
            return Err(self.failure(&request, response).await);
        }
        let headers = response.headers().clone();
        let body: Arc<[u8]> = self.read(response, request.operation).await?.into();
        if request.conditional
            && let Some(validator) = headers.get("etag")
            && body.len() <= MAX_KEPT_BYTES
        {
            self.keep(url, validator.clone(), &body);
        }
        Ok(ApiResponse { headers, body })
    }

    /// Sends a request and reads JSON.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        login: &ApiLogin,
        request: ApiRequest,
    ) -> Result<T, Error> {
        let operation = request.operation;
        let response = self.send(login, request).await?;
        self.parse(&response, operation)
    }

    /// Reads the JSON of a response.
    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        response: &ApiResponse,
        operation: &'static str,
    ) -> Result<T, Error> {
        serde_json::from_slice(&response.body).map_err(|_| self.unreadable(operation))
    }

    /// Returns the token of a credential, for forges without apps.
    pub(super) fn token<'a>(&self, credential: &'a ForgeCredential) -> Result<&'a str, Error> {
        match credential {
            ForgeCredential::Token(token) => Ok(token),
            ForgeCredential::App(_) => {
                Err(self.forbidden("sign in", "only GitHub has apps; use `token`"))
            }
        }
    }

    /// Reads the version of the server, if it tells it.
    pub(super) async fn version(&self, login: &ApiLogin) -> Option<String> {
        let request = ApiRequest::get("/version", "read the version");
        let version: Value = self.json(login, request).await.ok()?;
        version["version"].as_str().map(clip)
    }

    /// Reads a list page by page, up to a number of pages. The second value is `true` if there are
    /// more.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        login: &ApiLogin,
        request: ApiRequest,
        page_size: (&'static str, usize),
        max_pages: u32,
    ) -> Result<(Vec<T>, bool), Error> {
        let mut all = Vec::new();
        for page in 1..=max_pages {
            let one = request.clone().query(page_size.0, page_size.1.to_string());
            let one = if page == 1 { one } else { one.query("page", page.to_string()) };
            let response = self.send(login, one).await?;
            let found: Vec<T> = self.parse(&response, request.operation)?;
            let has_next = !found.is_empty() && response.has_next_page(found.len(), page_size.1);
            all.extend(found);
            if !has_next {
                return Ok((all, false));
            }
        }
        Ok((all, true))
    }

    /// Reads the end of a log. A redirect is followed once, without the credential, over HTTPS or to
    /// the same host.
    pub(super) async fn log_tail(
        &self,
        login: &ApiLogin,
        request: ApiRequest,
    ) -> Result<String, Error> {
        let operation = request.operation;
        let sent = self.builder(login, &request).send().await;
        let mut response = sent.map_err(|source| self.unreachable(source))?;
        if response.status().is_redirection() {
            let target = header(response.headers(), "location");
            let target = target.and_then(|it| response.url().join(it).ok());
            let Some(target) = target.filter(|it| is_safe_redirect(response.url(), it)) else {
                return Err(self.unreadable(operation));
            };
            let sent = self.http.get(target).send().await;
            response = sent.map_err(|source| self.unreachable(source))?;
        }
        if !response.status().is_success() {
            return Err(self.failure(&request, response).await);
        }
        let mut tail: Vec<u8> = Vec::new();
        let mut total = 0;
        while let Some(chunk) = response.chunk().await.map_err(|source| self.unreachable(source))? {
            total += chunk.len();
            if total > MAX_LOG_BYTES {
                return Err(self.unreadable(operation));
            }
            tail.extend_from_slice(&chunk);
            // Moved rarely, so that a long log costs little.
            if tail.len() > 4 * LOG_TAIL_BYTES {
                tail.drain(..tail.len() - LOG_TAIL_BYTES);
            }
        }
        Ok(text_tail(&tail))
    }

    /// Returns an error about a response that does not follow the API.
    pub(super) fn unreadable(&self, operation: &'static str) -> Error {
        Error::Unreadable { forge: self.forge.to_string(), operation }
    }

    /// Returns an error about a refused operation.
    pub(super) fn refused(&self, operation: &'static str, reason: &str) -> Error {
        Error::Refused { forge: self.forge.to_string(), operation, reason: plain(reason) }
    }

    /// Returns an error about a precondition that does not hold.
    pub(super) fn conflict(&self, operation: &'static str, reason: &str) -> Error {
        Error::Conflict { forge: self.forge.to_string(), operation, reason: plain(reason) }
    }

    /// Returns an error about a missing right.
    pub(super) fn forbidden(&self, operation: &'static str, reason: &str) -> Error {
        Error::Forbidden { forge: self.forge.to_string(), operation, reason: plain(reason) }
    }

    /// Returns an error about a missing object.
    pub(super) fn not_found(&self, what: impl Into<String>) -> Error {
        Error::NotFound { forge: self.forge.to_string(), what: what.into() }
    }

    /// Returns an error about a used quota.
    pub(super) fn rate_limited(&self, headers: &HeaderMap) -> Error {
        Error::RateLimited { forge: self.forge.to_string(), until: limit_end(headers, now()) }
    }

    fn unreachable(&self, source: reqwest::Error) -> Error {
        Error::Unreachable { forge: self.forge.to_string(), source: source.without_url() }
    }

    fn address(&self, request: &ApiRequest) -> String {
        let mut address = if request.path.starts_with('/') {
            format!("{}{}", self.base, request.path)
        } else {
            request.path.clone()
        };
        for (index, (name, value)) in request.query.iter().enumerate() {
            address.push(if index == 0 { '?' } else { '&' });
            address.push_str(name);
            address.push('=');
            address.push_str(&escape(value));
        }
        address
    }

    fn builder(&self, login: &ApiLogin, request: &ApiRequest) -> reqwest::RequestBuilder {
        let builder = self
            .http
            .request(request.method.clone(), self.address(request))
            .header(login.name.clone(), login.value.clone())
            .header("accept", request.accept);
        match &request.body {
            Some(body) => builder.json(body),
            None => builder,
        }
    }

    fn kept(&self, url: &str) -> Option<(HeaderValue, Arc<[u8]>)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned()
    }

    fn keep(&self, url: String, validator: HeaderValue, body: &Arc<[u8]>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT && !kept.contains_key(&url) {
            kept.pop_first();
        }
        kept.insert(url, (validator, Arc::clone(body)));
    }

    async fn read(
        &self,
        mut response: Response,
        operation: &'static str,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|source| self.unreachable(source))? {
            if bytes.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(self.unreadable(operation));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Turns an error status into an error.
    async fn failure(&self, request: &ApiRequest, mut response: Response) -> Error {
        let status = response.status();
        // The forge, or a proxy before it, failed. The effect may have happened.
        if status.is_server_error()
            && let Err(source) = response.error_for_status_ref()
        {
            return self.unreachable(source);
        }
        let headers = response.headers().clone();
        let mut body = Vec::new();
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            body.extend_from_slice(&chunk);
        }
        body.truncate(MAX_ERROR_BYTES);
        let reason = error_text(&body);
        let operation = request.operation;
        if is_rate_limit(status, &headers, &reason) {
            return self.rate_limited(&headers);
        }
        match status.as_u16() {
            401 => {
                let reason = format!("the credential is invalid or has expired ({reason})");
                self.forbidden(operation, &reason)
            }
            403 => {
                let scope = missing_scope(&headers);
                self.forbidden(operation, &scope.unwrap_or(reason))
            }
            404 | 410 => match missing_scope(&headers) {
                Some(scope) if lacks_all_scopes(&headers) => self.forbidden(operation, &scope),
                _ => self.not_found(request.what.clone()),
            },
            409 | 412 => self.conflict(operation, &reason),
            300..=399 => {
                self.not_found(format!("{} at this address any more; it moved", request.what))
            }
            _ => self.refused(operation, &reason),
        }
    }
}

/// Returns the present time.
#[expect(clippy::disallowed_methods, reason = "tokens and caches expire")]
pub(super) fn now() -> Timestamp {
    Utc::now()
}

/// Returns the part of the quota that is left, from 0 to 1.
fn quota_left(headers: &HeaderMap) -> Option<f64> {
    let number = |name| header(headers, name).and_then(|it| it.trim().parse::<f64>().ok());
    let limit = number("x-ratelimit-limit").or_else(|| number("ratelimit-limit"))?;
    let remaining = number("x-ratelimit-remaining").or_else(|| number("ratelimit-remaining"))?;
    (limit > 0.0).then(|| (remaining / limit).clamp(0.0, 1.0))
}

/// Escapes a part of a path or a query, including slashes.
pub(super) fn escape(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped.push(char::from(DIGITS[usize::from(byte >> 4)]));
            escaped.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    escaped
}

/// Escapes a branch for a path. Its slashes stay.
pub(super) fn escape_branch(branch: &str) -> String {
    branch.split('/').map(escape).collect::<Vec<_>>().join("/")
}

/// Shortens the text of a forge to one line without control characters.
pub(super) fn plain(text: &str) -> String {
    let words = text.split(|it: char| it.is_whitespace() || it.is_control());
    let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
    words.join(" ").chars().take(MAX_REASON).collect()
}

/// Returns the last [`LOG_TAIL_BYTES`] of a log as text, from the start of a line.
pub(super) fn text_tail(log: &[u8]) -> String {
    let start = log.len().saturating_sub(LOG_TAIL_BYTES);
    let tail = log.get(start..).unwrap_or_default();
    let line = match tail.iter().position(|it| *it == b'\n') {
        Some(end) if start > 0 => tail.get(end + 1..).unwrap_or_default(),
        _ => tail,
    };
    String::from_utf8_lossy(line).into_owned()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|it| it.to_str().ok())
}

/// Returns `true` for redirects over HTTPS, or within the same host.
fn is_safe_redirect(from: &reqwest::Url, to: &reqwest::Url) -> bool {
    let same_host = from.host_str() == to.host_str()
        && from.port_or_known_default() == to.port_or_known_default()
        && from.scheme() == to.scheme();
    to.scheme() == "https" || same_host
}

fn is_rate_limit(status: StatusCode, headers: &HeaderMap, reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    let is_used_up = header(headers, "x-ratelimit-remaining") == Some("0");
    let says_so = reason.contains("rate limit") || reason.contains("abuse detection");
    match status.as_u16() {
        429 => true,
        403 => is_used_up || says_so || headers.contains_key("retry-after"),
        _ => false,
    }
}

/// Returns the time at which requests are accepted again.
fn limit_end(headers: &HeaderMap, now: Timestamp) -> Timestamp {
    let number = |name| header(headers, name).and_then(|it| it.trim().parse::<i64>().ok());
    if let Some(seconds) = number("retry-after") {
        return now + TimeDelta::seconds(seconds.clamp(1, 86_400));
    }
    let is_used_up = header(headers, "x-ratelimit-remaining").is_none_or(|it| it == "0");
    let reset = number("x-ratelimit-reset").or_else(|| number("ratelimit-reset"));
    let reset = reset.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    match reset {
        Some(reset) if is_used_up && reset > now => reset.min(now + TimeDelta::days(1)),
        _ => now + TimeDelta::seconds(DEFAULT_PAUSE),
    }
}

/// Returns the scope or permission that the forge says is needed.
fn missing_scope(headers: &HeaderMap) -> Option<String> {
    if let Some(needed) = header(headers, "x-accepted-github-permissions")
        && !needed.is_empty()
    {
        return Some(format!("the app or token needs the permission `{needed}`"));
    }
    let needed = header(headers, "x-accepted-oauth-scopes").filter(|it| !it.is_empty())?;
    let present = header(headers, "x-oauth-scopes").unwrap_or_default();
    let present = if present.is_empty() { "none" } else { present };
    Some(format!("the token needs one of the scopes `{needed}`, and has `{present}`"))
}

/// Returns `true` if a classic token has none of the accepted scopes, so that 404 means forbidden.
fn lacks_all_scopes(headers: &HeaderMap) -> bool {
    let scopes = |name| header(headers, name).map(|it| it.split(',').map(str::trim));
    let (Some(needed), Some(present)) =
        (scopes("x-accepted-oauth-scopes"), scopes("x-oauth-scopes"))
    else {
        return false;
    };
    let present: Vec<&str> = present.collect();
    !needed.into_iter().any(|scope| present.contains(&scope))
}

/// Returns the reason in an error response.
fn error_text(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return plain(&String::from_utf8_lossy(body));
    };
    let mut parts = Vec::new();
    for key in ["message", "error", "error_description"] {
        match &value[key] {
            Value::Null => {}
            Value::String(text) => parts.push(text.clone()),
            other => parts.push(other.to_string()),
        }
    }
    for error in value["errors"].as_array().into_iter().flatten() {
        match error.as_str().or_else(|| error["message"].as_str()) {
            Some(text) => parts.push(text.to_owned()),
            None => parts.push(error.to_string()),
        }
    }
    plain(&parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs.map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn rate_limits_end_at_the_time_that_the_forge_names() {
        let now = DateTime::from_timestamp(1_000, 0).unwrap();
        let end =
            |pairs: &[(&'static str, &'static str)]| limit_end(&headers(pairs), now).timestamp();
        assert_eq!(end(&[("retry-after", "7")]), 1_007);
        assert_eq!(end(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1600")]), 1_600);
        assert_eq!(end(&[("ratelimit-reset", "1500")]), 1_500);
        assert_eq!(end(&[("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "1600")]), 1_060);
        assert_eq!(end(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "12")]), 1_060);
        assert_eq!(end(&[("retry-after", "99999999")]), 1_000 + 86_400);
        let quota = quota_left(&headers(&[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "1250"),
        ]));
        assert_eq!(quota, Some(0.25));
        assert_eq!(quota_left(&headers(&[])), None);
    }

    #[test]
    fn forbidden_responses_that_slow_us_down_are_rate_limits() {
        let forbidden = StatusCode::FORBIDDEN;
        let secondary = "You have exceeded a secondary rate limit.";
        assert!(is_rate_limit(forbidden, &headers(&[]), secondary));
        assert!(is_rate_limit(forbidden, &headers(&[("x-ratelimit-remaining", "0")]), ""));
        assert!(is_rate_limit(StatusCode::TOO_MANY_REQUESTS, &headers(&[]), ""));
        let usual = headers(&[("x-ratelimit-remaining", "12")]);
        assert!(!is_rate_limit(forbidden, &usual, "Resource not accessible by integration"));
    }

    #[test]
    fn missing_scopes_are_named() {
        let classic = headers(&[
            ("x-accepted-oauth-scopes", "repo, admin:org"),
            ("x-oauth-scopes", "read:user"),
        ]);
        let text = missing_scope(&classic).unwrap();
        assert!(text.contains("`repo, admin:org`") && text.contains("`read:user`"), "{text}");
        assert!(lacks_all_scopes(&classic));
        let app = headers(&[("x-accepted-github-permissions", "checks=write")]);
        assert!(missing_scope(&app).unwrap().contains("`checks=write`"));
        let enough =
            headers(&[("x-accepted-oauth-scopes", "repo"), ("x-oauth-scopes", "repo, gist")]);
        assert!(!lacks_all_scopes(&enough));
    }

    #[test]
    fn redirects_keep_tls_or_the_host() {
        let url = |text: &str| reqwest::Url::parse(text).unwrap();
        let from = url("http://127.0.0.1:3000/api");
        assert!(is_safe_redirect(&from, &url("https://logs.example/x")));
        assert!(is_safe_redirect(&from, &url("http://127.0.0.1:3000/log")));
        for to in ["http://logs.example/", "http://127.0.0.1:22/", "file:///etc/passwd"] {
            assert!(!is_safe_redirect(&from, &url(to)), "{to}");
        }
    }

    #[test]
    fn only_the_end_of_a_log_is_kept() {
        assert_eq!(text_tail(b"one\ntwo"), "one\ntwo");
        let log = "0123456789\n".repeat(10_000);
        let tail = text_tail(log.as_bytes());
        assert!(tail.len() <= LOG_TAIL_BYTES && tail.starts_with("0123456789\n"));
        assert!(log.ends_with(&tail));
    }

    #[test]
    fn reasons_are_short_single_lines() {
        let github = br#"{"message":"Validation Failed","errors":[{"message":"A pull request\nalready exists"}]}"#;
        assert_eq!(error_text(github), "Validation Failed; A pull request already exists");
        assert_eq!(error_text(br#"{"message":["taken"]}"#), r#"["taken"]"#);
        assert_eq!(error_text(b"<html>\x1b[31m no"), "<html> [31m no");
        assert_eq!(error_text(&vec![b'x'; 9_000]).len(), MAX_REASON);
        assert_eq!(escape("tamma/ä b"), "tamma%2F%C3%A4%20b");
    }
}
