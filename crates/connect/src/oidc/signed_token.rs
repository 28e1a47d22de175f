//! Signed tokens of identity providers: which algorithms and keys count, and what a token must claim.
//!
//! The token chooses nothing by itself. Its algorithm must be in our list, and it must fit the type of
//! a key that the provider publishes; keys inside the token are ignored. Symmetric algorithms and
//! `none` are not in the list, so that a public key can never be used as a secret.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};
use tamma_core::time::Timestamp;

/// Maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Maximum number of keys of a provider that are read.
const MAX_KEYS: usize = 100;

/// Clock difference that is tolerated, in seconds.
const CLOCK_SKEW: i64 = 60;

/// Maximum age of a logout token, in seconds.
const MAX_LOGOUT_AGE: i64 = 300;

/// Event that a logout token must have.
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// Reason why a token does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not three parts in base64 with JSON objects, or too long.
    #[error("it is malformed")]
    Malformed,
    /// Algorithm that is not in the list.
    #[error("its algorithm is not allowed; use RS256, RS384, RS512, PS256, ES256, ES384 or EdDSA")]
    Algorithm,
    /// Extension that must be understood, or a type of token for another purpose.
    #[error("it is a token of another kind")]
    Kind,
    /// Key that the provider does not publish.
    #[error("it was signed with a key that the provider does not publish")]
    UnknownKey,
    /// Signature of somebody else.
    #[error("its signature is invalid")]
    Signature,
    /// Claim that is missing or wrong.
    #[error("its claim `{0}` is missing or wrong")]
    Claim(&'static str),
}

/// Algorithm of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SigningAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

impl SigningAlgorithm {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "RS384" => Some(Self::Rs384),
            "RS512" => Some(Self::Rs512),
            "PS256" => Some(Self::Ps256),
            "ES256" => Some(Self::Es256),
            "ES384" => Some(Self::Es384),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// Public key of a provider.
#[derive(Debug, Clone, Deserialize)]
struct JsonWebKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl JsonWebKey {
    /// Returns `true` if the key is meant for signatures with an algorithm.
    fn fits(&self, algorithm: SigningAlgorithm) -> bool {
        let curve = self.crv.as_deref();
        let has_type = match algorithm {
            SigningAlgorithm::Rs256
            | SigningAlgorithm::Rs384
            | SigningAlgorithm::Rs512
            | SigningAlgorithm::Ps256 => self.kty == "RSA",
            SigningAlgorithm::Es256 => self.kty == "EC" && curve == Some("P-256"),
            SigningAlgorithm::Es384 => self.kty == "EC" && curve == Some("P-384"),
            SigningAlgorithm::EdDsa => self.kty == "OKP" && curve == Some("Ed25519"),
        };
        let is_for_signatures = self.purpose.as_ref().is_none_or(|purpose| purpose == "sig");
        let has_algorithm =
            self.alg.as_ref().is_none_or(|it| SigningAlgorithm::parse(it) == Some(algorithm));
        has_type && is_for_signatures && has_algorithm
    }

    fn verifies(&self, algorithm: SigningAlgorithm, content: &[u8], signature: &[u8]) -> bool {
        self.try_verify(algorithm, content, signature).is_some()
    }

    fn try_verify(
        &self,
        algorithm: SigningAlgorithm,
        content: &[u8],
        signature: &[u8],
    ) -> Option<()> {
        match algorithm {
            SigningAlgorithm::Rs256 => {
                self.verify_rsa(&RSA_PKCS1_2048_8192_SHA256, content, signature)
            }
            SigningAlgorithm::Rs384 => {
                self.verify_rsa(&RSA_PKCS1_2048_8192_SHA384, content, signature)
            }
            SigningAlgorithm::Rs512 => {
                self.verify_rsa(&RSA_PKCS1_2048_8192_SHA512, content, signature)
            }
            SigningAlgorithm::Ps256 => {
                self.verify_rsa(&RSA_PSS_2048_8192_SHA256, content, signature)
            }
            SigningAlgorithm::Es256 => {
                let point = self.point(32)?;
                verify_with(&ECDSA_P256_SHA256_FIXED, &point, content, signature)
            }
            SigningAlgorithm::Es384 => {
                let point = self.point(48)?;
                verify_with(&ECDSA_P384_SHA384_FIXED, &point, content, signature)
            }
            SigningAlgorithm::EdDsa => {
                let key = decode(self.x.as_deref()?)?;
                verify_with(&ED25519, &key, content, signature)
            }
        }
    }

    fn verify_rsa(
        &self,
        parameters: &RsaParameters,
        content: &[u8],
        signature: &[u8],
    ) -> Option<()> {
        // Some providers write leading zeros, which the library refuses.
        let number = |text: Option<&str>| {
            let bytes = decode(text?)?;
            Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<u8>>())
        };
        let (n, e) = (number(self.n.as_deref())?, number(self.e.as_deref())?);
        let key = RsaPublicKeyComponents { n, e };
        key.verify(parameters, content, signature).ok()
    }

    /// Returns the point of an elliptic curve, uncompressed.
    fn point(&self, length: usize) -> Option<Vec<u8>> {
        let (x, y) = (decode(self.x.as_deref()?)?, decode(self.y.as_deref()?)?);
        (x.len() == length && y.len() == length).then(|| [vec![4], x, y].concat())
    }
}

fn verify_with(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    content: &[u8],
    signature: &[u8],
) -> Option<()> {
    UnparsedPublicKey::new(algorithm, key).verify(content, signature).ok()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Public keys of a provider.
#[derive(Debug, Clone, Default)]
pub(super) struct ProviderKeys(Vec<JsonWebKey>);

impl ProviderKeys {
    /// Reads a key set. Keys of an unknown kind are ignored.
    pub(super) fn parse(document: &Value) -> Option<Self> {
        let keys = document.get("keys")?.as_array()?.iter().take(MAX_KEYS);
        let keys = keys.filter_map(|key| JsonWebKey::deserialize(key).ok());
        Some(Self(keys.collect()))
    }
}

/// Header of a token.
#[derive(Debug, Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// Audience: one, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(all) => all,
        }
    }
}

/// Claims of a token.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TokenClaims {
    iss: String,
    pub(super) sub: Option<String>,
    aud: Audience,
    azp: Option<String>,
    exp: Option<i64>,
    iat: i64,
    nbf: Option<i64>,
    nonce: Option<String>,
    pub(super) sid: Option<String>,
    events: Option<Map<String, Value>>,
    /// All other claims, such as the name and the groups.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

/// Purpose of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenPurpose<'a> {
    /// Identity, with the nonce of the request that led to it. Requests without a browser have none.
    Identity(Option<&'a str>),
    /// Logout of a person or a session.
    Logout,
}

/// Checks of a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenCheck<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) purpose: TokenPurpose<'a>,
    pub(super) now: Timestamp,
}

impl TokenCheck<'_> {
    /// Verifies a token with the keys of its provider and returns its claims.
    pub(super) fn verify(
        &self,
        token: &str,
        keys: &ProviderKeys,
    ) -> Result<TokenClaims, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Malformed);
        }
        let (content, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = content.split_once('.').ok_or(TokenError::Malformed)?;
        let header: TokenHeader = read_part(header)?;
        let algorithm = SigningAlgorithm::parse(&header.alg).ok_or(TokenError::Algorithm)?;
        if header.crit.is_some() || !self.is_kind(header.typ.as_deref()) {
            return Err(TokenError::Kind);
        }
        let signature = decode(signature).ok_or(TokenError::Malformed)?;
        let mut fitting = keys.0.iter().filter(|key| key.fits(algorithm));
        let key = match &header.kid {
            Some(kid) => fitting.find(|key| key.kid.as_ref() == Some(kid)),
            // Without a name, only one key can be meant.
            None => fitting.next().filter(|_| fitting.next().is_none()),
        };
        let key = key.ok_or(TokenError::UnknownKey)?;
        if !key.verifies(algorithm, content.as_bytes(), &signature) {
            return Err(TokenError::Signature);
        }
        let claims: TokenClaims = read_part(claims)?;
        self.check_claims(&claims)?;
        Ok(claims)
    }

    fn is_kind(&self, typ: Option<&str>) -> bool {
        let typ = typ.map(|typ| typ.trim_start_matches("application/").to_ascii_lowercase());
        match (typ.as_deref(), self.purpose) {
            (None | Some("jwt"), _) => true,
            (Some(typ), TokenPurpose::Logout) => typ == "logout+jwt",
            (Some(_), TokenPurpose::Identity(_)) => false,
        }
    }

    fn check_claims(&self, claims: &TokenClaims) -> Result<(), TokenError> {
        let now = self.now.timestamp();
        let require =
            |holds: bool, claim| if holds { Ok(()) } else { Err(TokenError::Claim(claim)) };
        require(claims.iss == self.issuer, "iss")?;
        let audiences = claims.aud.all();
        require(audiences.iter().any(|one| one == self.client_id), "aud")?;
        let is_authorized = |azp: &String| azp == self.client_id;
        match &claims.azp {
            Some(azp) => require(is_authorized(azp), "azp")?,
            // A token for several clients must say which one asked for it.
            None => require(audiences.len() == 1, "azp")?,
        }
        require(claims.iat <= now + CLOCK_SKEW, "iat")?;
        require(claims.nbf.is_none_or(|nbf| nbf <= now + CLOCK_SKEW), "nbf")?;
        require(claims.exp.is_none_or(|exp| exp > now - CLOCK_SKEW), "exp")?;
        let is_subject = |sub: &String| !sub.is_empty() && sub.len() <= 255;
        require(claims.sub.as_ref().is_none_or(is_subject), "sub")?;
        match self.purpose {
            TokenPurpose::Identity(nonce) => {
                require(claims.exp.is_some(), "exp")?;
                require(claims.sub.is_some(), "sub")?;
                // The token of a logout must not sign anybody in.
                require(claims.events.is_none(), "events")?;
                require(nonce.is_none() || claims.nonce.as_deref() == nonce, "nonce")
            }
            TokenPurpose::Logout => {
                let event = claims.events.as_ref().and_then(|events| events.get(LOGOUT_EVENT));
                require(event.is_some_and(Value::is_object), "events")?;
                // The token of an identity must not end a session.
                require(claims.nonce.is_none(), "nonce")?;
                require(claims.sub.is_some() || claims.sid.is_some(), "sub")?;
                require(claims.iat > now - MAX_LOGOUT_AGE, "iat")
            }
        }
    }
}

fn read_part<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenError> {
    let bytes = decode(part).ok_or(TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
pub(super) mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    };
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    /// Key of a provider, which signs what it is given.
    pub(in crate::oidc) struct Signer {
        key: EcdsaKeyPair,
        kid: &'static str,
    }

    impl Signer {
        pub(in crate::oidc) fn new(kid: &'static str) -> Self {
            Self { key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), kid }
        }

        pub(in crate::oidc) fn public_key(&self) -> Value {
            let point = self.key.public_key().as_ref();
            let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
            json!({ "kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig", "alg": "ES256",
                    "x": part(1..33), "y": part(33..65) })
        }

        fn keys(&self) -> ProviderKeys {
            ProviderKeys::parse(&json!({ "keys": [self.public_key()] })).unwrap()
        }

        fn sign_with(&self, header: &Value, claims: &Value) -> String {
            let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let content = format!("{}.{}", encode(header), encode(claims));
            let signature = self.key.sign(&SystemRandom::new(), content.as_bytes()).unwrap();
            format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }

        pub(in crate::oidc) fn sign(&self, claims: &Value) -> String {
            self.sign_with(&json!({ "alg": "ES256", "kid": self.kid, "typ": "JWT" }), claims)
        }
    }

    fn good() -> Value {
        json!({ "iss": "https://id.example", "sub": "7", "aud": "tamma", "exp": NOW + 300,
                "iat": NOW, "nonce": "n", "groups": ["leads"] })
    }

    fn with(changes: &Value) -> Value {
        let mut claims = good();
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        claims
    }

    fn check(purpose: TokenPurpose<'_>) -> TokenCheck<'_> {
        TokenCheck {
            issuer: "https://id.example",
            client_id: "tamma",
            purpose,
            now: chrono::DateTime::from_timestamp(NOW, 0).unwrap(),
        }
    }

    fn verify(token: &str, keys: &ProviderKeys) -> Result<TokenClaims, TokenError> {
        check(TokenPurpose::Identity(Some("n"))).verify(token, keys)
    }

    #[test]
    fn a_token_with_the_right_claims_counts() {
        let signer = Signer::new("a");
        let claims = verify(&signer.sign(&good()), &signer.keys()).unwrap();
        assert_eq!(claims.sub.as_deref(), Some("7"));
        assert_eq!(claims.other["groups"], json!(["leads"]));
        let several = with(&json!({ "aud": ["other", "tamma"], "azp": "tamma" }));
        assert!(verify(&signer.sign(&several), &signer.keys()).is_ok());
    }

    #[test]
    fn a_token_with_a_wrong_claim_is_refused() {
        let signer = Signer::new("a");
        for (changes, claim) in [
            (json!({ "iss": "https://id.example/" }), "iss"),
            (json!({ "iss": "https://evil.example" }), "iss"),
            (json!({ "aud": "other" }), "aud"),
            (json!({ "aud": [] }), "aud"),
            (json!({ "aud": ["tamma", "other"] }), "azp"),
            (json!({ "azp": "other" }), "azp"),
            (json!({ "aud": ["tamma", "other"], "azp": "other" }), "azp"),
            (json!({ "exp": NOW - 61 }), "exp"),
            (json!({ "exp": null }), "exp"),
            (json!({ "iat": NOW + 61 }), "iat"),
            (json!({ "nbf": NOW + 61 }), "nbf"),
            (json!({ "nonce": "other" }), "nonce"),
            (json!({ "nonce": null }), "nonce"),
            (json!({ "sub": null }), "sub"),
            (json!({ "sub": "" }), "sub"),
            (json!({ "sub": "x".repeat(256) }), "sub"),
            (json!({ "events": { LOGOUT_EVENT: {} } }), "events"),
        ] {
            let result = verify(&signer.sign(&with(&changes)), &signer.keys());
            assert_eq!(result.map(drop), Err(TokenError::Claim(claim)), "{changes}");
        }
        for changes in [json!({ "iat": null }), json!({ "exp": "soon" }), json!({ "aud": 7 })] {
            let result = verify(&signer.sign(&with(&changes)), &signer.keys());
            assert_eq!(result.map(drop), Err(TokenError::Malformed), "{changes}");
        }
    }

    #[test]
    fn the_token_cannot_choose_its_algorithm_or_key() {
        let (signer, other) = (Signer::new("a"), Signer::new("a"));
        let refused = |header: Value| {
            verify(&signer.sign_with(&header, &good()), &signer.keys()).map(drop).unwrap_err()
        };
        for alg in ["none", "None", "HS256", "HS512", "es256", "RS1", ""] {
            let error = refused(json!({ "alg": alg, "kid": "a" }));
            assert_eq!(error, TokenError::Algorithm, "{alg}");
        }
        // A key of another kind under the same name.
        for alg in ["RS256", "RS512", "PS256", "ES384", "EdDSA"] {
            let error = refused(json!({ "alg": alg, "kid": "a" }));
            assert_eq!(error, TokenError::UnknownKey, "{alg}");
        }
        assert_eq!(refused(json!({ "alg": "ES256", "kid": "b" })), TokenError::UnknownKey);
        let own = json!({ "alg": "ES256", "kid": "a", "jwk": other.public_key(),
                          "jku": "https://evil.example/keys" });
        let token = other.sign_with(&own, &good());
        assert_eq!(verify(&token, &signer.keys()).map(drop), Err(TokenError::Signature));
        let critical = json!({ "alg": "ES256", "kid": "a", "crit": ["x"], "x": 1 });
        assert_eq!(refused(critical), TokenError::Kind);
        for typ in ["logout+jwt", "at+jwt", "dpop+jwt"] {
            let error = refused(json!({ "alg": "ES256", "kid": "a", "typ": typ }));
            assert_eq!(error, TokenError::Kind, "{typ}");
        }
        // A symmetric key in the set is no key at all.
        let set = json!({ "keys": [{ "kty": "oct", "kid": "a", "k": "c2VjcmV0" }] });
        let symmetric = ProviderKeys::parse(&set).unwrap();
        let token = signer.sign(&good());
        assert_eq!(verify(&token, &symmetric).map(drop), Err(TokenError::UnknownKey));
        let mut encryption = signer.public_key();
        encryption["use"] = json!("enc");
        let encryption = ProviderKeys::parse(&json!({ "keys": [encryption] })).unwrap();
        assert_eq!(verify(&token, &encryption).map(drop), Err(TokenError::UnknownKey));
    }

    #[test]
    fn a_changed_or_broken_token_is_refused() {
        let signer = Signer::new("a");
        let token = signer.sign(&good());
        let parts: Vec<&str> = token.split('.').collect();
        let claims = URL_SAFE_NO_PAD.encode(with(&json!({ "sub": "8" })).to_string());
        let forged = format!("{}.{claims}.{}", parts[0], parts[2]);
        let refused = |token: &str| verify(token, &signer.keys()).map(drop).unwrap_err();
        assert_eq!(refused(&forged), TokenError::Signature);
        assert_eq!(refused(&format!("{}.{}.", parts[0], parts[1])), TokenError::Signature);
        for broken in [
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
            parts[0].to_owned(),
            format!("{}.{}", parts[0], parts[1]),
            format!("{token}.x"),
            format!("{token}="),
            format!(" {token}"),
            "x".repeat(MAX_TOKEN_BYTES + 1),
        ] {
            let error = refused(&broken);
            let expected = [TokenError::Malformed, TokenError::Signature];
            assert!(expected.contains(&error), "{broken}: {error}");
        }
        // The same claim twice: one of them could be what another reader sees.
        let header = json!({ "alg": "ES256", "kid": "a" });
        let twice = good().to_string().replacen("\"sub\":\"7\"", "\"sub\":\"7\",\"sub\":\"8\"", 1);
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let content = format!("{}.{}", encoded(&header.to_string()), encoded(&twice));
        let signature = signer.key.sign(&SystemRandom::new(), content.as_bytes()).unwrap();
        let token = format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
        assert_eq!(refused(&token), TokenError::Malformed);
    }

    #[test]
    fn keys_are_found_by_name_and_without_one_only_if_there_is_one() {
        let (first, second) = (Signer::new("a"), Signer::new("b"));
        let set = json!({ "keys": [first.public_key(), { "kty": "new" }, 7, second.public_key()] });
        let both = ProviderKeys::parse(&set).unwrap();
        assert!(verify(&first.sign(&good()), &both).is_ok());
        assert!(verify(&second.sign(&good()), &both).is_ok());
        let nameless = json!({ "alg": "ES256" });
        let token = first.sign_with(&nameless, &good());
        assert!(verify(&token, &first.keys()).is_ok());
        assert_eq!(verify(&token, &both).map(drop), Err(TokenError::UnknownKey));
    }

    #[test]
    fn other_kinds_of_keys_verify_too() {
        let key = Ed25519KeyPair::generate().unwrap();
        let public = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "e",
                             "x": URL_SAFE_NO_PAD.encode(key.public_key().as_ref()) });
        let keys = ProviderKeys::parse(&json!({ "keys": [public] })).unwrap();
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = encode(json!({ "alg": "EdDSA", "kid": "e" }));
        let content = format!("{header}.{}", encode(good()));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(content.as_bytes()).as_ref());
        assert!(verify(&format!("{content}.{signature}"), &keys).is_ok());
    }

    #[test]
    fn a_logout_token_ends_sessions_and_an_identity_does_not() {
        let signer = Signer::new("a");
        let keys = signer.keys();
        let logout = |claims: &Value| {
            check(TokenPurpose::Logout).verify(&signer.sign(claims), &keys).map(|it| it.sid)
        };
        let base = json!({ "nonce": null, "events": { LOGOUT_EVENT: {} }, "sid": "s" });
        assert_eq!(logout(&with(&base)), Ok(Some("s".to_owned())));
        for (name, value, claim) in [
            ("events", json!({}), "events"),
            ("events", Value::Null, "events"),
            ("nonce", json!("n"), "nonce"),
            ("iat", json!(NOW - 301), "iat"),
            ("aud", json!("other"), "aud"),
        ] {
            let mut changes = base.clone();
            changes[name] = value;
            assert_eq!(logout(&with(&changes)), Err(TokenError::Claim(claim)), "{changes}");
        }
        let mut nobody = base.clone();
        nobody["sub"] = Value::Null;
        nobody["sid"] = Value::Null;
        assert_eq!(logout(&with(&nobody)), Err(TokenError::Claim("sub")));
    }
}
