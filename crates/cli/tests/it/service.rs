//! `tamma service`, with a `systemctl` that records its calls.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

use crate::support::text;

/// Machine with a user, and maybe systemd.
struct ServiceFixture(TempDir);

impl ServiceFixture {
    fn new(systemctl: Option<&str>) -> Self {
        let machine = Self(TempDir::new().unwrap());
        for folder in ["bin", "home"] {
            fs::create_dir(machine.path().join(folder)).unwrap();
        }
        if let Some(script) = systemctl {
            let program = machine.path().join("bin/systemctl");
            let calls = machine.path().join("calls");
            let script = format!("#!/bin/sh\necho \"$@\" >> '{}'\n{script}\n", calls.display());
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        machine
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn unit(&self) -> PathBuf {
        self.path().join("home/.config/systemd/user/tamma.service")
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path().join("calls")).unwrap_or_default()
    }

    fn run(&self, code: i32, arguments: &[&str]) -> String {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
        command.env_clear().env("PATH", self.path().join("bin"));
        command.env("HOME", self.path().join("home")).env("TAMMA_DATA", self.path().join("data"));
        command.env("ANTHROPIC_API_KEY", "sk-not-a-real-key");
        let output = command.arg("service").args(arguments).output().unwrap();
        let shown = [&output.stdout[..], &output.stderr].map(text).concat();
        assert_eq!(output.status.code(), Some(code), "{shown}");
        shown
    }
}

#[test]
fn a_service_is_installed_started_and_removed() {
    let machine = ServiceFixture::new(Some("exit 0"));
    let installed = machine.run(0, &["install"]);
    assert!(installed.contains("tamma service uninstall"), "{installed}");
    let unit = fs::read_to_string(machine.unit()).unwrap();
    let data = machine.path().join("data");
    assert!(unit.contains(&format!("up --background --data \"{}\"", data.display())), "{unit}");
    assert!(unit.contains("EnvironmentFile=-"), "{unit}");
    assert!(!unit.contains("sk-not-a-real-key"), "{unit}");
    assert!(data.join("tamma.log").exists(), "systemd appends to it");
    let expected =
        "--user show-environment\n--user daemon-reload\n--user enable --now tamma.service\n";
    assert_eq!(machine.calls(), expected);

    machine.run(0, &["uninstall"]);
    assert!(!machine.unit().exists());
    assert!(
        machine.calls().ends_with("--user disable --now tamma.service\n--user daemon-reload\n")
    );
    let again = machine.run(0, &["uninstall"]);
    assert!(again.contains("The service is not installed."), "{again}");
}

#[test]
fn a_machine_without_systemd_is_named_and_left_alone() {
    for (systemctl, expected) in [
        (None, "error: this machine has no systemd\n  help: run `tamma up --detach`"),
        (Some("echo no bus >&2; exit 1"), "error: systemd does not serve your user: "),
    ] {
        let machine = ServiceFixture::new(systemctl);
        let refused = machine.run(1, &["install"]);
        assert!(refused.starts_with(expected), "{refused}");
        assert!(!machine.unit().exists());
        let printed = machine.run(0, &["install", "--print"]);
        assert!(printed.contains("ExecStart=\""), "{printed}");
    }
}
