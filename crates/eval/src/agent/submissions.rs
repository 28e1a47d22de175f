//! Submissions of the scripted agents, in the form that the tool of the session asks for.

use serde_json::{Map, Value, json};
use tamma_core::plan::FileAction;

use super::{AgentScript, ScriptedRole};

/// File that every repository of a set has, for a plan that knows no other.
const KNOWN_FILE: &str = "README.md";

/// Returns the plan of an agent. `schema` is the input schema of the tool, which decides about the
/// fields that not every version has.
pub(super) fn plan(script: &AgentScript, role: ScriptedRole, schema: &Value) -> Value {
    let mut plan = match role {
        ScriptedRole::Oracle | ScriptedRole::Idle | ScriptedRole::Demo => known_plan(script),
        ScriptedRole::StandIn => open_plan(),
    };
    let criteria = judged_criteria(script, role);
    let verification: Vec<_> = (1..=criteria.len())
        .map(
            |number| json!({ "criterion": format!("C{number}"), "test": "the tests of the gates" }),
        )
        .collect();
    let mut offer = |name: &str, value: Value| {
        if schema["properties"].get(name).is_some() {
            plan.insert(name.to_owned(), value);
        }
    };
    let graded = ["novelty", "tests", "security", "ambiguity"].map(|it| (it, json!("none")));
    let signals: Map<String, Value> = graded
        .into_iter()
        .chain([("modules", json!(1))])
        .map(|(it, v)| (it.to_owned(), v))
        .collect();
    offer("signals", Value::Object(signals));
    offer("assumptions", json!([]));
    offer("questions", json!([]));
    offer("verification", json!(verification));
    if script.criteria.is_empty() {
        offer("criteria", json!(criteria));
    }
    Value::Object(plan)
}

/// Returns the criteria that a validator judges: those of the task, or those that the plan proposes.
fn judged_criteria(script: &AgentScript, role: ScriptedRole) -> Vec<String> {
    match role {
        _ if !script.criteria.is_empty() => script.criteria.clone(),
        ScriptedRole::Oracle | ScriptedRole::Idle | ScriptedRole::Demo => {
            script.notes.criteria.clone()
        }
        ScriptedRole::StandIn => vec!["The task is done as its description says.".to_owned()],
    }
}

/// Plan that names the files of the known patch.
fn known_plan(script: &AgentScript) -> Map<String, Value> {
    let notes = &script.notes;
    let files: Vec<_> = script
        .changes
        .iter()
        .map(|change| {
            json!({
                "path": change.path,
                "action": change.action,
                "description": change.description.as_ref().unwrap_or(&notes.summary),
                "estimated_lines": 10,
            })
        })
        .collect();
    object(json!({
        "summary": notes.summary,
        "approach": notes.approach,
        "file_changes": files,
        "testing_strategy": notes.testing,
        "test_changes": notes.test_changes,
    }))
}

/// Plan that leaves everything to the agent that implements it.
fn open_plan() -> Map<String, Value> {
    object(json!({
        "summary": "There is no plan: do the task as it is described.",
        "approach": "Decide for yourself which files to change and how. The list of files is only a \
                     formality and limits nothing: manifests, lock files and tests may change if \
                     the task needs it.",
        "file_changes": [{
            "path": KNOWN_FILE,
            "action": FileAction::Modify,
            "description": "Only if the task asks for it. Any other file may change as well.",
            "estimated_lines": 0,
        }],
        "testing_strategy": "Make sure that the gates pass.",
        "test_changes": [],
    }))
}

/// Returns a verdict that every criterion is met.
pub(super) fn verdict(script: &AgentScript, role: ScriptedRole, schema: &Value) -> Value {
    let is_kept = |action: FileAction| action != FileAction::Delete;
    let changed = script.changes.iter().find(|change| is_kept(change.action));
    let file = changed.map_or(KNOWN_FILE, |change| change.path.as_str());
    let evidence = match role {
        ScriptedRole::Oracle | ScriptedRole::Idle => "The known patch does it.",
        ScriptedRole::StandIn => "Not judged: the hidden tests decide.",
        ScriptedRole::Demo => "The demo agent follows a script and judges nothing.",
    };
    let judged = judged_criteria(script, role);
    if schema["properties"]["criteria"]["type"] == "array" {
        let criteria: Vec<_> = (1..=judged.len())
            .map(|number| {
                json!({
                    "id": format!("C{number}"),
                    "verdict": "met",
                    "evidence": evidence,
                    "file": file,
                    "line": 1,
                })
            })
            .collect();
        return json!({ "criteria": criteria, "issues": [] });
    }
    let met = json!({ "met": { "evidence": evidence, "file": file, "line": 1 } });
    let criteria: Map<String, Value> = judged.into_iter().map(|text| (text, met.clone())).collect();
    json!({ "criteria": criteria, "issues": [] })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ScriptedChange;
    use super::*;
    use crate::task_set::{ExpectedOutcome, OracleNotes};

    fn script(criteria: &[&str], proposed: &[&str]) -> AgentScript {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        AgentScript {
            expected: ExpectedOutcome::Delivered,
            criteria: texts(criteria),
            answer: None,
            notes: OracleNotes {
                summary: "a".to_owned(),
                approach: "b".to_owned(),
                testing: "c".to_owned(),
                criteria: texts(proposed),
                ..OracleNotes::default()
            },
            changes: vec![ScriptedChange {
                path: "x.py".to_owned(),
                action: FileAction::Modify,
                description: None,
                content: Some(String::new()),
                first_attempt: None,
            }],
        }
    }

    #[test]
    fn a_plan_has_only_the_fields_of_the_schema() {
        let old = json!({ "properties": { "signals": {} } });
        let plan = |schema| super::plan(&script(&["it works"], &[]), ScriptedRole::Oracle, schema);
        assert_eq!(plan(&old).get("verification"), None);
        let new = json!({ "properties": { "verification": {}, "criteria": {}, "questions": {} } });
        assert_eq!(plan(&new)["verification"][0]["criterion"], "C1");
        assert_eq!(plan(&new).get("criteria"), None, "the task has its own");
        let proposed = super::plan(&script(&[], &["d"]), ScriptedRole::Oracle, &new);
        assert_eq!(proposed["criteria"], json!(["d"]));
        let parsed: tamma_core::plan::Plan =
            serde_json::from_value(plan(&old)).expect("a plan of this version");
        assert!(parsed.validate().is_empty());
    }

    #[test]
    fn the_open_plan_names_no_solution() {
        let plan = super::plan(&script(&[], &[]), ScriptedRole::StandIn, &json!({}));
        assert!(!plan.to_string().contains("x.py"), "{plan}");
        assert_eq!(plan["file_changes"][0]["path"], "README.md");
    }

    #[test]
    fn a_verdict_follows_the_schema() {
        let script = script(&["it works", "it is fast"], &[]);
        let list = json!({ "properties": { "criteria": { "type": "array" } } });
        let verdict = super::verdict(&script, ScriptedRole::Oracle, &list);
        assert_eq!(verdict["criteria"][1]["id"], "C2");
        let map = json!({ "properties": { "criteria": { "type": "object" } } });
        let verdict = super::verdict(&script, ScriptedRole::Oracle, &map);
        assert_eq!(verdict["criteria"]["it works"]["met"]["file"], "x.py");
    }
}
