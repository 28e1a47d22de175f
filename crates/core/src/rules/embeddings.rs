//! Model that computes embeddings of texts.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Embedding model, behind an OpenAI-compatible API. Without one, knowledge entries are ranked by
/// words and conditions alone.
///
/// An API key, if needed, goes into the worker's environment variable `TAMMA_EMBEDDINGS_KEY`,
/// because rules are shown to people and stored with tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddingModel {
    /// Base URL of the API, such as `http://127.0.0.1:11434/v1`. Default: no model.
    #[garde(inner(custom(is_http_url)))]
    pub url: Option<String>,
    /// Name of the model.
    #[garde(inner(length(min = 1, max = 200)))]
    pub model: Option<String>,
}

impl EmbeddingModel {
    /// Returns the URL and model name, or `None` unless both are set.
    pub fn endpoint(&self) -> Option<(&str, &str)> {
        self.url.as_deref().zip(self.model.as_deref())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
pub(super) fn is_http_url(value: &str, (): &()) -> garde::Result {
    if value.starts_with("http://") || value.starts_with("https://") {
        Ok(())
    } else {
        Err(garde::Error::new("the URL must start with http:// or https://"))
    }
}
