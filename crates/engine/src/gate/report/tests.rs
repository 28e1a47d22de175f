//! Reports written by real tools, in a checkout at `/checkout`.

use super::*;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn tests(text: &str) -> ReportResults {
    let (named, reason) = junit(text, Path::new("/checkout"));
    assert_eq!(reason, None);
    named
}

fn findings(text: &str) -> ReportResults {
    sarif(text, Path::new("/checkout")).expect("valid SARIF")
}

#[test]
fn pytest_names_tests_by_module_and_class() {
    let named = tests(include_str!("samples/pytest.xml"));
    let failures = [
        "tests.test_calc.TestC::test_in",
        "tests.test_calc::test_bad",
        "tests.test_calc::test_err",
    ];
    assert_eq!(named.failures, set(&failures));
    let passed =
        ["tests.test_calc::test_adds", "tests.test_calc::test_p[1]", "tests.test_calc::test_p[2]"];
    assert_eq!(named.passed, set(&passed));
    assert_eq!(named.skipped, set(&["tests.test_calc::test_skip"]));
}

#[test]
fn node_names_tests_by_suite_and_todo_tests_are_skipped() {
    let named = tests(include_str!("samples/node.xml"));
    assert_eq!(named.failures, set(&["bad", "suite::inner bad"]));
    assert_eq!(named.passed, set(&["adds", "parent::child", "suite::inner"]));
    assert_eq!(named.skipped, set(&["skip", "todo"]));
}

#[test]
fn file_that_node_cannot_load_is_named_without_the_checkout() {
    let named = tests(include_str!("samples/node-broken.xml"));
    assert!(named.failures.contains("test/broken.test.mjs"), "{named:?}");
}

#[test]
fn vitest_names_tests_by_file() {
    let named = tests(include_str!("samples/vitest.xml"));
    assert_eq!(named.failures, set(&["vt/calc.test.ts::bad"]));
    assert_eq!(named.passed, set(&["vt/calc.test.ts::adds", "vt/calc.test.ts::suite > inner"]));
    assert_eq!(named.skipped, set(&["vt/calc.test.ts::skip"]));
}

#[test]
fn nextest_names_tests_by_program_and_path() {
    let named = tests(include_str!("samples/nextest.xml"));
    assert_eq!(named.failures, set(&["calc::tests::bad"]));
    assert_eq!(named.passed, set(&["calc::tests::ok"]));
}

#[test]
fn truncated_report_yields_everything_before_the_end() {
    let report = include_str!("samples/pytest.xml");
    let half = &report[..report.find("test_p[1]").expect("found")];
    let (named, reason) = junit(half, Path::new("/checkout"));
    assert_eq!(named.passed, set(&["tests.test_calc::test_adds"]));
    assert_eq!(named.failures, set(&["tests.test_calc::test_bad"]));
    assert!(reason.is_some());
    for other in ["", "no tests ran", "<html></html>", "{}"] {
        let (named, reason) = junit(other, Path::new("/checkout"));
        assert_eq!((named, reason.is_some()), (ReportResults::default(), true), "{other}");
    }
}

#[test]
fn levels_of_ruff_and_eslint_are_read() {
    let named = findings(include_str!("samples/ruff.sarif"));
    let failures = [
        "F401: bad.py: `os` imported but unused",
        "F821: bad.py: Undefined name `y`",
        "I001: bad.py: Import block is un-sorted or un-formatted",
    ];
    assert!(named.failures.is_superset(&set(&failures)), "{named:?}");
    let named = findings(include_str!("samples/eslint.sarif"));
    assert_eq!(named.failures, set(&["no-undef: x.js: 'foo' is not defined."]));
    let warning = "no-unused-vars: x.js: 'a' is assigned a value but never used.";
    assert_eq!(named.warnings, set(&[warning]));
}

#[test]
fn level_may_come_from_the_rule_and_suppressed_results_are_ignored() {
    let text = r#"{"version": "2.1.0", "runs": [{
        "tool": {"driver": {"name": "x", "rules": [
            {"id": "r", "defaultConfiguration": {"level": "error"}}, {"id": "s"}]}},
        "results": [
            {"ruleId": "r", "message": {"text": "line 12 is wrong"}},
            {"ruleId": "r", "message": {"text": "line 40 is wrong"}},
            {"ruleId": "s", "message": {"text": "so so"}},
            {"ruleId": "r", "message": {"text": "not new"}, "suppressions": [{"kind": "inSource"}]},
            {"ruleId": "r", "message": {"text": "good"}, "kind": "pass"}]}]}"#;
    let named = findings(text);
    // Same message on another line: numbered, without the line in the name.
    assert_eq!(named.failures, set(&["r: : line # is wrong", "r: : line # is wrong (2)"]));
    assert_eq!(named.warnings, set(&["s: : so so"]));
    assert!(sarif("not json", Path::new("/checkout")).is_err());
}
