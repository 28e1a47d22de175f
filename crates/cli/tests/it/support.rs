//! Helpers of several tests: plans and scripts of agents, and output as text.

use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_testkit::agent::{AgentStep, PromptCase, Script};

pub(crate) fn file_change(path: impl Into<String>, action: FileAction) -> FileChange {
    FileChange {
        path: path.into(),
        action,
        description: "one more name".to_owned(),
        estimated_lines: 1,
    }
}

pub(crate) fn plan(file_changes: Vec<FileChange>) -> Plan {
    Plan {
        summary: "Cy is greeted".to_owned(),
        approach: "Add the name to the list.".to_owned(),
        file_changes,
        testing_strategy: "The check counts the greetings.".to_owned(),
        signals: tamma_core::complexity::Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

/// Plan that changes `names.txt` only. Its risk is low.
pub(crate) fn small_plan() -> Plan {
    plan(vec![file_change("names.txt", FileAction::Modify)])
}

/// Writes `names.txt`.
pub(crate) fn write_names(content: &str) -> AgentStep {
    AgentStep::Write { path: "names.txt".into(), content: content.to_owned() }
}

/// Steps for prompts that contain `when`.
pub(crate) fn case(when: &str, steps: Vec<AgentStep>) -> PromptCase {
    PromptCase { when: when.to_owned(), unless: None, steps }
}

/// Agent that submits a plan and implements it with these steps.
pub(crate) fn script(plan: Plan, steps: Vec<AgentStep>) -> Script {
    Script {
        cases: vec![
            case("You are the planner", vec![AgentStep::Plan(Box::new(plan))]),
            case("You are implementing", steps),
        ],
        ..Script::default()
    }
}

/// Agent that plans a small change and makes the check fail.
pub(crate) fn failing_script() -> Script {
    script(small_plan(), vec![write_names("")])
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
