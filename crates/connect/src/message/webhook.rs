//! A signed request to an endpoint, as standardwebhooks.com has it.

use chrono::Utc;
use serde_json::json;
use standardwebhooks::Webhook;

use super::{Error, Message, asked};

pub(super) async fn send(
    http: &reqwest::Client,
    url: &str,
    secret: &str,
    message: &Message,
) -> Result<(), Error> {
    let signer = Webhook::new(secret).map_err(|_| {
        let words = "the channel's `secret` is not `whsec_` and a key in base64: make one with \
                     `echo whsec_$(openssl rand -base64 32)`";
        Error::Refused(words.to_owned())
    })?;
    let body = json!({ "type": "tamma.alert", "timestamp": message.at, "data": message });
    let body = serde_json::to_vec(&body).map_err(|error| Error::Refused(error.to_string()))?;
    let id = message.id.to_string();
    let now = seconds_now();
    let signature = signer
        .sign(&id, now, &body)
        .map_err(|_| Error::Refused("the message cannot be signed".to_owned()))?;
    let request = http
        .post(url)
        .header("content-type", "application/json")
        .header("webhook-id", &id)
        .header("webhook-timestamp", now.to_string())
        .header("webhook-signature", signature)
        .body(body);
    asked(request).await?.taken()
}

/// Of this attempt: a receiver refuses signatures that are old.
#[expect(clippy::disallowed_methods, reason = "a signature says when it was made")]
fn seconds_now() -> i64 {
    Utc::now().timestamp()
}
