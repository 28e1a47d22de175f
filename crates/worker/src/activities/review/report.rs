//! Text form of a review, for the failure brief and for validators.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tamma_core::issue::{Issue, IssueSeverity};
use tamma_core::review::record::GateRecord;
use tamma_core::review::{CriterionJudgement, ReviewInputs};

/// Describes why a review failed, for the failure brief. Blocking issues come first.
pub(super) fn failure_report(inputs: &ReviewInputs, validated: bool) -> String {
    let mut text = String::from("## The review failed\n\n");
    let blocks = |issue: &&Issue| issue.severity >= IssueSeverity::Error;
    for issue in inputs.issues.iter().filter(blocks) {
        let _ = writeln!(text, "- {}", describe_issue(issue));
    }
    let conformance = &inputs.conformance;
    for path in &conformance.unplanned_critical {
        let _ = writeln!(text, "- `{path}` is critical and not in the approved plan: revert it");
    }
    for path in &conformance.unplanned_guarded {
        let _ = writeln!(
            text,
            "- `{path}` controls how gates run and is not in the approved plan: revert it"
        );
    }
    let unmet = inputs.criteria.iter().filter(|criterion| !criterion.is_met());
    for criterion in unmet.filter(|_| validated) {
        let reason = match (&criterion.judgement, &criterion.evidence_error) {
            (CriterionJudgement::Unmet { reason }, _) => reason.clone(),
            (CriterionJudgement::Met { .. }, Some(doubt)) => format!("not shown: {doubt}"),
            (CriterionJudgement::Met { .. }, None) => "not shown".to_owned(),
            (CriterionJudgement::Unjudged, _) => "not judged by the validator".to_owned(),
        };
        let _ = writeln!(text, "- not met: {}: {reason}", criterion.text);
    }
    if !validated && !inputs.criteria.is_empty() {
        text.push_str("\nThe criteria were not judged: fix the issues above first.\n");
    }
    let rest: Vec<_> = inputs.issues.iter().filter(|issue| !blocks(issue)).collect();
    if !rest.is_empty() || !conformance.unplanned.is_empty() {
        text.push_str("\nNot blocking, but worth fixing:\n\n");
    }
    for issue in rest {
        let _ = writeln!(text, "- {}", describe_issue(issue));
    }
    for path in &conformance.unplanned {
        let _ = writeln!(text, "- `{path}` is not in the approved plan");
    }
    text
}

fn describe_issue(issue: &Issue) -> String {
    let location = match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!("`{file}`, line {line}: "),
        (Some(file), None) => format!("`{file}`: "),
        (None, _) => String::new(),
    };
    format!("{} ({}): {location}{}", issue.severity, issue.category, issue.message)
}

/// Describes a gate result for a prompt.
pub(super) fn gate_data(ran: &GateRecord) -> Value {
    let tests = ran.tests.map(|tests| {
        let mut text = format!("{} tests passed", tests.passed);
        for (count, outcome) in [(tests.failed, "failed"), (tests.skipped, "were skipped")] {
            if count > 0 {
                let _ = write!(text, ", {count} {outcome}");
            }
        }
        text
    });
    let judged = &ran.verdict;
    let status = judged.status.to_string().replace('_', " ");
    json!({ "name": judged.name, "kind": judged.kind, "standing": status, "tests": tests })
}
