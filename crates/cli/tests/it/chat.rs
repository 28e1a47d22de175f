//! `tamma chat` over a pipe: questions about a task, an approval, and more questions. Everything is real
//! except the agent, which follows a script.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::sample_plan;

use crate::machine::Machine;

const HOSTILE: &str = include_str!("../../../../lab/inputs/chat/hostile.txt");

/// Agent that plans a small change and makes the check fail.
fn script() -> Script {
    let spoil = AgentStep::Write { path: "names.txt".into(), content: String::new() };
    Script::planned(sample_plan(1), [spoil])
}

/// Running `tamma chat --json`.
struct Chat {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Chat {
    fn new(machine: &Machine) -> Self {
        let mut command = machine.command(&["chat", "--json"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn say(&mut self, message: &str) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
        let mut text = String::new();
        // A reply can span several lines.
        loop {
            assert!(self.output.read_line(&mut text).unwrap() > 0, "{message}: {text}");
            if let Ok(reply) = serde_json::from_str(&text) {
                return reply;
            }
        }
    }

    fn lines(&mut self, message: &str) -> (String, Vec<String>) {
        let reply = self.say(message);
        let texts = |key: &str, field: Option<&str>| -> Vec<String> {
            let all = reply[key].as_array().cloned().unwrap_or_default();
            all.iter()
                .map(|it| field.map_or(it, |field| &it[field]).as_str().unwrap().to_owned())
                .collect()
        };
        (texts("lines", None).join("\n"), texts("references", Some("text")))
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn chat_covers_a_task_from_its_plan_to_its_failure() {
    let more = "scrum_master:\n  task_loop: { max_iterations: 1, auto_approve_low_risk: false }\n";
    let machine = Machine::under(&script(), more);
    let mut up = machine.up();
    let added = machine.json(&["task", "add", "Greet Cy as well"]);
    let task = added["task"]["id"].as_str().unwrap().to_owned();
    machine.said(3, &["task", "watch", &task, "--until-asked"]);
    let mut chat = Chat::new(&machine);

    let (said, from) = chat.lines("what is the Cy task waiting for?");
    assert!(said.contains("waiting for a person") && said.contains("approve"), "{said}");
    assert!(from.iter().any(|it| it.starts_with("approval requested")), "{from:?}");
    let (said, _) = chat.lines("how risky is it?");
    assert!(said.starts_with("Risk: low"), "{said}");
    let (said, _) = chat.lines("which files would it change?");
    assert!(said.contains("names.txt"), "{said}");

    // Hostile messages change nothing.
    let before = machine.said(0, &["task", "history", &task, "--json"]);
    for message in HOSTILE.lines().filter(|it| !it.starts_with('#') && !it.contains("\\n")) {
        let reply = chat.say(message);
        assert_eq!(reply.get("done"), None, "{message}: {reply}");
    }
    assert_eq!(machine.said(0, &["task", "history", &task, "--json"]), before);

    // A confirmation is refused if the plan has changed.
    let shown = chat.say("approve the Cy task");
    let command = shown["proposal"]["command"].as_str().unwrap();
    assert!(command.starts_with(&format!("tamma approve {task} --plan=")), "{command}");
    let words = "Greet Di as well.";
    machine.said(0, &["answer", &task, "modify", "--reason", words]);
    machine.said(3, &["task", "watch", &task, "--until-asked"]);
    let late = chat.say("yes");
    assert_eq!(late["intent"], "refused", "{late}");

    // A confirmation of the current plan is carried out under the person's name.
    chat.say("approve the Cy task");
    let done = chat.say("yes");
    assert!(done["done"].is_string(), "{done}");
    machine.said(3, &["task", "watch", &task, "--until-asked"]);
    let (said, from) = chat.lines("who approved it?");
    assert!(said.contains("by Grace"), "{said}");
    assert!(from.iter().any(|it| it.starts_with("approval granted by Grace")), "{from:?}");
    let (said, from) = chat.lines("why did it fail?");
    assert!(said.contains("Iteration 1 failed review") && said.contains("check"), "{said}");
    assert!(from.iter().any(|it| it.starts_with("gates failed")), "{from:?}");
    let (said, _) = chat.lines("what did it cost?");
    assert!(said.contains("has cost"), "{said}");
    let (said, _) = chat.lines("what did it change?");
    assert!(said.contains("names.txt"), "{said}");
    let (said, _) = chat.lines("what happens if I abandon it?");
    assert!(said.contains("Abandon: the task is closed as failed"), "{said}");
    let (said, _) = chat.lines("how long did it take?");
    assert!(said.contains("Open for"), "{said}");
    chat.end();

    // Text output.
    let said = machine.said(0, &["chat", "why", "did", "the", "Cy", "task", "fail?"]);
    assert!(said.contains("  from event ") && said.contains("gates failed"), "{said}");
    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
}
