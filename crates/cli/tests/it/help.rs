//! Help texts, as documented.

use assert_cmd::Command;
use insta::assert_snapshot;

fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    let output = command.env_clear().args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn commands_are_listed_in_groups() {
    let text = help(&["--help"]);
    assert_eq!(text, help(&["help"]));
    assert_snapshot!(text, @"");
}

#[test]
fn details_precede_the_arguments() {
    assert_snapshot!(help(&["approve", "--help"]), @"");
}

#[test]
fn connection_options_have_their_own_heading() {
    assert_snapshot!(help(&["task", "add", "--help"]), @"");
}

#[test]
fn every_command_describes_its_arguments_on_one_line_each() {
    for command in ["init", "up", "answer", "modify", "serve", "work", "doctor", "mcp"] {
        let text = help(&[command, "--help"]);
        assert!(text.contains("\n  -h, --help ") && text.contains("  Print help\n"), "{text}");
    }
}
