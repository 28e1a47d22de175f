//! Sealing of provider tokens before they are stored.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Purpose of the key, so that the secret can serve others too.
const PURPOSE: &[u8] = b"tamma: tokens of identity providers, version 1\0";

/// Key that seals texts (AES-256-GCM), derived from a secret of the server that is not in the database.
/// All servers of an installation have the same one.
pub struct SealingKey(LessSafeKey);

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealingKey").finish_non_exhaustive()
    }
}

impl SealingKey {
    /// Derives the key. Returns `None` if the crypto library fails.
    pub fn derive(secret: &str) -> Option<Self> {
        let input = [PURPOSE, secret.as_bytes()].concat();
        let key = digest::digest(&digest::SHA256, &input);
        Some(Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).ok()?)))
    }

    /// Seals a text for a context, which must be the same when it is opened.
    pub fn seal(&self, context: &str, text: &str) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = text.as_bytes().to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(unique, Aad::from(context.as_bytes()), &mut sealed).ok()?;
        Some(STANDARD_NO_PAD.encode([nonce.as_slice(), &sealed].concat()))
    }

    /// Opens a sealed text. Returns `None` if it was sealed with another key or for another context.
    pub fn open(&self, context: &str, sealed: &str) -> Option<String> {
        let bytes = STANDARD_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let text = self.0.open_in_place(nonce, Aad::from(context.as_bytes()), &mut sealed).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_opens_with_its_key_and_context_only() {
        let key = SealingKey::derive("a secret").unwrap();
        let sealed = key.seal("login 1", "refresh").unwrap();
        assert!(!sealed.contains("refresh"));
        assert_ne!(key.seal("login 1", "refresh").unwrap(), sealed, "each one is different");
        assert_eq!(key.open("login 1", &sealed).as_deref(), Some("refresh"));
        assert_eq!(key.open("login 2", &sealed), None);
        assert_eq!(SealingKey::derive("another").unwrap().open("login 1", &sealed), None);
        for broken in ["", "AAAA", "not base64!", &sealed[1..]] {
            assert_eq!(key.open("login 1", broken), None, "{broken}");
        }
    }
}
