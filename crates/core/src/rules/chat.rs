//! The model that reads what people say in the chat.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::embeddings::is_address;

/// A model that reads what people say in the chat, behind an interface like OpenAI's. Without one, a
/// small grammar does. It is shown messages and the titles of this project's tasks, and changes
/// nothing: what it understands is shown to the person as a command, and waits for their yes.
///
/// The key, where one is needed, is the server's variable `TAMMA_CHAT_KEY`: rules are shown to people
/// and kept with tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct ChatModel {
    /// Where it is, such as `http://127.0.0.1:11434/v1`; nothing where there is none.
    #[garde(inner(custom(is_address)))]
    pub url: Option<String>,
    /// Its name.
    #[garde(inner(length(min = 1, max = 200)))]
    pub model: Option<String>,
}

impl ChatModel {
    /// Where the model is and what it is called, if there is one.
    pub fn endpoint(&self) -> Option<(&str, &str)> {
        self.url.as_deref().zip(self.model.as_deref())
    }
}
