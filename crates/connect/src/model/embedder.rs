//! A model that makes vectors of texts.
//!
//! It only orders what people are shown. It is given [`Embedder::LIMIT`] in all, because a plan waits
//! for the answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Endpoint, Error, Purpose};

/// How many texts it is given at once.
pub const AT_ONCE: usize = 128;

/// How much of a text it is given: models take no more, and the rest says little.
const LONGEST: usize = 6_000;

static PURPOSE: Purpose =
    Purpose { what: "embeddings", group: "embeddings", key: Embedder::KEY, limit: Embedder::LIMIT };

/// A model that makes vectors of texts.
#[derive(Debug, Clone)]
pub struct Embedder {
    endpoint: Endpoint,
    model: String,
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
    /// How long an answer may take.
    pub const LIMIT: Duration = Duration::from_secs(2);

    /// The variable that has its key.
    pub const KEY: &str = "TAMMA_EMBEDDINGS_KEY";

    /// The model of a name at an address such as `http://127.0.0.1:11434/v1`, with its key.
    pub fn new(url: &str, model: &str, key: Option<String>) -> Result<Self, Error> {
        let endpoint = Endpoint::new(url, "embeddings", key, &PURPOSE)?;
        Ok(Self { endpoint, model: model.to_owned() })
    }

    /// Its name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The vectors of some texts, in their order; of [`AT_ONCE`] at most.
    pub async fn vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        let input: Vec<&str> = texts.iter().map(|text| beginning(text)).collect();
        let asked = input.len();
        let question = Question { model: &self.model, input };
        let mut answer: Answer = self.endpoint.ask(&question).await?;
        answer.data.sort_by_key(|vector| vector.index);
        let given = answer.data.len();
        if given != asked || answer.data.iter().enumerate().any(|(at, it)| at != it.index) {
            return Err(Error::Odd { asked, given });
        }
        Ok(answer.data.into_iter().map(|vector| vector.embedding).collect())
    }
}

fn beginning(text: &str) -> &str {
    text.char_indices().nth(LONGEST).map_or(text, |(end, _)| &text[..end])
}
