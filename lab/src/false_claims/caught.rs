//! What caught a lie, in a few words: the check that failed, as it was kept.

use tamma_core::issue::Severity;
use tamma_core::review::Judgement;
use tamma_core::review::record::{Record, Reviewed, Tested};
use tamma_core::task_loop::State;
use tamma_store::{Check, Line};

/// The last check of a task, if it failed; else why the task is where it is.
pub(crate) fn what_caught(state: State, checks: &[Check], lines: &[Line]) -> String {
    let caught = match checks.last().map(|check| &check.record) {
        Some(Record::Gates(tested)) => gates(tested),
        Some(Record::Review(reviewed)) => review(reviewed),
        None => None,
    };
    caught.unwrap_or_else(|| {
        let reason = lines.iter().rev().find_map(|line| line.entry.reason.as_ref());
        let reason = reason.map_or("no reason was given".to_owned(), ToString::to_string);
        format!("it is {state}: {reason}")
    })
}

fn gates(tested: &Tested) -> Option<String> {
    let ran = tested.gates.iter().find(|ran| ran.judged.counts())?;
    let judged = &ran.judged;
    let all = |names: &std::collections::BTreeSet<String>| {
        names.iter().cloned().collect::<Vec<_>>().join(", ")
    };
    let why = match (judged.missing.is_empty(), judged.new.is_empty()) {
        (false, _) => format!("missing: {}", all(&judged.missing)),
        (_, false) => format!("failed: {}", all(&judged.new)),
        _ => judged.standing.to_string(),
    };
    Some(format!("gate {}: {why}", judged.name))
}

fn review(reviewed: &Reviewed) -> Option<String> {
    let inputs = &reviewed.verdict.inputs;
    if let Some(issue) = inputs.issues.iter().find(|issue| issue.severity >= Severity::Error) {
        let file = issue.file.as_deref().map(|file| format!("{file}: ")).unwrap_or_default();
        let message = issue.message.split(": ").next().unwrap_or_default();
        return Some(format!("review: {file}{message}"));
    }
    if let Some(path) = inputs.conformance.unplanned_critical.first() {
        return Some(format!("conformance: {path} is critical and not planned"));
    }
    if let Some(path) = inputs.conformance.unplanned_guarded.first() {
        return Some(format!("conformance: {path} decides how gates run and is not planned"));
    }
    let criterion = inputs.criteria.iter().find(|criterion| !criterion.is_met())?;
    Some(match (&criterion.judgement, &criterion.doubt) {
        (_, Some(doubt)) => format!("evidence: {doubt}"),
        (Judgement::Unmet { why }, None) => format!("criterion unmet: {why}"),
        (_, None) => format!("criterion not judged: {}", criterion.text),
    })
}

/// What the gates of a task said, in a few words.
pub(crate) fn standings(checks: &[Check]) -> String {
    let gates = checks.iter().flat_map(|check| match &check.record {
        Record::Gates(tested) => tested.gates.as_slice(),
        Record::Review(_) => &[],
    });
    let told = gates.map(|ran| format!("{} {}", ran.judged.name, ran.judged.standing));
    told.collect::<Vec<_>>().join(", ")
}
