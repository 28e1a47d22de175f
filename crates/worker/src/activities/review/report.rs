//! Text form of a review, for the failure brief and for validators.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tamma_core::issue::{Issue, IssueSeverity};
use tamma_core::review::record::GateRecord;
use tamma_core::review::{CriterionJudgement, ReviewInputs, has_security_critical};

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
    let scenario = issue.scenario.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let scenario = scenario.map(|text| format!(" Fails with: {text}")).unwrap_or_default();
    format!("{} ({}): {location}{}{scenario}", issue.severity, issue.category, issue.message)
}

/// Returns the part of the prompt that asks a second validator about critical findings of the first.
pub(super) fn second_review_request(issues: &[Issue]) -> String {
    let mut text = String::from(
        "\n\n# Findings to check\n\nAnother reviewer reports these critical security findings. They \
         are claims, not facts, and nobody has checked them. Try to reproduce each one. If it is \
         real, report it again as an issue of severity `critical` and category `security`, with the \
         same file and your own scenario. If you cannot show it, leave it out.\n\n",
    );
    for issue in issues.iter().filter(|issue| has_security_critical(std::slice::from_ref(*issue))) {
        let _ = writeln!(text, "- {}", describe_issue(issue));
    }
    text
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
