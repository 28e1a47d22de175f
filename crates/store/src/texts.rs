//! Texts that the machine only refers to, known by the hash of their content.

use tamma_core::ids::{Digest, PolicyVersion, Reference};
use tamma_core::rules::Rules;

use crate::connection::Store;
use crate::error::{Damage, Error, Result};

/// What a reference to a text starts with.
const SCHEME: &str = "text:";

impl Store {
    /// Keeps a text, and returns where. The same text is kept once.
    pub async fn keep(&self, text: &str) -> Result<Reference> {
        // PostgreSQL's text has no place for this character, which an agent may well print.
        let text = text.replace('\0', "\u{fffd}");
        let hash = Digest::of(text.as_bytes()).to_string();
        sqlx::query!(
            "INSERT INTO texts (hash, content) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            hash,
            text
        )
        .execute(&self.steps)
        .await?;
        reference(&hash)
    }

    /// A text that was kept.
    pub async fn kept(&self, at: &Reference) -> Result<String> {
        let hash = at.as_str().strip_prefix(SCHEME).ok_or_else(|| no_text(at))?;
        sqlx::query_scalar!("SELECT content FROM texts WHERE hash = $1", hash)
            .fetch_optional(&self.steps)
            .await?
            .ok_or_else(|| no_text(at))
    }

    /// Keeps the rules that tasks run under. They must be without secrets.
    pub async fn keep_rules(&self, rules: &Rules) -> Result<PolicyVersion> {
        let text = serde_json::to_string(rules).map_err(|error| damaged(error.to_string()))?;
        self.keep(&text).await?;
        Ok(rules.version())
    }

    /// The rules of a version.
    pub async fn rules(&self, version: PolicyVersion) -> Result<Rules> {
        let text = self.kept(&reference(&version.to_string())?).await?;
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))
    }
}

fn reference(hash: &str) -> Result<Reference> {
    format!("{SCHEME}{hash}").parse().map_err(|_| damaged("its hash is too long".to_owned()))
}

fn no_text(at: &Reference) -> Error {
    Error::NotFound { what: "text", key: at.to_string() }
}

fn damaged(why: String) -> Error {
    Error::Corrupt(Damage { what: "rules", key: "a version".to_owned(), why })
}
