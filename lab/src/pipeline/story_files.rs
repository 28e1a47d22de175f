//! Files beside a story, as the delivered branch has them.
//!
//! They are read as plain YAML and text, so that names and keys are compared with the specification
//! instead of with the code that writes them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use chrono::DateTime;
use serde_json::{Value, json};
use tamma_core::pipeline::{PhaseRecord, PipelineState};
use tamma_testkit::repository::Repository;

use super::client::FinishedRun;

/// Returns everything that is wrong with the files of a finished run.
pub(crate) fn problems(repository: &Repository, finished: &FinishedRun) -> Result<Vec<String>> {
    let FinishedRun { story, run, branch } = finished;
    let path = story.story_path.as_deref().context("the story has no folder")?;
    let folder = format!("{path}/_workflow");
    let read = |name: &str| repository.git(&["show", &format!("{branch}:{folder}/{name}")]);
    let mut problems = Vec::new();
    let mut check = |name: &str, result: Result<()>| {
        if let Err(error) = result {
            problems.push(format!("{name}: {error:#}"));
        }
    };

    let outputs = || run.records.iter().filter(|(_, record)| record.work.output.is_some());
    let mut expected: BTreeSet<String> =
        outputs().map(|(number, _)| format!("PHASE-{number}-OUTPUT.md")).collect();
    expected.extend(["AGENT-CONTEXT.md", "STATE.md", "TOKEN-LOG.md"].map(str::to_owned));
    let listed = repository.git(&["ls-tree", "--name-only", &format!("{branch}:{folder}")])?;
    let found: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    check("_workflow", equal(&found, &expected));

    // After the last phase of the range, or at the phase that stopped the run.
    let current = match &run.state {
        PipelineState::Stopped { phase, .. } => *phase,
        _ => run.request.to + 1,
    };
    let context = read("AGENT-CONTEXT.md").and_then(|text| front_matter(&text));
    let expected = json!({
        "feature_dir": story.feature_dir,
        "story_id": story.story_id,
        "story_path": path,
        "workflow_path": folder,
        "state_path": format!("{folder}/STATE.md"),
        "current_phase": current,
        "from_phase": run.request.from,
        "to_phase": run.request.to,
        "approve_phases": run.request.approve,
    });
    check("AGENT-CONTEXT.md", context.and_then(|found| equal(&found, &expected)));

    let state = read("STATE.md").and_then(|text| front_matter(&text));
    check("STATE.md", state.and_then(|state| check_state(&state, finished, current)));
    check("TOKEN-LOG.md", read("TOKEN-LOG.md").and_then(|text| check_tokens(&text, finished)));
    for (number, record) in outputs() {
        let name = format!("PHASE-{number}-OUTPUT.md");
        check(&name, read(&name).and_then(|text| check_output(&text, record)));
    }
    Ok(problems)
}

/// Fails with both values if they differ.
fn equal<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<()> {
    ensure!(found == expected, "found {found:?} instead of {expected:?}");
    Ok(())
}

/// Parses a file that is YAML between two lines of dashes.
fn front_matter(text: &str) -> Result<Value> {
    let yaml = text.strip_prefix("---\n").and_then(|rest| rest.strip_suffix("\n---"));
    let yaml = yaml.context("it is not between two lines of dashes")?;
    serde_saphyr::from_str(yaml).map_err(|error| anyhow::anyhow!("{error}"))
}

fn check_state(state: &Value, finished: &FinishedRun, current: u8) -> Result<()> {
    let FinishedRun { story, run, .. } = finished;
    let keys: BTreeSet<&str> =
        state.as_object().context("no map")?.keys().map(String::as_str).collect();
    let expected = ["feature_dir", "story_id", "status", "phases", "current_phase"];
    equal(&keys, &expected.into())?;
    equal(&state["feature_dir"], &json!(story.feature_dir))?;
    equal(&state["story_id"], &json!(story.story_id))?;
    let status = match &run.state {
        PipelineState::Stopped { verdict, .. } => verdict.to_string().to_lowercase(),
        _ => "complete".to_owned(),
    };
    equal(&state["status"], &json!(status))?;
    equal(&state["current_phase"], &json!(current))?;
    let phases = state["phases"].as_object().context("`phases` is no map")?;
    equal(&phases.len(), &run.records.len())?;
    for (number, record) in &run.records {
        let id = run.request.phase(*number).context("an unknown phase is recorded")?.id.clone();
        let key = format!("{number}_{id}");
        let phase = phases.get(&key).with_context(|| format!("`{key}` is missing"))?;
        equal(&phase["status"], &json!(record.status.to_string()))?;
        equal(&phase["signal"], &json!(record.signal))?;
        equal(&phase["tokens_used"], &json!(record.work.tokens()))?;
        let completed = phase["completed_at"].as_str();
        let completed = completed.with_context(|| format!("`{key}` has no `completed_at`"))?;
        DateTime::parse_from_rfc3339(completed)?;
    }
    Ok(())
}

fn check_tokens(text: &str, finished: &FinishedRun) -> Result<()> {
    let run = &finished.run;
    let mut total = 0;
    for (number, record) in run.records.iter().filter(|(_, it)| it.work.usage.is_some()) {
        let title = run.request.phase(*number).map(|phase| phase.title().to_owned());
        let row = format!("| {number}. {} |", title.unwrap_or_default());
        let found: Vec<_> = text.lines().filter(|line| line.starts_with(&row)).collect();
        ensure!(found.len() == 1, "{} rows of phase {number}", found.len());
        let tokens = record.work.tokens();
        ensure!(cell(found[0], 3) == Some(tokens), "`{}` does not have {tokens}", found[0]);
        total += tokens;
    }
    let last = text.lines().next_back().unwrap_or_default();
    let is_total = last.starts_with("| Total |") && cell(last, 3) == Some(total);
    ensure!(is_total, "the last row is `{last}`, and the total is {total}");
    Ok(())
}

/// Returns the number in a cell of a table's row, counted from 0.
fn cell(row: &str, index: usize) -> Option<u64> {
    row.split('|').nth(index + 1)?.trim().parse().ok()
}

fn check_output(text: &str, record: &PhaseRecord) -> Result<()> {
    // A phase that crashed or timed out has no signal; its partial output is checked elsewhere.
    let Some(signal) = &record.signal else { return Ok(()) };
    equal(&text.lines().next_back(), &Some(signal.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yaml_between_dashes_is_accepted() {
        let found = front_matter("---\nstory_id: S-1\napprove_phases: [2, 4]\n---").expect("YAML");
        assert_eq!(found, json!({ "story_id": "S-1", "approve_phases": [2, 4] }));
        assert!(front_matter("story_id: S-1").is_err());
    }

    #[test]
    fn cells_are_counted_without_the_border() {
        assert_eq!(cell("| 1. PM Generate | 90 | 10 | 100 | $0.01 | - |", 3), Some(100));
        assert_eq!(cell("| Total |", 3), None);
    }
}
