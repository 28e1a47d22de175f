//! Login of a GitHub App: a signed token of the app, and installation tokens that it is exchanged for.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::json;
use tamma_core::time::Timestamp;
use tokio::sync::Mutex;

use super::api::{ApiClient, ApiLogin, ApiRequest, now};
use super::{AppCredentials, Error};

/// Time before its end at which an installation token is replaced.
const REFRESH_BEFORE: TimeDelta = TimeDelta::minutes(10);

/// GitHub accepts tokens of an app for at most ten minutes.
const APP_TOKEN_SECONDS: i64 = 540;

/// Clock difference that is tolerated, in seconds.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// Login of a GitHub App. Clones share the installation token.
#[derive(Clone)]
pub(super) struct AppLogin {
    id: u64,
    installation: u64,
    key: Arc<RsaKeyPair>,
    token: Arc<Mutex<Option<InstallationToken>>>,
}

/// Token of an installation, which is valid for an hour.
#[derive(Clone, Deserialize)]
struct InstallationToken {
    token: String,
    expires_at: Timestamp,
}

impl std::fmt::Debug for AppLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppLogin").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AppLogin {
    /// Reads the private key. The reason of a failure is written for the operator.
    pub(super) fn new(credentials: &AppCredentials) -> Result<Self, &'static str> {
        Ok(Self {
            id: credentials.id,
            installation: credentials.installation,
            key: Arc::new(read_private_key(&credentials.private_key)?),
            token: Arc::default(),
        })
    }

    /// Returns the ID of the installation.
    pub(super) fn installation(&self) -> u64 {
        self.installation
    }

    /// Returns the login of the app itself, for requests about the installation.
    pub(super) fn app_login(&self, api: &ApiClient) -> Result<ApiLogin, Error> {
        let token = self.app_token(now());
        let token =
            token.ok_or_else(|| api.forbidden("sign in", "cannot sign with `private_key`"))?;
        Ok(ApiLogin::new("authorization", &format!("Bearer {token}")))
    }

    /// Returns an installation token that is valid for at least ten minutes.
    pub(super) async fn installation_token(&self, api: &ApiClient) -> Result<String, Error> {
        let mut kept = self.token.lock().await;
        if let Some(token) = &*kept
            && token.expires_at - REFRESH_BEFORE > now()
        {
            return Ok(token.token.clone());
        }
        let path = format!("/app/installations/{}/access_tokens", self.installation);
        let request = ApiRequest::post(path, "sign in", json!({}))
            .what(format!("installation {} of the app", self.installation));
        let token: InstallationToken = api.json(&self.app_login(api)?, request).await?;
        let text = token.token.clone();
        *kept = Some(token);
        Ok(text)
    }

    /// Signs a token of the app (RS256).
    fn app_token(&self, now: Timestamp) -> Option<String> {
        let now = now.timestamp();
        let claims = json!({
            "iat": now - CLOCK_SKEW_SECONDS,
            "exp": now + APP_TOKEN_SECONDS,
            "iss": self.id.to_string(),
        });
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
        let content = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let mut signature = vec![0; self.key.public_modulus_len()];
        let random = SystemRandom::new();
        self.key.sign(&RSA_PKCS1_SHA256, &random, content.as_bytes(), &mut signature).ok()?;
        Some(format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Reads an RSA key in PEM format, PKCS#1 (as GitHub gives it) or PKCS#8.
pub(super) fn read_private_key(pem: &str) -> Result<RsaKeyPair, &'static str> {
    const INVALID: &str = "`private_key` is not an RSA key in PEM format; download one from the \
                           settings of the GitHub App";
    let body = |label: &str| {
        let rest = pem.split_once(&format!("-----BEGIN {label}-----"))?.1;
        let text = rest.split_once(&format!("-----END {label}-----"))?.0;
        let text: String = text.chars().filter(|it| !it.is_whitespace()).collect();
        STANDARD.decode(text).ok()
    };
    let key = if let Some(der) = body("RSA PRIVATE KEY") {
        RsaKeyPair::from_der(&der)
    } else if let Some(der) = body("PRIVATE KEY") {
        RsaKeyPair::from_pkcs8(&der)
    } else {
        return Err(INVALID);
    };
    key.map_err(|_| INVALID)
}

#[cfg(test)]
pub(super) mod tests {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;

    /// Makes a key, in the formats PKCS#1 and PKCS#8.
    pub(in crate::forge) fn make_keys() -> [String; 2] {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8 = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let pkcs8 = pkcs8.as_ref();
        // The header of PKCS#8 has 26 bytes for every key of this size.
        let pem = |label: &str, der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        [pem("RSA PRIVATE KEY", &pkcs8[26..]), pem("PRIVATE KEY", pkcs8)]
    }

    #[test]
    fn tokens_of_the_app_are_signed_with_both_kinds_of_key_file() {
        for private_key in make_keys() {
            let credentials = AppCredentials { id: 7, installation: 9, private_key };
            let login = AppLogin::new(&credentials).unwrap();
            let now = chrono::DateTime::from_timestamp(1_000_000, 0).unwrap();
            let token = login.app_token(now).unwrap();
            let (content, signature) = token.rsplit_once('.').unwrap();
            let public = UnparsedPublicKey::new(
                &RSA_PKCS1_2048_8192_SHA256,
                login.key.public_key().as_ref(),
            );
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            public.verify(content.as_bytes(), &signature).unwrap();
            let claims = URL_SAFE_NO_PAD.decode(content.split_once('.').unwrap().1).unwrap();
            let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
            assert_eq!(claims, json!({ "iat": 999_940, "exp": 1_000_540, "iss": "7" }));
        }
    }

    #[test]
    fn other_keys_are_refused() {
        for pem in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "x"] {
            assert!(read_private_key(pem).is_err(), "{pem}");
        }
    }
}
