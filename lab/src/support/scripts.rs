//! Scripts that work both for a scripted model behind a real agent and for a scripted agent.

use serde_json::{Value, json};
use tamma_core::plan::{FileAction, FileChange};
use tamma_testkit::agent::VALIDATOR;
use tamma_testkit::sample::sample_change;
use tamma_testkit::{agent, model};

/// Invented prices of the models of Claude Code and Codex, as a section of the configuration.
pub(crate) const PRICES: &str = "prices:\n  \
    claude-haiku-5-5: { input: 3.0, cached: 0.3, output: 15.0 }\n  \
    claude-sonnet-5-5: { input: 6.0, cached: 0.6, output: 30.0 }\n  \
    claude-opus-5-5: { input: 12.0, cached: 1.2, output: 60.0 }\n  \
    gpt-5.5: { input: 3.0, cached: 0.3, output: 15.0 }\n";

/// Reaction to a prompt that contains a text. The first matching case is used.
#[derive(Debug, Clone)]
pub(crate) struct ScriptedCase {
    /// Text that the prompt must contain.
    pub(crate) when: String,
    /// Actions, in order.
    pub(crate) actions: Vec<ScriptedAction>,
}

/// Single action of a scripted agent or model.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedAction {
    /// Calls one of Tamma's tools.
    Tool(&'static str, Value),
    /// Runs a command. The number sets the input tokens that the model reports.
    Shell(String, Option<u64>),
}

impl ScriptedCase {
    /// Creates a case for prompts that contain `when`.
    pub(crate) fn new(when: impl Into<String>, actions: Vec<ScriptedAction>) -> Self {
        Self { when: when.into(), actions }
    }
}

/// Returns the actions of a case. Work with commands ends with its result, like any real run.
fn complete_actions(mut actions: Vec<ScriptedAction>) -> Vec<ScriptedAction> {
    if matches!(actions.last(), Some(ScriptedAction::Shell(..))) {
        let result = json!({ "status": "done", "summary": "The files are changed." });
        actions.push(ScriptedAction::Tool("submit_result", result));
    }
    actions
}

/// Converts cases to the script of a model.
pub(crate) fn model_script(cases: Vec<ScriptedCase>) -> model::Script {
    let step = |action: ScriptedAction| match action {
        ScriptedAction::Tool(name, args) => {
            model::ModelStep::call(model::ScriptedCall::tool(name, args))
        }
        ScriptedAction::Shell(cmd, input_tokens) => model::ModelStep {
            input_tokens,
            ..model::ModelStep::call(model::ScriptedCall::Shell { cmd })
        },
    };
    let case = |case: ScriptedCase| model::ConversationCase {
        when: case.when,
        unless: None,
        steps: complete_actions(case.actions)
            .into_iter()
            .map(step)
            .chain([model::ModelStep::say("Done.")])
            .collect(),
    };
    let cases = with_validator(cases).into_iter().map(case).collect();
    model::Script { cases, ..model::Script::default() }
}

/// Converts cases to the script of an agent without a model.
pub(crate) fn agent_script(cases: Vec<ScriptedCase>) -> agent::Script {
    let step = |action: ScriptedAction| match action {
        ScriptedAction::Tool(name, args) => agent::AgentStep::Tool { name: name.to_owned(), args },
        ScriptedAction::Shell(cmd, _) => agent::AgentStep::Run(cmd),
    };
    let case = |case: ScriptedCase| {
        agent::PromptCase::new(case.when, complete_actions(case.actions).into_iter().map(step))
    };
    agent::Script::from_cases(cases.into_iter().map(case))
}

/// Submits a small low-risk plan, which is approved automatically.
pub(crate) fn plan(summary: &str, action: FileAction, files: &[&str]) -> ScriptedAction {
    ScriptedAction::Tool("submit_plan", plan_arguments(summary, action, files))
}

/// Criterion of every plan; it becomes C1 of a task without criteria.
const CRITERION: &str = "The gates pass.";

/// Adds a validator that approves, unless the cases have one. It cites a planned file.
fn with_validator(mut cases: Vec<ScriptedCase>) -> Vec<ScriptedCase> {
    let planned = cases.iter().flat_map(|case| &case.actions).find_map(|action| match action {
        ScriptedAction::Tool("submit_plan", plan) => {
            plan["file_changes"][0]["path"].as_str().map(str::to_owned)
        }
        _ => None,
    });
    if !cases.iter().any(|case| case.when.contains(VALIDATOR))
        && let Some(file) = planned
    {
        let verdict = json!({
            "criteria": [
                { "id": "C1", "verdict": "met", "evidence": "The gates passed.", "file": file },
            ],
            "issues": [],
        });
        let approve = ScriptedAction::Tool("submit_verdict", verdict);
        // First, because the prompt of a validator also contains texts of other cases.
        cases.insert(0, ScriptedCase::new(VALIDATOR, vec![approve]));
    }
    cases
}

/// Returns the required fields of a plan, as the arguments of the tool.
pub(crate) fn plan_arguments(summary: &str, action: FileAction, files: &[&str]) -> Value {
    let change = |path: &&str| FileChange {
        description: "as requested".to_owned(),
        ..sample_change(*path, action)
    };
    json!({
        "summary": summary,
        "approach": "Change only the named files.",
        "file_changes": files.iter().map(change).collect::<Vec<_>>(),
        "testing_strategy": "The gates cover it.",
        "signals": {
            "modules": 1, "novelty": "none", "tests": "none", "security": "none", "ambiguity": "none",
        },
        "criteria": [CRITERION],
        "verification": [{ "criterion": "C1", "test": "the gates" }],
        "test_changes": [],
        "assumptions": [],
        "questions": [],
    })
}
