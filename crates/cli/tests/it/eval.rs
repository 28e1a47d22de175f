//! `tamma eval` without agents: refusals, the announced cost, and the check of tasks. `just lab eval` runs
//! whole evaluations.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;

fn eval(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TAMMA_") {
            command.env_remove(name);
        }
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let command = command.arg("eval").args(arguments).env("PATH", path).current_dir(folder);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
    (output.status.code(), text)
}

#[test]
fn unknown_agents_tasks_and_sets_are_refused_before_anything_starts() {
    let folder = TempDir::new().unwrap();
    for (arguments, expected) in [
        (["--agent", "delphi"], "use oracle, idle or one of: claude-code, codex"),
        (["--only", "off-by-two"], "unknown task `off-by-two`; use one of: ambiguous-request"),
        (["--set", "finisher"], "unknown set `finisher`; use `starter`"),
        (["--arms", "round"], "invalid value 'round'"),
    ] {
        let (code, text) = eval(folder.path(), &arguments);
        assert_ne!(code, Some(0), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let (_, text) = eval(folder.path(), &["--agent", "oracle", "--model", "large"]);
    assert!(text.contains("the agent `oracle` has no model"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn cost_is_announced_and_confirmed_before_a_real_agent_starts() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("codex-acp");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["--agent", "codex", "--model", "gpt-5.5", "--trials", "2", "--max-usd", "40"];
    let (code, text) = eval(folder.path(), &[&arguments[..], &["--arms", "loop,bare"]].concat());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("13 tasks, 2 trials, arms loop and bare: 52 cases, 0 done"), "{text}");
    assert!(text.contains("agent codex, model gpt-5.5"), "{text}");
    assert!(text.contains("stops at $40 (--max-usd)"), "{text}");
    assert!(text.contains("pass --yes"), "{text}");
    // A limit with which no case could run is refused.
    let small = ["--agent", "codex", "--model", "gpt-5.5", "--max-usd", "1", "--yes"];
    let (code, text) = eval(folder.path(), &small);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("--max-usd $1 leaves"), "{text}");
    let output = folder.path().join("eval-starter-codex");
    assert!(!output.join("data").exists(), "no service was started");
    // The folder belongs to this agent and model.
    let other = ["--agent", "codex", "--output", output.to_str().unwrap()];
    let (_, text) = eval(folder.path(), &other);
    assert!(text.contains("--set starter --agent codex --model gpt-5.5"), "{text}");
}

#[test]
fn a_known_patch_passes_and_wrong_patches_are_rejected() {
    let folder = TempDir::new().unwrap();
    let (code, text) = eval(folder.path(), &["--check", "--only", "off-by-one"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("✓ off-by-one oracle: gates pass, hidden tests pass"), "{text}");
    assert!(text.contains("✓ off-by-one only-has-next: gates pass, hidden tests fail"), "{text}");
    assert!(text.ends_with("1 of 1 tasks ok, 5 patches\n"), "{text}");
}
