//! A model that reads a message and fills in a form.
//!
//! What it writes is only text: who asked holds it to the form, and to what a person has said.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Endpoint, Error, Purpose};

/// How many tokens an answer may have: the form is small.
const TOKENS: u32 = 400;

static PURPOSE: Purpose =
    Purpose { what: "the chat", group: "chat", key: Reader::KEY, limit: Reader::LIMIT };

/// A model that reads messages.
#[derive(Debug, Clone)]
pub struct Reader {
    endpoint: Endpoint,
    model: String,
}

#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    messages: [Turn<'a>; 2],
    temperature: u8,
    max_tokens: u32,
    response_format: Value,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Content,
}

#[derive(Deserialize)]
struct Content {
    content: String,
}

impl Reader {
    /// How long an answer may take: a person waits for it.
    pub const LIMIT: Duration = Duration::from_secs(5);

    /// The variable that has its key.
    pub const KEY: &str = "TAMMA_CHAT_KEY";

    /// The model of a name at an address such as `http://127.0.0.1:11434/v1`, with its key.
    pub fn new(url: &str, model: &str, key: Option<String>) -> Result<Self, Error> {
        let endpoint = Endpoint::new(url, "chat/completions", key, &PURPOSE)?;
        Ok(Self { endpoint, model: model.to_owned() })
    }

    /// What it says about a message, in the words of a JSON schema if it keeps to it.
    pub async fn read(
        &self,
        instructions: &str,
        message: &str,
        form: &Value,
    ) -> Result<String, Error> {
        let question = Question {
            model: &self.model,
            messages: [
                Turn { role: "system", content: instructions },
                Turn { role: "user", content: message },
            ],
            temperature: 0,
            max_tokens: TOKENS,
            response_format: json!({
                "type": "json_schema",
                "json_schema": { "name": "intent", "schema": form },
            }),
        };
        let answer: Answer = self.endpoint.ask(&question).await?;
        let first = answer.choices.into_iter().next();
        let first = first.ok_or(Error::Unreadable { purpose: &PURPOSE })?;
        Ok(first.message.content)
    }
}
