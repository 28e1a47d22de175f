//! Section 7: weight of a validator's issues, and critical findings that a second validator judges.

use rstest::rstest;
use tamma_core::issue::{Issue, IssueCategory, IssueSeverity};
use tamma_core::review::record::ReviewCheck;
use tamma_core::review::{
    ReviewInputs, confirm_critical_issues, criterion_id, evaluate, has_security_critical,
    weigh_validator_issues,
};

use crate::world::commit;

fn issue(severity: IssueSeverity, file: Option<&str>, scenario: Option<&str>) -> Issue {
    Issue {
        severity,
        category: IssueCategory::Security,
        message: "any user can read all files".to_owned(),
        file: file.map(str::to_owned),
        line: None,
        scenario: scenario.map(str::to_owned),
    }
}

#[test]
fn criteria_are_numbered_by_their_position() {
    assert_eq!([0, 1, 9].map(criterion_id), ["C1", "C2", "C10"]);
}

#[rstest]
#[case(IssueSeverity::Error, None, IssueSeverity::Warning)]
#[case(IssueSeverity::Error, Some(" "), IssueSeverity::Warning)]
#[case(IssueSeverity::Critical, None, IssueSeverity::Warning)]
#[case(IssueSeverity::Error, Some("GET /../a: expected 404, got 200"), IssueSeverity::Error)]
#[case(IssueSeverity::Critical, Some("GET /../a: expected 404, got 200"), IssueSeverity::Critical)]
#[case(IssueSeverity::Warning, None, IssueSeverity::Warning)]
#[case(IssueSeverity::Info, None, IssueSeverity::Info)]
fn a_validators_error_without_a_failing_scenario_is_a_warning(
    #[case] severity: IssueSeverity,
    #[case] scenario: Option<&str>,
    #[case] expected: IssueSeverity,
) {
    let weighed = weigh_validator_issues(vec![issue(severity, None, scenario)]);
    assert_eq!(weighed[0].severity, expected);
    let blocks = expected >= IssueSeverity::Error;
    let inputs = ReviewInputs { issues: weighed, ..ReviewInputs::default() };
    assert_eq!(evaluate(inputs).passed, !blocks);
}

#[rstest]
#[case::same_file(Some("a.rs"), Some("a.rs"), true)]
#[case::other_file(Some("a.rs"), Some("b.rs"), false)]
#[case::no_file(Some("a.rs"), None, true)]
#[case::nowhere(None, Some("b.rs"), true)]
fn a_critical_finding_halts_only_if_a_second_validator_reports_it_too(
    #[case] first: Option<&str>,
    #[case] second: Option<&str>,
    #[case] confirmed: bool,
) {
    let critical = |file| issue(IssueSeverity::Critical, file, Some("x"));
    let issues = confirm_critical_issues(vec![critical(first)], &[critical(second)]);
    assert_eq!(has_security_critical(&issues), confirmed);
    let summary = evaluate(ReviewInputs { issues, ..ReviewInputs::default() }).summarize();
    // Unconfirmed, it is an error: the review fails, and the task goes on.
    assert_eq!((summary.passed, summary.security_critical), (false, confirmed));
}

#[test]
fn a_second_validator_without_a_critical_finding_confirms_nothing() {
    let first = vec![issue(IssueSeverity::Critical, None, Some("x"))];
    for second in [vec![], vec![issue(IssueSeverity::Error, None, Some("x"))]] {
        let issues = confirm_critical_issues(first.clone(), &second);
        assert_eq!(issues[0].severity, IssueSeverity::Error);
    }
}

#[test]
fn stored_reviews_of_earlier_versions_are_still_read() {
    let text = format!(
        r#"{{"commit": "{}", "verdict": {{"passed": false, "score": 65, "deductions": [], "inputs": {{
            "gates": [], "issues": [{{"severity": "error", "category": "code", "message": "odd"}}],
            "criteria": [{{"text": "It works.", "judgement": {{"unmet": {{"why": "no"}}}}}}],
            "conformance": {{"unplanned_critical": [], "unplanned": [], "untouched": [],
                "mismatched": []}}}}}},
            "validator": {{"tier": "simple", "agent": "claude-code"}}}}"#,
        commit(1)
    );
    let review: ReviewCheck = serde_json::from_str(&text).unwrap();
    assert_eq!((review.second, review.verdict.inputs.issues[0].scenario.clone()), (None, None));
}
