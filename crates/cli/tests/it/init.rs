//! `tamma init`, as text and JSON.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::text;

/// Simulated machine with git and the agents that a test installs.
struct InitFixture {
    folder: TempDir,
}

impl InitFixture {
    fn new() -> Self {
        let machine = Self { folder: TempDir::new().unwrap() };
        for folder in ["bin", "home", "project"] {
            fs::create_dir(machine.folder.path().join(folder)).unwrap();
        }
        // Only git is linked, so that programs on the real machine have no effect.
        let path = std::env::var_os("PATH").unwrap();
        let git = std::env::split_paths(&path).map(|one| one.join("git")).find(|one| one.is_file());
        std::os::unix::fs::symlink(git.unwrap(), machine.bin().join("git")).unwrap();
        machine
    }

    /// Creates a machine with an empty repository that has these files.
    fn with(files: &[(&str, &str)]) -> Self {
        let machine = Self::new();
        machine.git(&["init", "--quiet", "--initial-branch", "main"]);
        for (name, text) in files {
            fs::write(machine.project().join(name), text).unwrap();
        }
        machine
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// Installs an empty program.
    fn install(&self, name: &str) {
        let file = self.bin().join(name);
        fs::write(&file, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command
            .env_clear()
            .env("PATH", self.bin())
            .env("HOME", self.folder.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(self.project());
        command
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = self.command(self.bin().join("git")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).trim().to_owned()
    }

    fn tamma(&self, arguments: &[&str]) -> Output {
        self.command(assert_cmd::cargo::cargo_bin!("tamma")).args(arguments).output().unwrap()
    }

    /// Runs `tamma init --json`, checks the written file and returns the output.
    fn init(&self) -> Value {
        let output = self.tamma(&["init", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let check = self.tamma(&["config", "check"]);
        assert_eq!(check.status.code(), Some(0), "{check:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn written(&self) -> String {
        fs::read_to_string(self.project().join("tamma.yaml")).unwrap()
    }

    /// Replaces paths and hashes that differ between runs.
    fn normalize(&self, text: &str) -> String {
        let commit = self.git(&["rev-parse", "--short", "HEAD"]);
        let folder = self.folder.path().canonicalize().unwrap();
        let text = text.replace(&folder.display().to_string(), "/here");
        text.replace(&self.folder.path().display().to_string(), "/here").replace(&commit, "1234567")
    }
}

/// Gates in the JSON output: name, kind and command.
fn gates(answer: &Value) -> Vec<(&str, &str, &str)> {
    answer["gates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gate| {
            let part = |key: &str| gate[key].as_str().unwrap();
            (part("name"), part("kind"), part("command"))
        })
        .collect()
}

#[test]
fn an_empty_repository_gets_a_first_commit_and_install_hints() {
    let machine = InitFixture::with(&[]);
    let output = machine.tamma(&["init"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_snapshot!(machine.normalize(text(&output.stdout)));
    assert_snapshot!(machine.written());
    assert_eq!(machine.tamma(&["config", "check"]).status.code(), Some(0));
    assert_eq!(
        machine.git(&["log", "--format=%s|%an|%ae", "--name-only"]),
        "chore: set up Tamma|Tamma|tamma@localhost\n\ntamma.yaml"
    );
    // The identity is not written to the configuration.
    assert!(!fs::read_to_string(machine.project().join(".git/config")).unwrap().contains("Tamma"));
}

#[test]
fn only_the_file_is_committed_with_the_configured_identity() {
    let machine = InitFixture::with(&[("Cargo.toml", ""), ("staged", "x")]);
    machine.git(&["config", "user.name", "Ann"]);
    machine.git(&["config", "user.email", "ann@example.org"]);
    machine.git(&["add", "staged"]);
    let answer = machine.init();
    assert_eq!(answer["commit"], machine.git(&["rev-parse", "--short", "HEAD"]));
    assert_eq!(machine.git(&["log", "--format=%an", "--name-only"]), "Ann\n\ntamma.yaml");
    assert_eq!(machine.git(&["status", "--porcelain"]), "A  staged\n?? Cargo.toml");
}

#[test]
fn a_repository_with_a_commit_gets_no_new_commit() {
    let machine = InitFixture::with(&[]);
    machine.init();
    fs::remove_file(machine.project().join("tamma.yaml")).unwrap();
    assert_eq!(machine.init()["commit"], Value::Null);
    assert_eq!(machine.git(&["rev-list", "--count", "HEAD"]), "1");
}

#[test]
fn a_rust_repository_with_opencode_is_ready() {
    let machine = InitFixture::with(&[("Cargo.toml", "[package]\nname = \"a\"\n")]);
    machine.install("opencode");
    let output = machine.tamma(&["init"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_snapshot!(machine.normalize(text(&output.stdout)));
    assert_snapshot!(machine.written());
    let check = machine.tamma(&["config", "check"]);
    assert_snapshot!(text(&check.stdout), @"tamma.yaml is valid: 12 values set, 171 defaults");
}

#[test]
fn a_node_repository_uses_its_scripts_as_gates() {
    let package = r#"{"scripts": {"test": "vitest", "lint": "eslint ."}, "devDependencies": {"vitest": "3"}}"#;
    let machine = InitFixture::with(&[("package.json", package), ("pnpm-lock.yaml", "")]);
    let answer = machine.init();
    assert_eq!(
        gates(&answer),
        [("test", "tests", "pnpm run test"), ("lint", "lint", "pnpm run lint"),]
    );
    assert_eq!(answer["setup"]["command"], "pnpm install --frozen-lockfile");
    assert_eq!(answer["languages"], json!([{ "name": "JavaScript", "because": "package.json" }]));
}

#[test]
fn a_python_repository_uses_its_configured_tools_as_gates() {
    let pyproject =
        "[project]\nname = \"a\"\n[tool.pytest.ini_options]\n[tool.ruff]\n[tool.mypy]\n";
    let machine = InitFixture::with(&[("pyproject.toml", pyproject)]);
    assert_eq!(
        gates(&machine.init()),
        [
            ("test", "tests", "python3 -m pytest --junitxml \"$REPORT\""),
            (
                "lint",
                "lint",
                "python3 -m ruff check --output-format sarif --output-file \"$REPORT\" ."
            ),
            ("types", "types", "python3 -m mypy ."),
        ]
    );
}

#[test]
fn the_preferred_agent_is_used_and_its_key_is_not_passed_on() {
    let machine = InitFixture::with(&[]);
    machine.install("opencode");
    machine.install("gemini");
    machine.install("codex-acp");
    let mut command = machine.command(assert_cmd::cargo::cargo_bin!("tamma"));
    command.args(["init", "--json"]).env("OPENAI_API_KEY", "hush");
    let output = command.output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["agent"], "codex");
    let names: Vec<_> =
        answer["agents"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["codex", "opencode", "gemini"]);
    assert_eq!(answer["missing"].as_array().unwrap().len(), 1);
    let written = machine.written();
    // The key stays with the worker, whose gateway uses it.
    assert!(!written.contains("OPENAI_API_KEY") && !written.contains("hush"), "{written}");
    assert_eq!(machine.tamma(&["config", "check"]).status.code(), Some(0));
}

#[test]
fn an_agent_of_the_registry_is_defined_and_used() {
    let machine = InitFixture::with(&[]);
    machine.install("qwen");
    let answer = machine.init();
    assert_eq!(answer["agent"], "qwen-code");
    let shown = machine.tamma(&["config", "show", "--json"]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("qwen") && shown.contains("--acp"), "{shown}");
    let written = machine.written();
    assert!(
        written.contains("    command: qwen\n") && written.contains("ACP registry"),
        "{written}"
    );
    // A built-in agent is preferred, and the other one stays available.
    machine.install("gemini");
    let output = machine.tamma(&["init", "--force", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["agent"], "gemini");
    assert!(machine.written().contains("  qwen-code:\n"), "{}", machine.written());
    assert_eq!(machine.tamma(&["config", "check"]).status.code(), Some(0));
}

#[test]
fn claude_without_its_adapter_gets_an_install_hint() {
    let machine = InitFixture::with(&[]);
    machine.install("claude");
    let output = machine.tamma(&["init"]);
    let message = text(&output.stdout);
    assert!(message.contains("npm install -g @agentclientprotocol/claude-agent-acp"), "{message}");
    assert!(message.contains("adapter for `claude`"), "{message}");
    assert!(!message.contains("opencode-ai"), "{message}");
}

#[test]
fn an_existing_file_is_kept_unless_forced() {
    let machine = InitFixture::with(&[("tamma.yaml", "budget: {task_usd: 1}\n")]);
    let output = machine.tamma(&["init"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("tamma.yaml already exists"), "{output:?}");
    assert!(text(&output.stderr).contains("--force"), "{output:?}");
    assert_eq!(machine.written(), "budget: {task_usd: 1}\n");
    assert_eq!(machine.tamma(&["init", "--force"]).status.code(), Some(0));
    assert!(machine.written().starts_with("# Tamma configuration"));
}

#[test]
fn a_folder_outside_a_repository_gets_a_hint() {
    let machine = InitFixture::new();
    let output = machine.tamma(&["init"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("is not in a git repository") && message.contains("`git init`"),
        "{message}"
    );
    assert!(!machine.project().join("tamma.yaml").exists());
}

#[test]
fn a_missing_git_is_reported() {
    let machine = InitFixture::with(&[]);
    fs::remove_file(machine.bin().join("git")).unwrap();
    let message = text(&machine.tamma(&["init"]).stderr).to_owned();
    assert!(message.contains("cannot find `git` on PATH"), "{message}");
}

#[test]
fn the_file_is_written_to_the_root_of_the_repository() {
    let machine = InitFixture::with(&[("Cargo.toml", "")]);
    let below = machine.project().join("src");
    fs::create_dir(&below).unwrap();
    let folder: &Path = &below;
    let mut command = machine.command(assert_cmd::cargo::cargo_bin!("tamma"));
    let output = command
        .current_dir(machine.folder.path())
        .args(["init", "--json", "--folder"])
        .arg(folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(machine.written().contains("cargo test"));
    let output = machine.tamma(&["init", "--folder", "nowhere"]);
    assert_eq!(text(&output.stderr), "error: folder not found: nowhere\n");
}

#[test]
fn a_failing_commit_hook_is_reported() {
    let machine = InitFixture::with(&[]);
    let hook = machine.project().join(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\necho not today >&2\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let output = machine.tamma(&["init"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("cannot commit it") && message.contains("not today"), "{message}");
}
