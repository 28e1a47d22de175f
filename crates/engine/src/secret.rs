//! Secrets, and their removal from texts.

use std::fmt;

use tamma_core::ids::Digest;
pub use tamma_core::redaction::Redactor;

/// Text that is never printed, logged or stored.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, for the place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares with a text in time that does not depend on the position of a difference.
    pub fn matches(&self, other: &str) -> bool {
        Digest::of(self.0.as_bytes()) == Digest::of(other.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl AsRef<str> for Secret {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-a/b+c d&e=42";

    #[test]
    fn debug_output_contains_no_secret() {
        assert_eq!(format!("{:?}", Secret::new(KEY)), "…");
    }

    #[test]
    fn secret_matches_only_itself() {
        let secret = Secret::new(KEY);
        assert!(secret.matches(KEY));
        assert!(!secret.matches(&KEY[1..]) && !secret.matches(""));
    }
}
