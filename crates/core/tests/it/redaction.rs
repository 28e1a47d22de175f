//! Removal of known secrets from texts.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use tamma_core::redaction::Redactor;

const KEY: &str = "sk-a/b+c d&e=42";

fn redactor() -> Redactor {
    Redactor::new([KEY, "short"])
}

#[test]
fn debug_output_contains_no_secret() {
    assert!(!format!("{:?}", redactor()).contains("sk-"));
}

#[test]
fn only_secrets_are_redacted() {
    let clean = redactor().redact("key=sk-a/b+c d&e=42, short, sk-a/b").into_owned();
    assert_eq!(clean, "key=[secret], short, sk-a/b");
    assert!(matches!(redactor().redact("nothing here"), Cow::Borrowed("nothing here")));
}

#[test]
fn secret_is_found_in_urls_json_and_base64_at_every_offset() {
    let encoded = redactor().redact("http://x/?key=sk-a%2Fb%2Bc+d%26e%3D42&b=1").into_owned();
    assert_eq!(encoded, "http://x/?key=[secret]&b=1");
    let json = serde_json::json!({ "key": "with \"quotes\"" }).to_string();
    let quoted = Redactor::new(["with \"quotes\""]);
    assert_eq!(quoted.redact(&json), r#"{"key":"[secret]"}"#);
    for before in ["", "u", "us", "use", "user:"] {
        let text = STANDARD_NO_PAD.encode(format!("{before}{KEY}{before}"));
        let clean = redactor().redact(&text).into_owned();
        assert!(clean.contains("[secret]"), "{text} became {clean}");
        assert!(clean.len() < text.len(), "{text} became {clean}");
    }
}
