//! Webhook requests, signed as [Standard Webhooks](https://www.standardwebhooks.com) if the channel
//! has a secret.

use chrono::Utc;
use serde_json::json;
use standardwebhooks::Webhook;

use super::{AlertMessage, Error, send_request};

pub(super) async fn send(
    http: &reqwest::Client,
    url: &str,
    secret: Option<&str>,
    message: &AlertMessage,
) -> Result<(), Error> {
    let body = json!({ "type": "tamma.alert", "timestamp": message.at, "data": message });
    let body = serde_json::to_vec(&body).map_err(|error| Error::Rejected(error.to_string()))?;
    post(http, url, secret, &message.id.to_string(), body).await
}

/// Sends a request with an ID that is the same for every attempt.
pub(crate) async fn post(
    http: &reqwest::Client,
    url: &str,
    secret: Option<&str>,
    id: &str,
    body: Vec<u8>,
) -> Result<(), Error> {
    let now = seconds_now();
    let mut request = http
        .post(url)
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", now.to_string());
    if let Some(secret) = secret {
        let signer = Webhook::new(secret).map_err(|_| {
            let reason = "the channel's `secret` is not `whsec_` followed by a base64 key; create \
                         one with `echo whsec_$(openssl rand -base64 32)`";
            Error::Rejected(reason.to_owned())
        })?;
        let signature = signer
            .sign(id, now, &body)
            .map_err(|_| Error::Rejected("cannot sign the message".to_owned()))?;
        request = request.header("webhook-signature", signature);
    }
    let request = request.body(body);
    send_request(request).await?.into_result()
}

/// Returns the time of this attempt. Receivers reject old signatures.
#[expect(clippy::disallowed_methods, reason = "a signature contains its time")]
fn seconds_now() -> i64 {
    Utc::now().timestamp()
}
