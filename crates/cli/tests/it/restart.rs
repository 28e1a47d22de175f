//! Tasks across restarts and crashes of `tamma up`, with private PostgreSQL and Temporal servers, real
//! git and a scripted agent.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::sample::{sample_plan, sample_work};
use tempfile::TempDir;

use crate::machine::Machine;

/// Agent that plans a change of this many files and makes it after the steps in `first`.
fn script(files: usize, first: Vec<AgentStep>) -> Script {
    let plan = sample_plan(files);
    let steps: Vec<_> = first.into_iter().chain(sample_work(&plan)).collect();
    Script::planned(plan, steps)
}

#[test]
fn a_task_still_waits_for_a_person_after_a_restart() {
    let machine = Machine::new(&script(7, Vec::new()));
    let mut up = machine.up();
    let asked = machine.run(3, &["task", "add", "Greet Cy", "--watch", "--until-asked"]);
    assert!(asked.contains("medium-risk plan needs approval"), "{asked}");
    let task = machine.json(&["inbox"])["tasks"][0]["id"].as_str().unwrap().to_owned();
    assert!(machine.processes().len() > 1, "PostgreSQL and Temporal are listed");

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
    let away = machine.run(1, &["inbox"]);
    assert!(away.contains("start it with `tamma up`"), "{away}");

    let mut up = machine.up();
    let waits = machine.json(&["task", "show", &task]);
    assert_eq!(waits["state"], "awaiting_approval");
    let hash = waits["plan"]["hash"].as_str().unwrap();
    // An approval of a replaced plan is refused.
    let stale = machine.run(1, &["approve", &task, "--plan", "0123456789ab", "--as", "Ada"]);
    let replaced = format!("plan {} has replaced plan 0123456789ab", &hash[..12]);
    assert!(stale.contains(&replaced) && stale.contains("Read the new plan"), "{stale}");
    assert_eq!(machine.json(&["task", "show", &task])["state"], "awaiting_approval");

    machine.run(0, &["approve", &task, "--plan", &hash[..12], "--as", "Ada"]);
    let watched = machine.run(0, &["task", "watch", &task]);
    assert!(watched.contains("completed in"), "{watched}");
    assert_eq!(machine.commits(&task), ["Greet Cy"]);
    let history = machine.run(0, &["task", "history", &task]);
    let granted: Vec<_> = history.lines().filter(|it| it.contains("approval granted")).collect();
    let how = "(medium risk) by Ada [server token, API]";
    assert!(matches!(granted[..], [line] if line.ends_with(how)), "{history}");
    let verified = machine.run(0, &["audit", "verify"]);
    assert!(verified.contains(" 0 entries not covered, 0 broken"), "{verified}");
    let verified = machine.json(&["audit", "verify", &task]);
    assert_eq!(verified["intact"], true);
    assert_eq!(verified["histories"][0]["task"], task);

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
}

#[test]
fn a_killed_run_is_repeated_exactly_once() {
    // The agent reports through the pipe that it runs, then waits for the file.
    let aside = TempDir::new().unwrap();
    let (here, go) = (aside.path().join("here"), aside.path().join("go"));
    pipe(&here);
    let first = vec![
        AgentStep::WriteUnasked { path: here.clone(), content: "here\n".to_owned() },
        AgentStep::AwaitFile(go.clone()),
    ];
    let machine = Machine::new(&script(1, first));
    let mut up = machine.up();
    let added = machine.json(&["task", "add", "Greet Cy"]);
    let task = added["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(fs::read_to_string(&here).unwrap(), "here\n");
    assert_eq!(up.signal(Signal::KILL).signal(), Some(9));

    let mut up = machine.up();
    // The run is restarted, and this time it can finish.
    assert_eq!(fs::read_to_string(&here).unwrap(), "here\n");
    assert_eq!(agents(&machine).len(), 1, "the first agent is stopped before the second starts");
    fs::write(&go, "").unwrap();
    let watched = machine.run(0, &["task", "watch", &task]);
    assert!(watched.contains("completed in"), "{watched}");
    assert_eq!(machine.commits(&task), ["Greet Cy"]);
    assert_eq!(agents(&machine), Vec::<String>::new());

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
}

#[test]
fn a_second_up_registers_its_repository_and_tasks_use_the_current_one() {
    let machine = Machine::new(&script(7, Vec::new()));
    let mut up = machine.up();
    // Another repository with the same folder name and without commits.
    let name = machine.repository.path().file_name().unwrap().to_str().unwrap();
    let (other, third) = (machine.path("other").join(name), machine.path("third"));
    for folder in [&other, &third] {
        machine.repository.git(&["init", "--quiet", folder.to_str().unwrap()]).unwrap();
    }
    let run_in = |folder: &Path, code: i32, arguments: &[&str]| {
        let output = machine.command(arguments).current_dir(folder).output().unwrap();
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        text
    };
    let joined = run_in(&other, 0, &["up"]);
    assert!(joined.contains("Tamma is already up at http://127.0.0.1:"), "{joined}");
    assert!(joined.contains(&format!("Project {name}-2 is now registered.")), "{joined}");
    assert!(joined.contains("! repository: no commit yet"), "{joined}");
    let again = run_in(machine.repository.path(), 0, &["up"]);
    assert!(again.contains(&format!("Project {name} is already registered.")), "{again}");

    let project = |folder: &Path| -> Value {
        let added = run_in(folder, 0, &["task", "add", "Greet Cy", "--json"]);
        serde_json::from_str::<Value>(&added).unwrap()["task"]["project"].clone()
    };
    let mine = project(machine.repository.path());
    let theirs = project(&other);
    assert_ne!(mine, theirs);
    // Alerts and the chat use the project of the folder too.
    let tested = machine.command(&["alert", "test"]).current_dir(&other).output().unwrap();
    let tested = String::from_utf8(tested.stderr).unwrap();
    assert!(!tested.contains("Several projects are registered"), "{tested}");
    let mut chat = machine.command(&["chat"]);
    chat.current_dir(&other).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut chat = chat.spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"fix the --json option\nyes\n").unwrap();
    let chat = String::from_utf8(chat.wait_with_output().unwrap().stdout).unwrap();
    let tasks = machine.json(&["task", "list"])["tasks"].as_array().unwrap().clone();
    let added = tasks.iter().find(|task| task["type"] == "bugfix");
    assert_eq!(added.map(|task| &task["project"]), Some(&theirs), "{chat}");
    assert_eq!(mine, project(machine.repository.path()));
    let nowhere = run_in(&third, 1, &["task", "add", "Greet Cy"]);
    assert!(
        nowhere.contains("is not a project yet\n  help: register it by running `tamma up`"),
        "{nowhere}"
    );

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
}

/// Agent processes of a machine.
fn agents(machine: &Machine) -> Vec<String> {
    let mut all = machine.processes();
    all.retain(|process| process.contains("scripted-agent"));
    all
}

/// Creates a named pipe. Opening it for reading blocks until a writer opens it.
fn pipe(path: &Path) {
    let made = assert_cmd::Command::new("mkfifo").arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}
