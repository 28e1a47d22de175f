//! `tamma try` and `tamma "…"`: from nothing to a decision in one command.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tamma_testkit::agent::Script;
use tamma_testkit::sample::sample_script;
use tempfile::TempDir;

use crate::machine::{Machine, StopOnDrop};
use crate::support::text;

/// Finds a program of the real machine.
fn real_program(name: &str) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.is_file()).unwrap()
}

#[test]
fn the_example_waits_for_an_approval_and_repairs_its_first_attempt() {
    let machine = Machine::new(&Script::default());
    let folder = machine.path("example");
    let _stop = StopOnDrop(&machine);
    let mut command = machine.command(&["try", folder.to_str().unwrap()]);
    // The demo agent is `tamma` itself, and the machine may have no sandbox.
    let output = command.env("TAMMA_ENGINES_SANDBOX", "off").output().unwrap();
    let shown = [&output.stdout[..], &output.stderr].map(text).concat();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("The plan is waiting for your approval"), "{shown}");
    assert!(shown.contains("/hello?code=") && shown.contains("&to=/tasks/"), "{shown}");
    assert!(shown.contains("it follows a script and uses no model"), "{shown}");

    let task = machine.json(&["inbox"])["tasks"][0].clone();
    assert_eq!(task["title"], "Greet people by name");
    let id = task["id"].as_str().unwrap();
    let waits = machine.json(&["task", "show", id]);
    assert_eq!(waits["state"], "awaiting_approval");
    let approach = waits["plan"]["content"]["approach"].as_str().unwrap();
    assert!(approach.starts_with("Demo agent: it follows a script"), "{approach}");
    machine.run(0, &["approve", id, "--plan", waits["plan"]["hash"].as_str().unwrap()]);
    let watched = machine.run(0, &["task", "watch", id]);
    assert!(watched.contains("completed in"), "{watched}");
    let done = machine.json(&["task", "show", id]);
    let attempts = done["runs"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{done:#}");
    assert_eq!(attempts[0]["ending"], "gates_failed", "{done:#}");
    let branch = done["branch"].as_str().unwrap();
    assert!(branch.starts_with("tamma/") && branch.ends_with("-greet-people-by-name"), "{branch}");
    let file = format!("{branch}:greet.sh");
    let git = Command::new("git").arg("-C").arg(&folder).args(["show", &file]).output().unwrap();
    assert!(text(&git.stdout).contains("Hello, ${1:-world}!"), "{git:?}");

    // The folder has content now.
    let again = machine.run(1, &["try", folder.to_str().unwrap()]);
    assert!(again.contains("is not empty\n  help: name a new folder"), "{again}");
    machine.run(0, &["down"]);
    assert_eq!(machine.processes(), Vec::<String>::new());
}

#[test]
fn a_request_is_started_added_and_followed_to_its_decision() {
    let machine = Machine::new(&sample_script(7));
    let _stop = StopOnDrop(&machine);
    let asked = machine.run(3, &["Greet Cy as well"]);
    assert!(asked.contains("started Tamma in the background"), "{asked}");
    assert!(asked.contains(": Greet Cy as well\nhttp://127.0.0.1:"), "{asked}");
    assert!(asked.contains("medium-risk plan needs approval"), "{asked}");
    assert!(
        asked.contains("tamma approve "),
        "without a terminal, the commands are shown: {asked}"
    );

    let waits = machine.json(&["inbox"])["tasks"][0].clone();
    let (id, short) = (waits["id"].as_str().unwrap(), waits["short"].as_str().unwrap());
    // The first digits of the ID that lists show are enough.
    assert_eq!(machine.json(&["task", "show", &short[..4]])["id"], id);
    let inbox = machine.run(0, &["inbox"]);
    assert!(inbox.contains("approve, reject, revise-plan, change-task"), "{inbox}");
    let listed = machine.run(0, &["task", "list"]);
    assert!(listed.contains("medium-risk plan needs approval"), "{listed}");
    // A plan is not accepted.
    let refused = machine.run(1, &["accept", id, "--commit", "0123456789ab"]);
    assert!(refused.contains("error: "), "{refused}");
    let revised = machine.run(0, &["revise-plan", id, "Fewer files."]);
    assert!(revised.contains("plan sent back for revision"), "{revised}");

    // A second request uses the running Tamma.
    let asked = machine.run(3, &["do", "Greet", "--criterion", "Cy is greeted."]);
    assert!(!asked.contains("started Tamma"), "{asked}");
    machine.run(0, &["down"]);
    assert_eq!(machine.processes(), Vec::<String>::new());
}

#[test]
fn a_change_under_review_is_accepted_and_not_approved() {
    let config = "ceremony:\n  low: { human_review: true }\n";
    let machine = Machine::with_config(&sample_script(1), config);
    let _stop = StopOnDrop(&machine);
    machine.run(3, &["Greet Cy as well"]);
    let id = machine.json(&["inbox"])["tasks"][0]["id"].as_str().unwrap().to_owned();
    let detail = machine.json(&["task", "show", &id]);
    let (plan, commit) = (&detail["plan"]["hash"], detail["commit"].as_str().unwrap());
    let refused = machine.run(1, &["approve", &id, "--plan", plan.as_str().unwrap()]);
    assert!(refused.contains("then accept it with `tamma accept "), "{refused}");
    let unread = machine.run(1, &["accept", &id]);
    assert!(unread.contains(&format!("--commit {}", &commit[..12])), "{unread}");
    let accepted = machine.run(0, &["accept", &id, "--commit", &commit[..12]]);
    assert!(accepted.contains("change accepted by Grace"), "{accepted}");
    machine.run(0, &["task", "watch", &id]);
    machine.run(0, &["down"]);
}

/// Runs `tamma` in a repository on a machine that has only git.
fn run_with_git_only(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let bin = folder.join("bin");
    let project = folder.join("project");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(real_program("git"), bin.join("git")).unwrap();
        let git = Command::new("git").args(["init", "--quiet"]).arg(&project).output().unwrap();
        assert!(git.status.success(), "{git:?}");
    }
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    command.env_clear().env("PATH", &bin).env("HOME", folder).current_dir(&project);
    command.env("TAMMA_DATA", folder.join("data")).env("TAMMA_PERSON", "Ada");
    let output = command.args(arguments).output().unwrap();
    let shown = [&output.stdout[..], &output.stderr].map(text).concat();
    (output.status.code(), shown)
}

#[test]
fn a_request_without_an_agent_changes_nothing_and_says_how_to_get_one() {
    let folder = TempDir::new().unwrap();
    let (code, shown) = run_with_git_only(folder.path(), &["Fix the typo"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("no coding agent is installed"), "{shown}");
    assert!(
        shown.contains("npm install -g @agentclientprotocol/codex-acp, then run `codex login`")
    );
    assert!(shown.contains("or run `tamma try`"), "{shown}");
    assert!(!folder.path().join("project/tamma.yaml").exists());
    assert!(!folder.path().join("data").exists(), "nothing was started");
}

#[test]
fn unknown_commands_name_the_command_that_was_meant() {
    let folder = TempDir::new().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["task", "cancel", "1a2b"], "tip: use `tamma cancel`"),
        (
            &["modify", "1a2b", "Shorter."],
            "tip: use `tamma revise-plan TASK TEXT, or tamma change-task",
        ),
        (&["list"], "tip: use `tamma task list`"),
        (&["start"], "tip: use `tamma up --detach`"),
        (&["flurb"], "unrecognized subcommand 'flurb'"),
    ];
    for (arguments, expected) in cases {
        let (code, shown) = run_with_git_only(folder.path(), arguments);
        assert_eq!(code, Some(2), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
}
