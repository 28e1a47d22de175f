//! Tasks with all outcomes: scripts of their agents, actions of people, and final states.

use serde_json::json;
use tamma_core::plan::{FileAction, Plan};
use tamma_core::task_loop::State;
use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::sample::sample_change;
use tamma_testkit::sample_plan;

/// Course of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumIter, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum OutcomeCase {
    /// Completed in the first run.
    AtOnce,
    /// Completed after one failed gate.
    AfterOneFailure,
    /// Completed after two failed gates.
    AfterTwoFailures,
    /// Never passes; a person abandons it.
    GivenUp,
    /// Cancelled by a person before the plan is approved.
    CancelledAtApproval,
    /// Cancelled by a person during a run.
    CancelledAtWork,
    /// Cancelled by a person when a decision is requested.
    CancelledWhenAsked,
    /// Exceeds the budget.
    OverBudget,
    /// Fails a security gate.
    Security,
    /// Planner submits no valid plan.
    WithoutPlan,
}

/// Behaviour of the agent that captures lessons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LearnBehaviour {
    /// Submits a lesson with the tool.
    Tool,
    /// Submits a lesson in its last message.
    Message,
    /// Cites missing evidence, is refused, and submits a valid lesson.
    Corrects,
    /// Crashes.
    Crashes,
    /// Submits nothing.
    Silent,
}

impl LearnBehaviour {
    pub(crate) fn of(number: u32) -> Self {
        match number % 6 {
            0 | 1 => Self::Tool,
            2 => Self::Message,
            3 => Self::Corrects,
            4 => Self::Crashes,
            _ => Self::Silent,
        }
    }

    /// Returns the steps of the agent.
    fn steps(self, case: OutcomeCase) -> Vec<AgentStep> {
        let lessons = |evidence: &str| {
            json!({ "lessons": [{
                "kind": "learning",
                "text": format!("Check a task that is {} before the next one.", case.to_string().replace('_', " ")),
                "keywords": ["greeter"],
                "severity": "low",
                "evidence": [evidence],
            }] })
        };
        let tool = |evidence: &str| AgentStep::Tool {
            name: "submit_lessons".to_owned(),
            args: lessons(evidence),
        };
        match self {
            Self::Tool => vec![tool("event 1")],
            Self::Message => vec![AgentStep::Submit(lessons("event 1"))],
            Self::Corrects => vec![tool("event 4711"), tool("event 1")],
            Self::Crashes => vec![AgentStep::Die],
            Self::Silent => vec![AgentStep::Say("No lessons.".to_owned())],
        }
    }
}

impl OutcomeCase {
    /// Returns the expected final state.
    pub(crate) fn ending(self) -> State {
        match self {
            Self::AtOnce | Self::AfterOneFailure | Self::AfterTwoFailures => State::Completed,
            Self::GivenUp | Self::OverBudget | Self::Security => State::Failed,
            Self::CancelledAtApproval
            | Self::CancelledAtWork
            | Self::CancelledWhenAsked
            | Self::WithoutPlan => State::Cancelled,
        }
    }

    /// Returns the state in which a person acts, if any.
    pub(crate) fn person_acts_in(self) -> Option<State> {
        match self {
            Self::AtOnce | Self::AfterOneFailure | Self::AfterTwoFailures => None,
            Self::CancelledAtApproval => Some(State::AwaitingApproval),
            Self::CancelledAtWork => Some(State::InProgress),
            _ => Some(State::HumanEscalation),
        }
    }

    /// Returns the gate.
    pub(crate) fn gates(self) -> &'static str {
        match self {
            Self::Security => "  keys: { command: test ! -e key.txt, kind: security }\n",
            _ => "  names: { command: '! grep -q wrong names.txt', kind: tests }\n",
        }
    }

    /// Returns the configuration except agent and gates.
    pub(crate) fn rules(self) -> String {
        let runs = match self {
            Self::GivenUp | Self::CancelledWhenAsked => 1,
            _ => 10,
        };
        let approve = self != Self::CancelledAtApproval;
        let budget = if self == Self::OverBudget { "budget: { task_usd: 1.0 }\n" } else { "" };
        format!(
            "{budget}scrum_master:\n  task_loop:\n    max_iterations: {runs}\n    \
             auto_approve_low_risk: {approve}\n    backoff_seconds: 1\n"
        )
    }

    /// Returns the script of the agent.
    pub(crate) fn script(self, behaviour: LearnBehaviour) -> Script {
        let case = |when: &str, steps: Vec<AgentStep>| PromptCase::new(when, steps);
        let write = |content: &str| {
            vec![AgentStep::Write { path: "names.txt".into(), content: content.to_owned() }]
        };
        let (wrong, right) = (write("ann\nwrong\n"), write("ann\nbo\ncy\n"));
        let planned = match self {
            Self::WithoutPlan => vec![AgentStep::Say("I have no idea.".to_owned())],
            _ => vec![AgentStep::Plan(Box::new(plan()))],
        };
        let mut cases = vec![
            case("You look back at a development task", behaviour.steps(self)),
            case(PLANNER, planned),
        ];
        match self {
            Self::AfterOneFailure => cases.push(case("This is attempt 2.", right.clone())),
            Self::AfterTwoFailures => cases.push(case("This is attempt 3.", right.clone())),
            _ => {}
        }
        let work = match self {
            Self::AtOnce => right,
            Self::CancelledAtWork => vec![AgentStep::Hang],
            Self::OverBudget => {
                let cost = "0.99".to_owned();
                [wrong, vec![AgentStep::Usage { cost }]].concat()
            }
            Self::Security => {
                vec![AgentStep::Write { path: "key.txt".into(), content: "4711".to_owned() }]
            }
            _ => wrong,
        };
        cases.push(case(IMPLEMENTER, work));
        Script::from_cases(cases)
    }
}

/// Returns the plan of every task.
fn plan() -> Plan {
    let file_changes = vec![
        sample_change("names.txt", FileAction::Modify),
        sample_change("key.txt", FileAction::Create),
    ];
    Plan { file_changes, ..sample_plan(1) }
}
