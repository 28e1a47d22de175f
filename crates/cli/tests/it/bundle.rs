//! `tamma task bundle`. Everything is real except the agent, which follows a script.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::read::GzDecoder;
use rustix::process::Signal;
use serde_json::Value;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::sample_plan;

use crate::machine::Machine;
use crate::support::write_names;

/// Files of an archive by their path, without the folder that all are in.
fn read_archive(path: &Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let read = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let (folder, path) = path.split_once('/').unwrap();
        assert!(folder.starts_with("tamma-task-"), "{folder}");
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (path.to_owned(), text)
    });
    read.collect()
}

#[test]
fn a_bundle_has_everything_about_a_task_and_no_secret() {
    // Put together here, so that no scanner takes this file for a leak.
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let own = "correct horse battery staple";
    let say = AgentStep::Say(format!("I found {token} and {own}."));
    let script = Script::planned(sample_plan(1), [say, write_names("")]);
    let config = "scrum_master:\n  task_loop: { max_iterations: 1 }\n";
    let machine = Machine::with_config(&script, config);
    let mut up = machine.up();
    let description = format!("Use {token}.");
    let added = machine.json(&["task", "add", "Greet Cy", "--description", &description]);
    let task = added["task"]["id"].as_str().unwrap();
    machine.run(3, &["task", "watch", task, "--until-asked"]);

    let file = machine.path("bundle.tar.gz");
    let arguments = ["task", "bundle", task, "--output", file.to_str().unwrap(), "--json"];
    let output = machine.command(&arguments).env("WIDGET_API_KEY", own).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = read_archive(&file);
    assert_eq!(answer["files"].as_array().unwrap().len(), files.len());
    assert_eq!(answer["bytes"], file.metadata().unwrap().len());
    for name in [
        "README.txt",
        "task.json",
        "state.json",
        "report.json",
        "plans/1.json",
        "checks.json",
        "jobs.json",
        "history.jsonl",
        "rules.json",
        "runs.json",
        "server.json",
        "machine.json",
    ] {
        assert!(files.contains_key(name), "{name}: {:?}", files.keys());
    }
    assert!(!files.contains_key("problems.txt"), "{}", files["problems.txt"]);
    for (name, text) in &files {
        assert!(!text.contains(&token) && !text.contains(own), "{name}: {text}");
    }
    let redacted = |text: &String| text.contains("I found [redacted] and [secret].");
    let is_transcript = |name: &String| name.ends_with("/transcript.jsonl");
    let said = files.iter().any(|(name, text)| is_transcript(name) && redacted(text));
    assert!(said, "{files:?}");
    assert!(files["task.json"].contains("Use [redacted]."), "{}", files["task.json"]);
    assert!(files["README.txt"].contains("Redacted: "), "{}", files["README.txt"]);
    let machine_facts: Value = serde_json::from_str(&files["machine.json"]).unwrap();
    assert_eq!(machine_facts["tamma"], env!("CARGO_PKG_VERSION"));
    assert!(machine_facts["doctor"]["checks"].is_array(), "{machine_facts}");

    // The default is a file in the current folder, named after the task.
    let said = machine.run(0, &["task", "bundle", task]);
    let name = said.split_whitespace().find(|word| word.ends_with(".tar.gz")).unwrap();
    assert!(machine.repository.path().join(name).is_file(), "{said}");
    assert!(said.contains("Read it before you send it"), "{said}");
    let missing = machine.run(1, &["task", "bundle", "0192a000-0000-7000-8000-000000000001"]);
    assert!(missing.contains("Cannot find task"), "{missing}");
    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
}
