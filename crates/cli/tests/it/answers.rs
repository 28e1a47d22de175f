//! Every answer to a question, given once from the command line to a task that has used its last run.
//! Everything is real except the agent, which follows a script.

use rustix::process::Signal;
use serde_json::Value;

use crate::machine::Machine;
use crate::support::failing_script;

/// Answer with its expected result.
struct AnswerCase {
    /// Command, without the task ID.
    command: &'static [&'static str],
    /// Arguments after the task ID.
    rest: &'static [&'static str],
    /// Next state.
    to: &'static str,
    /// Name of the history entry.
    name: &'static str,
    /// Final state: completed, cancelled, failed, or waiting on a person again.
    end: &'static str,
    /// Number of runs at that point.
    runs: usize,
}

const ANSWERS: [(&str, AnswerCase); 7] = [
    (
        "continue",
        AnswerCase {
            command: &["answer"],
            rest: &["continue", "--grant-runs", "1"],
            to: "validated",
            name: "SM_STATE_TRANSITION",
            end: "human_escalation",
            runs: 2,
        },
    ),
    (
        "modify",
        AnswerCase {
            command: &["answer"],
            rest: &["change-task", "--reason", "Greet Di instead."],
            to: "planning",
            name: "SM_TASK_MODIFIED",
            end: "human_escalation",
            runs: 1,
        },
    ),
    (
        "retry",
        AnswerCase {
            command: &["retry"],
            rest: &["--grant-runs", "1"],
            to: "validated",
            name: "SM_TASK_RETRIED",
            end: "human_escalation",
            runs: 2,
        },
    ),
    (
        "roll back",
        AnswerCase {
            command: &["answer"],
            rest: &["roll-back", "--to", "testing", "--reason", "The check is mended."],
            to: "testing",
            name: "SM_ROLLED_BACK",
            end: "human_escalation",
            runs: 1,
        },
    ),
    (
        "skip",
        AnswerCase {
            command: &["answer"],
            rest: &["skip", "--reason", "It is good enough."],
            to: "approved",
            name: "SM_SKIPPED",
            end: "completed",
            runs: 1,
        },
    ),
    (
        "cancel",
        AnswerCase {
            command: &["cancel"],
            rest: &["--reason", "Nobody wants it any more."],
            to: "cancelled",
            name: "SM_TASK_CANCELLED",
            end: "cancelled",
            runs: 1,
        },
    ),
    (
        "abandon",
        AnswerCase {
            command: &["answer"],
            rest: &["abandon", "--reason", "It cannot be done."],
            to: "failed",
            name: "SM_TASK_FAILED",
            end: "failed",
            runs: 1,
        },
    ),
];

/// Returns the history entries of a task that are transitions.
fn transitions(machine: &Machine, task: &str) -> Vec<Value> {
    let history = machine.json(&["task", "history", task]);
    let all = history.as_array().unwrap().iter();
    all.filter(|entry| entry.get("on").is_some_and(|on| !on.is_null())).cloned().collect()
}

#[test]
fn every_answer_leads_to_its_state() {
    let config = "scrum_master:\n  task_loop: { max_iterations: 1 }\n";
    let machine = Machine::with_config(&failing_script(), config);
    let mut up = machine.up();
    let tasks: Vec<String> = ANSWERS
        .iter()
        .map(|(answer, _)| {
            let added = machine.json(&["task", "add", &format!("Greet Cy, and then {answer}")]);
            added["task"]["id"].as_str().unwrap().to_owned()
        })
        .collect();
    for task in &tasks {
        machine.run(3, &["task", "watch", task, "--until-asked"]);
        let waits = machine.json(&["task", "show", task]);
        assert_eq!(waits["state"], "human_escalation");
        let offered = waits["answers"].as_array().unwrap();
        assert_eq!(
            offered.iter().map(|it| it.as_str().unwrap()).collect::<Vec<_>>(),
            ["continue", "modify", "retry", "roll_back", "skip", "cancel", "abandon"]
        );
    }
    // Without a grant, a task that has used its last run cannot continue.
    let refused = machine.run(1, &["answer", &tasks[0], "continue"]);
    assert!(refused.contains("grant"), "{refused}");
    let nowhere =
        machine.run(1, &["answer", &tasks[3], "roll-back", "--to", "learning", "--reason", "no"]);
    assert!(nowhere.contains("learning"), "{nowhere}");

    for ((answer, case), task) in ANSWERS.iter().zip(&tasks) {
        machine.run(0, &[case.command, &[task.as_str()], case.rest].concat());
        let code = match case.end {
            "completed" => 0,
            "human_escalation" => 3,
            _ => 1,
        };
        machine.run(code, &["task", "watch", task, "--until-asked"]);
        let all = transitions(&machine, task);
        let answered = all.iter().find(|it| it["from"] == "human_escalation").unwrap();
        let context = format!("{answer}: {answered:#}");
        assert_eq!(
            (&answered["to"], &answered["name"]),
            (&case.to.into(), &case.name.into()),
            "{context}"
        );
        assert_eq!(answered["actor"]["person"], "Grace", "{context}");
        if let Some(at) = case.rest.iter().position(|word| *word == "--reason")
            && *answer != "modify"
        {
            assert_eq!(answered["reason"], case.rest[at + 1], "{context}");
        }
        let detail = machine.json(&["task", "show", task]);
        assert_eq!(detail["state"], case.end, "{context}");
        assert_eq!(detail["runs"].as_array().unwrap().len(), case.runs, "{context}");
    }
    // A skipped task is delivered unchanged, and closed tasks keep their work on their branches.
    assert!(!machine.commits(&tasks[4]).is_empty());
    for ended in [&tasks[5], &tasks[6]] {
        assert!(!machine.commits(ended).is_empty());
    }
    // The report has the failures and the reason for asking a person.
    let report = machine.run(0, &["task", "report", &tasks[0]]);
    assert!(report.contains("#2/2 simple failed"), "{report}");
    assert!(report.contains("run limit reached"), "{report}");
    let report = machine.run(0, &["task", "report", &tasks[0], "--format", "markdown"]);
    assert!(report.starts_with("# Greet Cy, and then continue\n"), "{report}");
    let first = machine.json(&["task", "report", &tasks[0], "--attempt", "1"]);
    assert_eq!(first["iterations"].as_array().unwrap().len(), 1);
    assert_eq!(first["iterations"][0]["passed"], false);
    let missing = machine.run(1, &["task", "report", &tasks[0], "--attempt", "7"]);
    assert!(missing.contains("Cannot find attempt `7`"), "{missing}");
    let shown = machine.run(0, &["task", "show", &tasks[0]]);
    assert!(shown.contains("tamma task report"), "{shown}");

    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
}
