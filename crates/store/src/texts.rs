//! Texts that the state machine refers to, addressed by the hash of their content.

use tamma_core::ids::{Digest, PolicyVersion, Reference};
use tamma_core::rules::Rules;

use crate::connection::Store;
use crate::error::{CorruptData, Error, Result};

/// Prefix of a reference to a text.
const SCHEME: &str = "text:";

/// Returns the reference to a saved text, if `text` is one.
pub fn parse_text_reference(text: &str) -> Option<Reference> {
    let hash = text.strip_prefix(SCHEME)?;
    let is_hash = !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { text.parse().ok() } else { None }
}

/// Text that is saved together with a row that refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewText {
    /// Reference to the text, once it is saved.
    pub reference: Reference,
    pub(crate) hash: String,
    pub(crate) content: String,
}

impl NewText {
    /// Prepares a text.
    pub fn new(text: &str) -> Result<Self> {
        // PostgreSQL text cannot contain NUL, which agents may print.
        let content = text.replace('\0', "\u{fffd}");
        let hash = Digest::of(content.as_bytes()).to_string();
        Ok(Self { reference: reference(&hash)?, hash, content })
    }
}

impl Store {
    /// Saves a text and returns a reference to it. Equal texts are stored once, and one that is used
    /// again counts as new for retention.
    pub async fn save_text(&self, text: &str) -> Result<Reference> {
        let NewText { reference, hash, content } = NewText::new(text)?;
        sqlx::query!(
            "INSERT INTO texts (hash, content) VALUES ($1, $2)
             ON CONFLICT (hash) DO UPDATE SET created_at = now()
             WHERE texts.created_at < now() - interval '1 day'",
            hash,
            content
        )
        .execute(&self.steps)
        .await?;
        Ok(reference)
    }

    /// Returns a saved text.
    pub async fn text(&self, at: &Reference) -> Result<String> {
        let hash = at.as_str().strip_prefix(SCHEME).ok_or_else(|| text_not_found(at))?;
        sqlx::query_scalar!("SELECT content FROM texts WHERE hash = $1", hash)
            .fetch_optional(&self.steps)
            .await?
            .ok_or_else(|| text_not_found(at))
    }

    /// Returns the saved text with this hash.
    pub async fn text_by_hash(&self, hash: Digest) -> Result<String> {
        self.text(&reference(&hash.to_string())?).await
    }

    /// Saves the rules that tasks run under. They must not contain secrets.
    pub async fn save_rules(&self, rules: &Rules) -> Result<PolicyVersion> {
        self.save_text(&rules_text(rules)?).await?;
        Ok(rules.version())
    }

    /// Returns the rules of a policy version.
    pub async fn rules(&self, version: PolicyVersion) -> Result<Rules> {
        let text = self.text(&reference(&version.to_string())?).await?;
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))
    }
}

/// Returns rules as they are stored.
pub(crate) fn rules_text(rules: &Rules) -> Result<String> {
    serde_json::to_string(rules).map_err(|error| damaged(error.to_string()))
}

fn reference(hash: &str) -> Result<Reference> {
    format!("{SCHEME}{hash}").parse().map_err(|_| damaged("the hash is too long".to_owned()))
}

fn text_not_found(at: &Reference) -> Error {
    Error::NotFound { what: "text", key: at.to_string() }
}

fn damaged(reason: String) -> Error {
    Error::Corrupt(CorruptData { what: "rules", key: "a policy version".to_owned(), reason })
}
