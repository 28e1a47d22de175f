//! Verdict as `JUnit` XML: one test suite per gate, one for the criteria and one for the review.

use std::fmt::Write as _;

use tamma_core::format::humanize;
use tamma_core::gate::GateStatus;
use tamma_core::issue::IssueSeverity;
use tamma_core::review::record::GateRecord;
use tamma_core::review::{Criterion, CriterionJudgement, ReviewInputs};

use super::{CommitVerdict, bounded};

/// Test suite.
struct Suite {
    name: String,
    duration_ms: u64,
    cases: Vec<Case>,
    /// End of the output.
    output: String,
}

/// Test case with its result.
struct Case {
    name: String,
    result: CaseResult,
}

/// Result of a test case.
enum CaseResult {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Exports a verdict.
pub(super) fn export(verdict: &CommitVerdict) -> String {
    let gates = verdict.gates.iter().flat_map(|it| &it.gates).map(gate_suite);
    let review = verdict.review.iter().flat_map(|it| review_suites(&it.verdict.inputs));
    let suites: Vec<Suite> = gates.chain(review).collect();
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let all = || suites.iter().flat_map(|suite| &suite.cases);
    let duration_ms: u64 = suites.iter().map(|suite| suite.duration_ms).sum();
    let name = format!("Tamma: {} ({})", verdict.title, verdict.commit);
    let _ = writeln!(
        xml,
        "<testsuites name=\"{}\" {} time=\"{}\">",
        escape(&name),
        counts(all()),
        seconds(duration_ms)
    );
    for suite in &suites {
        write_suite(&mut xml, suite);
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn gate_suite(gate: &GateRecord) -> Suite {
    let verdict = &gate.verdict;
    let case = |name: &String, result| Case { name: name.clone(), result };
    let passed = gate.passed_tests.iter().map(|name| case(name, CaseResult::Passed));
    let failed = verdict.new.iter().map(|name| case(name, CaseResult::Failed("failed".to_owned())));
    let missing = verdict.missing.iter().map(|name| {
        case(name, CaseResult::Failed("the change removes or skips this test".to_owned()))
    });
    let excused = |name, why: &str| case(name, CaseResult::Skipped(why.to_owned()));
    let old = verdict.pre_existing.iter().map(|name| excused(name, "fails on the base commit too"));
    let flaky = verdict.flaky.iter().map(|name| excused(name, "flaky"));
    let mut cases: Vec<Case> =
        passed.chain(failed).chain(missing).chain(old).chain(flaky).collect();
    if cases.is_empty() {
        let status = humanize(&verdict.status);
        let result = match verdict.status {
            GateStatus::Passed => CaseResult::Passed,
            GateStatus::Failed | GateStatus::TimedOut => CaseResult::Failed(status),
            GateStatus::PreExisting | GateStatus::Flaky | GateStatus::NotApplicable => {
                CaseResult::Skipped(status)
            }
        };
        cases.push(case(&verdict.name, result));
    }
    Suite {
        name: format!("gate {}", verdict.name),
        duration_ms: gate.duration_ms,
        cases,
        output: if verdict.is_blocking() { bounded(&gate.output) } else { String::new() },
    }
}

fn review_suites(inputs: &ReviewInputs) -> Vec<Suite> {
    let suite = |name: &str, cases| Suite {
        name: name.to_owned(),
        duration_ms: 0,
        cases,
        output: String::new(),
    };
    let criteria = inputs.criteria.iter().map(|criterion| Case {
        name: criterion.text.clone(),
        result: criterion_result(criterion),
    });
    let issues = inputs.issues.iter().map(|issue| {
        let place = match (&issue.file, issue.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            (Some(file), None) => format!("{file}: "),
            (None, _) => String::new(),
        };
        let text = bounded(&format!("{place}{}", issue.message));
        let result = match issue.severity {
            IssueSeverity::Critical | IssueSeverity::Error => CaseResult::Failed(text.clone()),
            IssueSeverity::Warning | IssueSeverity::Info => CaseResult::Skipped(text.clone()),
        };
        Case { name: text, result }
    });
    let unplanned = &inputs.conformance;
    let unplanned = unplanned.unplanned_critical.iter().chain(&unplanned.unplanned_guarded);
    let unplanned = unplanned.map(|path| Case {
        name: path.clone(),
        result: CaseResult::Failed("protected file that is not in the plan".to_owned()),
    });
    let suites = [
        suite("acceptance criteria", criteria.collect()),
        suite("review", issues.chain(unplanned).collect()),
    ];
    suites.into_iter().filter(|suite| !suite.cases.is_empty()).collect()
}

fn criterion_result(criterion: &Criterion) -> CaseResult {
    match (&criterion.judgement, &criterion.evidence_error) {
        (CriterionJudgement::Met { .. }, None) => CaseResult::Passed,
        (CriterionJudgement::Met { .. }, Some(error)) => CaseResult::Failed(error.to_string()),
        (CriterionJudgement::Unmet { reason }, _) => CaseResult::Failed(bounded(reason)),
        (CriterionJudgement::Unjudged, _) => CaseResult::Failed("not judged".to_owned()),
    }
}

fn write_suite(xml: &mut String, suite: &Suite) {
    let name = escape(&suite.name);
    let time = seconds(suite.duration_ms);
    let counts = counts(suite.cases.iter());
    let _ = writeln!(xml, "  <testsuite name=\"{name}\" {counts} time=\"{time}\">");
    for case in &suite.cases {
        let case_name = escape(&case.name);
        let _ = write!(xml, "    <testcase classname=\"{name}\" name=\"{case_name}\"");
        let _ = match &case.result {
            CaseResult::Passed => writeln!(xml, "/>"),
            CaseResult::Failed(text) => {
                writeln!(xml, "><failure message=\"{}\"/></testcase>", escape(text))
            }
            CaseResult::Skipped(text) => {
                writeln!(xml, "><skipped message=\"{}\"/></testcase>", escape(text))
            }
        };
    }
    if !suite.output.is_empty() {
        let _ = writeln!(xml, "    <system-out>{}</system-out>", escape(&suite.output));
    }
    xml.push_str("  </testsuite>\n");
}

fn counts<'a>(cases: impl Iterator<Item = &'a Case>) -> String {
    let (mut tests, mut failures, mut skipped) = (0, 0, 0);
    for case in cases {
        tests += 1;
        failures += u32::from(matches!(case.result, CaseResult::Failed(_)));
        skipped += u32::from(matches!(case.result, CaseResult::Skipped(_)));
    }
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\"")
}

fn seconds(duration_ms: u64) -> String {
    format!("{}.{:03}", duration_ms / 1_000, duration_ms % 1_000)
}

/// Escapes a text for XML, and drops characters that XML 1.0 does not allow.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => {}
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_becomes_test_suites_and_hostile_text_is_escaped() {
        let xml = export(&super::super::tests::sample());
        let a = "a".repeat(40);
        let expected = format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="Tamma: Greet ({a})" tests="6" failures="3" errors="0" skipped="1" time="1.520">
  <testsuite name="gate tests" tests="3" failures="1" errors="0" skipped="1" time="1.500">
    <testcase classname="gate tests" name="greets"/>
    <testcase classname="gate tests" name="greets &lt;nobody&gt;"><failure message="failed"/></testcase>
    <testcase classname="gate tests" name="old one"><skipped message="fails on the base commit too"/></testcase>
    <system-out>expected [1mhello[0m &amp; got ]]&gt;</system-out>
  </testsuite>
  <testsuite name="gate lint" tests="1" failures="0" errors="0" skipped="0" time="0.020">
    <testcase classname="gate lint" name="lint"/>
  </testsuite>
  <testsuite name="acceptance criteria" tests="1" failures="1" errors="0" skipped="0" time="0.000">
    <testcase classname="acceptance criteria" name="It greets"><failure message="it is silent"/></testcase>
  </testsuite>
  <testsuite name="review" tests="1" failures="1" errors="0" skipped="0" time="0.000">
    <testcase classname="review" name="src/a b.rs:7: Token in the log"><failure message="src/a b.rs:7: Token in the log"/></testcase>
  </testsuite>
</testsuites>
"#
        );
        assert_eq!(xml, expected);
    }
}
