//! Models behind an interface like OpenAI's: one that makes vectors of texts ([`Embedder`]), one that
//! fills in a form ([`Reader`]).
//!
//! Both only help: whoever asks goes on without them. So they have a short time, nothing is tried
//! twice, and why there is no answer is said for the person who has configured them.

mod embedder;
mod reader;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use embedder::{AT_ONCE, Embedder};
pub use reader::Reader;

/// How much of an answer is read.
const LARGEST: usize = 32 * 1024 * 1024;

/// Why a model gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached, or took too long.
    #[error("the model for {} gave no answer in {} seconds: {source}; see `{}.url`", .purpose.what, .purpose.limit.as_secs(), .purpose.group)]
    Unreachable {
        /// What it is for.
        purpose: &'static Purpose,
        /// Why.
        source: reqwest::Error,
    },
    /// It said no.
    #[error("the model for {} answered {status}; see `{}.model` and `{}`", .purpose.what, .purpose.group, .purpose.key)]
    Refused {
        /// What it is for.
        purpose: &'static Purpose,
        /// What it said.
        status: reqwest::StatusCode,
    },
    /// The answer is too large, or not of the form of the interface.
    #[error("the model for {} gave an answer that cannot be read; is `{}.url` the address of an interface like OpenAI's, such as http://127.0.0.1:11434/v1?", .purpose.what, .purpose.group)]
    Unreadable {
        /// What it is for.
        purpose: &'static Purpose,
    },
    /// The answer is not of the texts that it was given.
    #[error("the model for embeddings gave {given} vectors for {asked} texts")]
    Odd {
        /// How many texts there were.
        asked: usize,
        /// How many vectors came.
        given: usize,
    },
}

/// What a model is for, and where its settings are.
#[derive(Debug)]
pub struct Purpose {
    /// In words.
    pub what: &'static str,
    /// The group of the rules that says where it is.
    pub group: &'static str,
    /// The variable that has its key.
    pub key: &'static str,
    /// How long an answer may take.
    pub limit: Duration,
}

/// A model at its address.
#[derive(Debug, Clone)]
struct Endpoint {
    client: reqwest::Client,
    address: String,
    key: Option<String>,
    purpose: &'static Purpose,
}

impl Endpoint {
    fn new(
        url: &str,
        path: &str,
        key: Option<String>,
        purpose: &'static Purpose,
    ) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            // A key is for the one that it is for, and not for whom that names.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(purpose.limit)
            .build()
            .map_err(|source| Error::Unreachable { purpose, source })?;
        let address = format!("{}/{path}", url.trim_end_matches('/'));
        Ok(Self { client, address, key, purpose })
    }

    async fn ask<A: DeserializeOwned>(&self, question: &impl Serialize) -> Result<A, Error> {
        let purpose = self.purpose;
        // The address may hold what is nobody's business.
        let unreachable =
            |source: reqwest::Error| Error::Unreachable { purpose, source: source.without_url() };
        let mut request = self.client.post(&self.address).json(question);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(Error::Refused { purpose, status: response.status() });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LARGEST {
                return Err(Error::Unreadable { purpose });
            }
        }
        serde_json::from_slice(&bytes).map_err(|_| Error::Unreadable { purpose })
    }
}
