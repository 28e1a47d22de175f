//! Sixty tasks of all outcomes: what their agents do, what people do to them, and how they must end.

use serde_json::json;
use tamma_core::plan::Plan;
use tamma_core::task_loop::State;
use tamma_testkit::agent::{AgentStep, PromptCase, Script};

/// What a task goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumIter, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum OutcomeCase {
    /// It is completed at once.
    AtOnce,
    /// A gate fails first.
    AfterOneFailure,
    /// Two fail first.
    AfterTwoFailures,
    /// It never passes, and a person gives it up.
    GivenUp,
    /// A person cancels it before the plan is approved.
    CancelledAtApproval,
    /// A person cancels it while an agent works.
    CancelledAtWork,
    /// A person cancels it when they are asked what to do.
    CancelledWhenAsked,
    /// It costs all that there is.
    OutOfMoney,
    /// A gate of security finds something.
    Security,
    /// Its planner hands in nothing that can be used.
    WithoutPlan,
}

/// Who says what the task has taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LearnBehaviour {
    /// An agent hands in a lesson with the tool.
    Tool,
    /// It does so with the last words of its message.
    Message,
    /// It points at something that is not there, is told so, and mends it.
    Mends,
    /// It dies.
    Dies,
    /// It hands in nothing, however often it is asked.
    Silent,
}

impl LearnBehaviour {
    pub(crate) fn of(number: u32) -> Self {
        match number % 6 {
            0 | 1 => Self::Tool,
            2 => Self::Message,
            3 => Self::Mends,
            4 => Self::Dies,
            _ => Self::Silent,
        }
    }

    /// What it does when it is asked.
    fn steps(self, case: OutcomeCase) -> Vec<AgentStep> {
        let taught = |evidence: &str| {
            json!({ "lessons": [{
                "kind": "learning",
                "text": format!("A task that is {} is looked at before the next one.", case.to_string().replace('_', " ")),
                "keywords": ["greeter"],
                "severity": "low",
                "evidence": [evidence],
            }] })
        };
        let tool = |evidence: &str| AgentStep::Tool {
            name: "submit_lessons".to_owned(),
            args: taught(evidence),
        };
        match self {
            Self::Tool => vec![tool("event 1")],
            Self::Message => vec![AgentStep::Submit(taught("event 1"))],
            Self::Mends => vec![tool("event 4711"), tool("event 1")],
            Self::Dies => vec![AgentStep::Die],
            Self::Silent => vec![AgentStep::Say("There is nothing to say.".to_owned())],
        }
    }
}

impl OutcomeCase {
    /// How it must end.
    pub(crate) fn ending(self) -> State {
        match self {
            Self::AtOnce | Self::AfterOneFailure | Self::AfterTwoFailures => State::Completed,
            Self::GivenUp | Self::OutOfMoney | Self::Security => State::Failed,
            Self::CancelledAtApproval
            | Self::CancelledAtWork
            | Self::CancelledWhenAsked
            | Self::WithoutPlan => State::Cancelled,
        }
    }

    /// The state in which a person does something, if one does.
    pub(crate) fn asks(self) -> Option<State> {
        match self {
            Self::AtOnce | Self::AfterOneFailure | Self::AfterTwoFailures => None,
            Self::CancelledAtApproval => Some(State::AwaitingApproval),
            Self::CancelledAtWork => Some(State::InProgress),
            _ => Some(State::HumanEscalation),
        }
    }

    /// Its rules, beside its agent.
    pub(crate) fn rules(self) -> String {
        let gates = match self {
            Self::Security => "  keys: { command: test ! -e key.txt, kind: security }\n",
            _ => "  names: { command: '! grep -q wrong names.txt', kind: tests }\n",
        };
        let runs = match self {
            Self::GivenUp | Self::CancelledWhenAsked => 1,
            _ => 10,
        };
        let approve = self != Self::CancelledAtApproval;
        let budget = if self == Self::OutOfMoney { "budget: { task_usd: 1.0 }\n" } else { "" };
        format!(
            "gates:\n{gates}{budget}scrum_master:\n  task_loop:\n    max_iterations: {runs}\n    \
             auto_approve_low_risk: {approve}\n    backoff_seconds: 1\n"
        )
    }

    /// What its agent does.
    pub(crate) fn script(self, behaviour: LearnBehaviour) -> Script {
        let case = |when: &str, steps| PromptCase { when: when.to_owned(), unless: None, steps };
        let write = |content: &str| {
            vec![AgentStep::Write { path: "names.txt".into(), content: content.to_owned() }]
        };
        let (wrong, right) = (write("ann\nwrong\n"), write("ann\nbo\ncy\n"));
        let planned = match self {
            Self::WithoutPlan => vec![AgentStep::Say("I have no idea.".to_owned())],
            _ => plan().map(|plan| vec![AgentStep::Plan(Box::new(plan))]).unwrap_or_default(),
        };
        let mut cases = vec![
            case("You look back at a development task", behaviour.steps(self)),
            case("You are the planner", planned),
        ];
        match self {
            Self::AfterOneFailure => cases.push(case("This is attempt 2.", right.clone())),
            Self::AfterTwoFailures => cases.push(case("This is attempt 3.", right.clone())),
            _ => {}
        }
        let work = match self {
            Self::AtOnce => right,
            Self::CancelledAtWork => vec![AgentStep::Hang],
            Self::OutOfMoney => {
                let cost = "0.99".to_owned();
                [wrong, vec![AgentStep::Usage { cost }]].concat()
            }
            Self::Security => {
                vec![AgentStep::Write { path: "key.txt".into(), content: "4711".to_owned() }]
            }
            _ => wrong,
        };
        cases.push(case("You are implementing", work));
        Script { cases, ..Script::default() }
    }
}

/// A plan that every task has.
fn plan() -> Option<Plan> {
    let change = |path: &str| json!({ "path": path, "action": "modify", "description": "a name more", "estimated_lines": 1 });
    serde_json::from_value(json!({
        "summary": "A name more",
        "approach": "Write it down.",
        "file_changes": [change("names.txt"), change("key.txt")],
        "testing_strategy": "The gates look at it.",
    }))
    .ok()
}
