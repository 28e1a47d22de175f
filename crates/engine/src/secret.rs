//! Secrets, and their removal from texts.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use reqwest::Url;
use tamma_core::ids::Digest;

/// Replacement for a secret.
const REDACTED: &str = "[secret]";

/// Shortest secret that is redacted. Shorter ones occur in too many harmless texts.
const MIN_SECRET_CHARS: usize = 6;

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

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Replaces secrets in texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Encodings of the secrets, longest first.
    encodings: Vec<String>,
}

impl Redactor {
    /// Creates a redactor. Secrets with fewer than six characters are ignored.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut encodings: Vec<_> = secrets
            .into_iter()
            .filter(|secret| secret.0.chars().count() >= MIN_SECRET_CHARS)
            .flat_map(|secret| encodings(&secret.0))
            .collect();
        encodings.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        encodings.dedup();
        Self { encodings }
    }

    /// Replaces all secrets in a text.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for form in &self.encodings {
            if clean.contains(form.as_str()) {
                clean = Cow::Owned(clean.replace(form.as_str(), REDACTED));
            }
        }
        clean
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} forms)", self.encodings.len())
    }
}

/// Returns the encodings of a secret: plain, URL, JSON, and base64 at every offset.
fn encodings(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    if let Ok(mut url) = Url::parse("http://x/") {
        url.query_pairs_mut().append_key_only(secret);
        let form = url.query().unwrap_or_default().to_owned();
        // A space is encoded differently in forms and in paths.
        forms.push(form.replace('+', "%20"));
        forms.push(form);
    }
    let json = serde_json::Value::from(secret).to_string();
    forms.push(json.trim_matches('"').to_owned());
    for before in 0..3_usize {
        let bytes = [&vec![0; before], secret.as_bytes()].concat();
        // The first and the last digit also depend on neighbouring bytes, so they are left out.
        let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.extend(text.get(first..last).map(str::to_owned));
        }
    }
    forms.retain(|form| form.len() >= MIN_SECRET_CHARS);
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-a/b+c d&e=42";

    fn redactor() -> Redactor {
        Redactor::new([Secret::new(KEY), Secret::new("short")])
    }

    #[test]
    fn debug_output_contains_no_secret() {
        assert_eq!(format!("{:?}", Secret::new(KEY)), "…");
        assert!(!format!("{:?}", redactor()).contains("sk-"));
    }

    #[test]
    fn secret_matches_only_itself() {
        let secret = Secret::new(KEY);
        assert!(secret.matches(KEY));
        assert!(!secret.matches(&KEY[1..]) && !secret.matches(""));
    }

    #[test]
    fn only_secrets_are_redacted() {
        let clean = redactor().redact("key=sk-a/b+c d&e=42, short, sk-a/b").into_owned();
        assert_eq!(clean, "key=[secret], short, sk-a/b");
        assert!(matches!(redactor().redact("nothing here"), Cow::Borrowed("nothing here")));
    }

    #[test]
    fn secret_is_found_in_urls_and_in_base64_at_every_offset() {
        let encoded = redactor().redact("http://x/?key=sk-a%2Fb%2Bc+d%26e%3D42&b=1").into_owned();
        assert_eq!(encoded, "http://x/?key=[secret]&b=1");
        for before in ["", "u", "us", "use", "user:"] {
            let text = STANDARD_NO_PAD.encode(format!("{before}{KEY}{before}"));
            let clean = redactor().redact(&text).into_owned();
            assert!(clean.contains(REDACTED), "{text} became {clean}");
            assert!(clean.len() < text.len(), "{text} became {clean}");
        }
    }
}
