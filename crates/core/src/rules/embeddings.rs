//! The model that makes vectors of texts.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A model that makes vectors of texts, behind an interface like OpenAI's. Without one, what is known
/// is ranked by its words and conditions alone.
///
/// The key, where one is needed, is the worker's variable `TAMMA_EMBEDDINGS_KEY`: rules are shown to
/// people and kept with tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Embeddings {
    /// Where it is, such as `http://127.0.0.1:11434/v1`; nothing where there is none.
    #[garde(inner(custom(is_address)))]
    pub url: Option<String>,
    /// Its name.
    #[garde(inner(length(min = 1, max = 200)))]
    pub model: Option<String>,
}

impl Embeddings {
    /// Where the model is and what it is called, if there is one.
    pub fn endpoint(&self) -> Option<(&str, &str)> {
        self.url.as_deref().zip(self.model.as_deref())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
pub(super) fn is_address(value: &str, (): &()) -> garde::Result {
    if value.starts_with("http://") || value.starts_with("https://") {
        Ok(())
    } else {
        Err(garde::Error::new("write an address that begins with http:// or https://"))
    }
}
