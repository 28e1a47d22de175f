//! A model that makes vectors of texts, behind an interface like OpenAI's.
//!
//! It only orders what people are shown, so it may fail: whoever asks goes on without it. It is given
//! [`LIMIT`] in all, because a plan waits for the answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long an answer may take.
pub const LIMIT: Duration = Duration::from_secs(2);

/// How many texts it is given at once.
pub const AT_ONCE: usize = 128;

/// How much of a text it is given: models take no more, and the rest says little.
const LONGEST: usize = 6_000;

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached, or took too long.
    #[error("the model for embeddings gave no answer in two seconds: {0}; see `embeddings.url`")]
    Unreachable(#[source] reqwest::Error),
    /// It said no.
    #[error(
        "the model for embeddings answered {0}; see `embeddings.model` and `TAMMA_EMBEDDINGS_KEY`"
    )]
    Refused(reqwest::StatusCode),
    /// The answer is not of the texts that it was given.
    #[error("the model for embeddings gave {given} vectors for {asked} texts")]
    Odd {
        /// How many texts there were.
        asked: usize,
        /// How many vectors came.
        given: usize,
    },
}

/// A model that makes vectors of texts.
#[derive(Debug, Clone)]
pub struct Embedder {
    client: reqwest::Client,
    address: String,
    model: String,
    key: Option<String>,
}

#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    input: Vec<&'a str>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    index: usize,
    embedding: Vec<f32>,
}

impl Embedder {
    /// The model of a name at an address such as `http://127.0.0.1:11434/v1`, with its key.
    pub fn new(url: &str, model: &str, key: Option<String>) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            // A key is for the one that it is for, and not for whom that names.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(LIMIT)
            .build()
            .map_err(Error::Unreachable)?;
        let address = format!("{}/embeddings", url.trim_end_matches('/'));
        Ok(Self { client, address, model: model.to_owned(), key })
    }

    /// Its name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The vectors of some texts, in their order; of [`AT_ONCE`] at most.
    pub async fn vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        let input: Vec<&str> = texts.iter().map(|text| beginning(text)).collect();
        let asked = input.len();
        let mut request =
            self.client.post(&self.address).json(&Question { model: &self.model, input });
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(Error::Refused(response.status()));
        }
        let mut answer: Answer = response.json().await.map_err(unreachable)?;
        answer.data.sort_by_key(|vector| vector.index);
        let given = answer.data.len();
        if given != asked || answer.data.iter().enumerate().any(|(at, it)| at != it.index) {
            return Err(Error::Odd { asked, given });
        }
        Ok(answer.data.into_iter().map(|vector| vector.embedding).collect())
    }
}

/// The address may hold what is nobody's business.
fn unreachable(error: reqwest::Error) -> Error {
    Error::Unreachable(error.without_url())
}

fn beginning(text: &str) -> &str {
    text.char_indices().nth(LONGEST).map_or(text, |(end, _)| &text[..end])
}
