//! Client of identity providers (OIDC): sign-in in a browser and on a device, the groups of
//! a person, and logout.
//!
//! It is small on purpose. It speaks the authorization code grant with PKCE, the device grant and the
//! refresh grant over the HTTP client that alerts and forges use, follows no redirects, and reads
//! addresses only from the document of the issuer that the operator named.

mod egress;
mod sealing;
mod signed_token;
#[cfg(test)]
mod tests;

use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tamma_core::operator::IdentityProvider;
use tamma_core::time::Timestamp;
use tokio::sync::Mutex;

pub use sealing::SealingKey;
pub use signed_token::TokenError;

use self::egress::ProviderHosts;
use self::signed_token::{ProviderKeys, TokenCheck, TokenClaims, TokenPurpose};

/// Time limit of a request to a provider.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Time after which the documents of a provider are read again.
const DOCUMENT_LIFETIME: TimeDelta = TimeDelta::hours(1);

/// Time between two requests for keys because of an unknown one.
const KEY_PAUSE: TimeDelta = TimeDelta::seconds(10);

/// Time before its end at which an access token is replaced.
const ACCESS_TOKEN_MARGIN: TimeDelta = TimeDelta::seconds(30);

/// Lifetime of an access token whose provider does not say it.
const DEFAULT_TOKEN_SECONDS: i64 = 300;

/// Maximum number of groups of a person that are read.
const MAX_GROUPS: usize = 2000;

/// Failure of a request to a provider.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// Provider is unreachable, too slow or has an error of its own.
    #[error("cannot reach the identity provider {provider}: {reason}")]
    Unreachable {
        /// Name of the provider.
        provider: String,
        /// Cause.
        reason: String,
    },
    /// Document of the provider that does not fit its settings.
    #[error("the identity provider {provider} cannot be used: {reason}")]
    Unusable {
        /// Name of the provider.
        provider: String,
        /// Wrong part.
        reason: &'static str,
    },
    /// Provider refused the request.
    #[error("the identity provider {provider} refused: {code}")]
    Refused {
        /// Name of the provider.
        provider: String,
        /// Error code of the provider, such as `invalid_grant`.
        code: String,
    },
    /// Token that does not count.
    #[error("the token of the identity provider {provider} does not count: {source}")]
    Token {
        /// Name of the provider.
        provider: String,
        /// Reason.
        source: TokenError,
    },
}

impl OidcError {
    /// Returns `true` if the provider may answer later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// Document of a provider (`/.well-known/openid-configuration`).
#[derive(Debug, Clone, Deserialize)]
struct ProviderDocument {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Tokens of a provider. They are stored sealed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderTokens {
    access_token: String,
    access_until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
}

impl std::fmt::Debug for ProviderTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderTokens").finish_non_exhaustive()
    }
}

/// Person who signed in at a provider.
#[derive(Debug, Clone)]
pub struct ProviderSignIn {
    /// Subject, which never changes.
    pub subject: String,
    /// Name, from the claim in the settings; `None` if the provider has none.
    pub name: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// Session at the provider.
    pub sid: Option<String>,
    /// Tokens, for later checks.
    pub tokens: ProviderTokens,
}

/// Person whose groups were read again.
#[derive(Debug, Clone)]
pub struct ProviderCheck {
    /// Groups now; `None` if the provider replaced the tokens and then did not answer.
    pub groups: Option<Vec<String>>,
    /// Tokens, which the provider may have replaced. Save them in any case.
    pub tokens: ProviderTokens,
}

/// Request of a browser.
#[derive(Debug, Clone, Copy)]
pub struct BrowserRequest<'a> {
    /// Address that the provider sends the browser back to.
    pub redirect_uri: &'a str,
    /// Secret that comes back with the browser.
    pub state: &'a str,
    /// Secret that comes back in the token.
    pub nonce: &'a str,
    /// Secret that proves that the same server asks for the token.
    pub verifier: &'a str,
}

/// Device that waits for its person.
#[derive(Clone, Deserialize)]
pub struct DeviceCode {
    /// Code of the device, which is secret.
    pub device_code: String,
    /// Code that the person enters.
    pub user_code: String,
    /// Address at which the person enters the code.
    pub verification_uri: String,
    /// Address that contains the code.
    #[serde(default)]
    pub verification_uri_complete: Option<String>,
    /// Lifetime of the codes, in seconds.
    #[serde(default = "default_device_seconds")]
    pub expires_in: i64,
    /// Time between two polls, in seconds.
    #[serde(default = "default_interval")]
    pub interval: i32,
}

fn default_device_seconds() -> i64 {
    600
}

fn default_interval() -> i32 {
    5
}

/// Answer to a device.
#[derive(Debug, Clone)]
pub enum DeviceAnswer {
    /// Person has not answered yet.
    Pending,
    /// Device asks too often.
    SlowDown,
    /// Person has signed in.
    SignedIn(Box<ProviderSignIn>),
}

/// Logout that a provider reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderLogout {
    /// Session that ended.
    pub sid: Option<String>,
    /// Person whose sessions ended.
    pub subject: Option<String>,
}

/// Response of the token endpoint.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    expires_in: Option<i64>,
    refresh_token: Option<String>,
    id_token: Option<String>,
}

impl TokenResponse {
    fn tokens(&self, previous: Option<&ProviderTokens>, now: Timestamp) -> ProviderTokens {
        let seconds = self.expires_in.unwrap_or(DEFAULT_TOKEN_SECONDS).clamp(0, 86_400);
        let kept = || previous.and_then(|tokens| tokens.refresh_token.clone());
        ProviderTokens {
            access_token: self.access_token.clone(),
            access_until: now + TimeDelta::seconds(seconds),
            refresh_token: self.refresh_token.clone().or_else(kept),
        }
    }
}

/// Error response of a provider.
#[derive(Debug, Deserialize)]
struct ErrorResponse {
    error: String,
}

/// Documents of a provider, as last read.
#[derive(Debug, Default)]
struct KnownDocuments {
    document: Option<(ProviderDocument, Timestamp)>,
    keys: Option<(ProviderKeys, Timestamp)>,
}

/// Client of one provider.
pub struct OidcClient {
    settings: IdentityProvider,
    secret: Option<String>,
    hosts: ProviderHosts,
    http: reqwest::Client,
    known: Mutex<KnownDocuments>,
}

impl std::fmt::Debug for OidcClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret is not shown.
        f.debug_struct("OidcClient").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl OidcClient {
    /// Creates the client of a provider. Nothing is requested yet.
    pub fn new(
        settings: &IdentityProvider,
        hosts: &[String],
        secret: Option<String>,
    ) -> Result<Self, OidcError> {
        let hosts = ProviderHosts::new(hosts);
        let http = reqwest::Client::builder()
            // Secrets go to the addresses in the provider's document only.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .dns_resolver(hosts.clone())
            .build()
            .map_err(|error| OidcError::Unreachable {
                provider: settings.name.clone(),
                reason: error.to_string(),
            })?;
        let known = Mutex::default();
        Ok(Self { settings: settings.clone(), secret, hosts, http, known })
    }

    /// Returns the settings of the provider.
    pub fn settings(&self) -> &IdentityProvider {
        &self.settings
    }

    /// Returns the address that a browser goes to for its sign-in.
    pub async fn authorization_url(
        &self,
        request: &BrowserRequest<'_>,
        now: Timestamp,
    ) -> Result<String, OidcError> {
        let document = self.document(now).await?;
        let mut url = reqwest::Url::parse(self.allowed(&document.authorization_endpoint)?)
            .map_err(|_| self.unusable("`authorization_endpoint` is not a URL"))?;
        let challenge = digest::digest(&digest::SHA256, request.verifier.as_bytes());
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", request.redirect_uri)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", request.state)
            .append_pair("nonce", request.nonce)
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(challenge))
            .append_pair("code_challenge_method", "S256");
        if self.settings.scopes.iter().any(|scope| scope == "offline_access") {
            // The specification has no refresh token without consent.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(url.into())
    }

    /// Exchanges the code that a browser came back with. `issuer` is what the provider added to it.
    pub async fn exchange_code(
        &self,
        code: &str,
        issuer: Option<&str>,
        request: &BrowserRequest<'_>,
        now: Timestamp,
    ) -> Result<ProviderSignIn, OidcError> {
        let document = self.document(now).await?;
        // A provider that names itself must be the one that the browser was sent to.
        let must_say = document.authorization_response_iss_parameter_supported;
        if issuer.map_or(must_say, |issuer| issuer != document.issuer) {
            return Err(self.refused("the answer came from another provider"));
        }
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", request.redirect_uri),
            ("code_verifier", request.verifier),
        ];
        let response = self.request_tokens(&document, &form).await?;
        self.signed_in(&document, &response, Some(request.nonce), now).await
    }

    /// Begins the sign-in of a device. Returns `None` if the provider cannot do this.
    pub async fn start_device(&self, now: Timestamp) -> Result<Option<DeviceCode>, OidcError> {
        let document = self.document(now).await?;
        let Some(endpoint) = &document.device_authorization_endpoint else { return Ok(None) };
        let scope = self.settings.scopes.join(" ");
        let form = [("scope", scope.as_str())];
        let answer = self.send(self.form_request(&document, endpoint, &form)?).await?;
        let code = serde_json::from_value::<DeviceCode>(answer);
        let code = code.map_err(|_| self.unusable("the device code cannot be read"))?;
        let is_web = |url: &str| url.starts_with("https://") || url.starts_with("http://");
        let complete = code.verification_uri_complete.as_deref();
        let are_web = is_web(&code.verification_uri) && complete.is_none_or(is_web);
        if !are_web {
            return Err(self.unusable("the address for the device code is not a web page"));
        }
        Ok(Some(code))
    }

    /// Asks whether the person of a device has signed in.
    pub async fn poll_device(
        &self,
        device_code: &str,
        now: Timestamp,
    ) -> Result<DeviceAnswer, OidcError> {
        let document = self.document(now).await?;
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", device_code),
        ];
        match self.request_tokens(&document, &form).await {
            Ok(response) => {
                let person = self.signed_in(&document, &response, None, now).await?;
                Ok(DeviceAnswer::SignedIn(Box::new(person)))
            }
            Err(OidcError::Refused { code, .. }) if code == "authorization_pending" => {
                Ok(DeviceAnswer::Pending)
            }
            Err(OidcError::Refused { code, .. }) if code == "slow_down" => {
                Ok(DeviceAnswer::SlowDown)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the groups of a person who has signed in before. [`OidcError::Refused`] ends their login.
    pub async fn check(
        &self,
        tokens: &ProviderTokens,
        subject: &str,
        now: Timestamp,
    ) -> Result<ProviderCheck, OidcError> {
        let document = self.document(now).await?;
        if tokens.access_until - ACCESS_TOKEN_MARGIN > now
            && let Some(claims) = self.user_info(&document, tokens, subject).await?
            && let Some(groups) = self.groups(&claims)
        {
            return Ok(ProviderCheck { groups: Some(groups), tokens: tokens.clone() });
        }
        let Some(refresh_token) = &tokens.refresh_token else {
            return Err(self.refused("the login has expired, and there is no refresh token"));
        };
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token.as_str())];
        let response = self.request_tokens(&document, &form).await?;
        let tokens = response.tokens(Some(tokens), now);
        let id_token = response.id_token.as_deref();
        match self.read_groups(&document, id_token, &tokens, subject, now).await {
            Ok(groups) => Ok(ProviderCheck { groups: Some(groups), tokens }),
            Err(error) if error.is_retryable() => Ok(ProviderCheck { groups: None, tokens }),
            Err(error) => Err(error),
        }
    }

    /// Reads the groups of a person with new tokens. Without a claim, there are none.
    async fn read_groups(
        &self,
        document: &ProviderDocument,
        id_token: Option<&str>,
        tokens: &ProviderTokens,
        subject: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, OidcError> {
        let info = self.user_info(document, tokens, subject).await?;
        if let Some(groups) = info.and_then(|info| self.groups(&info)) {
            return Ok(groups);
        }
        let Some(id_token) = id_token else { return Ok(Vec::new()) };
        let claims = self.verify(document, id_token, TokenPurpose::Identity(None), now).await?;
        self.require_subject(claims.sub.as_deref(), subject)?;
        Ok(self.groups(&claims.other).unwrap_or_default())
    }

    /// Revokes the tokens of a login that has ended (RFC 7009), if the provider can do this.
    pub async fn revoke(&self, tokens: &ProviderTokens, now: Timestamp) -> Result<(), OidcError> {
        let document = self.document(now).await?;
        let Some(endpoint) = &document.revocation_endpoint else { return Ok(()) };
        // Access tokens end with the refresh token that they come from.
        let (token, kind) = match &tokens.refresh_token {
            Some(token) => (token.as_str(), "refresh_token"),
            None => (tokens.access_token.as_str(), "access_token"),
        };
        let form = [("token", token), ("token_type_hint", kind)];
        // The answer has no content.
        self.receive(self.form_request(&document, endpoint, &form)?).await.map(drop)
    }

    /// Verifies a logout token that the provider sent.
    pub async fn read_logout(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<ProviderLogout, OidcError> {
        let document = self.document(now).await?;
        let claims = self.verify(&document, token, TokenPurpose::Logout, now).await?;
        Ok(ProviderLogout { sid: claims.sid, subject: claims.sub })
    }

    async fn signed_in(
        &self,
        document: &ProviderDocument,
        response: &TokenResponse,
        nonce: Option<&str>,
        now: Timestamp,
    ) -> Result<ProviderSignIn, OidcError> {
        let token = response.id_token.as_deref();
        let token = token.ok_or_else(|| self.unusable("it returned no ID token"))?;
        let claims = self.verify(document, token, TokenPurpose::Identity(nonce), now).await?;
        let TokenClaims { sub, sid, other, .. } = claims;
        let subject = sub.unwrap_or_default();
        let tokens = response.tokens(None, now);
        let info = self.user_info(document, &tokens, &subject).await?.unwrap_or_default();
        let name_claim = self.settings.name_claim.as_str();
        let name = info.get(name_claim).or_else(|| other.get(name_claim)).and_then(Value::as_str);
        let groups = self.groups(&info).or_else(|| self.groups(&other)).unwrap_or_default();
        let name = name.map(str::to_owned);
        Ok(ProviderSignIn { subject, name, groups, sid, tokens })
    }

    /// Returns the groups in claims; `None` if the claim is missing.
    fn groups(&self, claims: &Map<String, Value>) -> Option<Vec<String>> {
        match claims.get(&self.settings.groups_claim)? {
            Value::String(one) => Some(vec![one.clone()]),
            Value::Array(all) => {
                let names = all.iter().filter_map(Value::as_str).map(str::to_owned);
                Some(names.take(MAX_GROUPS).collect())
            }
            _ => None,
        }
    }

    fn require_subject(&self, found: Option<&str>, expected: &str) -> Result<(), OidcError> {
        if found == Some(expected) {
            return Ok(());
        }
        Err(OidcError::Token {
            provider: self.settings.name.clone(),
            source: TokenError::Claim("sub"),
        })
    }

    /// Returns the claims about a person; `None` if the provider has none, or does not know the
    /// access token any more.
    async fn user_info(
        &self,
        document: &ProviderDocument,
        tokens: &ProviderTokens,
        subject: &str,
    ) -> Result<Option<Map<String, Value>>, OidcError> {
        let Some(endpoint) = &document.userinfo_endpoint else { return Ok(None) };
        let request = self.http.get(self.allowed(endpoint)?).bearer_auth(&tokens.access_token);
        match self.send(request).await {
            Ok(Value::Object(claims)) => {
                let found = claims.get("sub").and_then(Value::as_str);
                self.require_subject(found, subject)?;
                Ok(Some(claims))
            }
            Ok(_) | Err(OidcError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Verifies a token. An unknown key is looked for once more: the provider may have a new one.
    async fn verify(
        &self,
        document: &ProviderDocument,
        token: &str,
        purpose: TokenPurpose<'_>,
        now: Timestamp,
    ) -> Result<TokenClaims, OidcError> {
        let client_id = self.settings.client_id.as_str();
        let check = TokenCheck { issuer: &document.issuer, client_id, purpose, now };
        let invalid = |source| OidcError::Token { provider: self.settings.name.clone(), source };
        let keys = self.keys(document, DOCUMENT_LIFETIME, now).await?;
        match check.verify(token, &keys) {
            Err(TokenError::UnknownKey) => {
                let keys = self.keys(document, KEY_PAUSE, now).await?;
                check.verify(token, &keys).map_err(invalid)
            }
            result => result.map_err(invalid),
        }
    }

    /// Returns the document of the provider.
    async fn document(&self, now: Timestamp) -> Result<ProviderDocument, OidcError> {
        let mut known = self.known.lock().await;
        if let Some((document, at)) = &known.document
            && *at + DOCUMENT_LIFETIME > now
        {
            return Ok(document.clone());
        }
        let issuer = &self.settings.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let answer = self.send(self.http.get(self.allowed(&url)?)).await?;
        let document = serde_json::from_value::<ProviderDocument>(answer);
        let document = document.map_err(|_| self.unusable("its document cannot be read"))?;
        if document.issuer != *issuer {
            return Err(self.unusable("its document has another `issuer` than the settings"));
        }
        known.document = Some((document.clone(), now));
        Ok(document)
    }

    /// Returns the keys of the provider, not older than `lifetime`.
    async fn keys(
        &self,
        document: &ProviderDocument,
        lifetime: TimeDelta,
        now: Timestamp,
    ) -> Result<ProviderKeys, OidcError> {
        let mut known = self.known.lock().await;
        if let Some((keys, at)) = &known.keys
            && *at + lifetime > now
        {
            return Ok(keys.clone());
        }
        let answer = self.send(self.http.get(self.allowed(&document.jwks_uri)?)).await?;
        let keys = ProviderKeys::parse(&answer);
        let keys = keys.ok_or_else(|| self.unusable("its keys cannot be read"))?;
        known.keys = Some((keys.clone(), now));
        Ok(keys)
    }

    async fn request_tokens(
        &self,
        document: &ProviderDocument,
        form: &[(&str, &str)],
    ) -> Result<TokenResponse, OidcError> {
        let request = self.form_request(document, &document.token_endpoint, form)?;
        let answer = self.send(request).await?;
        serde_json::from_value(answer).map_err(|_| self.unusable("its tokens cannot be read"))
    }

    /// Creates a request with a form and the credentials of the client.
    fn form_request(
        &self,
        document: &ProviderDocument,
        url: &str,
        form: &[(&str, &str)],
    ) -> Result<reqwest::RequestBuilder, OidcError> {
        let client_id = self.settings.client_id.as_str();
        let methods = &document.token_endpoint_auth_methods_supported;
        let supports = |method: &str| methods.iter().any(|it| it == method);
        let mut request = self
            .http
            .post(self.allowed(url)?)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json");
        let mut pairs = form.to_vec();
        match &self.secret {
            // The default of the specification.
            Some(secret) if methods.is_empty() || supports("client_secret_basic") => {
                let encode = |text: &str| -> String {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect()
                };
                let login = STANDARD.encode(format!("{}:{}", encode(client_id), encode(secret)));
                request = request.header("authorization", format!("Basic {login}"));
            }
            Some(secret) => {
                pairs.extend([("client_id", client_id), ("client_secret", secret.as_str())]);
            }
            None => pairs.push(("client_id", client_id)),
        }
        Ok(request.body(encode_form(&pairs)))
    }

    /// Returns a URL that the client can request.
    fn allowed<'a>(&self, url: &'a str) -> Result<&'a str, OidcError> {
        if self.hosts.allows_url(url) {
            return Ok(url);
        }
        Err(self.unusable(
            "an address is private or not https; the operator can list its host in \
             `identity.hosts`",
        ))
    }

    /// Sends a request and returns the JSON of the response.
    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Value, OidcError> {
        let bytes = self.receive(request).await?;
        serde_json::from_slice(&bytes).map_err(|_| self.unusable("a response is not JSON"))
    }

    /// Sends a request and returns the content of the response.
    async fn receive(&self, request: reqwest::RequestBuilder) -> Result<Vec<u8>, OidcError> {
        let unreachable = |reason: String| OidcError::Unreachable {
            provider: self.settings.name.clone(),
            reason,
        };
        let failed = |error: reqwest::Error| unreachable(error.without_url().to_string());
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_RESPONSE_BYTES {
                return Err(self.unusable("a response is too large"));
            }
        }
        if status.is_success() {
            return Ok(bytes);
        }
        if status.is_client_error() && status != reqwest::StatusCode::TOO_MANY_REQUESTS {
            let error = serde_json::from_slice::<ErrorResponse>(&bytes).ok();
            let is_code = |code: &String| {
                let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                code.len() <= 100 && code.chars().all(is_plain)
            };
            let code = error.map(|error| error.error).filter(is_code);
            return Err(OidcError::Refused {
                provider: self.settings.name.clone(),
                code: code.unwrap_or_else(|| status.as_u16().to_string()),
            });
        }
        Err(unreachable(format!("it returned {}", status.as_u16())))
    }

    fn unusable(&self, reason: &'static str) -> OidcError {
        OidcError::Unusable { provider: self.settings.name.clone(), reason }
    }

    fn refused(&self, reason: &str) -> OidcError {
        OidcError::Refused { provider: self.settings.name.clone(), code: reason.to_owned() }
    }
}

fn encode_form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}
