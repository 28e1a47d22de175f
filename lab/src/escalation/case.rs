//! Escalation cases: scripts of the model, and the expected path of each task.

use serde_json::json;
use tamma_core::cause::AlertCause;
use tamma_core::plan::FileAction;
use tamma_core::rules::HaltCondition;
use tamma_core::task_loop::State;
use tamma_core::tier::Tier;
use tamma_testkit::agent;

use crate::support::scripts::{self, ScriptedAction, ScriptedCase};

/// Words that distinguish failures. Numbers would not, because they are removed before errors are
/// compared.
const WORDS: [&str; 11] = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett",
    "kilo",
];

/// Behaviour of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumIter, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum EscalationCase {
    /// Fails with a new error each time.
    AlwaysNew,
    /// Fails with the same error until a council finds the cause.
    Stuck,
    /// Fails a security gate.
    Security,
    /// Uses nearly the whole budget in the first run.
    Budget,
}

/// Expected path of a task.
pub(crate) struct ExpectedPath {
    /// Tiers of its runs, in order.
    pub(crate) tiers: Vec<Tier>,
    /// Runs after which a council was convened.
    pub(crate) councils: Vec<u16>,
    /// Final state.
    pub(crate) state: State,
    /// Cause of the decision request, if any.
    pub(crate) cause: Option<AlertCause>,
}

impl EscalationCase {
    /// Returns the title of the task.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::AlwaysNew => "a task that always fails, with a new error each time",
            Self::Stuck => "a task that keeps failing with the same error",
            Self::Security => "a change with a security finding",
            Self::Budget => "a run that uses nearly the whole budget",
        }
    }

    /// Returns the path that the specification requires.
    pub(crate) fn expected(self) -> ExpectedPath {
        use Tier::{Complex, Moderate, Simple};
        match self {
            Self::AlwaysNew => ExpectedPath {
                tiers: vec![
                    Simple, Simple, Moderate, Moderate, Complex, Complex, Complex, Complex,
                    Complex, Complex,
                ],
                councils: vec![7],
                state: State::HumanEscalation,
                cause: Some(AlertCause::Halted(HaltCondition::MaxIterationsReached)),
            },
            Self::Stuck => ExpectedPath {
                tiers: vec![Simple, Simple, Moderate, Moderate, Complex],
                councils: vec![4],
                state: State::Completed,
                cause: None,
            },
            Self::Security => ExpectedPath {
                tiers: vec![Simple],
                councils: Vec::new(),
                state: State::HumanEscalation,
                cause: Some(AlertCause::Halted(HaltCondition::SecurityCritical)),
            },
            Self::Budget => ExpectedPath {
                tiers: vec![Simple],
                councils: Vec::new(),
                state: State::HumanEscalation,
                cause: Some(AlertCause::Halted(HaltCondition::BudgetExceeded)),
            },
        }
    }

    /// Returns a file of the work that must be on the pushed branch.
    pub(crate) fn result_file(self) -> &'static str {
        match self {
            Self::AlwaysNew => "try/juliett.txt",
            Self::Stuck => "greeting.txt",
            Self::Security => "key.txt",
            Self::Budget => "try/alpha.txt",
        }
    }

    /// Returns the `gates` section of the configuration.
    pub(crate) fn gates(self) -> String {
        match self {
            Self::AlwaysNew | Self::Budget => {
                let lines: Vec<_> = WORDS
                    .iter()
                    .zip(&WORDS[1..])
                    .map(|(this, next)| {
                        format!("  {this}: {{ command: sh gate.sh {this} {next}, kind: tests }}\n")
                    })
                    .collect();
                lines.concat()
            }
            Self::Stuck => {
                // The gate passes on the base commit; failures there would not count.
                let command = "test ! -e greeting.txt || grep -q right greeting.txt";
                format!("  greets: {{ command: '{command}', kind: tests }}\n")
            }
            Self::Security => "  keys: { command: test ! -e key.txt, kind: security }\n".to_owned(),
        }
    }

    /// Returns the budget in USD.
    pub(crate) fn budget(self) -> &'static str {
        match self {
            Self::Budget => "1.0",
            _ => "50.0",
        }
    }

    /// Returns the script of the agent or its model.
    pub(crate) fn script_cases(self) -> Vec<ScriptedCase> {
        let case = |when: &str, acts: Vec<ScriptedAction>| ScriptedCase::new(when, acts);
        let view = json!({
            "root_cause": "The file has the wrong content.",
            "fix": "Write the right content to greeting.txt.",
            "confidence": "medium",
            "against": "The gate may be wrong.",
        });
        let conclusion = json!({
            "root_cause": "The file has the wrong content.",
            "fix": "Write the right content to greeting.txt.",
            "dissent": ["One member suspects the gate."],
        });
        let mut script_cases = vec![
            case(
                "You are a member of the council",
                vec![ScriptedAction::Tool("submit_opinion", view)],
            ),
            case(
                "You are the chair of the council",
                vec![ScriptedAction::Tool("submit_conclusion", conclusion)],
            ),
            case("# Council conclusion", vec![plan(self.result_file(), "As the council says.")]),
            case(agent::PLANNER, vec![plan(self.result_file(), "The first idea.")]),
        ];
        match self {
            Self::AlwaysNew | Self::Budget => {
                // Last attempt first, because every prompt also matches the case of the first attempt.
                for (index, word) in WORDS.iter().enumerate().take(10).skip(1).rev() {
                    let when = format!("This is attempt {}.", index + 1);
                    script_cases.push(ScriptedCase { when, actions: vec![attempt(word, None)] });
                }
                let tokens = (self == Self::Budget).then_some(300_000);
                script_cases.push(case(agent::IMPLEMENTER, vec![attempt(WORDS[0], tokens)]));
            }
            Self::Stuck => {
                let write =
                    |text: &str| ScriptedAction::Shell(format!("echo {text} > greeting.txt"), None);
                script_cases.push(case("As the council says.", vec![write("right")]));
                script_cases.push(case(agent::IMPLEMENTER, vec![write("wrong")]));
            }
            Self::Security => {
                let leak = ScriptedAction::Shell("echo 1234 > key.txt".to_owned(), None);
                script_cases.push(case(agent::IMPLEMENTER, vec![leak]));
            }
        }
        script_cases
    }
}

/// Gate that fails while its word is the newest.
pub(crate) const GATE: &str = "#!/bin/sh\nset -eu\n\
    if [ -e \"try/$1.txt\" ] && [ ! -e \"try/$2.txt\" ]; then echo \"$1 is not done\"; exit 1; fi\n";

/// Returns an attempt that fails the gate of its word.
fn attempt(word: &str, tokens: Option<u64>) -> ScriptedAction {
    ScriptedAction::Shell(format!("mkdir -p try && echo {word} > try/{word}.txt"), tokens)
}

/// Returns a plan that creates one file.
fn plan(file: &str, summary: &str) -> ScriptedAction {
    scripts::plan(summary, FileAction::Create, &[file])
}
