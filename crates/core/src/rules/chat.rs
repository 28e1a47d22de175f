//! Model that interprets chat messages.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::embeddings::is_http_url;

/// Model that interprets chat messages, behind an OpenAI-compatible API. Without one, a small
/// grammar does. The model sees messages and the titles of this project's tasks, and changes
/// nothing: each action is shown to the person as a command and needs their confirmation.
///
/// An API key, if needed, goes into the server's environment variable `TAMMA_CHAT_KEY`, because
/// rules are shown to people and stored with tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct ChatModel {
    /// Base URL of the API, such as `http://127.0.0.1:11434/v1`. Default: no model.
    #[garde(inner(custom(is_http_url)))]
    pub url: Option<String>,
    /// Name of the model.
    #[garde(inner(length(min = 1, max = 200)))]
    pub model: Option<String>,
}

impl ChatModel {
    /// Returns the URL and model name, or `None` unless both are set.
    pub fn endpoint(&self) -> Option<(&str, &str)> {
        self.url.as_deref().zip(self.model.as_deref())
    }
}
