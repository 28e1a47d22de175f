//! The commands that ask a server, as people and programs meet them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;
use std::process::Output;

use assert_cmd::Command;
use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    command.env_clear().current_dir(folder.path()).env("TAMMA_DATA", folder.path());
    command.env("TAMMA_PERSON", "Ada").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// An address at which nobody answers.
fn nowhere() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}")
}

#[test]
fn a_server_that_does_not_answer_is_told_with_the_way_to_start_one() {
    let (folder, url) = (TempDir::new().unwrap(), nowhere());
    for arguments in [
        &["task", "list"][..],
        &["task", "add", "Greet"],
        &["inbox"],
        &["approve", "1a2b3c4d", "--plan", "01234567"],
        &["task", "watch", "0192a000-0000-7000-8000-000000000001"],
        &["task", "log", "0192a000-0000-7000-8000-000000000001"],
        &["task", "log", "0192a000-0000-7000-8000-000000000001", "--follow"],
    ] {
        let output = run(&folder, &[arguments, &["--server", &url]].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(text(&output.stdout), "");
        let said = text(&output.stderr);
        let start = format!("error: No Tamma server answers at {url}: start one with `tamma up`");
        assert!(said.starts_with(&start), "{said}");
    }
}

#[test]
fn programs_are_told_in_json() {
    let (folder, url) = (TempDir::new().unwrap(), nowhere());
    let output = run(&folder, &["task", "list", "--json", "--server", &url]);
    assert_eq!(output.status.code(), Some(1));
    let problem: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(problem["type"], "tamma:unreachable");
}

#[test]
fn the_server_is_the_one_that_up_has_written_down() {
    let (folder, url) = (TempDir::new().unwrap(), nowhere());
    let file = serde_json::json!({ "url": url, "pid": 1 });
    std::fs::write(folder.path().join("server.json"), file.to_string()).unwrap();
    let output = run(&folder, &["task", "list"]);
    assert!(text(&output.stderr).contains(&url), "{}", text(&output.stderr));
}

#[test]
fn an_address_that_is_none_is_told() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["inbox", "--server", "localhost:8622"]);
    assert_snapshot!(text(&output.stderr), @"
    error: `localhost:8622` is not the address of a server: write it like http://127.0.0.1:8622
    ");
}

#[test]
fn what_is_wrong_with_a_command_is_told_before_anybody_is_asked() {
    let folder = TempDir::new().unwrap();
    for arguments in [
        &["reject", "1a2b"][..],
        &["cancel", "1a2b"],
        &["task", "add"],
        &["task", "add", "x", "--type", "miracle"],
        &["task", "add", "x", "--until-asked"],
        &["answer", "1a2b", "perhaps"],
        &["task", "log", "1a2b", "--kinds", "sung"],
        &["task", "log", "1a2b", "--run", "four"],
        &["task", "log", "1a2b", "--transcript"],
        &["retry", "1a2b", "--grant-usd", "-3"],
    ] {
        assert_eq!(run(&folder, arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_reference_names_every_command() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["help-reference"]);
    let reference = text(&output.stdout);
    for name in ["task add", "task watch", "task log", "approve", "answer", "inbox", "config check"]
    {
        assert!(reference.contains(&format!("`tamma {name}`")), "{name}");
    }
    assert!(!reference.contains("help-reference"), "what is hidden stays hidden");
}
