//! `tamma keys`.

use std::path::Path;

use assert_cmd::Command;

fn tamma(data: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    command.env_clear().env("TAMMA_DATA", data).args(arguments);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// Returns the IDs of the keys, and whether they are active.
fn keys(data: &Path) -> Vec<(String, bool)> {
    let (_, text) = tamma(data, &["keys", "list", "--json"]);
    let keys: serde_json::Value = serde_json::from_str(&text).unwrap();
    let key = |key: &serde_json::Value| {
        (key["id"].as_str().unwrap().to_owned(), key["active"].as_bool().unwrap())
    };
    keys.as_array().unwrap().iter().map(key).collect()
}

#[test]
fn keys_are_created_rotated_and_listed_without_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let (succeeded, text) = tamma(data, &["keys", "list"]);
    assert!(!succeeded && text.contains("tamma keys create"), "{text}");
    assert!(tamma(data, &["keys", "create"]).0);
    let first = keys(data);
    assert!(matches!(first.as_slice(), [(_, true)]), "{first:?}");
    let (succeeded, text) = tamma(data, &["keys", "create"]);
    assert!(!succeeded && text.contains("tamma keys add"), "{text}");
    assert!(tamma(data, &["keys", "rotate"]).0);
    let rotated = keys(data);
    assert_eq!(rotated[0], (first[0].0.clone(), false));
    assert!(rotated[1].1);
    assert!(tamma(data, &["keys", "add"]).0);
    assert!(tamma(data, &["keys", "activate"]).0);
    let activated: Vec<_> = keys(data).into_iter().map(|(_, active)| active).collect();
    assert_eq!(activated, [false, false, true]);
    let (_, text) = tamma(data, &["keys", "list"]);
    let stored = std::fs::read_to_string(data.join("keys.json")).unwrap();
    let stored: serde_json::Value = serde_json::from_str(&stored).unwrap();
    for key in stored["keys"].as_array().unwrap() {
        assert!(!text.contains(key["secret"].as_str().unwrap()), "{text}");
    }
    let (succeeded, text) = tamma(data, &["keys", "activate", "another"]);
    assert!(!succeeded && text.contains("`another` is missing"), "{text}");
}

#[test]
fn separate_processes_refuse_to_start_without_the_shared_keys() {
    let folder = tempfile::tempdir().unwrap();
    let servers = ["--database", "postgres://nowhere/tamma", "--temporal", "127.0.0.1:1"];
    for role in ["serve", "work"] {
        let (succeeded, text) = tamma(folder.path(), &[&[role][..], &servers[..]].concat());
        assert!(!succeeded && text.contains("no encryption keys in"), "{text}");
        assert!(text.contains("copy the key file") && text.contains("--keys"), "{text}");
    }
    assert!(!folder.path().join("keys.json").exists(), "a key of its own would help nobody");
}
