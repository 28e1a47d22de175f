//! Verdict as SARIF 2.1.0: findings of the review, failures of gates and criteria that are not met.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tamma_core::issue::IssueSeverity;
use tamma_core::review::ReviewInputs;

use super::{CommitVerdict, bounded};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Exports a verdict.
pub(super) fn export(verdict: &CommitVerdict) -> Result<String, serde_json::Error> {
    let mut results = Vec::new();
    if let Some(gates) = &verdict.gates {
        for gate in gates.gates.iter().map(|record| &record.verdict).filter(|it| it.is_blocking()) {
            let rule = format!("gate/{}", gate.name);
            let mut add = |text: &str| results.push(finding(&rule, "error", text, None, None));
            for name in &gate.new {
                add(&format!("`{name}` failed in gate `{}`", gate.name));
            }
            for name in &gate.missing {
                add(&format!("the change removes or skips the test `{name}`"));
            }
            if gate.new.is_empty() && gate.missing.is_empty() {
                add(&format!("gate `{}` failed", gate.name));
            }
        }
    }
    if let Some(review) = &verdict.review {
        results.extend(review_findings(&review.verdict.inputs));
    }
    let rules: BTreeSet<&str> =
        results.iter().filter_map(|result| result["ruleId"].as_str()).collect();
    let rules: Vec<Value> = rules.into_iter().map(|id| json!({ "id": id })).collect();
    let passed = verdict.review.as_ref().map(|review| review.verdict.passed);
    let report = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "Tamma",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "automationDetails": { "id": format!("tamma/{}", verdict.task) },
            "invocations": [{ "executionSuccessful": true }],
            "columnKind": "unicodeCodePoints",
            "properties": {
                "commit": verdict.commit.to_string(),
                "passed": passed,
            },
            "results": results,
        }],
    });
    serde_json::to_string_pretty(&report)
}

fn review_findings(inputs: &ReviewInputs) -> Vec<Value> {
    let issues = inputs.issues.iter().map(|issue| {
        let level = match issue.severity {
            IssueSeverity::Critical | IssueSeverity::Error => "error",
            IssueSeverity::Warning => "warning",
            IssueSeverity::Info => "note",
        };
        let rule = format!("review/{}", issue.category);
        finding(&rule, level, &issue.message, issue.file.as_deref(), issue.line)
    });
    let unmet = inputs.criteria.iter().filter(|criterion| !criterion.is_met());
    let unmet = unmet.map(|criterion| {
        let text = format!("not met: {}", criterion.text);
        finding("review/criterion", "error", &text, None, None)
    });
    let conformance = &inputs.conformance;
    let unplanned = conformance.unplanned_critical.iter().chain(&conformance.unplanned_guarded);
    let unplanned = unplanned.map(|path| {
        let text = "protected file that is not in the plan";
        finding("review/plan", "error", text, Some(path), None)
    });
    issues.chain(unmet).chain(unplanned).collect()
}

fn finding(rule: &str, level: &str, text: &str, file: Option<&str>, line: Option<u32>) -> Value {
    let mut result = json!({
        "ruleId": rule,
        "level": level,
        "message": { "text": bounded(text) },
    });
    if let Some(file) = file {
        let mut location = json!({
            "artifactLocation": { "uri": encode_path(file), "uriBaseId": "%SRCROOT%" },
        });
        if let Some(line) = line.filter(|line| *line > 0) {
            location["region"] = json!({ "startLine": line });
        }
        result["locations"] = json!([{ "physicalLocation": location }]);
    }
    result
}

/// Encodes a path as a relative URI reference.
fn encode_path(path: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_becomes_results_with_rules_and_locations() {
        let text = export(&super::super::tests::sample()).expect("exported");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&report["version"], &report["$schema"]), (&json!("2.1.0"), &json!(SCHEMA)));
        let run = &report["runs"][0];
        assert_eq!(run["properties"], json!({ "commit": "a".repeat(40), "passed": false }));
        assert_eq!(
            run["tool"]["driver"]["rules"],
            json!([
                { "id": "gate/tests" }, { "id": "review/criterion" }, { "id": "review/security" },
            ])
        );
        assert_eq!(
            run["results"],
            json!([
                {
                    "ruleId": "gate/tests", "level": "error",
                    "message": { "text": "`greets <nobody>` failed in gate `tests`" },
                },
                {
                    "ruleId": "review/security", "level": "error",
                    "message": { "text": "Token in the log" },
                    "locations": [{ "physicalLocation": {
                        "artifactLocation": { "uri": "src/a%20b.rs", "uriBaseId": "%SRCROOT%" },
                        "region": { "startLine": 7 },
                    } }],
                },
                {
                    "ruleId": "review/criterion", "level": "error",
                    "message": { "text": "not met: It greets" },
                },
            ])
        );
    }
}
