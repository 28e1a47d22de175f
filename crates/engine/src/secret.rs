//! What must not be seen: keys, tokens, and texts without them.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use reqwest::Url;
use tamma_core::ids::Digest;

/// What stands where a secret stood.
const VEIL: &str = "[secret]";

/// A shorter secret is in too many harmless texts to be taken out of them.
const SHORTEST: usize = 6;

/// A text that is never printed, logged or stored.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether another text is the same. How long it takes tells nothing about where they differ.
    pub fn is(&self, other: &str) -> bool {
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

/// Takes secrets out of texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The forms in which a secret can be in a text, the longest first.
    forms: Vec<String>,
}

impl Redactor {
    /// Looks for these secrets. Those of fewer than six characters are left out.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut forms: Vec<_> = secrets
            .into_iter()
            .filter(|secret| secret.0.chars().count() >= SHORTEST)
            .flat_map(|secret| forms(&secret.0))
            .collect();
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// The text without the secrets.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for form in &self.forms {
            if clean.contains(form.as_str()) {
                clean = Cow::Owned(clean.replace(form.as_str(), VEIL));
            }
        }
        clean
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} forms)", self.forms.len())
    }
}

/// A secret as it is, in a URL, in JSON, and in base64 wherever in the encoded text it begins.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    if let Ok(mut url) = Url::parse("http://x/") {
        url.query_pairs_mut().append_key_only(secret);
        let form = url.query().unwrap_or_default().to_owned();
        // A space is one thing in a form and another in a path.
        forms.push(form.replace('+', "%20"));
        forms.push(form);
    }
    let json = serde_json::Value::from(secret).to_string();
    forms.push(json.trim_matches('"').to_owned());
    for before in 0..3_usize {
        let bytes = [&vec![0; before], secret.as_bytes()].concat();
        // What comes before and after is in the first and the last digit too, so they are not of it.
        let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.extend(text.get(first..last).map(str::to_owned));
        }
    }
    forms.retain(|form| form.len() >= SHORTEST);
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
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new(KEY)), "…");
        assert!(!format!("{:?}", redactor()).contains("sk-"));
    }

    #[test]
    fn a_secret_is_only_itself() {
        let secret = Secret::new(KEY);
        assert!(secret.is(KEY));
        assert!(!secret.is(&KEY[1..]) && !secret.is(""));
    }

    #[test]
    fn a_text_loses_its_secrets_and_nothing_else() {
        let clean = redactor().redact("key=sk-a/b+c d&e=42, short, sk-a/b").into_owned();
        assert_eq!(clean, "key=[secret], short, sk-a/b");
        assert!(matches!(redactor().redact("nothing here"), Cow::Borrowed("nothing here")));
    }

    #[test]
    fn a_secret_is_found_in_a_url_and_in_base64_at_every_offset() {
        let encoded = redactor().redact("http://x/?key=sk-a%2Fb%2Bc+d%26e%3D42&b=1").into_owned();
        assert_eq!(encoded, "http://x/?key=[secret]&b=1");
        for before in ["", "u", "us", "use", "user:"] {
            let text = STANDARD_NO_PAD.encode(format!("{before}{KEY}{before}"));
            let clean = redactor().redact(&text).into_owned();
            assert!(clean.contains(VEIL), "{text} became {clean}");
            assert!(clean.len() < text.len(), "{text} became {clean}");
        }
    }
}
