//! Reports of a real task that failed once and was then completed. Everything is real except the agent,
//! which follows a script.

use chrono::{DateTime, Utc};
use rustix::process::Signal;
use serde_json::{Value, json};
use tamma_core::rules::Rules;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::sample_plan;

use crate::machine::Machine;
use crate::support::write_names;

/// Models of the tiers, from the weakest.
const MODELS: [&str; 3] = ["small", "medium", "large"];

/// Agent whose first change fails the check. It fixes the change and submits a lesson.
fn script() -> Script {
    let lesson = json!({ "lessons": [{
        "kind": "recommendation",
        "title": "Keep the list filled",
        "text": "The check fails for an empty list of names, so never empty it.",
        "keywords": ["names"],
        "severity": "low",
        "evidence": ["event 1"],
    }] });
    let plan = AgentStep::Plan(Box::new(sample_plan(1)));
    let mut script = Script::from_cases([
        PromptCase::new("You look back at a development task", [AgentStep::Submit(lesson)]),
        PromptCase::new(PLANNER, [plan]),
        PromptCase::new("# What failed before", [write_names("ann\nbo\ncy\n")]),
        PromptCase::new(IMPLEMENTER, [write_names("")]),
    ]);
    script.models = MODELS.map(str::to_owned).to_vec();
    script
}

fn time(text: &Value) -> DateTime<Utc> {
    text.as_str().unwrap().parse().unwrap()
}

#[test]
fn the_reports_of_a_completed_task_are_complete() {
    let machine = Machine::configured(&script(), |config| config.models(MODELS));
    let mut up = machine.up();
    let added = machine.json(&["task", "add", "Greet Cy", "--issue-number", "7"]);
    let task = added["task"]["id"].as_str().unwrap();
    let watched = machine.run(0, &["task", "watch", task]);
    let report = machine.json(&["task", "report", task]);
    let complexity =
        sample_plan(1).summarize(1, "plan".parse().unwrap(), &Rules::default()).complexity_score;

    // Iterations.
    assert_eq!(report["max_iterations"], 10, "{report:#}");
    let iterations = report["iterations"].as_array().unwrap();
    assert_eq!(iterations.len(), 2, "{watched}");
    for (iteration, passed) in iterations.iter().zip([false, true]) {
        assert_eq!(iteration["passed"], passed, "{iteration:#}");
        let run = ["agent", "model", "complexity", "files"].map(|key| iteration[key].clone());
        assert_eq!(run, [json!("scripted"), json!("small"), json!(complexity), json!(1)]);
    }
    assert_eq!(iterations[1]["criteria"].as_array().map(Vec::len), Some(1), "{report:#}");
    let single = machine.run(0, &["task", "report", task, "--attempt", "2"]);
    assert!(single.contains("#2/10 simple passed"), "{single}");
    let run =
        format!("scripted with small, complexity {complexity} of 14, 1 file, 1 of 1 criteria met");
    assert!(single.contains(&run), "{single}");
    assert!(!single.contains("#1/10"), "{single}");

    // Completion: final agent and model, duration, time and lessons.
    assert_eq!(
        (&report["final_agent"], &report["final_model"]),
        (&json!("scripted"), &json!("small"))
    );
    let history = machine.json(&["task", "history", task]);
    let entries = history.as_array().unwrap();
    let last = entries.iter().find(|entry| entry["name"] == "SM_TASK_COMPLETED").unwrap();
    let (first, last) = (time(&entries[0]["at"]), time(&last["at"]));
    assert_eq!(time(&report["completed_at"]), last);
    assert_eq!(report["duration_seconds"], (last - first).num_seconds());
    assert_eq!(report["lessons"], 1, "{report:#}");
    let lesson = &report["lesson_list"][0];
    let facts = ["title", "kind", "status"].map(|key| lesson[key].as_str().unwrap());
    assert_eq!(facts, ["Keep the list filled", "recommendation", "pending"]);
    let text = machine.run(0, &["task", "report", task]);
    let closed = last.format("%Y-%m-%d %H:%M UTC").to_string();
    for part in ["scripted with small", &*closed, "duration", "1 lesson", "Keep the list filled"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // The number of the issue is shown.
    assert_eq!(machine.json(&["task", "show", task])["issue_number"], 7);
    let shown = machine.run(0, &["task", "show", task]);
    assert!(shown.lines().any(|line| line.contains("issue") && line.contains("#7")), "{shown}");
    assert_eq!(up.signal(Signal::TERM).code(), Some(0), "{}", machine.log());
}
