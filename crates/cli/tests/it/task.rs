//! Commands that use a server, without one.

use std::net::TcpListener;
use std::process::Output;

use assert_cmd::Command;
use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::text;

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    command.env_clear().current_dir(folder.path()).env("TAMMA_DATA", folder.path());
    command.env("TAMMA_PERSON", "Ada").args(arguments).output().unwrap()
}

/// URL where nothing listens.
fn nowhere() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}")
}

#[test]
fn an_unreachable_server_is_reported_with_a_fix() {
    let (folder, url) = (TempDir::new().unwrap(), nowhere());
    for arguments in [
        &["task", "list"][..],
        &["task", "add", "Greet"],
        &["inbox"],
        &["approve", "1a2b3c4d", "--plan", "01234567"],
        &["task", "watch", "0192a000-0000-7000-8000-000000000001"],
        &["task", "log", "0192a000-0000-7000-8000-000000000001"],
        &["task", "log", "0192a000-0000-7000-8000-000000000001", "--follow"],
        &["task", "bundle", "0192a000-0000-7000-8000-000000000001"],
    ] {
        let output = run(&folder, &[arguments, &["--server", &url]].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(text(&output.stdout), "");
        let message = text(&output.stderr);
        let start = format!(
            "error: cannot reach the Tamma server at {url}: connection refused\n  help: start it with"
        );
        assert!(message.starts_with(&start), "{message}");
    }
}

#[test]
fn errors_are_available_as_json() {
    let (folder, url) = (TempDir::new().unwrap(), nowhere());
    let output = run(&folder, &["task", "list", "--json", "--server", &url]);
    assert_eq!(output.status.code(), Some(1));
    let problem: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(problem["type"], "tamma:unreachable");
}

#[test]
fn the_server_is_found_through_its_endpoint_file() {
    let (folder, url) = (TempDir::new().unwrap(), nowhere());
    let file = serde_json::json!({ "url": url, "pid": 1 });
    std::fs::write(folder.path().join("server.json"), file.to_string()).unwrap();
    let output = run(&folder, &["task", "list"]);
    assert!(text(&output.stderr).contains(&url), "{}", text(&output.stderr));
}

#[test]
fn an_invalid_server_url_is_refused() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["inbox", "--server", "localhost:8622"]);
    assert_snapshot!(text(&output.stderr), @"
    error: invalid server URL `localhost:8622`
      help: use a form such as http://127.0.0.1:8622
    ");
}

#[test]
fn usage_errors_are_reported_without_a_server() {
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
fn the_reference_lists_every_command() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["help-reference"]);
    let reference = text(&output.stdout);
    for name in ["task add", "task watch", "task log", "approve", "answer", "inbox", "config check"]
    {
        assert!(reference.contains(&format!("`tamma {name}`")), "{name}");
    }
    assert!(!reference.contains("help-reference"), "hidden commands are not listed");
}
