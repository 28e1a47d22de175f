//! `tamma pipeline`: a story from its first phase to its report, with real components and a scripted
//! agent.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};

use crate::chat::Chat;
use crate::machine::Machine;

const FEATURE: &str = "plans/features/wishlist";
const STORY: &str = "WISH-001";

/// Returns a script whose phases end with these lines.
fn script(signals: [&str; 3]) -> Script {
    let commands = ["/pm-story generate", "/elab-story", "/dev-implement-story"];
    let case = |(command, signal): (&str, &str)| {
        let say = AgentStep::Say(format!("Worked on it.\n\n{signal}"));
        PromptCase::new(format!("Execute command: {command} {FEATURE} {STORY}"), [say])
    };
    Script::from_cases(commands.into_iter().zip(signals).map(case))
}

fn waiting(machine: &Machine) -> Vec<Value> {
    machine.json(&["inbox"])["pipelines"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_story_passes_its_gates_stops_at_a_failure_and_is_resumed() {
    let failing = script(["PM COMPLETE", "ELAB PASS", "IMPLEMENTATION FAILED: tests are red"]);
    let machine = Machine::new(&failing);
    let mut up = machine.up();
    let refused = machine.run(1, &["pipeline", "run", FEATURE, STORY, "--to", "9"]);
    assert!(refused.contains("unknown phase 9; the pipeline has phases 1 to 6"), "{refused}");

    let range = ["--to", "3", "--approve", "2,3", "--watch", "--until-asked"];
    let asked = machine.run(3, &[&["pipeline", "run", FEATURE, STORY], &range[..]].concat());
    assert!(asked.contains("1. PM Generate: complete (PM COMPLETE)"), "{asked}");
    assert!(asked.contains("Approval Gate: Phase 2 (Elaboration)"), "{asked}");
    let ready = format!("Ready to execute: /elab-story {FEATURE} {STORY}");
    assert!(asked.contains(&ready), "{asked}");
    assert_eq!(waiting(&machine)[0]["story_id"], STORY);

    let mut chat = Chat::new(&machine);
    let (status, _) = chat.lines("how is WISH-001 doing?");
    assert!(status.contains("at the gate of elaboration"), "{status}");
    let proposed = chat.say("continue WISH-001");
    let command = proposed["proposal"]["command"].as_str().unwrap();
    assert!(command.starts_with("tamma pipeline answer "), "{proposed}");
    assert_eq!(machine.json(&["pipeline", "show", STORY])["state"], "at_gate");
    assert_eq!(chat.say("yes")["intent"], "done");
    chat.end();

    machine.run(3, &["pipeline", "watch", STORY, "--until-asked"]);
    machine.run(0, &["pipeline", "answer", STORY, "continue"]);
    let watched = machine.run(1, &["pipeline", "watch", STORY]);
    for expected in [
        "## Workflow Progress: WISH-001",
        "| 2. Elaboration | complete | ELAB PASS | 0 |",
        "| 3. Implementation | failed | IMPLEMENTATION FAILED: tests are red | 0 |",
        "**Status**: FAILED at phase 3",
        "**Reason**: tests are red",
        "`tamma pipeline run plans/features/wishlist WISH-001 --from 3`",
        "**Total tokens**: 0",
    ] {
        assert!(watched.contains(expected), "{expected} is missing:\n{watched}");
    }
    assert_eq!(watched.lines().last(), Some("WORKFLOW FAILED: tests are red"));
    let yaml = machine.run(0, &["pipeline", "show", STORY, "--yaml"]);
    for expected in [
        "phase: loop",
        "verdict: FAILED",
        "feature_dir: plans/features/wishlist",
        "story_id: WISH-001",
        "phases_executed: 3",
        "phases_skipped: 0",
        "last_phase: 3",
        "last_signal: \"IMPLEMENTATION FAILED: tests are red\"",
        "total_tokens: 0",
        "reason: tests are red",
    ] {
        assert!(yaml.lines().any(|line| line == expected), "{expected} is missing:\n{yaml}");
    }
    let output = machine.run(0, &["pipeline", "show", STORY, "--output", "3"]);
    assert_eq!(output, "Worked on it.\n\nIMPLEMENTATION FAILED: tests are red\n");
    let shown = machine.json(&["pipeline", "show", STORY]);
    assert_eq!(shown["phases"][1]["approved_by"], "Grace");

    assert_eq!(waiting(&machine)[0]["state"], "failed");
    machine.run(0, &["pipeline", "dismiss", STORY]);
    assert_eq!(waiting(&machine), Vec::<Value>::new());
    let working = script(["PM COMPLETE", "ELAB PASS", "DOCUMENTATION COMPLETE"]);
    working.write(&machine.path("script.json")).unwrap();
    machine.run(0, &["pipeline", "resume", STORY]);
    machine.run(3, &["pipeline", "watch", STORY, "--until-asked"]);
    machine.run(0, &["pipeline", "answer", STORY, "continue"]);
    let watched = machine.run(0, &["pipeline", "watch", STORY]);
    assert_eq!(watched.lines().last(), Some("WORKFLOW COMPLETE"));
    let listed = machine.json(&["pipeline", "list"]);
    assert_eq!(listed["pipelines"][0]["run"], 2);
    assert_eq!(waiting(&machine), Vec::<Value>::new());
    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
}

#[test]
fn the_scrum_master_command_is_written_once() {
    let machine = Machine::new(&Script::default());
    let file = machine.repository.path().join(".claude/commands/scrum-master.md");
    let written = machine.run(0, &["pipeline", "install"]);
    assert!(written.contains("Wrote .claude/commands/scrum-master.md"), "{written}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("---\ndescription: Take a story"), "{text}");
    assert!(text.contains("$ARGUMENTS") && text.contains("run_pipeline"), "{text}");
    fs::write(&file, "mine").unwrap();
    let refused = machine.run(1, &["pipeline", "install"]);
    assert!(refused.contains("replace it with --force"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    machine.run(0, &["pipeline", "install", "--force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}
