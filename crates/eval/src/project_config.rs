//! `tamma.yaml` of the projects that an evaluation creates.

use std::path::Path;

use serde_json::{Map, Value, json};
use tamma_core::cost::Usd;
use tamma_core::rules::{Rules, TierRules};

use crate::agent::ScriptedRole;
use crate::case::Arm;
use crate::task_set::EvalTask;

/// Variable that shortens suites that take long on purpose.
const SUITE_VARIABLE: &str = "SUITE_SECONDS";

/// Agent of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentChoice {
    /// Scripted agent, which needs no model.
    Scripted(ScriptedRole),
    /// Configured agent.
    Real {
        /// Name of a built-in agent.
        agent: String,
        /// Model for all tiers; `None` for the models of the tiers, or the agent's own choice.
        model: Option<String>,
    },
}

impl AgentChoice {
    /// Returns the choice for an agent's name. A scripted agent has no model.
    pub fn new(agent: &str, model: Option<&str>) -> Self {
        match agent.parse() {
            Ok(role @ (ScriptedRole::Oracle | ScriptedRole::Idle)) => Self::Scripted(role),
            Ok(ScriptedRole::StandIn | ScriptedRole::Demo) | Err(_) => {
                Self::Real { agent: agent.to_owned(), model: model.map(str::to_owned) }
            }
        }
    }

    /// Returns `true` if runs cost money.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real { .. })
    }

    /// Returns `true` if a project of this arm needs the script of a scripted agent.
    pub fn needs_script(&self, arm: Arm) -> bool {
        !self.is_real() || arm == Arm::Bare
    }
}

/// Builds the configuration of a project, as JSON, which is also YAML.
///
/// `program` is `tamma` itself, which runs the scripted agents, and `script` their file. The arm
/// `bare` puts the agent in the lowest tier, allows one run, and gives planning and validation to
/// `stand-in`. Lessons would cost money and change later trials, so none are captured.
pub fn project_config(
    task: &EvalTask,
    arm: Arm,
    choice: &AgentChoice,
    (program, script): (&Path, &Path),
    budget: Option<Usd>,
    suite_seconds: Option<u32>,
) -> Value {
    let scripted = |role: ScriptedRole| {
        let arguments = ["eval-agent".to_owned(), role.to_string(), script.display().to_string()];
        json!({ "command": program.display().to_string(), "args": arguments })
    };
    let free_tier = |role: ScriptedRole| json!({ "agent": role.to_string(), "model": "default", "typical_run_usd": 0 });
    let mut agents = Map::new();
    let mut tiers = match choice {
        AgentChoice::Scripted(role) => {
            agents.insert(role.to_string(), scripted(*role));
            [(); 3].map(|()| free_tier(*role))
        }
        AgentChoice::Real { agent, model } => real_tiers(agent, model.as_deref(), arm),
    };
    let mut task_loop = Map::new();
    if !choice.is_real() {
        task_loop.insert("backoff_seconds".to_owned(), json!(1));
    }
    let mut config = json!({
        "budget": { "task_usd": budget.map(amount) },
        "ceremony": { "high": { "human_review": false } },
    });
    if arm == Arm::Bare {
        let role = ScriptedRole::StandIn;
        agents.insert(role.to_string(), scripted(role));
        tiers[1] = free_tier(role);
        tiers[2] = free_tier(role);
        task_loop.insert("max_iterations".to_owned(), json!(1));
        config["roles"] = json!({ "planner": "complex", "validator": "complex" });
    }
    let [simple, moderate, complex] = tiers;
    config["tiers"] = json!({ "simple": simple, "moderate": moderate, "complex": complex });
    config["scrum_master"] = json!({
        "task_loop": task_loop,
        "learning_capture": { "capture_success": false, "capture_failure": false },
        "alerts": { "channels": [] },
    });
    if !agents.is_empty() {
        config["agents"] = Value::Object(agents);
    }
    if choice.needs_script(arm) {
        config["engines"] = json!({ "readable": [script.display().to_string()] });
    }
    let mut gates = task.gates.clone();
    if let Some(seconds) = suite_seconds {
        for gate in gates.values_mut() {
            gate.command = format!("{SUITE_VARIABLE}={seconds} {}", gate.command);
        }
    }
    config["gates"] = json!(gates);
    config
}

/// Returns an amount as the number that `tamma.yaml` expects.
fn amount(usd: Usd) -> Value {
    let text = json!(usd);
    let number = text.as_str().and_then(|text| text.parse::<f64>().ok());
    number.map_or(Value::Null, |number| json!(number))
}

/// Tiers of a real agent. In the arm `bare` only the first one counts; it gets the middle model.
fn real_tiers(agent: &str, model: Option<&str>, arm: Arm) -> [Value; 3] {
    let defaults = Rules::default().tiers;
    let tiers = [&defaults.simple, &defaults.moderate, &defaults.complex];
    tiers.map(|tier: &TierRules| {
        let tier = if arm == Arm::Bare { &defaults.moderate } else { tier };
        let own = (tier.agent == agent).then_some(tier.model.as_str());
        let model = model.or(own).unwrap_or("default");
        json!({ "agent": agent, "model": model, "typical_run_usd": amount(tier.typical_run_usd) })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamma_core::operator::OperatorConfig;
    use tamma_core::rules;

    use super::*;
    use crate::task_set::TaskSet;

    fn rules_for(task: &str, arm: Arm, choice: &AgentChoice) -> Rules {
        let set = TaskSet::open("starter").expect("valid tasks");
        let task = &set.task(task).expect("there").task;
        let budget = choice.is_real().then(|| Usd::from_cents(150));
        let paths = (Path::new("/opt/tamma"), Path::new("/data/script.json"));
        let text = project_config(task, arm, choice, paths, budget, Some(12)).to_string();
        let file = rules::ConfigFile { name: "tamma.yaml", text: &text };
        let readable = vec!["/".to_owned()];
        let operator = OperatorConfig { readable, ..OperatorConfig::default() };
        match rules::load(Some(file), &BTreeMap::new(), &operator) {
            Ok(loaded) => loaded.rules,
            Err(problems) => panic!("{problems}\n{text}"),
        }
    }

    #[test]
    fn every_configuration_is_valid() {
        let set = TaskSet::open("starter").expect("valid tasks");
        for task in &set.tasks {
            for arm in [Arm::Loop, Arm::Bare] {
                for agent in ["oracle", "idle", "claude-code", "gemini"] {
                    rules_for(&task.id, arm, &AgentChoice::new(agent, None));
                }
            }
        }
    }

    #[test]
    fn bare_has_one_run_and_the_middle_model() {
        let rules = rules_for("off-by-one", Arm::Bare, &AgentChoice::new("claude-code", None));
        assert_eq!(rules.tiers.simple.agent, "claude-code");
        assert_eq!(rules.tiers.simple.model, Rules::default().tiers.moderate.model);
        assert_eq!(rules.tiers.complex.agent, "stand-in");
        assert_eq!(rules.scrum_master.task_loop.max_iterations, 1);
        let rules = rules_for("off-by-one", Arm::Loop, &AgentChoice::new("codex", Some("gpt-5.5")));
        assert_eq!(rules.tiers.complex.model, "gpt-5.5");
        assert_eq!(rules.budget.task_usd, Some(Usd::from_cents(150)));
        assert!(rules.engines.readable.is_empty(), "a real agent cannot read a solution");
    }

    #[test]
    fn a_long_suite_can_be_shortened() {
        let rules = rules_for("four-minute-suite", Arm::Loop, &AgentChoice::new("oracle", None));
        assert!(rules.gates["tests"].command.starts_with("SUITE_SECONDS=12 python3"));
        assert_eq!(rules.budget.task_usd, None);
    }
}
