//! The cases that are tried: what the model does on each, and where it must lead.

use serde_json::json;
use tamma_core::cause::AlertCause;
use tamma_core::rules::HaltCondition;
use tamma_core::task_loop::State;
use tamma_core::tier::Tier;
use tamma_testkit::{agent, model};

use crate::support::scripts::{self, ScriptedAction, ScriptedCase};

/// Words that compare one failure from the next. Numbers would not: they are taken out of errors before
/// they are compared.
const WORDS: [&str; 11] = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett",
    "kilo",
];

/// What a task goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumIter, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum EscalationCase {
    /// It fails in another case each time.
    AlwaysNew,
    /// It fails alike each time, until a council says why.
    Stuck,
    /// A gate of security finds something.
    Security,
    /// The first run costs nearly all that there is.
    Budget,
}

/// What a task must have outcome through.
pub(crate) struct ExpectedPath {
    /// The tiers of its runs.
    pub(crate) tiers: Vec<Tier>,
    /// After which runs the council sat.
    pub(crate) councils: Vec<u16>,
    /// Where it is in the end.
    pub(crate) state: State,
    /// Why a person is asked, if one is.
    pub(crate) cause: Option<AlertCause>,
}

impl EscalationCase {
    /// What it is, in words.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::AlwaysNew => "a task that always fails, in a new case each time",
            Self::Stuck => "a task that fails alike three times",
            Self::Security => "a change with a security finding",
            Self::Budget => "a run that costs nearly all that there is",
        }
    }

    /// Where it must lead, as the specification says.
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
                tiers: vec![Simple, Simple, Moderate, Complex],
                councils: vec![3],
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

    /// A file that the work has left, which must be on the branch that was pushed.
    pub(crate) fn left(self) -> &'static str {
        match self {
            Self::AlwaysNew => "try/juliett.txt",
            Self::Stuck => "greeting.txt",
            Self::Security => "key.txt",
            Self::Budget => "try/alpha.txt",
        }
    }

    /// Its gates, as the configuration has them.
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
                // It passes where the work starts: what fails there too counts against nobody.
                let command = "test ! -e greeting.txt || grep -q right greeting.txt";
                format!("  greets: {{ command: '{command}', kind: tests }}\n")
            }
            Self::Security => "  keys: { command: test ! -e key.txt, kind: security }\n".to_owned(),
        }
    }

    /// What it may spend, in dollars.
    pub(crate) fn budget(self) -> &'static str {
        match self {
            Self::Budget => "1.0",
            _ => "50.0",
        }
    }

    fn script_cases(self) -> Vec<ScriptedCase> {
        let scene = |when: &str, acts: Vec<ScriptedAction>| ScriptedCase::new(when, acts);
        let view = json!({
            "root_cause": "The file says what is wrong.",
            "fix": "Write into greeting.txt what is right.",
            "confidence": "medium",
            "against": "The gate may be what is wrong.",
        });
        let conclusion = json!({
            "root_cause": "The file says what is wrong.",
            "fix": "Write into greeting.txt what is right.",
            "dissent": ["One member would rather look at the gate."],
        });
        let mut script_cases = vec![
            scene(
                "You are a member of the council",
                vec![ScriptedAction::Tool("submit_opinion", view)],
            ),
            scene(
                "You are the chair of the council",
                vec![ScriptedAction::Tool("submit_conclusion", conclusion)],
            ),
            scene("# Council conclusion", vec![plan(self.left(), "As the council says.")]),
            scene("You are the planner", vec![plan(self.left(), "The first idea.")]),
        ];
        match self {
            Self::AlwaysNew | Self::Budget => {
                // The last first: the words of the first attempt are in all of them.
                for (index, word) in WORDS.iter().enumerate().take(10).skip(1).rev() {
                    let when = format!("This is attempt {}.", index + 1);
                    script_cases.push(ScriptedCase { when, acts: vec![attempt(word, None)] });
                }
                let tokens = (self == Self::Budget).then_some(300_000);
                script_cases.push(scene("You are implementing", vec![attempt(WORDS[0], tokens)]));
            }
            Self::Stuck => {
                let write =
                    |text: &str| ScriptedAction::Shell(format!("echo {text} > greeting.txt"), None);
                script_cases.push(scene("As the council says.", vec![write("right")]));
                script_cases.push(scene("You are implementing", vec![write("wrong")]));
            }
            Self::Security => {
                let leak = ScriptedAction::Shell("echo 1234 > key.txt".to_owned(), None);
                script_cases.push(scene("You are implementing", vec![leak]));
            }
        }
        script_cases
    }

    /// The script of a model.
    pub(crate) fn model(self) -> model::Script {
        scripts::model_script(self.script_cases())
    }

    /// The script of an agent without a model.
    pub(crate) fn agent(self) -> agent::Script {
        scripts::agent_script(self.script_cases())
    }
}

/// A gate that fails while a word is the newest.
pub(crate) const GATE: &str = "#!/bin/sh\nset -eu\n\
    if [ -e \"try/$1.txt\" ] && [ ! -e \"try/$2.txt\" ]; then echo \"$1 is not done\"; exit 1; fi\n";

/// An attempt that fails in its own case.
fn attempt(word: &str, tokens: Option<u64>) -> ScriptedAction {
    ScriptedAction::Shell(format!("mkdir -p try && echo {word} > try/{word}.txt"), tokens)
}

/// A small plan, which needs nobody's approval.
fn plan(file: &str, summary: &str) -> ScriptedAction {
    let plan = json!({
        "summary": summary,
        "approach": "Write the file.",
        "file_changes": [
            { "path": file, "action": "create", "description": "what is asked", "estimated_lines": 1 }
        ],
        "testing_strategy": "The gates look at it.",
    });
    ScriptedAction::Tool("submit_plan", plan)
}
