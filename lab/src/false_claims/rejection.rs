//! Reason for a rejected claim, from the stored checks.

use tamma_core::issue::IssueSeverity;
use tamma_core::review::CriterionJudgement;
use tamma_core::review::record::{CheckRecord, GatesCheck, ReviewCheck};
use tamma_core::task_loop::State;
use tamma_store::{CommitCheck, RecordedEntry};

/// Describes the failed check of a task, or the reason for its state.
pub(crate) fn rejection_reason(
    state: State,
    checks: &[CommitCheck],
    lines: &[RecordedEntry],
) -> String {
    let failed = match checks.last().map(|check| &check.record) {
        Some(CheckRecord::Gates(check)) => gates(check),
        Some(CheckRecord::Review(check)) => review(check),
        None => None,
    };
    failed.unwrap_or_else(|| {
        let reason = lines.iter().rev().find_map(|line| line.entry.reason.as_ref());
        let reason = reason.map_or("no reason given".to_owned(), ToString::to_string);
        format!("task is {state}: {reason}")
    })
}

fn gates(check: &GatesCheck) -> Option<String> {
    let gate = check.gates.iter().find(|gate| gate.verdict.is_blocking())?;
    let verdict = &gate.verdict;
    let all = |names: &std::collections::BTreeSet<String>| {
        names.iter().cloned().collect::<Vec<_>>().join(", ")
    };
    let cause = match (verdict.missing.is_empty(), verdict.new.is_empty()) {
        (false, _) => format!("missing: {}", all(&verdict.missing)),
        (_, false) => format!("failed: {}", all(&verdict.new)),
        _ => verdict.status.to_string(),
    };
    Some(format!("gate {}: {cause}", verdict.name))
}

fn review(check: &ReviewCheck) -> Option<String> {
    let inputs = &check.verdict.inputs;
    if let Some(issue) = inputs.issues.iter().find(|issue| issue.severity >= IssueSeverity::Error) {
        let file = issue.file.as_deref().map(|file| format!("{file}: ")).unwrap_or_default();
        let message = issue.message.split(": ").next().unwrap_or_default();
        return Some(format!("review: {file}{message}"));
    }
    if let Some(path) = inputs.conformance.unplanned_critical.first() {
        return Some(format!("conformance: {path} is critical and not planned"));
    }
    if let Some(path) = inputs.conformance.unplanned_guarded.first() {
        return Some(format!("conformance: {path} affects the gates and is not planned"));
    }
    let criterion = inputs.criteria.iter().find(|criterion| !criterion.is_met())?;
    Some(match (&criterion.judgement, &criterion.evidence_error) {
        (_, Some(error)) => format!("evidence: {error}"),
        (CriterionJudgement::Unmet { reason }, None) => format!("criterion unmet: {reason}"),
        (_, None) => format!("criterion not judged: {}", criterion.text),
    })
}

/// Lists the gates of a task with their status.
pub(crate) fn gate_statuses(checks: &[CommitCheck]) -> String {
    let gates = checks.iter().flat_map(|check| match &check.record {
        CheckRecord::Gates(check) => check.gates.as_slice(),
        CheckRecord::Review(_) => &[],
    });
    let texts = gates.map(|gate| format!("{} {}", gate.verdict.name, gate.verdict.status));
    texts.collect::<Vec<_>>().join(", ")
}
