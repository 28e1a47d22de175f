//! What is done in a conversation, for a model that a real agent talks to and for an agent without one.

use serde_json::{Value, json};
use tamma_testkit::{agent, model};

/// What is done in a conversation that has some words in it. The first that fits is played.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    /// The words.
    pub(crate) when: String,
    /// What is done then.
    pub(crate) acts: Vec<Act>,
}

/// One thing that is done.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// A tool of ours is called.
    Tool(&'static str, Value),
    /// A command line is run, and the step has read so many tokens.
    Shell(String, Option<u64>),
}

impl Scene {
    /// What is done where these words are.
    pub(crate) fn new(when: impl Into<String>, acts: Vec<Act>) -> Self {
        Self { when: when.into(), acts }
    }
}

/// The script of a model.
pub(crate) fn model(scenes: Vec<Scene>) -> model::Script {
    let step = |act: Act| match act {
        Act::Tool(name, args) => model::ModelStep::call(model::ScriptedCall::tool(name, args)),
        Act::Shell(cmd, input_tokens) => model::ModelStep {
            input_tokens,
            ..model::ModelStep::call(model::ScriptedCall::Shell { cmd })
        },
    };
    let case = |scene: Scene| model::ConversationCase {
        when: scene.when,
        unless: None,
        steps: scene.acts.into_iter().map(step).chain([model::ModelStep::say("Done.")]).collect(),
    };
    model::Script { cases: scenes.into_iter().map(case).collect(), ..model::Script::default() }
}

/// The script of an agent without a model.
pub(crate) fn agent(scenes: Vec<Scene>) -> agent::Script {
    let step = |act: Act| match act {
        Act::Tool(name, args) => agent::AgentStep::Tool { name: name.to_owned(), args },
        Act::Shell(cmd, _) => agent::AgentStep::Run(cmd),
    };
    let case = |scene: Scene| agent::PromptCase {
        when: scene.when,
        unless: None,
        steps: scene.acts.into_iter().map(step).collect(),
    };
    agent::Script { cases: scenes.into_iter().map(case).collect(), ..agent::Script::default() }
}

/// Hands in a small plan, which needs nobody's approval.
pub(crate) fn plan(summary: &str, files: &[&str]) -> Act {
    let change = |path: &&str| json!({ "path": path, "action": "modify", "description": "what is asked", "estimated_lines": 1 });
    let plan = json!({
        "summary": summary,
        "approach": "Change what is named, and nothing else.",
        "file_changes": files.iter().map(change).collect::<Vec<_>>(),
        "testing_strategy": "The gates look at it.",
    });
    Act::Tool("submit_plan", plan)
}
