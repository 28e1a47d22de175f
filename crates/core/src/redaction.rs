//! Removal of known secrets from texts. [`patterns`](crate::review::patterns) recognises unknown ones.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Replacement for a secret.
const REDACTED: &str = "[secret]";

/// Shortest secret that is redacted. Shorter ones occur in too many harmless texts.
const MIN_SECRET_CHARS: usize = 6;

/// Replaces known secrets in texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Encodings of the secrets, longest first.
    encodings: Vec<String>,
}

impl Redactor {
    /// Creates a redactor. Secrets with fewer than six characters are ignored.
    pub fn new(secrets: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut encodings: Vec<_> = secrets
            .into_iter()
            .filter(|secret| secret.as_ref().chars().count() >= MIN_SECRET_CHARS)
            .flat_map(|secret| encodings(secret.as_ref()))
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
    let form: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    // A space is encoded differently in forms and in paths.
    forms.push(form.replace('+', "%20"));
    forms.push(form);
    let json = serde_json::Value::from(secret).to_string();
    forms.extend(json.get(1..json.len() - 1).map(str::to_owned));
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
