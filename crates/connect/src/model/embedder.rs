//! Client for an embedding model.
//!
//! Embeddings only rank the entries that people see. A plan waits for the response, so the timeout
//! is [`Embedder::TIMEOUT`] in total.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Error, ModelEndpoint, ModelPurpose};

/// Maximum number of texts in one request.
pub const MAX_BATCH: usize = 128;

/// Number of characters of a text that are embedded. Models take no more, and the rest adds little.
const MAX_TEXT_CHARS: usize = 6_000;

static PURPOSE: ModelPurpose = ModelPurpose {
    name: "embeddings",
    group: "embeddings",
    key: Embedder::KEY_VARIABLE,
    limit: Embedder::TIMEOUT,
};

/// Client for an embedding model.
#[derive(Debug, Clone)]
pub struct Embedder {
    endpoint: ModelEndpoint,
    model: String,
}

#[derive(Serialize)]
struct EmbeddingRequest<'a> {
    model: &'a str,
    input: Vec<&'a str>,
}

#[derive(Deserialize)]
struct EmbeddingResponse {
    data: Vec<EmbeddingVector>,
}

#[derive(Deserialize)]
struct EmbeddingVector {
    index: usize,
    embedding: Vec<f32>,
}

impl Embedder {
    /// Time limit of a request.
    pub const TIMEOUT: Duration = Duration::from_secs(2);

    /// Environment variable that holds the API key.
    pub const KEY_VARIABLE: &str = "TAMMA_EMBEDDINGS_KEY";

    /// Creates a client for a model at a URL such as `http://127.0.0.1:11434/v1`, with an optional
    /// API key.
    pub fn new(url: &str, model: &str, key: Option<String>) -> Result<Self, Error> {
        let endpoint = ModelEndpoint::new(url, "embeddings", key, &PURPOSE)?;
        Ok(Self { endpoint, model: model.to_owned() })
    }

    /// Returns the name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the embeddings of at most [`MAX_BATCH`] texts, in order.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        let input: Vec<&str> = texts.iter().map(|text| truncate(text)).collect();
        let expected = input.len();
        let request = EmbeddingRequest { model: &self.model, input };
        let mut response: EmbeddingResponse = self.endpoint.post(&request).await?;
        response.data.sort_by_key(|vector| vector.index);
        let received = response.data.len();
        if received != expected || response.data.iter().enumerate().any(|(at, it)| at != it.index) {
            return Err(Error::VectorCountMismatch { expected, received });
        }
        Ok(response.data.into_iter().map(|vector| vector.embedding).collect())
    }
}

fn truncate(text: &str) -> &str {
    text.char_indices().nth(MAX_TEXT_CHARS).map_or(text, |(end, _)| &text[..end])
}
