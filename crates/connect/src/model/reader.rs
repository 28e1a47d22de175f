//! Client for a model that turns a chat message into a JSON object.
//!
//! The response is untrusted text. The caller validates it against the schema and the person's
//! message.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Error, ModelEndpoint, ModelPurpose};

/// Token limit of a response. The object is small, but reasoning counts, too.
const MAX_TOKENS: u32 = 2_000;

static PURPOSE: ModelPurpose = ModelPurpose {
    name: "chat",
    group: "chat",
    key: ChatReader::KEY_VARIABLE,
    limit: ChatReader::TIMEOUT,
};

/// Client for a model that reads chat messages.
#[derive(Debug, Clone)]
pub struct ChatReader {
    endpoint: ModelEndpoint,
    model: String,
}

/// Request without a temperature: OpenAI's models since GPT-5 refuse any but the default.
#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: [ChatMessage<'a>; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    /// Older name of the limit, which OpenAI's models since GPT-5 refuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    response_format: Value,
}

#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Deserialize)]
struct ChatResponse {
    choices: Vec<ChatChoice>,
}

#[derive(Deserialize)]
struct ChatChoice {
    message: MessageContent,
}

#[derive(Deserialize)]
struct MessageContent {
    content: String,
}

impl ChatReader {
    /// Time limit of a request. A person waits for it.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Environment variable that holds the API key.
    pub const KEY_VARIABLE: &str = "TAMMA_CHAT_KEY";

    /// Creates a client for a model at a URL such as `http://127.0.0.1:11434/v1`, with an optional
    /// API key.
    pub fn new(url: &str, model: &str, key: Option<String>) -> Result<Self, Error> {
        let endpoint = ModelEndpoint::new(url, "chat/completions", key, &PURPOSE)?;
        Ok(Self { endpoint, model: model.to_owned() })
    }

    /// Returns the model's text about a message; JSON of the given schema if the model complies.
    pub async fn read(
        &self,
        instructions: &str,
        message: &str,
        form: &Value,
    ) -> Result<String, Error> {
        let mut request = ChatRequest {
            model: &self.model,
            messages: [
                ChatMessage { role: "system", content: instructions },
                ChatMessage { role: "user", content: message },
            ],
            max_completion_tokens: Some(MAX_TOKENS),
            max_tokens: None,
            response_format: json!({
                "type": "json_schema",
                "json_schema": { "name": "intent", "schema": form },
            }),
        };
        let response: ChatResponse = match self.endpoint.post(&request).await {
            // Some providers only accept the older name.
            Err(Error::Refused { body, .. }) if body.contains("max_completion_tokens") => {
                request.max_tokens = request.max_completion_tokens.take();
                self.endpoint.post(&request).await?
            }
            response => response?,
        };
        let first = response.choices.into_iter().next();
        let first = first.ok_or(Error::Unreadable { purpose: &PURPOSE })?;
        Ok(first.message.content)
    }
}
