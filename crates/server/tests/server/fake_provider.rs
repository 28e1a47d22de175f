//! Identity provider in this process. Codes, access tokens and refresh tokens are the name of the person.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

type Response = (StatusCode, Json<Value>);

/// Content of the provider.
#[derive(Default)]
pub(crate) struct ProviderContent {
    /// Groups by person. Others are unknown.
    pub(crate) groups: BTreeMap<String, Vec<String>>,
    /// Nonce of the last request of each person's browser.
    pub(crate) nonces: BTreeMap<String, String>,
    /// People who have confirmed the code of their device.
    pub(crate) confirmed: BTreeSet<String>,
    /// Claims that replace those of the next ID tokens.
    pub(crate) forged: BTreeMap<&'static str, Value>,
    /// Lifetime of access tokens, in seconds.
    pub(crate) lifetime: i64,
    /// Refresh tokens that were revoked.
    pub(crate) revoked: Vec<String>,
    /// Number of refresh grants.
    pub(crate) refreshed: usize,
}

/// Provider that listens on its own address.
#[derive(Clone)]
pub(crate) struct FakeProvider {
    content: Arc<Mutex<ProviderContent>>,
    key: Arc<EcdsaKeyPair>,
    address: SocketAddr,
}

impl FakeProvider {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("key");
        let content = ProviderContent { lifetime: 3600, ..ProviderContent::default() };
        let this = Self { content: Arc::new(Mutex::new(content)), key: Arc::new(key), address };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(document))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/device", post(device))
            .route("/revoke", post(revoke))
            .route("/userinfo", get(user_info))
            .with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        this
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Locks the content.
    pub(crate) fn content(&self) -> MutexGuard<'_, ProviderContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_groups(&self, person: &str, groups: &[&str]) {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.content().groups.insert(person.to_owned(), groups);
    }

    /// Signs claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let content =
            format!("{}.{}", encode(&json!({ "alg": "ES256", "kid": "a" })), encode(claims));
        let signature = self.key.sign(&SystemRandom::new(), content.as_bytes()).expect("signed");
        format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// Claims of an ID token.
    pub(crate) fn claims(&self, person: &str) -> Value {
        let now = now();
        json!({
            "iss": self.issuer(), "sub": person, "aud": "tamma", "iat": now, "exp": now + 300,
            "sid": format!("session of {person}"),
        })
    }

    fn tokens(&self, person: &str, nonce: Option<&String>) -> Response {
        let mut claims = self.claims(person);
        if let Some(nonce) = nonce {
            claims["nonce"] = json!(nonce);
        }
        let content = self.content();
        for (name, value) in &content.forged {
            claims[*name] = value.clone();
        }
        let answer = json!({
            "access_token": person, "refresh_token": person, "token_type": "Bearer",
            "expires_in": content.lifetime, "id_token": self.sign(&claims),
        });
        (StatusCode::OK, Json(answer))
    }
}

#[expect(clippy::disallowed_methods, reason = "the provider has a clock of its own")]
fn now() -> i64 {
    chrono::Utc::now().timestamp()
}

async fn document(State(this): State<FakeProvider>) -> Json<Value> {
    let issuer = this.issuer();
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "userinfo_endpoint": format!("{issuer}/userinfo"),
        "device_authorization_endpoint": format!("{issuer}/device"),
        "revocation_endpoint": format!("{issuer}/revoke"),
    }))
}

async fn keys(State(this): State<FakeProvider>) -> Json<Value> {
    let point = this.key.public_key().as_ref();
    let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
    let key = json!({
        "kty": "EC", "crv": "P-256", "kid": "a", "x": part(1..33), "y": part(33..65),
    });
    Json(json!({ "keys": [key] }))
}

async fn token(State(this): State<FakeProvider>, body: Bytes) -> Response {
    let text = format!("http://form/?{}", String::from_utf8_lossy(&body));
    let form = reqwest::Url::parse(&text).expect("form");
    let value = |wanted: &str| {
        let mut pairs = form.query_pairs();
        pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    let refused = |code: &str| (StatusCode::BAD_REQUEST, Json(json!({ "error": code })));
    let known = |person: &String| this.content().groups.contains_key(person);
    match value("grant_type").as_deref() {
        Some("authorization_code") => {
            assert!(value("code_verifier").is_some_and(|verifier| verifier.len() == 64));
            let person = value("code").expect("code");
            let nonce = this.content().nonces.get(&person).cloned();
            this.tokens(&person, nonce.as_ref())
        }
        Some("refresh_token") => {
            let person = value("refresh_token").expect("refresh token");
            this.content().refreshed += 1;
            if known(&person) { this.tokens(&person, None) } else { refused("invalid_grant") }
        }
        _ => {
            let person = value("device_code").expect("device code");
            if this.content().confirmed.contains(&person) {
                this.tokens(&person, None)
            } else {
                refused("authorization_pending")
            }
        }
    }
}

async fn revoke(State(this): State<FakeProvider>, body: String) {
    let token = body.split('&').find_map(|pair| pair.strip_prefix("token="));
    this.content().revoked.push(token.expect("token").to_owned());
}

async fn device(State(this): State<FakeProvider>) -> Json<Value> {
    // The only person with a device.
    Json(json!({
        "device_code": "ada", "user_code": "ABCD-EFGH", "interval": 1, "expires_in": 300,
        "verification_uri": format!("{}/enter", this.issuer()),
    }))
}

async fn user_info(State(this): State<FakeProvider>, headers: HeaderMap) -> Response {
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
    let person = bearer.and_then(|bearer| bearer.strip_prefix("Bearer ")).unwrap_or_default();
    match this.content().groups.get(person) {
        Some(groups) => {
            let name = person.to_owned();
            let claims = json!({ "sub": person, "preferred_username": name, "groups": groups });
            (StatusCode::OK, Json(claims))
        }
        None => (StatusCode::UNAUTHORIZED, Json(json!({ "error": "invalid_token" }))),
    }
}
