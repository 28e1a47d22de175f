//! Encryption keys of tests. All processes of a cluster and all clients have the same ones.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Result;
use tamma_keys::{KeyRing, Keys};

/// Key file of tests. Two keys, of which the second is active.
const KEY_FILE: &str = r#"{
  "active": "test-2",
  "keys": [
    {
      "id": "test-1",
      "created": "2026-01-01T00:00:00Z",
      "secret": "Zmlyc3Qga2V5IG9mIHRoZSB0ZXN0IGNsdXN0ZXIgMDE"
    },
    {
      "id": "test-2",
      "created": "2026-02-01T00:00:00Z",
      "secret": "c2Vjb25kIGtleSBvZiB0aGUgdGVzdCBjbHVzdGVyIDI"
    }
  ]
}
"#;

/// Returns the keys of tests.
///
/// # Panics
///
/// Never: the keys are valid.
#[expect(clippy::expect_used, reason = "the constant is valid")]
pub fn test_keys() -> Keys {
    Keys::fixed(KeyRing::parse(KEY_FILE).expect("valid"))
}

/// Writes the key file of tests to a data folder. Without `seals`, no key is active: processes open what
/// others have sealed, and seal nothing.
pub fn write_key_file(data: &Path, seals: bool) -> Result<()> {
    let text = if seals { KEY_FILE.to_owned() } else { KEY_FILE.replacen("\"test-2\"", "null", 1) };
    std::fs::create_dir_all(data)?;
    let mut options = std::fs::File::options();
    let path = data.join("keys.json");
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tamma_keys::KeyFile;

    use super::*;

    #[test]
    fn the_key_file_is_valid_with_and_without_an_active_key() {
        let folder = tempfile::tempdir().expect("a folder");
        for seals in [true, false] {
            write_key_file(folder.path(), seals).expect("written");
            let ring = KeyFile::new(folder.path().join("keys.json")).read().expect("valid");
            assert_eq!((ring.is_active(), ring.describe().len()), (seals, 2));
        }
        assert!(test_keys().current().is_active());
    }
}
