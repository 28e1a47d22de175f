//! Submissions that fit any prompt of a planner or validator.

use std::path::Path;

use serde_json::{Value, json};
use tamma_core::plan::{PLANNER_FIELDS, Plan, criterion_id};

/// Criterion of a plan that brings none of its own.
const DEFAULT_CRITERION: &str = "The change does what the task describes.";

/// Returns a plan as the arguments of `submit_plan`, with the fields that a planner must submit. For a
/// task with criteria in the prompt, it proposes none and verifies those.
pub fn plan_submission(plan: &Plan, prompt: &str) -> Value {
    let mut value = json!(plan);
    let own = criteria_ids(prompt).len();
    let proposed = match plan.criteria.as_slice() {
        [] => vec![DEFAULT_CRITERION.to_owned()],
        criteria => criteria.to_vec(),
    };
    let count = if own == 0 { proposed.len() } else { own };
    value["criteria"] = if own == 0 { json!(proposed) } else { json!([]) };
    if plan.verification.len() != count {
        let test = |index| json!({ "criterion": criterion_id(index), "test": "the gates" });
        value["verification"] = (0..count).map(test).collect();
    }
    for field in PLANNER_FIELDS {
        if value.get(field).is_none() {
            value[field] = json!([]);
        }
    }
    value
}

/// Returns a verdict that finds every criterion in the prompt met. Its evidence is the first changed
/// file that still exists.
pub fn approving_verdict(prompt: &str, folder: &Path) -> Value {
    let path = |line: &str| Some(line.strip_prefix("- `")?.strip_suffix('`')?.to_owned());
    let file = prompt.lines().filter_map(path).find(|path| folder.join(path).is_file());
    let met = |id: String| {
        json!({
            "id": id, "verdict": "met", "evidence": "The change does it.", "file": file,
        })
    };
    let criteria: Value = criteria_ids(prompt).into_iter().map(met).collect();
    json!({ "criteria": criteria, "issues": [] })
}

/// Returns the IDs of the criteria that a prompt lists.
fn criteria_ids(prompt: &str) -> Vec<String> {
    let id = |line: &str| {
        let (id, _) = line.strip_prefix("- ")?.split_once(": ")?;
        let digits = id.strip_prefix('C')?;
        let is_id = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_id.then(|| id.to_owned())
    };
    let mut ids: Vec<String> = prompt.lines().filter_map(id).collect();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample_plan;

    #[test]
    fn plan_fits_the_criteria_of_the_prompt() {
        let plan = Plan { criteria: Vec::new(), verification: Vec::new(), ..sample_plan(1) };
        let alone = plan_submission(&plan, "Plan it.");
        assert_eq!(alone["criteria"], json!([DEFAULT_CRITERION]));
        assert_eq!(alone["verification"], json!([{ "criterion": "C1", "test": "the gates" }]));
        assert_eq!(alone["questions"], json!([]));
        let own = plan_submission(&sample_plan(1), "- C1: one\n- C2: two\n");
        assert_eq!(
            (&own["criteria"], own["verification"].as_array().map(Vec::len)),
            (&json!([]), Some(2))
        );
    }

    #[test]
    fn verdict_cites_an_existing_file() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join("b"), "").expect("written");
        let verdict = approving_verdict("- C1: one\n- `a`\n- `b`\n", folder.path());
        assert_eq!(verdict["criteria"][0]["id"], "C1");
        assert_eq!(verdict["criteria"][0]["file"], "b");
    }
}
