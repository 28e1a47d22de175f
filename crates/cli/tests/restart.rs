//! Everything stops and starts again, and the tasks go on: with the private PostgreSQL and Temporal,
//! real git, and an agent that follows a script.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod machine;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tamma_core::plan::{Action, FileChange, Plan};
use tamma_testkit::agent::{Case, Script, Step};
use tempfile::TempDir;

use crate::machine::Machine;

/// A plan that touches so many files.
fn plan(files: usize) -> Plan {
    let change = |number| FileChange {
        path: if number == 0 { "names.txt".to_owned() } else { format!("names/{number}.txt") },
        action: if number == 0 { Action::Modify } else { Action::Create },
        description: "one more name".to_owned(),
        estimated_lines: 1,
    };
    Plan {
        summary: "Cy is greeted".to_owned(),
        approach: "Add the name to the list.".to_owned(),
        file_changes: (0..files).map(change).collect(),
        testing_strategy: "The check counts the greetings.".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

/// An agent that plans a change of so many files and makes it, after some steps of its own.
fn script(files: usize, first: Vec<Step>) -> Script {
    let plan = plan(files);
    let write = |change: &FileChange| Step::Write {
        path: change.path.clone().into(),
        content: "ann\nbo\ncy\n".to_owned(),
    };
    let work = first.into_iter().chain(plan.file_changes.iter().map(write)).collect();
    let case = |when: &str, steps: Vec<Step>| Case { when: when.to_owned(), unless: None, steps };
    Script {
        cases: vec![
            case("You are the planner", vec![Step::Plan(Box::new(plan))]),
            case("You are implementing", work),
        ],
        ..Script::default()
    }
}

#[test]
fn a_task_that_waits_for_a_person_still_waits_after_everything_was_stopped() {
    let machine = Machine::new(&script(7, Vec::new()));
    let mut up = machine.up();
    let asked = machine.said(3, &["task", "add", "Greet Cy", "--watch", "--until-asked"]);
    assert!(asked.contains("a plan of medium risk needs approval"), "{asked}");
    let task = machine.json(&["inbox"])["tasks"][0]["id"].as_str().unwrap().to_owned();
    assert!(machine.processes().len() > 1, "PostgreSQL and Temporal are seen");

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
    let away = machine.said(1, &["inbox"]);
    assert!(away.contains("start one with `tamma up`"), "{away}");

    let mut up = machine.up();
    let waits = machine.json(&["task", "show", &task]);
    assert_eq!(waits["state"], "awaiting_approval");
    let hash = waits["plan"]["hash"].as_str().unwrap();
    // Nobody approves what they have not seen.
    let stale = machine.said(1, &["approve", &task, "--plan", "0123456789ab", "--as", "Ada"]);
    let why = format!("The plan is now {}, not 0123456789ab", &hash[..12]);
    assert!(stale.contains(&why) && stale.contains("Look at the new plan"), "{stale}");
    assert_eq!(machine.json(&["task", "show", &task])["state"], "awaiting_approval");

    machine.said(0, &["approve", &task, "--plan", &hash[..12], "--as", "Ada"]);
    let watched = machine.said(0, &["task", "watch", &task]);
    assert!(watched.contains("Greet Cy is completed"), "{watched}");
    assert_eq!(machine.commits(&task), ["Greet Cy"]);
    let history = machine.said(0, &["task", "history", &task]);
    let granted: Vec<_> = history.lines().filter(|it| it.contains("approval granted")).collect();
    assert!(matches!(granted[..], [line] if line.ends_with("(medium risk) by Ada")), "{history}");

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
}

#[test]
fn a_run_that_was_killed_with_everything_else_is_done_again_and_once() {
    // The agent says in the pipe that it is there, then waits for the file.
    let aside = TempDir::new().unwrap();
    let (here, go) = (aside.path().join("here"), aside.path().join("go"));
    pipe(&here);
    let first = vec![
        Step::WriteUnasked { path: here.clone(), content: "here\n".to_owned() },
        Step::AwaitFile(go.clone()),
    ];
    let machine = Machine::new(&script(1, first));
    let mut up = machine.up();
    let added = machine.json(&["task", "add", "Greet Cy"]);
    let task = added["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(fs::read_to_string(&here).unwrap(), "here\n");
    assert_eq!(up.signal(Signal::KILL).signal(), Some(9));

    let mut up = machine.up();
    // It is started again, and this time it may go on.
    assert_eq!(fs::read_to_string(&here).unwrap(), "here\n");
    assert_eq!(agents(&machine).len(), 1, "the first one is gone before the second one works");
    fs::write(&go, "").unwrap();
    let watched = machine.said(0, &["task", "watch", &task]);
    assert!(watched.contains("Greet Cy is completed"), "{watched}");
    assert_eq!(machine.commits(&task), ["Greet Cy"]);
    assert_eq!(agents(&machine), Vec::<String>::new());

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
}

#[test]
fn a_second_up_registers_its_repository_and_a_task_is_for_the_one_you_are_in() {
    let machine = Machine::new(&script(7, Vec::new()));
    let mut up = machine.up();
    // Another repository whose folder has the same name, without a commit.
    let name = machine.repository.path().file_name().unwrap().to_str().unwrap();
    let (other, third) = (machine.path("other").join(name), machine.path("third"));
    for folder in [&other, &third] {
        machine.repository.git(&["init", "--quiet", folder.to_str().unwrap()]).unwrap();
    }
    let said = |folder: &Path, code: i32, arguments: &[&str]| {
        let output = machine.command(arguments).current_dir(folder).output().unwrap();
        let said = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    };
    let joined = said(&other, 0, &["up"]);
    assert!(joined.contains("Tamma is up already at http://127.0.0.1:"), "{joined}");
    assert!(joined.contains(&format!("It now knows the project {name}-2.")), "{joined}");
    assert!(joined.contains("! repository: it has no commit yet"), "{joined}");
    let again = said(machine.repository.path(), 0, &["up"]);
    assert!(again.contains(&format!("It knows the project {name}.")), "{again}");

    let project = |folder: &Path| -> Value {
        let added = said(folder, 0, &["task", "add", "Greet Cy", "--json"]);
        serde_json::from_str::<Value>(&added).unwrap()["task"]["project"].clone()
    };
    let mine = project(machine.repository.path());
    assert_ne!(mine, project(&other));
    assert_eq!(mine, project(machine.repository.path()));
    let nowhere = said(&third, 1, &["task", "add", "Greet Cy"]);
    assert!(nowhere.contains("is not a project yet: register it with `tamma up`"), "{nowhere}");

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
    assert_eq!(machine.processes(), Vec::<String>::new());
}

/// The agents of a machine: they are in its worktrees.
fn agents(machine: &Machine) -> Vec<String> {
    let mut all = machine.processes();
    all.retain(|process| process.contains("scripted-agent"));
    all
}

/// Makes a pipe with a name. Who reads it waits for who writes it.
fn pipe(path: &Path) {
    let made = assert_cmd::Command::new("mkfifo").arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}
