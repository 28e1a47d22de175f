//! A review in words: for the brief of the next run, and for a validator.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tamma_core::issue::{Issue, Severity};
use tamma_core::review::record::Ran;
use tamma_core::review::{Inputs, Judgement};

/// What stood in the way, for the brief of the next run. What must be mended comes first.
pub(super) fn of(inputs: &Inputs, asked: bool) -> String {
    let mut text = String::from("## The review failed\n\n");
    let blocks = |issue: &&Issue| issue.severity >= Severity::Error;
    for issue in inputs.issues.iter().filter(blocks) {
        let _ = writeln!(text, "- {}", in_words(issue));
    }
    let conformance = &inputs.conformance;
    for path in &conformance.unplanned_critical {
        let _ = writeln!(
            text,
            "- `{path}` is critical and not in the approved plan: leave it as it was"
        );
    }
    for path in &conformance.unplanned_guarded {
        let _ = writeln!(
            text,
            "- `{path}` decides how gates run and is not in the approved plan: leave it as it was"
        );
    }
    let unmet = inputs.criteria.iter().filter(|criterion| !criterion.is_met());
    for criterion in unmet.filter(|_| asked) {
        let why = match (&criterion.judgement, &criterion.doubt) {
            (Judgement::Unmet { why }, _) => why.clone(),
            (Judgement::Met { .. }, Some(doubt)) => format!("not shown: {doubt}"),
            (Judgement::Met { .. }, None) => "not shown".to_owned(),
            (Judgement::Unjudged, _) => "the validator did not judge it".to_owned(),
        };
        let _ = writeln!(text, "- not met: {}: {why}", criterion.text);
    }
    if !asked && !inputs.criteria.is_empty() {
        text.push_str("\nThe criteria were not judged: what is above comes first.\n");
    }
    let rest: Vec<_> = inputs.issues.iter().filter(|issue| !blocks(issue)).collect();
    if !rest.is_empty() || !conformance.unplanned.is_empty() {
        text.push_str("\nIt did not fail for these, and they are worth a look:\n\n");
    }
    for issue in rest {
        let _ = writeln!(text, "- {}", in_words(issue));
    }
    for path in &conformance.unplanned {
        let _ = writeln!(text, "- `{path}` is not in the approved plan");
    }
    text
}

fn in_words(issue: &Issue) -> String {
    let place = match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!("`{file}`, line {line}: "),
        (Some(file), None) => format!("`{file}`: "),
        (None, _) => String::new(),
    };
    format!("{} ({}): {place}{}", issue.severity, issue.category, issue.message)
}

/// A gate's result, as a prompt says it.
pub(super) fn gate(ran: &Ran) -> Value {
    let tests = ran.tests.map(|tests| {
        let mut text = format!("{} tests passed", tests.passed);
        for (count, what) in [(tests.failed, "failed"), (tests.skipped, "were skipped")] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text
    });
    let judged = &ran.judged;
    let standing = judged.standing.to_string().replace('_', " ");
    json!({ "name": judged.name, "kind": judged.kind, "standing": standing, "tests": tests })
}
