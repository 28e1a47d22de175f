//! Values that prompts show.

use serde_json::{Value, json};
use tamma_core::budget::SpendLimit;
use tamma_core::format::{format_number, format_usd};
use tamma_core::level::RiskLevel;
use tamma_core::plan::{Plan, criterion_id};
use tamma_core::rules::{GateRules, Rules};

use crate::job_context::JobContext;

/// Lists of a plan that are not serialised while they are empty.
const OPTIONAL_LISTS: [&str; 5] =
    ["test_changes", "criteria", "assumptions", "questions", "verification"];

/// Returns the criteria with their IDs.
pub(crate) fn criteria_data(criteria: &[String]) -> Value {
    let data = |(index, text): (usize, &String)| json!({ "id": criterion_id(index), "text": text });
    criteria.iter().enumerate().map(data).collect()
}

/// Returns a plan with all of its fields.
pub(crate) fn plan_data(plan: &Plan) -> Value {
    let mut data = json!(plan);
    for list in OPTIONAL_LISTS {
        if data.get(list).is_none() {
            data[list] = json!([]);
        }
    }
    data
}

/// Returns facts about the task's surroundings, merged with the values of a prompt. `risk` selects
/// the gates; before a plan is assessed, all of them are shown.
pub(crate) fn task_facts(ctx: &JobContext, risk: Option<RiskLevel>, values: Value) -> Value {
    let rules = &ctx.rules;
    let mut facts = json!({
        "task": ctx.task,
        // A task that ends early has no base commit.
        "base": ctx.task_loop.pin.map(|pin| pin.base.to_string()),
        "gates": gates_data(rules, risk),
        "limits": {
            "files": rules.scrum_master.risk_thresholds.low.max_files,
            "critical": quoted_list(&rules.scrum_master.risk_thresholds.critical_files),
            "guarded": quoted_list(&rules.review.guarded),
        },
        "setup": setup_command(rules),
    });
    if let (Value::Object(facts), Value::Object(values)) = (&mut facts, values) {
        facts.extend(values);
    }
    facts
}

fn gates_data(rules: &Rules, risk: Option<RiskLevel>) -> Value {
    let data =
        |(name, gate): (&str, &GateRules)| json!({ "name": name, "command": gate.command.trim() });
    shown_gates(rules, risk).map(data).collect()
}

/// Returns the gates that an agent is told about: those of a risk level, or all.
pub(crate) fn shown_gates(
    rules: &Rules,
    risk: Option<RiskLevel>,
) -> impl Iterator<Item = (&str, &GateRules)> {
    rules.gates_at(risk.unwrap_or(RiskLevel::High))
}

/// Returns the command that prepares checkouts, if the project has one.
fn setup_command(rules: &Rules) -> Option<&str> {
    rules.setup.command.as_deref().map(str::trim)
}

fn quoted_list(items: &[String]) -> String {
    items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ")
}

/// Describes the limits of a run.
pub(crate) fn budget_text(allowance: &SpendLimit, seconds: u32) -> String {
    let minutes = seconds.div_ceil(60);
    let mut parts = vec![format!("{minutes} min")];
    parts.extend(allowance.usd.map(format_usd));
    parts.extend(allowance.tokens.map(|tokens| format!("{} tokens", format_number(tokens))));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_names_every_limit() {
        let none = SpendLimit::default();
        assert_eq!(budget_text(&none, 3_601), "61 min");
        let both = SpendLimit { usd: Some("2.5".parse().expect("a price")), tokens: Some(20_000) };
        assert!(
            budget_text(&both, 60).starts_with("1 min, $2.50, 20"),
            "{}",
            budget_text(&both, 60)
        );
    }
}
