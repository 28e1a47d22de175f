//! `tamma chat` over a pipe: questions about a task, an approval, and more questions. Everything is real
//! except the agent, which follows a script.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tamma_testkit::agent::{AgentStep, PromptCase, Script};

use crate::machine::Machine;
use crate::support::failing_script;

const HOSTILE: &str = include_str!("../../../../lab/inputs/chat/hostile.txt");

/// Question to the council.
const QUESTION: &str = "is the order of the names kept";

/// Agent whose change fails the check. Members of the council answer only if they get the question.
fn script_with_council() -> Script {
    let opinion = json!({
        "root_cause": "Yes, the list is appended to.", "fix": "None needed.",
        "confidence": "high", "against": "Nobody tested it.",
    });
    let conclusion = json!({
        "root_cause": "The plan holds.", "fix": "None needed.", "dissent": [],
        "architectural_insights": [],
    });
    let mut script = failing_script();
    script.cases.insert(0, PromptCase::new(QUESTION, [AgentStep::Submit(opinion)]));
    let chair =
        PromptCase::new("You are the chair of the council", [AgentStep::Submit(conclusion)]);
    script.cases.insert(0, chair);
    script
}

/// Running `tamma chat --json`.
pub(crate) struct Chat {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Chat {
    pub(crate) fn new(machine: &Machine) -> Self {
        let mut command = machine.command(&["chat", "--json"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub(crate) fn say(&mut self, message: &str) -> Value {
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

    pub(crate) fn lines(&mut self, message: &str) -> (String, Vec<String>) {
        let reply = self.say(message);
        let texts = |key: &str, field: Option<&str>| -> Vec<String> {
            let all = reply[key].as_array().cloned().unwrap_or_default();
            all.iter()
                .map(|it| field.map_or(it, |field| &it[field]).as_str().unwrap().to_owned())
                .collect()
        };
        (texts("lines", None).join("\n"), texts("references", Some("text")))
    }

    pub(crate) fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn chat_covers_a_task_from_its_plan_to_its_failure() {
    let config =
        "scrum_master:\n  task_loop: { max_iterations: 1, auto_approve_low_risk: false }\n";
    let machine = Machine::with_config(&script_with_council(), config);
    let mut up = machine.up();
    let added = machine.json(&["task", "add", "Greet Cy as well"]);
    let task = added["task"]["id"].as_str().unwrap().to_owned();
    machine.run(3, &["task", "watch", &task, "--until-asked"]);
    let mut chat = Chat::new(&machine);

    let (reply, references) = chat.lines("what is the Cy task waiting for?");
    assert!(reply.contains("waiting for a person") && reply.contains("approve"), "{reply}");
    assert!(references.iter().any(|it| it.starts_with("approval requested")), "{references:?}");
    let (reply, _) = chat.lines("how risky is it?");
    assert!(reply.starts_with("Risk: low"), "{reply}");
    let (reply, _) = chat.lines("which files would it change?");
    assert!(reply.contains("names.txt"), "{reply}");

    // The council answers a question about the plan, which then awaits approval as before.
    let shown = chat.say(&format!("ask the council about the Cy task: {QUESTION}?"));
    let command = shown["proposal"]["command"].as_str().unwrap();
    assert_eq!(command, format!("tamma council {task} -- '{QUESTION}'"));
    assert_eq!(machine.json(&["task", "show", &task])["state"], "awaiting_approval");
    let done = chat.say("yes");
    assert_eq!(done["done"], command, "{done}");
    machine.run(3, &["task", "watch", &task, "--until-asked"]);
    let (reply, _) = chat.lines("what did the council say about it?");
    assert!(reply.contains("The plan holds"), "{reply}");

    // Hostile messages change nothing.
    let before = machine.run(0, &["task", "history", &task, "--json"]);
    for message in HOSTILE.lines().filter(|it| !it.starts_with('#') && !it.contains("\\n")) {
        let reply = chat.say(message);
        assert_eq!(reply.get("done"), None, "{message}: {reply}");
    }
    assert_eq!(machine.run(0, &["task", "history", &task, "--json"]), before);

    // A confirmation is refused if the plan has changed.
    let shown = chat.say("approve the Cy task");
    let command = shown["proposal"]["command"].as_str().unwrap();
    assert!(command.starts_with(&format!("tamma approve {task} --plan=")), "{command}");
    let changes = "Greet Di as well.";
    machine.run(0, &["answer", &task, "modify", "--reason", changes]);
    machine.run(3, &["task", "watch", &task, "--until-asked"]);
    let late = chat.say("yes");
    assert_eq!(late["intent"], "refused", "{late}");

    // A confirmation of the current plan is carried out under the person's name.
    chat.say("approve the Cy task");
    let done = chat.say("yes");
    assert!(done["done"].is_string(), "{done}");
    machine.run(3, &["task", "watch", &task, "--until-asked"]);
    let history = machine.run(0, &["task", "history", &task]);
    let granted = history.lines().find(|it| it.contains("approval granted"));
    assert!(granted.is_some_and(|it| it.ends_with("[server token, chat]")), "{history}");
    let (reply, references) = chat.lines("who approved it?");
    assert!(reply.contains("by Grace"), "{reply}");
    assert!(
        references.iter().any(|it| it.starts_with("approval granted by Grace")),
        "{references:?}"
    );
    let (reply, references) = chat.lines("why did it fail?");
    assert!(reply.contains("Attempt 1 failed review") && reply.contains("check"), "{reply}");
    assert!(references.iter().any(|it| it.starts_with("gates failed")), "{references:?}");
    let (reply, _) = chat.lines("what did it cost?");
    assert!(reply.contains("has cost"), "{reply}");
    let (reply, _) = chat.lines("what did it change?");
    assert!(reply.contains("names.txt"), "{reply}");
    let (reply, _) = chat.lines("what happens if I abandon it?");
    assert!(reply.contains("Abandon: The task ends as failed"), "{reply}");
    let (reply, _) = chat.lines("how long did it take?");
    assert!(reply.contains("Open for"), "{reply}");
    chat.end();

    // Text output.
    let reply = machine.run(0, &["chat", "why", "did", "the", "Cy", "task", "fail?"]);
    assert!(reply.contains("  from event ") && reply.contains("gates failed"), "{reply}");
    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
}
