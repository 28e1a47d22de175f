//! `tamma forge` and `tamma project` without a forge to talk to.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::text;

const TOKEN: &str = "ghp_a_token_that_nobody_may_see";

fn tamma(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    command.env_clear().current_dir(folder.path()).args(arguments);
    command.env("TAMMA_DATA", folder.path().join("data"));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    tamma(folder, arguments).output().unwrap()
}

fn add(folder: &TempDir, more: &[&str]) -> Output {
    let first = ["forge", "add", "code", "--kind", "gitea", "--url", "http://127.0.0.1:1"];
    let arguments = [&first[..], &["--token-stdin"], more].concat();
    tamma(folder, &arguments).write_stdin(format!("{TOKEN}\n")).output().unwrap()
}

#[test]
fn a_forge_is_added_with_a_secret_that_is_shown_once() {
    let folder = TempDir::new().unwrap();
    let added = add(&folder, &[]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    let shown = text(&added.stdout);
    assert!(shown.contains("/hooks/forges/code"), "{shown}");
    assert!(shown.contains("Secret (shown once): "), "{shown}");
    assert!(!shown.contains(TOKEN), "{shown}");

    let file = folder.path().join("data/forges/code.yaml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&file).unwrap().contains(TOKEN));

    let again = add(&folder, &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("exists already"), "{}", text(&again.stderr));
    let replaced = add(&folder, &["--replace"]);
    assert!(replaced.status.success(), "{}", text(&replaced.stderr));
    assert!(!text(&replaced.stdout).contains("Secret"), "the secret is kept");
}

#[test]
fn lists_contain_no_credential_and_a_removed_forge_is_gone() {
    let folder = TempDir::new().unwrap();
    assert!(add(&folder, &[]).status.success());
    for arguments in [&["forge", "list"][..], &["forge", "list", "--json"]] {
        let output = run(&folder, arguments);
        let shown = text(&output.stdout);
        assert!(shown.contains("code") && shown.contains("gitea"), "{shown}");
        assert!(!shown.contains(TOKEN) && !shown.contains("tamma_"), "{shown}");
    }
    assert!(run(&folder, &["forge", "remove", "code"]).status.success());
    let output = run(&folder, &["forge", "list", "--json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["forges"].as_array().map(Vec::len), Some(0));
    let missing = run(&folder, &["forge", "check", "code"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("tamma forge add"), "{}", text(&missing.stderr));
}

#[test]
fn a_broken_file_is_reported_hides_no_other_forge_and_can_be_removed() {
    let folder = TempDir::new().unwrap();
    assert!(add(&folder, &[]).status.success());
    let file = folder.path().join("data/forges/old.yaml");
    fs::write(&file, "kind: gitea").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let listed = run(&folder, &["forge", "list"]);
    let shown = text(&listed.stdout);
    assert!(shown.contains("code") && shown.contains("forge `old` are invalid"), "{shown}");
    let listed = run(&folder, &["forge", "list", "--json"]);
    let list: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(list["forges"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["broken"][0]["name"], "old");
    assert_eq!(run(&folder, &["forge", "check", "old"]).status.code(), Some(1));
    assert!(run(&folder, &["forge", "remove", "old"]).status.success());
    assert!(!file.exists());
}

#[test]
fn a_credential_is_no_argument_and_is_not_sent_in_clear_text() {
    let folder = TempDir::new().unwrap();
    let forge = ["forge", "add", "code", "--kind", "gitea", "--url"];
    let token = [&forge[..], &["https://code.example", "--token", TOKEN]].concat();
    assert_eq!(run(&folder, &token).status.code(), Some(2));
    let none = [&forge[..], &["https://code.example"]].concat();
    assert_eq!(run(&folder, &none).status.code(), Some(2));
    let clear = [&forge[..], &["http://code.example", "--token-stdin"]].concat();
    let clear = tamma(&folder, &clear).write_stdin(TOKEN).output().unwrap();
    assert_eq!(clear.status.code(), Some(1));
    assert!(text(&clear.stderr).contains("clear text"), "{}", text(&clear.stderr));
    assert!(!folder.path().join("data/forges").exists());
}

#[test]
fn a_repository_that_cannot_be_read_names_the_forge_to_add() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["project", "add", "https://127.0.0.1:1/acme/shop.git"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    assert!(shown.contains("tamma forge add NAME"), "{shown}");
    assert!(shown.contains("--url https://127.0.0.1"), "{shown}");
}
