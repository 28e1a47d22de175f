//! Client of a provider in this process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use chrono::DateTime;
use serde_json::json;

use super::signed_token::tests::Signer;
use super::*;

/// Answers of the provider.
#[derive(Default)]
struct Answers {
    document: Value,
    keys: Value,
    user_info: Value,
    tokens: Value,
    /// Last form that it got.
    form: String,
}

type Shared = Arc<Mutex<Answers>>;

async fn start() -> (SocketAddr, Shared) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let issuer = format!("http://{address}");
    let answers = Shared::default();
    answers.lock().unwrap().document = json!({
        "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
        "userinfo_endpoint": format!("{issuer}/userinfo"),
        "revocation_endpoint": format!("{issuer}/revoke"),
    });
    let router = Router::new()
        .route("/.well-known/openid-configuration", get(document))
        .route("/keys", get(keys))
        .route("/userinfo", get(user_info))
        .route("/token", post(token))
        .route("/revoke", post(revoke))
        .with_state(Arc::clone(&answers));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, answers)
}

async fn document(State(answers): State<Shared>) -> String {
    answers.lock().unwrap().document.to_string()
}

async fn keys(State(answers): State<Shared>) -> String {
    answers.lock().unwrap().keys.to_string()
}

async fn user_info(State(answers): State<Shared>) -> String {
    answers.lock().unwrap().user_info.to_string()
}

async fn token(State(answers): State<Shared>, form: String) -> String {
    let mut answers = answers.lock().unwrap();
    answers.form = form;
    answers.tokens.to_string()
}

async fn revoke(State(answers): State<Shared>, form: String) {
    answers.lock().unwrap().form = form;
}

fn client(address: SocketAddr, hosts: &[&str]) -> OidcClient {
    let settings = json!({
        "name": "company", "issuer": format!("http://{address}"), "client_id": "tamma",
    });
    let settings: IdentityProvider = serde_json::from_value(settings).unwrap();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    OidcClient::new(&settings, &hosts, Some("a secret+".to_owned())).unwrap()
}

fn at(second: i64) -> Timestamp {
    DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap()
}

const REQUEST: BrowserRequest<'static> = BrowserRequest {
    redirect_uri: "http://tamma/callback",
    state: "state",
    nonce: "nonce",
    verifier: "verifier",
};

/// Signs the answer of the token endpoint.
fn tokens(address: SocketAddr, signer: &Signer, now: Timestamp) -> Value {
    let claims = json!({
        "iss": format!("http://{address}"), "aud": "tamma", "sub": "7", "nonce": "nonce",
        "iat": now.timestamp(), "exp": now.timestamp() + 60, "groups": ["leads"],
        "preferred_username": "ada",
    });
    let id_token = signer.sign(&claims);
    json!({ "access_token": "a", "refresh_token": "r", "expires_in": 300, "id_token": id_token })
}

#[tokio::test]
async fn new_keys_of_a_provider_are_found() {
    let (address, answers) = start().await;
    let client = client(address, &["127.0.0.1"]);
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let set = |signer: &Signer, now: Timestamp| {
        let mut answers = answers.lock().unwrap();
        answers.user_info = json!({ "sub": "7" });
        answers.tokens = tokens(address, signer, now);
    };
    let publish = |signer: &Signer| {
        answers.lock().unwrap().keys = json!({ "keys": [signer.public_key()] });
    };
    publish(&old);
    set(&old, at(0));
    let person = client.exchange_code("code", None, &REQUEST, at(0)).await.unwrap();
    assert_eq!((person.subject.as_str(), person.name.as_deref()), ("7", Some("ada")));
    assert_eq!(person.groups, ["leads"]);
    let form = answers.lock().unwrap().form.clone();
    assert!(form.contains("code_verifier=verifier") && !form.contains("secret"), "{form}");
    // A forged name of a key does not make us ask again and again.
    set(&new, at(1));
    let refused = client.exchange_code("code", None, &REQUEST, at(1)).await.unwrap_err();
    assert!(matches!(refused, OidcError::Token { source: TokenError::UnknownKey, .. }));
    publish(&new);
    assert!(client.exchange_code("code", None, &REQUEST, at(2)).await.is_err(), "too soon");
    set(&new, at(20));
    assert!(client.exchange_code("code", None, &REQUEST, at(20)).await.is_ok());
    // A key that the provider has removed does not count any more.
    set(&old, at(40));
    assert!(client.exchange_code("code", None, &REQUEST, at(40)).await.is_err());
}

#[tokio::test]
async fn a_provider_that_is_not_the_one_in_the_settings_is_refused() {
    let (address, answers) = start().await;
    let reason = async |client: &OidcClient| match client.authorization_url(&REQUEST, at(0)).await {
        Err(OidcError::Unusable { reason, .. }) => reason.to_owned(),
        other => format!("{other:?}"),
    };
    let private = client(address, &[]);
    assert!(reason(&private).await.contains("identity.hosts"), "a private host is not reached");
    answers.lock().unwrap().document["issuer"] = json!("http://evil.example");
    assert!(reason(&client(address, &["127.0.0.1"])).await.contains("another `issuer`"));
    let issuer = format!("http://{address}");
    answers.lock().unwrap().document["issuer"] = json!(issuer);
    // Its document leads into the private network.
    answers.lock().unwrap().document["token_endpoint"] = json!("http://169.254.169.254/token");
    let known = client(address, &["127.0.0.1"]);
    let url = known.authorization_url(&REQUEST, at(0)).await.unwrap();
    assert!(url.contains("code_challenge_method=S256") && url.contains("prompt=consent"), "{url}");
    let refused = known.exchange_code("code", None, &REQUEST, at(0)).await.unwrap_err();
    assert!(matches!(refused, OidcError::Unusable { .. }), "{refused}");
    let other = known.exchange_code("code", Some("http://evil.example"), &REQUEST, at(0)).await;
    assert!(matches!(other.unwrap_err(), OidcError::Refused { .. }));
}

#[tokio::test]
async fn claims_about_another_person_do_not_count() {
    let (address, answers) = start().await;
    let client = client(address, &["127.0.0.1"]);
    let signer = Signer::new("a");
    {
        let mut answers = answers.lock().unwrap();
        answers.keys = json!({ "keys": [signer.public_key()] });
        answers.user_info = json!({ "sub": "8", "groups": ["leads"] });
        answers.tokens = tokens(address, &signer, at(0));
    }
    let refused = client.exchange_code("code", None, &REQUEST, at(0)).await.unwrap_err();
    assert!(matches!(refused, OidcError::Token { source: TokenError::Claim("sub"), .. }));
}

#[tokio::test]
async fn the_refresh_token_of_a_login_is_revoked_where_the_provider_can() {
    let (address, answers) = start().await;
    let mut tokens = ProviderTokens {
        access_token: "a".to_owned(),
        access_until: at(300),
        refresh_token: Some("r".to_owned()),
    };
    let form = || std::mem::take(&mut answers.lock().unwrap().form);
    client(address, &["127.0.0.1"]).revoke(&tokens, at(0)).await.unwrap();
    assert_eq!(form(), "token=r&token_type_hint=refresh_token");
    tokens.refresh_token = None;
    client(address, &["127.0.0.1"]).revoke(&tokens, at(0)).await.unwrap();
    assert_eq!(form(), "token=a&token_type_hint=access_token");
    answers.lock().unwrap().document["revocation_endpoint"] = Value::Null;
    client(address, &["127.0.0.1"]).revoke(&tokens, at(0)).await.unwrap();
    assert_eq!(form(), "");
}
