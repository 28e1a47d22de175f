//! Clients for models with an OpenAI-compatible API: [`Embedder`] for embeddings, [`ChatReader`]
//! for chat messages.
//!
//! Both are optional: callers continue without them. They have a short timeout and do not retry
//! failures, and their errors are written for the person who configured them.

mod embedder;
mod reader;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use embedder::{Embedder, MAX_BATCH};
pub use reader::ChatReader;

/// Upper bound on the size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 32 * 1024 * 1024;

/// Upper bound on the size of an error response, in bytes.
const MAX_ERROR_BYTES: usize = 16 * 1024;

/// Failure of a model request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Model is unreachable, or did not respond in time.
    #[error("no response from the model for {} within {} s: {source}; check `{}.url`", .purpose.name, .purpose.limit.as_secs(), .purpose.group)]
    Unreachable {
        /// Purpose of the model.
        purpose: &'static ModelPurpose,
        /// Cause of the failure.
        source: reqwest::Error,
    },
    /// Model returned an error status.
    #[error("the model for {} returned {status}; check `{}.model` and `{}`", .purpose.name, .purpose.group, .purpose.key)]
    Refused {
        /// Purpose of the model.
        purpose: &'static ModelPurpose,
        /// HTTP status of the response.
        status: reqwest::StatusCode,
        /// Start of the response, which is untrusted text.
        body: String,
    },
    /// Response is too large, or does not follow the API.
    #[error("cannot read the response of the model for {}; check that `{}.url` is an OpenAI-compatible API, such as http://127.0.0.1:11434/v1", .purpose.name, .purpose.group)]
    Unreadable {
        /// Purpose of the model.
        purpose: &'static ModelPurpose,
    },
    /// Number of vectors differs from the number of texts.
    #[error("the model for embeddings returned {received} vectors for {expected} texts")]
    VectorCountMismatch {
        /// Number of texts.
        expected: usize,
        /// Number of returned vectors.
        received: usize,
    },
}

/// Purpose of a model, with the location of its settings.
#[derive(Debug)]
pub struct ModelPurpose {
    /// Purpose in words, for errors.
    pub name: &'static str,
    /// Configuration section of the model.
    pub group: &'static str,
    /// Environment variable that holds its key.
    pub key: &'static str,
    /// Time limit of a request.
    pub limit: Duration,
}

/// API endpoint of a model.
#[derive(Debug, Clone)]
struct ModelEndpoint {
    client: reqwest::Client,
    url: String,
    key: Option<String>,
    purpose: &'static ModelPurpose,
}

impl ModelEndpoint {
    fn new(
        url: &str,
        path: &str,
        key: Option<String>,
        purpose: &'static ModelPurpose,
    ) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            // The key must only go to the configured endpoint.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(purpose.limit)
            .build()
            .map_err(|source| Error::Unreachable { purpose, source })?;
        let address = format!("{}/{path}", url.trim_end_matches('/'));
        Ok(Self { client, url: address, key, purpose })
    }

    async fn post<A: DeserializeOwned>(&self, body: &impl Serialize) -> Result<A, Error> {
        let purpose = self.purpose;
        // The URL may contain a secret.
        let unreachable =
            |source: reqwest::Error| Error::Unreachable { purpose, source: source.without_url() };
        let mut request = self.client.post(&self.url).json(body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            let mut body = Vec::new();
            while body.len() < MAX_ERROR_BYTES
                && let Ok(Some(chunk)) = response.chunk().await
            {
                body.extend_from_slice(&chunk);
            }
            body.truncate(MAX_ERROR_BYTES);
            let body = String::from_utf8_lossy(&body).into_owned();
            return Err(Error::Refused { purpose, status, body });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_RESPONSE_BYTES {
                return Err(Error::Unreadable { purpose });
            }
        }
        serde_json::from_slice(&bytes).map_err(|_| Error::Unreadable { purpose })
    }
}
