//! Certificates from an authority that speaks ACME (RFC 8555), with the challenge TLS-ALPN-01 (RFC 8737).
//!
//! The authority connects to port 443 of the host and asks for the protocol [`CHALLENGE_PROTOCOL`]. The
//! server must then present the certificate that [`AcmeClient::order`] hands out.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse,
    ChallengeType, HttpClient, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use tamma_core::operator::AcmeSettings;

/// Protocol (ALPN) of connections that check the challenge.
pub const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the authority to check the challenge, and again to issue the certificate.
const ORDER_TIMEOUT: Duration = Duration::from_mins(2);

/// Time until the first look at an order. It doubles.
const FIRST_POLL: Duration = Duration::from_millis(500);

/// Problem of an account that the authority does not have (RFC 8555).
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Failure to get a certificate.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// Authority of the directory that cannot be used.
    #[error(
        "cannot use `ca` of `tls.acme` in operator.yaml: {0}; it must be a PEM file with the certificate \
         authority of the directory"
    )]
    Ca(String),
    /// Account that a file has, but not as this version writes it.
    #[error("the stored account cannot be read; remove its file to register a new one")]
    Account(#[source] serde_json::Error),
    /// Authority that cannot be reached, or that answers something else.
    #[error(
        "the certificate authority {directory} did not answer as expected; check `directory` and `ca` of \
         `tls.acme` in operator.yaml, and that this machine can reach it"
    )]
    Authority {
        /// URL of the directory.
        directory: String,
        /// Answer, or why there was none.
        source: instant_acme::Error,
    },
    /// Account that the authority does not know, such as after the loss of its data.
    #[error(
        "the certificate authority {0} does not know the stored account; the next attempt registers a new one"
    )]
    UnknownAccount(String),
    /// Authority that refused the request.
    #[error(
        "the certificate authority {directory} refused the request: {detail}; correct `tls.acme` in \
         operator.yaml if it is wrong, or wait if there were too many requests"
    )]
    Refused {
        /// URL of the directory.
        directory: String,
        /// Reason of the authority.
        detail: String,
    },
    /// Authority without the challenge that this client answers.
    #[error(
        "the certificate authority {0} does not offer the challenge tls-alpn-01, the only one that Tamma \
         answers; use another authority, or let another program renew the files of `tls`"
    )]
    NoChallenge(String),
    /// Challenge that the authority could not check.
    #[error(
        "the certificate authority could not check {host}: {detail}; port 443 of {host} must lead to this \
         server, without another TLS server in between"
    )]
    Challenge {
        /// Host of the certificate.
        host: String,
        /// Reason of the authority.
        detail: String,
    },
    /// Certificate of the challenge that could not be created.
    #[error("cannot create the certificate of the challenge")]
    Certificate(#[from] rcgen::Error),
    /// Challenge that could not be made known to the servers.
    #[error("cannot write the certificate of the challenge")]
    Publish(#[source] std::io::Error),
}

/// Client of one authority. Callers keep the account and the certificate.
pub struct AcmeClient {
    http: reqwest::Client,
    directory: String,
    contact: Option<String>,
}

impl AcmeClient {
    /// Creates a client. `ca` is the certificate authority of the directory, in PEM; `None` for those that
    /// this machine trusts.
    pub fn new(settings: &AcmeSettings, ca: Option<&[u8]>) -> Result<Self, AcmeError> {
        let builder = reqwest::Client::builder()
            // Authorities refuse requests without one (RFC 8555, 6.1).
            .user_agent("tamma")
            .timeout(REQUEST_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        let builder = match ca {
            Some(ca) => {
                let trusted = reqwest::Certificate::from_pem_bundle(ca)
                    .map_err(|error| AcmeError::Ca(error.to_string()))?;
                if trusted.is_empty() {
                    return Err(AcmeError::Ca("there is no certificate".to_owned()));
                }
                builder.tls_certs_only(trusted)
            }
            None => builder,
        };
        Ok(Self {
            http: builder.build().map_err(|error| AcmeError::Ca(error.to_string()))?,
            directory: settings.directory.clone(),
            contact: settings.contact.as_ref().map(|address| format!("mailto:{address}")),
        })
    }

    fn account(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(AcmeHttp(self.http.clone())))
    }

    fn failed(&self, error: instant_acme::Error) -> AcmeError {
        let directory = self.directory.clone();
        match error {
            instant_acme::Error::Api(problem)
                if problem.r#type.as_deref() == Some(UNKNOWN_ACCOUNT) =>
            {
                AcmeError::UnknownAccount(directory)
            }
            instant_acme::Error::Api(problem) => {
                AcmeError::Refused { directory, detail: problem_text(&problem) }
            }
            source => AcmeError::Authority { directory, source },
        }
    }

    /// Creates an account, and agrees to the terms of the authority. Returns it with its key, as JSON.
    pub async fn register(&self) -> Result<String, AcmeError> {
        let contact: Vec<&str> = self.contact.as_deref().into_iter().collect();
        let account = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let created = self.account().create(&account, self.directory.clone(), None).await;
        let (_, credentials) = created.map_err(|error| self.failed(error))?;
        serde_json::to_string(&credentials).map_err(AcmeError::Account)
    }

    /// Orders a certificate for a host. `publish` gets the certificate of the challenge with its key, and
    /// returns once every server of the host presents it. Returns the key and the certificates, in PEM.
    pub async fn order(
        &self,
        account: &str,
        host: &str,
        publish: impl Fn(&str) -> std::io::Result<()> + Send + Sync,
    ) -> Result<String, AcmeError> {
        let credentials: AccountCredentials =
            serde_json::from_str(account).map_err(AcmeError::Account)?;
        let account = self.account().from_credentials(credentials).await;
        let account = account.map_err(|error| self.failed(error))?;
        let identifiers = [Identifier::Dns(host.to_owned())];
        let order = account.new_order(&NewOrder::new(&identifiers)).await;
        let mut order = order.map_err(|error| self.failed(error))?;
        self.answer_challenges(&mut order, host, publish).await?;
        let retries = RetryPolicy::new().initial_delay(FIRST_POLL).timeout(ORDER_TIMEOUT);
        let checked = order.poll_ready(&retries).await;
        if matches!(checked, Ok(OrderStatus::Invalid) | Err(instant_acme::Error::Api(_)))
            && let Some(detail) = failed_challenge(&mut order).await
        {
            return Err(AcmeError::Challenge { host: host.to_owned(), detail });
        }
        checked.map_err(|error| self.failed(error))?;
        let key = order.finalize().await.map_err(|error| self.failed(error))?;
        let chain = order.poll_certificate(&retries).await.map_err(|error| self.failed(error))?;
        Ok(format!("{}\n{chain}", key.trim_end()))
    }

    async fn answer_challenges(
        &self,
        order: &mut Order,
        host: &str,
        publish: impl Fn(&str) -> std::io::Result<()> + Send + Sync,
    ) -> Result<(), AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| self.failed(error))?;
            // One of an earlier order can still be valid.
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let mut challenge = authorization
                .challenge(ChallengeType::TlsAlpn01)
                .ok_or_else(|| AcmeError::NoChallenge(self.directory.clone()))?;
            let certificate =
                challenge_certificate(host, challenge.key_authorization().digest().as_ref())?;
            publish(&certificate).map_err(AcmeError::Publish)?;
            challenge.set_ready().await.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }
}

/// Returns the reason why the authority could not check a challenge of an order.
async fn failed_challenge(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        if let Some(problem) = state.challenges.iter().find_map(|it| it.error.as_ref()) {
            return Some(problem_text(problem));
        }
    }
    None
}

fn problem_text(problem: &instant_acme::Problem) -> String {
    problem.detail.clone().unwrap_or_else(|| problem.to_string())
}

/// Returns a certificate that proves control of the host to the authority, with its key, in PEM.
fn challenge_certificate(host: &str, digest: &[u8]) -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    Ok(format!("{}{}", key.serialize_pem(), params.self_signed(&key)?.pem()))
}

/// HTTP client of this crate, for the ACME library.
struct AcmeHttp(reqwest::Client);

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let other = |error: reqwest::Error| instant_acme::Error::Other(Box::new(error));
            let request = reqwest::Request::try_from(request.map(reqwest::Body::wrap));
            let response = client.execute(request.map_err(other)?).await.map_err(other)?;
            Ok(BytesResponse::from(http::Response::<reqwest::Body>::from(response)))
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn settings() -> AcmeSettings {
        AcmeSettings {
            directory: "https://127.0.0.1:1/directory".to_owned(),
            contact: Some("ops@example.com".to_owned()),
            ca: None,
            cache: None,
        }
    }

    #[test]
    fn the_certificate_of_a_challenge_has_its_key_and_is_for_the_host_only() {
        let pem = challenge_certificate("tamma.example.com", &[7; 32]).expect("created");
        assert_eq!(pem.matches("-----BEGIN PRIVATE KEY-----").count(), 1);
        assert_eq!(pem.matches("-----BEGIN CERTIFICATE-----").count(), 1);
        let (_, certificate) = pem.split_once("-----END PRIVATE KEY-----").expect("two parts");
        let lines = certificate.lines().filter(|line| !line.starts_with('-'));
        let encoded: String = lines.map(str::trim).collect();
        let der = STANDARD.decode(encoded).expect("base64");
        let contains = |part: &[u8]| der.windows(part.len()).any(|window| window == part);
        assert!(contains(b"tamma.example.com"));
        // The digest, as an octet string in an octet string.
        assert!(contains(&[&[0x04, 0x22, 0x04, 0x20][..], &[7; 32]].concat()));
    }

    #[test]
    fn a_certificate_authority_must_be_in_pem() {
        for ca in ["", "nothing", "-----BEGIN CERTIFICATE-----\n!"] {
            let error = AcmeClient::new(&settings(), Some(ca.as_bytes())).err();
            assert!(matches!(error, Some(AcmeError::Ca(_))), "{ca}: {error:?}");
        }
    }

    #[tokio::test]
    async fn an_authority_that_cannot_be_reached_is_named_with_what_to_check() {
        let client = AcmeClient::new(&settings(), None).expect("client");
        let error = client.register().await.expect_err("nobody listens");
        let text = error.to_string();
        assert!(text.contains("https://127.0.0.1:1/directory") && text.contains("`ca`"), "{text}");
        let error = client.order("{}", "localhost", |_| Ok(())).await.expect_err("no account");
        assert!(matches!(error, AcmeError::Account(_)), "{error}");
    }
}
