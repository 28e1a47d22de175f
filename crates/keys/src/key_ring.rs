//! Keys that seal and open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Length of a key, in bytes.
const KEY_LEN: usize = 32;

/// Start of a sealed text. The ID of the key and the bytes follow, separated by `.`.
const TEXT_PREFIX: &str = "sealed1.";

/// Failure of a key ring.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Key that sealed something is not in the ring.
    #[error(
        "encryption key `{0}` is missing; add it to the key file of this process (`tamma keys list` shows \
         the keys of a file)"
    )]
    UnknownKey(String),
    /// Sealed bytes that were changed, or were sealed for another purpose.
    #[error("data sealed with encryption key `{0}` is damaged, or was sealed for another purpose")]
    Damaged(String),
    /// Key ring that cannot be read.
    #[error("the key file is damaged: {0}")]
    Invalid(String),
    /// Failure of the crypto library.
    #[error("the crypto library failed")]
    Crypto,
}

/// Facts about a key, without the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyDescription {
    /// ID, which is stored with everything that the key has sealed.
    pub id: String,
    /// Time of creation.
    pub created: DateTime<Utc>,
    /// `true` for the key that seals.
    pub active: bool,
}

/// Keys of an installation. All can open; the active one seals. Without an active key, nothing is sealed.
#[derive(Default)]
pub struct KeyRing {
    active: Option<String>,
    keys: Vec<DataKey>,
}

struct DataKey {
    id: String,
    created: DateTime<Utc>,
    secret: [u8; KEY_LEN],
    cipher: LessSafeKey,
}

/// Key ring as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRing {
    active: Option<String>,
    keys: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKey {
    id: String,
    created: DateTime<Utc>,
    secret: String,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRing").field("active", &self.active).finish_non_exhaustive()
    }
}

impl DataKey {
    fn new(id: String, created: DateTime<Utc>, secret: [u8; KEY_LEN]) -> Result<Self, KeyError> {
        let key = UnboundKey::new(&AES_256_GCM, &secret).map_err(|_| KeyError::Crypto)?;
        Ok(Self { id, created, secret, cipher: LessSafeKey::new(key) })
    }
}

impl KeyRing {
    /// Parses a stored key ring.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        // The error of the parser could show a key.
        let stored: StoredRing = serde_json::from_str(text)
            .map_err(|error| KeyError::Invalid(format!("line {} is not valid", error.line())))?;
        let mut ring = Self::default();
        for StoredKey { id, created, secret } in stored.keys {
            let bytes = STANDARD_NO_PAD.decode(secret.trim_end_matches('=')).ok();
            let secret = bytes.and_then(|bytes| <[u8; KEY_LEN]>::try_from(bytes).ok());
            let secret = secret.ok_or_else(|| {
                KeyError::Invalid(format!("`secret` of key `{id}` is not 32 bytes in base64"))
            })?;
            if !is_id(&id) || ring.find(&id).is_some() {
                return Err(KeyError::Invalid(format!(
                    "key ID `{id}` is not valid, or not unique"
                )));
            }
            ring.keys.push(DataKey::new(id, created, secret)?);
        }
        if let Some(active) = stored.active {
            ring.activate(&active)?;
        }
        Ok(ring)
    }

    /// Returns the form to store, which contains the keys.
    pub fn to_text(&self) -> Result<String, KeyError> {
        let keys = self.keys.iter().map(|key| StoredKey {
            id: key.id.clone(),
            created: key.created,
            secret: STANDARD_NO_PAD.encode(key.secret),
        });
        let stored = StoredRing { active: self.active.clone(), keys: keys.collect() };
        let text = serde_json::to_string_pretty(&stored).map_err(|_| KeyError::Crypto)?;
        Ok(text + "\n")
    }

    /// Adds a random key, which does not seal yet. Returns its ID.
    pub fn add(&mut self, created: DateTime<Utc>) -> Result<String, KeyError> {
        let (mut name, mut secret) = ([0; 4], [0; KEY_LEN]);
        rand::fill(&mut name).map_err(|_| KeyError::Crypto)?;
        rand::fill(&mut secret).map_err(|_| KeyError::Crypto)?;
        let id = format!("{}-{:08x}", created.format("%Y%m%d"), u32::from_be_bytes(name));
        if self.find(&id).is_some() {
            return Err(KeyError::Crypto);
        }
        self.keys.push(DataKey::new(id.clone(), created, secret)?);
        Ok(id)
    }

    /// Makes a key the one that seals.
    pub fn activate(&mut self, id: &str) -> Result<(), KeyError> {
        let key = self.find(id).ok_or_else(|| KeyError::UnknownKey(id.to_owned()))?;
        self.active = Some(key.id.clone());
        Ok(())
    }

    /// Returns `true` if a key is active, so that new data is sealed.
    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Describes the keys, oldest first.
    pub fn describe(&self) -> Vec<KeyDescription> {
        let describe = |key: &DataKey| KeyDescription {
            id: key.id.clone(),
            created: key.created,
            active: self.active.as_deref() == Some(key.id.as_str()),
        };
        self.keys.iter().map(describe).collect()
    }

    /// Returns `true` if the ring has a key.
    pub fn has_key(&self, id: &str) -> bool {
        self.find(id).is_some()
    }

    /// Seals bytes for a context, which must be the same when they are opened. Returns the ID of the key
    /// and the sealed bytes, or `None` without an active key.
    pub fn seal(
        &self,
        context: &str,
        mut bytes: Vec<u8>,
    ) -> Result<Option<(&str, Vec<u8>)>, KeyError> {
        let Some(key) = self.active.as_deref().and_then(|id| self.find(id)) else {
            return Ok(None);
        };
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| KeyError::Crypto)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        key.cipher
            .seal_in_place_append_tag(unique, Aad::from(context.as_bytes()), &mut bytes)
            .map_err(|_| KeyError::Crypto)?;
        Ok(Some((&key.id, [nonce.as_slice(), &bytes].concat())))
    }

    /// Opens bytes that a key has sealed for a context.
    pub fn open(&self, id: &str, context: &str, sealed: &[u8]) -> Result<Vec<u8>, KeyError> {
        let key = self.find(id).ok_or_else(|| KeyError::UnknownKey(id.to_owned()))?;
        let damaged = || KeyError::Damaged(id.to_owned());
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN).ok_or_else(damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
        let mut bytes = sealed.to_vec();
        let opened = key.cipher.open_in_place(nonce, Aad::from(context.as_bytes()), &mut bytes);
        Ok(opened.map_err(|_| damaged())?.to_vec())
    }

    /// Seals a text for the database. Returns `None` without an active key.
    pub fn seal_text(&self, context: &str, text: &str) -> Result<Option<String>, KeyError> {
        let sealed = self.seal(context, text.as_bytes().to_vec())?;
        Ok(sealed.map(|(id, bytes)| format!("{TEXT_PREFIX}{id}.{}", STANDARD_NO_PAD.encode(bytes))))
    }

    /// Returns the start of each text that the active key seals; `None` without an active key.
    pub fn sealed_start(&self) -> Option<String> {
        self.active.as_ref().map(|id| format!("{TEXT_PREFIX}{id}."))
    }

    /// Opens a text that [`seal_text`](Self::seal_text) has sealed.
    pub fn open_text(&self, context: &str, sealed: &str) -> Result<String, KeyError> {
        let unknown = || KeyError::Invalid("this text is not sealed with an encryption key".into());
        let rest = sealed.strip_prefix(TEXT_PREFIX).ok_or_else(unknown)?;
        let (id, bytes) = rest.split_once('.').ok_or_else(unknown)?;
        let bytes = STANDARD_NO_PAD.decode(bytes).map_err(|_| KeyError::Damaged(id.to_owned()))?;
        let text = self.open(id, context, &bytes)?;
        String::from_utf8(text).map_err(|_| KeyError::Damaged(id.to_owned()))
    }

    /// Returns the ID of the key that sealed a text; `None` if no key of a ring has sealed it.
    pub fn key_of_text(sealed: &str) -> Option<&str> {
        Some(sealed.strip_prefix(TEXT_PREFIX)?.split_once('.')?.0)
    }

    fn find(&self, id: &str) -> Option<&DataKey> {
        self.keys.iter().find(|key| key.id == id)
    }
}

/// Returns `true` for letters, digits and `-`, so that IDs fit into metadata and sealed texts.
fn is_id(id: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    !id.is_empty() && id.len() <= 64 && id.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: u32) -> DateTime<Utc> {
        format!("2026-11-{day:02}T12:00:00Z").parse().expect("a time")
    }

    fn ring_with_active_key() -> (KeyRing, String) {
        let mut ring = KeyRing::default();
        let id = ring.add(at(1)).expect("added");
        ring.activate(&id).expect("active");
        (ring, id)
    }

    #[test]
    fn without_an_active_key_nothing_is_sealed() {
        let mut ring = KeyRing::default();
        assert_eq!(ring.seal_text("a", "b").expect("passed"), None);
        ring.add(at(1)).expect("added");
        assert!(!ring.is_active());
        assert_eq!(ring.seal_text("a", "b").expect("passed"), None);
    }

    #[test]
    fn a_text_opens_with_its_key_and_context_only() {
        let (ring, id) = ring_with_active_key();
        let sealed = ring.seal_text("login 1", "refresh").expect("sealed").expect("active");
        assert!(!sealed.contains("refresh"));
        assert_eq!(KeyRing::key_of_text(&sealed), Some(id.as_str()));
        let again = ring.seal_text("login 1", "refresh").expect("sealed").expect("active");
        assert_ne!(again, sealed, "each one is different");
        assert_eq!(ring.open_text("login 1", &sealed).expect("opened"), "refresh");
        assert!(matches!(ring.open_text("login 2", &sealed), Err(KeyError::Damaged(_))));
        let (other, _) = ring_with_active_key();
        assert!(matches!(other.open_text("login 1", &sealed), Err(KeyError::UnknownKey(_))));
        let changed = sealed.replace(&id, other.describe()[0].id.as_str());
        assert!(matches!(other.open_text("login 1", &changed), Err(KeyError::Damaged(_))));
        for broken in ["", "AAAA", "sealed1.", "sealed1.x", &sealed[..sealed.len() - 4]] {
            assert!(ring.open_text("login 1", broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn old_keys_open_after_a_rotation_and_the_new_one_seals() {
        let (mut ring, old) = ring_with_active_key();
        let sealed = ring.seal_text("a", "secret").expect("sealed").expect("active");
        let new = ring.add(at(2)).expect("added");
        ring.activate(&new).expect("active");
        let stored = ring.to_text().expect("stored");
        let ring = KeyRing::parse(&stored).expect("parsed");
        let described: Vec<_> = ring.describe().into_iter().map(|it| (it.id, it.active)).collect();
        assert_eq!(described, [(old, false), (new.clone(), true)]);
        assert_eq!(ring.open_text("a", &sealed).expect("opened"), "secret");
        let sealed = ring.seal_text("a", "secret").expect("sealed").expect("active");
        assert_eq!(KeyRing::key_of_text(&sealed), Some(new.as_str()));
        assert!(sealed.starts_with(&ring.sealed_start().expect("active")));
        assert_eq!(KeyRing::default().sealed_start(), None);
    }

    #[test]
    fn a_damaged_file_is_refused_without_showing_a_key() {
        let (ring, id) = ring_with_active_key();
        let stored = ring.to_text().expect("stored");
        let secret = STANDARD_NO_PAD.encode(ring.keys[0].secret);
        for broken in [
            "",
            "{}",
            &stored.replace(&secret, "c2hvcnQ"),
            &stored.replace(&format!("\"active\": \"{id}\""), "\"active\": \"another\""),
            &stored.replace(&format!("\"id\": \"{id}\""), "\"id\": \"a.b\""),
            &stored.replace(&format!("\"{secret}\""), &format!("[\"{secret}\"]")),
        ] {
            let error = KeyRing::parse(broken).expect_err(broken).to_string();
            assert!(!error.contains(&secret), "{error}");
        }
        assert!(!format!("{ring:?}").contains(&secret));
    }
}
