//! Sealing of secrets before they are stored in the database.

use tamma_connect::oidc::SealingKey;
use tamma_keys::{KeyRing, Keys};

/// Purpose of the sealed texts, so that they cannot be used in another place.
const PURPOSE: &str = "tamma: tokens of identity providers: ";

/// Seals with the active encryption key. Without one, and for what older versions have stored, it uses
/// the key from the server's token.
pub(crate) struct SecretSeal {
    keys: Keys,
    token_key: SealingKey,
}

impl SecretSeal {
    /// Returns `None` if the crypto library fails.
    pub(crate) fn new(keys: Keys, server_token: &str) -> Option<Self> {
        Some(Self { keys, token_key: SealingKey::derive(server_token)? })
    }

    /// Seals a text for a context, which must be the same when it is opened.
    pub(super) fn seal(&self, context: &str, text: &str) -> Option<String> {
        match self.keys.current().seal_text(&format!("{PURPOSE}{context}"), text) {
            Ok(Some(sealed)) => Some(sealed),
            Ok(None) => self.token_key.seal(context, text),
            Err(_) => None,
        }
    }

    /// Returns the start of each text that is sealed now; `None` without an active encryption key.
    pub(super) fn sealed_start(&self) -> Option<String> {
        self.keys.current().sealed_start()
    }

    /// Opens a sealed text. Returns `None` if its key is missing, or if it was sealed for another
    /// context.
    pub(super) fn open(&self, context: &str, sealed: &str) -> Option<String> {
        let Some(key) = KeyRing::key_of_text(sealed) else {
            return self.token_key.open(context, sealed);
        };
        let ring = self.keys.ring_with(key);
        let opened = ring.open_text(&format!("{PURPOSE}{context}"), sealed);
        opened.inspect_err(|error| tracing::warn!(%error, "cannot open a stored secret")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "operator-token-of-the-test";

    fn seal_with(ring: KeyRing) -> SecretSeal {
        SecretSeal::new(Keys::fixed(ring), TOKEN).expect("derived")
    }

    fn ring() -> KeyRing {
        let mut ring = KeyRing::default();
        let id = ring.add("2026-11-17T12:00:00Z".parse().expect("a time")).expect("added");
        ring.activate(&id).expect("active");
        ring
    }

    #[test]
    fn secrets_of_older_versions_open_and_new_ones_use_the_key_file() {
        let old = seal_with(KeyRing::default());
        let stored = old.seal("login 1", "refresh").expect("sealed");
        let new = seal_with(ring());
        assert_eq!(new.open("login 1", &stored).as_deref(), Some("refresh"));
        let stored = new.seal("login 1", "refresh").expect("sealed");
        assert!(KeyRing::key_of_text(&stored).is_some() && !stored.contains("refresh"));
        assert_eq!(new.open("login 1", &stored).as_deref(), Some("refresh"));
        assert_eq!(new.open("login 2", &stored), None);
        assert_eq!(old.open("login 1", &stored), None, "its key is missing");
    }

    #[test]
    fn a_rotated_key_still_opens_old_secrets() {
        let mut rotated = ring();
        let before = KeyRing::parse(&rotated.to_text().expect("stored")).expect("parsed");
        let stored = seal_with(before).seal("login 1", "refresh").expect("sealed");
        let id = rotated.add("2026-11-18T12:00:00Z".parse().expect("a time")).expect("added");
        rotated.activate(&id).expect("active");
        let after = seal_with(rotated);
        assert_eq!(after.open("login 1", &stored).as_deref(), Some("refresh"));
        let resealed = after.seal("login 1", "refresh").expect("sealed");
        assert_eq!(KeyRing::key_of_text(&resealed), Some(id.as_str()));
    }
}
