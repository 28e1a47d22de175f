//! Canaries: marked texts and secrets, which experiments search for where they must not be.

use tamma_core::ids::Digest;

/// Kind of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CanaryKind {
    Text,
    Secret,
}

/// Marked text or secret, with its field.
pub(crate) struct Canary {
    pub(crate) kind: CanaryKind,
    pub(crate) name: String,
    pub(crate) value: String,
    /// The value as it is, in hexadecimal digits, and in base64.
    forms: Vec<String>,
}

impl Canary {
    /// Creates a canary with a value that is searched for.
    pub(crate) fn new(kind: CanaryKind, name: &str, value: String) -> Self {
        let hex = value.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let mut forms = vec![value.clone(), hex];
        forms.extend(base64_forms(value.as_bytes()));
        Self { kind, name: name.to_owned(), value, forms }
    }

    /// Returns `true` if the value is in a text, in any form.
    pub(crate) fn is_in(&self, content: &str) -> bool {
        self.forms.iter().any(|form| content.contains(form))
    }
}

/// Returns a value that nothing else contains.
pub(crate) fn new_value(name: &str) -> String {
    let unique = Digest::of(format!("{name} {}", std::process::id()).as_bytes()).to_string();
    format!("canary{}", &unique[..32])
}

/// Returns what a value looks like inside of base64, at each of the three offsets. The digits that also
/// depend on the bytes around it are left out.
fn base64_forms(value: &[u8]) -> [String; 3] {
    [0, 1, 2].map(|offset| {
        let mut padded = vec![0; offset];
        padded.extend_from_slice(value);
        let whole = padded.len() / 3 * 3;
        let text = base64_of(&padded[..whole]);
        let start = if offset == 0 { 0 } else { 4 };
        text[start..].to_owned()
    })
}

/// Encodes bytes whose number is a multiple of three.
fn base64_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks_exact(3) {
        let number = part.iter().fold(0_usize, |number, byte| (number << 8) | usize::from(*byte));
        for shift in [18, 12, 6, 0] {
            text.push(char::from(DIGITS[(number >> shift) & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_is_found_in_any_form() {
        let value = "canary0123456789abcdef".to_owned();
        let canary = Canary::new(CanaryKind::Secret, "test", value);
        assert_eq!(base64_of(b"canary"), "Y2FuYXJ5");
        for before in ["", "x", "xy", "xyz"] {
            let text = format!("{before}{}and more of it", canary.value);
            assert!(canary.is_in(&text));
            let whole = text.len() / 3 * 3;
            assert!(canary.is_in(&base64_of(&text.as_bytes()[..whole])), "{before}");
        }
        assert!(canary.is_in("x63616e61727930313233343536373839616263646566x"));
        assert!(!canary.is_in("canary0123456789abcde"));
    }
}
