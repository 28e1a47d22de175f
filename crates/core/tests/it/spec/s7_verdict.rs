//! Section 7: gates, plan conformance, criteria, verdict and score.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rstest::rstest;
use tamma_core::gate::{
    GateKind, GateOutcome, GateResult, GateStatus, GateVerdict, classify, is_planned_test, judge,
    judge_with_base_tests,
};
use tamma_core::issue::{Issue, IssueCategory, IssueSeverity};
use tamma_core::operator::OperatorConfig;
use tamma_core::plan::{FileAction, FileChange};
use tamma_core::review::conformance::{Conformance, PlanMismatch, compare};
use tamma_core::review::evidence::{EvidenceError, EvidenceIndex};
use tamma_core::review::{
    Criterion, CriterionJudgement, Deduction, ReviewInputs, ReviewSummary, evaluate, judge_criteria,
};
use tamma_core::rules::{self, Rules, is_critical};

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn gate(outcome: GateOutcome, failures: &[&str]) -> GateResult {
    GateResult {
        name: "unit".to_owned(),
        kind: GateKind::Tests,
        outcome,
        failures: set(failures),
        passed: BTreeSet::new(),
        skipped: BTreeSet::new(),
    }
}

fn passed() -> GateResult {
    gate(GateOutcome::Passed, &[])
}

fn failed(failures: &[&str]) -> GateResult {
    gate(GateOutcome::Failed, failures)
}

fn timed_out(failures: &[&str]) -> GateResult {
    gate(GateOutcome::TimedOut, failures)
}

fn verdict(status: GateStatus) -> GateVerdict {
    GateVerdict {
        name: "unit".to_owned(),
        kind: GateKind::Tests,
        status,
        new: BTreeSet::new(),
        pre_existing: BTreeSet::new(),
        flaky: BTreeSet::new(),
        missing: BTreeSet::new(),
    }
}

// Gates

#[test]
fn a_passed_gate_passes_regardless_of_the_base_commit() {
    let hints = gate(GateOutcome::Passed, &["hint"]);
    assert_eq!(classify(&hints, Some(&failed(&["a"])), None), verdict(GateStatus::Passed));
    assert_eq!(classify(&passed(), None, Some(&failed(&["a"]))), verdict(GateStatus::Passed));
}

#[test]
fn a_failure_the_base_commit_has_too_is_pre_existing_and_does_not_count() {
    let it = classify(&failed(&["a"]), Some(&failed(&["a", "b"])), None);
    assert_eq!(it, GateVerdict { pre_existing: set(&["a"]), ..verdict(GateStatus::PreExisting) });
    assert!(!it.is_blocking());
}

#[test]
fn a_failure_that_passes_when_run_again_is_flaky_and_does_not_count() {
    for rerun in [passed(), failed(&["b"])] {
        let it = classify(&failed(&["a"]), Some(&passed()), Some(&rerun));
        assert_eq!(it, GateVerdict { flaky: set(&["a"]), ..verdict(GateStatus::Flaky) });
        assert!(!it.is_blocking());
    }
}

#[test]
fn a_failure_that_repeats_counts() {
    let it = classify(&failed(&["a"]), Some(&passed()), Some(&failed(&["a"])));
    assert_eq!(it, GateVerdict { new: set(&["a"]), ..verdict(GateStatus::Failed) });
    assert!(it.is_blocking());
}

#[test]
fn a_failure_counts_when_there_is_nothing_to_compare_it_with() {
    let it = classify(&failed(&["a"]), None, None);
    assert_eq!(it, GateVerdict { new: set(&["a"]), ..verdict(GateStatus::Failed) });
}

#[test]
fn each_failure_is_judged_by_its_name_and_only_the_new_ones_are_new() {
    let it = classify(
        &failed(&["new", "old", "sometimes"]),
        Some(&failed(&["old"])),
        Some(&failed(&["new", "old"])),
    );
    let sets = GateVerdict {
        new: set(&["new"]),
        pre_existing: set(&["old"]),
        flaky: set(&["sometimes"]),
        ..verdict(GateStatus::Failed)
    };
    assert_eq!(it, sets);
}

#[test]
fn partly_pre_existing_and_partly_flaky_is_flaky() {
    let it = classify(&failed(&["a", "b"]), Some(&failed(&["a"])), Some(&passed()));
    assert_eq!(it.status, GateStatus::Flaky);
    assert_eq!((it.pre_existing, it.flaky), (set(&["a"]), set(&["b"])));
}

#[rstest]
#[case::base_failed_too(Some(failed(&[])), None, GateStatus::PreExisting)]
#[case::base_failed_by_name(Some(failed(&["a"])), None, GateStatus::Failed)]
#[case::base_passed(Some(passed()), None, GateStatus::Failed)]
#[case::passed_again(None, Some(passed()), GateStatus::Flaky)]
#[case::failed_again(None, Some(failed(&[])), GateStatus::Failed)]
#[case::failed_again_by_name(None, Some(failed(&["a"])), GateStatus::Failed)]
fn a_failure_without_names_is_judged_by_the_whole_gate(
    #[case] baseline: Option<GateResult>,
    #[case] rerun: Option<GateResult>,
    #[case] status: GateStatus,
) {
    let it = classify(&failed(&[]), baseline.as_ref(), rerun.as_ref());
    assert_eq!(it.status, status);
    let all = [it.new, it.pre_existing, it.flaky].concat_sets();
    assert_eq!(all, set(&["unit"]), "the gate's own name replaces missing names");
}

trait ConcatSets {
    fn concat_sets(self) -> BTreeSet<String>;
}

impl ConcatSets for [BTreeSet<String>; 3] {
    fn concat_sets(self) -> BTreeSet<String> {
        self.into_iter().flatten().collect()
    }
}

#[rstest]
#[case::base_without_names(Some(failed(&[])), None)]
#[case::again_without_names(None, Some(failed(&[])))]
#[case::again_out_of_time(None, Some(timed_out(&[])))]
fn a_named_failure_without_comparison_counts(
    #[case] baseline: Option<GateResult>,
    #[case] rerun: Option<GateResult>,
) {
    let it = classify(&failed(&["a"]), baseline.as_ref(), rerun.as_ref());
    assert_eq!(it, GateVerdict { new: set(&["a"]), ..verdict(GateStatus::Failed) });
}

#[rstest]
#[case::alone(None, None, GateStatus::TimedOut)]
#[case::base_passed(Some(passed()), None, GateStatus::TimedOut)]
#[case::again(Some(passed()), Some(timed_out(&[])), GateStatus::TimedOut)]
#[case::failed_again(Some(passed()), Some(failed(&["a"])), GateStatus::TimedOut)]
#[case::passed_again(Some(passed()), Some(passed()), GateStatus::Flaky)]
#[case::base_timed_out_too(Some(timed_out(&[])), None, GateStatus::PreExisting)]
#[case::base_timed_out_and_passed_again(Some(timed_out(&[])), Some(passed()), GateStatus::PreExisting)]
fn a_gate_that_timed_out_counts_unless_the_base_commit_did_too_or_it_passes_again(
    #[case] baseline: Option<GateResult>,
    #[case] rerun: Option<GateResult>,
    #[case] status: GateStatus,
) {
    let it = classify(&timed_out(&[]), baseline.as_ref(), rerun.as_ref());
    assert_eq!(it, verdict(status));
    assert_eq!(it.is_blocking(), status == GateStatus::TimedOut);
}

#[test]
fn a_gate_that_timed_out_keeps_its_failures() {
    let it = classify(&timed_out(&["a", "b"]), Some(&failed(&["b"])), None);
    let expected = GateVerdict {
        new: set(&["a"]),
        pre_existing: set(&["b"]),
        ..verdict(GateStatus::TimedOut)
    };
    assert_eq!(it, expected);
}

#[test]
fn if_both_commits_time_out_failures_still_count_by_name() {
    let it = classify(&timed_out(&["a"]), Some(&timed_out(&[])), None);
    assert_eq!(it, GateVerdict { new: set(&["a"]), ..verdict(GateStatus::Failed) });
    let it = classify(&timed_out(&["a"]), Some(&timed_out(&["a"])), None);
    assert_eq!(it.status, GateStatus::PreExisting);
}

fn any_gate() -> impl Strategy<Value = GateResult> {
    let outcome = prop_oneof![
        Just(GateOutcome::Passed),
        Just(GateOutcome::Failed),
        Just(GateOutcome::TimedOut)
    ];
    (outcome, prop::collection::btree_set("[a-d]", 0..4))
        .prop_map(|(outcome, failures)| GateResult { failures, ..gate(outcome, &[]) })
}

/// Gate with a test report: failed, passed and skipped tests.
fn any_tests() -> impl Strategy<Value = GateResult> {
    let names = || prop::collection::btree_set("[a-d]", 0..4);
    (any_gate(), names(), names()).prop_map(|(gate, passed, skipped)| GateResult {
        skipped: &(&skipped - &passed) - &gate.failures,
        passed: &passed - &gate.failures,
        ..gate
    })
}

fn test_gate(
    outcome: GateOutcome,
    failures: &[&str],
    passed: &[&str],
    skipped: &[&str],
) -> GateResult {
    GateResult { passed: set(passed), skipped: set(skipped), ..gate(outcome, failures) }
}

// Missing tests

#[test]
fn a_test_that_no_longer_runs_counts_even_if_the_gate_passes() {
    let base = test_gate(GateOutcome::Failed, &["b"], &["a", "c"], &["d"]);
    let now = test_gate(GateOutcome::Passed, &[], &["a"], &["c", "d"]);
    let it = judge(&now, Some(&base), None, &[]);
    assert_eq!(it, GateVerdict { missing: set(&["b", "c"]), ..verdict(GateStatus::Failed) });
    assert!(it.is_blocking());
    let planned = ["b".to_owned(), "c".to_owned()];
    assert_eq!(judge(&now, Some(&base), None, &planned), verdict(GateStatus::Passed));
    assert_eq!(judge(&now, None, None, &[]), verdict(GateStatus::Passed));
}

#[test]
fn a_fixed_finding_is_not_missing() {
    let lint = |run: GateResult| GateResult { kind: GateKind::Lint, ..run };
    let it = judge(&lint(passed()), Some(&lint(failed(&["a"]))), None, &[]);
    assert_eq!(it, GateVerdict { kind: GateKind::Lint, ..verdict(GateStatus::Passed) });
}

#[test]
fn an_aborted_gate_has_no_missing_tests() {
    let base = test_gate(GateOutcome::Passed, &[], &["a", "b"], &[]);
    for now in [timed_out(&[]), failed(&[])] {
        let it = judge(&now, Some(&base), None, &[]);
        assert!(it.missing.is_empty() && it.is_blocking(), "{it:?}");
    }
    // A report without any test is different.
    assert_eq!(judge(&passed(), Some(&base), None, &[]).missing, set(&["a", "b"]));
}

#[test]
fn a_test_that_the_second_run_executes_is_not_missing() {
    let base = test_gate(GateOutcome::Passed, &[], &["a", "b"], &[]);
    let stopped_early = test_gate(GateOutcome::Failed, &["x"], &["a"], &[]);
    let again = test_gate(GateOutcome::Passed, &[], &["a", "b", "x"], &[]);
    let it = judge(&stopped_early, Some(&base), Some(&again), &[]);
    assert_eq!(it, GateVerdict { flaky: set(&["b", "x"]), ..verdict(GateStatus::Flaky) });
}

#[rstest]
#[case::name("calc::adds", "calc::adds", true)]
#[case::last_part("adds", "calc::adds", true)]
#[case::last_part_of_words("adds two", "calc > adds two", true)]
#[case::part_of_a_word("dds", "calc::adds", false)]
#[case::another("calc::subtracts", "calc::adds", false)]
#[case::python_file("tests/test_calc.py", "tests.test_calc::test_adds", true)]
#[case::another_python_file("tests/test_other.py", "tests.test_calc::test_adds", false)]
#[case::typescript_file("test/calc.test.ts", "test/calc.test.ts::adds", true)]
#[case::rust_file("tests/calc.rs", "greeter::calc::adds", true)]
#[case::nothing("", "calc::adds", false)]
fn a_plan_names_a_test_by_its_name_or_its_file(
    #[case] entry: &str,
    #[case] test: &str,
    #[case] named: bool,
) {
    assert_eq!(is_planned_test(&[entry.to_owned()], test), named);
}

#[test]
fn base_versions_of_tests_must_pass_unless_planned() {
    let it = judge_with_base_tests(&failed(&["a", "b"]), Some(&passed()), None, &["a".to_owned()]);
    assert_eq!(it, GateVerdict { new: set(&["b"]), ..verdict(GateStatus::Failed) });
    let both = ["a".to_owned(), "b".to_owned()];
    let it = judge_with_base_tests(&failed(&["a", "b"]), Some(&passed()), None, &both);
    assert_eq!(it, verdict(GateStatus::Passed));
    let it = judge_with_base_tests(&failed(&["a", "b"]), Some(&failed(&["b"])), None, &both);
    assert_eq!(it.status, GateStatus::PreExisting);
    // A gate that names nothing cannot be excused by name.
    assert!(judge_with_base_tests(&failed(&[]), Some(&passed()), None, &both).is_blocking());
}

#[test]
fn a_fixed_test_must_pass_in_its_base_version() {
    let base = failed(&["a", "b"]);
    // The change edited `a` until it passed.
    let it = judge_with_base_tests(
        &failed(&["a", "b"]),
        Some(&base.without_failures(&set(&["a"]))),
        None,
        &[],
    );
    assert_eq!((it.new, it.pre_existing), (set(&["a"]), set(&["b"])));
    assert_eq!(base.without_failures(&set(&[])), base);
    assert_eq!(base.without_failures(&set(&["a", "b"])).outcome, GateOutcome::Passed);
    assert_eq!(failed(&[]).without_failures(&set(&["a"])), failed(&[]), "it names no failures");
}

#[test]
fn a_failure_in_either_baseline_run_is_pre_existing() {
    let base = failed(&["a"]).merged_with(&failed(&["b"]));
    assert_eq!(base.failures, set(&["a", "b"]));
    assert!(!classify(&failed(&["a", "b"]), Some(&base), None).is_blocking());
    assert!(!classify(&failed(&[]), Some(&failed(&[]).merged_with(&passed())), None).is_blocking());
    assert_eq!(passed().merged_with(&passed()), passed());
}

proptest! {
    #[test]
    fn no_failure_is_lost_or_judged_twice(
        result in any_gate(),
        baseline in prop::option::of(any_gate()),
        rerun in prop::option::of(any_gate()),
    ) {
        let it = classify(&result, baseline.as_ref(), rerun.as_ref());
        let classified = it.new.len() + it.pre_existing.len() + it.flaky.len();
        prop_assert!(it.new.is_empty() || it.is_blocking());
        let all = [it.new, it.pre_existing, it.flaky].concat_sets();
        prop_assert_eq!(all.len(), classified);
        if result.outcome != GateOutcome::Passed {
            prop_assert!(result.failures.is_subset(&all));
        }
    }

    #[test]
    fn a_worse_base_commit_never_makes_a_change_look_worse(
        result in any_gate(),
        rerun in prop::option::of(any_gate()),
    ) {
        let alone = classify(&result, None, rerun.as_ref());
        let same = classify(&result, Some(&result), rerun.as_ref());
        prop_assert!(!same.is_blocking());
        prop_assert!(same.new.is_subset(&alone.new));
    }

    #[test]
    fn a_second_run_of_the_base_commit_only_excuses_failures(
        result in any_tests(),
        one in any_tests(),
        two in any_tests(),
        rerun in prop::option::of(any_tests()),
    ) {
        let both = one.merged_with(&two);
        prop_assert_eq!(&both.failures, &two.merged_with(&one).failures);
        let it = classify(&result, Some(&both), rerun.as_ref());
        for base in [&one, &two] {
            let alone = classify(&result, Some(base), rerun.as_ref());
            prop_assert!(it.new.is_subset(&alone.new));
            prop_assert!(!it.is_blocking() || alone.is_blocking());
        }
    }

    #[test]
    fn a_missing_test_always_counts_and_a_plan_can_only_excuse(
        result in any_tests(),
        base in any_tests(),
        rerun in prop::option::of(any_tests()),
        planned in prop::collection::vec("[a-d]", 0..4),
    ) {
        let without_missing = classify(&result, Some(&base), rerun.as_ref());
        let strict = judge(&result, Some(&base), rerun.as_ref(), &[]);
        let it = judge(&result, Some(&base), rerun.as_ref(), &planned);
        prop_assert!(it.missing.is_empty() || it.is_blocking());
        prop_assert!(it.missing.is_subset(&strict.missing));
        prop_assert!(it.missing.iter().all(|test| !is_planned_test(&planned, test)));
        prop_assert!(strict.missing.iter().all(|test| !result.passed.contains(test)));
        prop_assert!(!without_missing.is_blocking() || it.is_blocking(), "missing tests excuse nothing");
        prop_assert!(!it.is_blocking() || strict.is_blocking());
        let same = judge(&result, Some(&result), rerun.as_ref(), &[]);
        prop_assert!(!same.is_blocking());
    }
}

// Conformance

fn planned(path: &str, action: FileAction) -> FileChange {
    FileChange { path: path.to_owned(), action, description: String::new(), estimated_lines: 1 }
}

fn touched(files: &[(&str, FileAction)]) -> BTreeMap<String, FileAction> {
    files.iter().map(|(path, action)| ((*path).to_owned(), *action)).collect()
}

#[test]
fn a_change_as_planned_conforms() {
    let plan =
        [planned("src/a.rs", FileAction::Modify), planned("src/auth/b.rs", FileAction::Create)];
    let done = touched(&[("src/a.rs", FileAction::Modify), ("src/auth/b.rs", FileAction::Create)]);
    assert_eq!(compare(&plan, &done, &Rules::default()), Conformance::default());
}

#[test]
fn every_difference_from_the_plan_is_named() {
    let plan = [planned("src/a.rs", FileAction::Modify), planned("src/b.rs", FileAction::Delete)];
    let done = touched(&[
        ("Cargo.lock", FileAction::Modify),
        ("pytest.ini", FileAction::Create),
        ("src/auth/login.rs", FileAction::Create),
        ("src/b.rs", FileAction::Modify),
        ("src/c.rs", FileAction::Create),
    ]);
    let conformance = compare(&plan, &done, &Rules::default());
    assert_eq!(
        conformance,
        Conformance {
            unplanned_critical: vec!["Cargo.lock".to_owned(), "src/auth/login.rs".to_owned()],
            unplanned_guarded: vec!["pytest.ini".to_owned()],
            unplanned: vec!["src/c.rs".to_owned()],
            untouched: vec!["src/a.rs".to_owned()],
            mismatched: vec![PlanMismatch {
                path: "src/b.rs".to_owned(),
                planned: FileAction::Delete,
                actual: FileAction::Modify,
            }],
        }
    );
    assert_eq!(conformance.deviation_count(), 2);
}

fn with_gates(commands: &[&str]) -> Rules {
    let gates = commands.iter().enumerate();
    let gates: Vec<_> =
        gates.map(|(at, command)| format!("  g{at}: {{ command: '{command}' }}\n")).collect();
    let text = format!("gates:\n{}", gates.concat());
    let file = rules::ConfigFile { name: "tamma.yaml", text: &text };
    rules::load(Some(file), &BTreeMap::new(), &OperatorConfig::default()).unwrap().rules
}

#[rstest]
#[case::configured("crates/a/clippy.toml", "cargo clippy", true)]
#[case::configured_at_the_root("package.json", "npm test", true)]
#[case::named("ci/check.sh", "sh ci/check.sh --all", true)]
#[case::named_from_here("check.sh", "./check.sh", true)]
#[case::named_in_quotes("check.sh", "bash -c \"./check.sh && echo ok\"", true)]
#[case::named_from_its_folder("web/check.sh", "cd web && sh check.sh", true)]
#[case::another_file("ci/lib.sh", "sh ci/check.sh", false)]
#[case::in_another_folder("old/check.sh", "sh check.sh", false)]
#[case::module_in_place_of_the_tool("pytest.py", "python -m pytest", true)]
#[case::package_in_place_of_the_tool("pytest/__init__.py", "python -m pytest", true)]
#[case::of_that_name_elsewhere("src/pytest.py", "python -m pytest", false)]
#[case::tests("tests/test_a.py", "pytest tests/", false)]
#[case::instructions("web/.claude/settings.json", "true", true)]
#[case::code("src/lib.rs", "cargo test --lib", false)]
fn a_file_that_affects_gates_needs_a_plan(
    #[case] path: &str,
    #[case] command: &str,
    #[case] guarded: bool,
) {
    let rules = with_gates(&["true", command]);
    let done = touched(&[(path, FileAction::Modify)]);
    let conformance = compare(&[], &done, &rules);
    assert_eq!(!conformance.unplanned_guarded.is_empty(), guarded, "{conformance:?}");
    assert_eq!(evaluate(with_conformance(conformance)).passed, !guarded);
    // A plan that names the file was approved.
    let conformance = compare(&[planned(path, FileAction::Modify)], &done, &rules);
    assert_eq!(conformance, Conformance::default());
}

proptest! {
    #[test]
    fn every_touched_file_that_is_not_planned_is_named_once(
        plan in prop::collection::btree_set("(src/|)(auth/|)[ab](\\.rs|\\.sh|/conftest\\.py)", 0..5),
        done in prop::collection::btree_set("(src/|)(auth/|)[ab](\\.rs|\\.sh|/conftest\\.py)", 0..8),
    ) {
        let rules = with_gates(&["sh a.sh"]);
        let plan: Vec<_> = plan.iter().map(|path| planned(path, FileAction::Modify)).collect();
        let done: BTreeMap<_, _> = done.into_iter().map(|path| (path, FileAction::Modify)).collect();
        let conformance = compare(&plan, &done, &rules);
        let mut named: Vec<_> =
            [&conformance.unplanned_critical, &conformance.unplanned_guarded, &conformance.unplanned]
                .into_iter().flatten().cloned().collect();
        named.sort();
        let unplanned: Vec<_> =
            done.keys().filter(|path| plan.iter().all(|it| it.path != **path)).cloned().collect();
        prop_assert_eq!(&named, &unplanned);
        let blocks = unplanned.iter().any(|path| {
            path.contains("auth/") || path.ends_with("conftest.py") || path == "a.sh"
        });
        prop_assert_eq!(evaluate(with_conformance(conformance)).passed, !blocks);
    }
}

#[test]
fn the_configuration_says_which_files_are_critical() {
    let mut rules = Rules::default();
    assert!(is_critical("src/auth/login.rs", &rules));
    assert!(!is_critical("src/lib.rs", &rules));
    rules.scrum_master.risk_thresholds.critical_files = vec!["src/lib.rs".to_owned()];
    assert!(!is_critical("src/auth/login.rs", &rules));
    assert!(is_critical("src/lib.rs", &rules));
}

// Criteria

fn criterion(judgement: CriterionJudgement) -> Criterion {
    let judgements = BTreeMap::from([("C1".to_owned(), judgement)]);
    let index =
        EvidenceIndex { passed_tests: set(&["tests::it_works"]), ..EvidenceIndex::default() };
    index.check_criteria(judge_criteria(&["it works".to_owned()], &judgements)).remove(0)
}

fn met(evidence: &str) -> CriterionJudgement {
    let test = Some("it_works".to_owned());
    CriterionJudgement::Met { evidence: evidence.to_owned(), file: None, line: None, test }
}

#[rstest]
#[case(met("tests::it_works passes"), true)]
#[case::no_evidence(met(""), false)]
#[case::blank_evidence(met(" \n"), false)]
#[case(CriterionJudgement::Unmet { reason: "it does not".to_owned() }, false)]
#[case(CriterionJudgement::Unjudged, false)]
fn a_criterion_is_met_only_with_evidence(
    #[case] judgement: CriterionJudgement,
    #[case] is_met: bool,
) {
    assert_eq!(criterion(judgement.clone()).is_met(), is_met);
    let inputs = ReviewInputs { criteria: vec![criterion(judgement)], ..ReviewInputs::default() };
    assert_eq!(evaluate(inputs).passed, is_met);
}

#[test]
fn the_task_determines_the_criteria() {
    let judgements =
        BTreeMap::from([("C2".to_owned(), met("here")), ("C9".to_owned(), met("there"))]);
    assert_eq!(
        judge_criteria(&["a".to_owned(), "b".to_owned()], &judgements),
        [
            Criterion {
                text: "a".to_owned(),
                judgement: CriterionJudgement::Unjudged,
                evidence_error: None
            },
            // Unchecked evidence does not count.
            Criterion {
                text: "b".to_owned(),
                judgement: met("here"),
                evidence_error: Some(EvidenceError::NoLocation)
            },
        ]
    );
}

// Verdict

fn issue(severity: IssueSeverity, category: IssueCategory) -> Issue {
    Issue {
        severity,
        category,
        message: "it is odd".to_owned(),
        file: None,
        line: None,
        scenario: None,
    }
}

fn with_issue(severity: IssueSeverity) -> ReviewInputs {
    ReviewInputs { issues: vec![issue(severity, IssueCategory::Code)], ..ReviewInputs::default() }
}

fn with_gate(status: GateStatus) -> ReviewInputs {
    ReviewInputs { gates: vec![verdict(status)], ..ReviewInputs::default() }
}

fn with_conformance(conformance: Conformance) -> ReviewInputs {
    ReviewInputs { conformance, ..ReviewInputs::default() }
}

fn paths(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("src/{number}.rs")).collect()
}

#[test]
fn a_change_without_findings_scores_100() {
    let verdict = evaluate(ReviewInputs::default());
    assert!(verdict.passed);
    assert_eq!((verdict.score, verdict.deductions.len()), (100, 0));
}

#[rstest]
#[case(with_gate(GateStatus::Failed), Deduction::FailedGates, 25)]
#[case(with_gate(GateStatus::TimedOut), Deduction::FailedGates, 25)]
#[case(with_issue(IssueSeverity::Critical), Deduction::CriticalIssues, 40)]
#[case(with_issue(IssueSeverity::Error), Deduction::Errors, 15)]
#[case(
    ReviewInputs { criteria: vec![criterion(CriterionJudgement::Unjudged)], ..ReviewInputs::default() },
    Deduction::UnmetCriteria,
    20
)]
#[case(
    with_conformance(Conformance { unplanned_critical: paths(1), ..Conformance::default() }),
    Deduction::UnplannedCriticalFiles,
    30
)]
#[case(
    with_conformance(Conformance { unplanned_guarded: paths(1), ..Conformance::default() }),
    Deduction::UnplannedGuardedFiles,
    30
)]
fn each_blocking_finding_fails_the_review(
    #[case] inputs: ReviewInputs,
    #[case] deduction: Deduction,
    #[case] points: u8,
) {
    let verdict = evaluate(inputs);
    assert!(!verdict.passed);
    assert_eq!(verdict.deductions, [(deduction, points)]);
    assert_eq!(verdict.score, 100 - points);
}

#[rstest]
#[case::warning(with_issue(IssueSeverity::Warning), &[(Deduction::Warnings, 3)])]
#[case::info(with_issue(IssueSeverity::Info), &[])]
#[case::pre_existing(with_gate(GateStatus::PreExisting), &[])]
#[case::flaky(with_gate(GateStatus::Flaky), &[])]
#[case::passed(with_gate(GateStatus::Passed), &[])]
#[case::unplanned(
    with_conformance(Conformance { unplanned: paths(2), ..Conformance::default() }),
    &[(Deduction::PlanDrift, 6)]
)]
#[case::mismatched(
    with_conformance(Conformance {
        mismatched: vec![PlanMismatch {
            path: "a".to_owned(),
            planned: FileAction::Create,
            actual: FileAction::Delete,
        }],
        ..Conformance::default()
    }),
    &[(Deduction::PlanDrift, 3)]
)]
#[case::untouched(
    with_conformance(Conformance { untouched: paths(2), ..Conformance::default() }),
    &[]
)]
fn minor_findings_do_not_fail_the_review(
    #[case] inputs: ReviewInputs,
    #[case] deductions: &[(Deduction, u8)],
) {
    let verdict = evaluate(inputs.clone());
    assert!(verdict.passed);
    assert_eq!(verdict.deductions, deductions);
    assert_eq!(verdict.inputs, inputs);
    assert_eq!(verdict.summarize().blocking, 0);
}

#[test]
fn the_score_never_goes_below_zero() {
    let many = ReviewInputs {
        issues: vec![issue(IssueSeverity::Critical, IssueCategory::Code); 1_000],
        gates: vec![verdict(GateStatus::Failed); 3],
        ..ReviewInputs::default()
    };
    let verdict = evaluate(many);
    assert_eq!(verdict.score, 0);
    assert_eq!(
        verdict.deductions,
        [(Deduction::FailedGates, 75), (Deduction::CriticalIssues, 100)]
    );
}

#[test]
fn no_deduction_exceeds_100_points() {
    let five =
        ReviewInputs { gates: vec![verdict(GateStatus::Failed); 5], ..ReviewInputs::default() };
    assert_eq!(evaluate(five).deductions, [(Deduction::FailedGates, 100)]);
}

#[test]
fn the_summary_counts_blocking_findings_and_unmet_criteria() {
    let inputs = ReviewInputs {
        gates: vec![
            verdict(GateStatus::Failed),
            verdict(GateStatus::TimedOut),
            verdict(GateStatus::Flaky),
        ],
        issues: vec![
            issue(IssueSeverity::Error, IssueCategory::Security),
            issue(IssueSeverity::Critical, IssueCategory::Code),
            issue(IssueSeverity::Warning, IssueCategory::Style),
        ],
        criteria: vec![criterion(met("")), criterion(met("here"))],
        conformance: Conformance { unplanned_critical: paths(1), ..Conformance::default() },
        suggestions: Vec::new(),
    };
    let verdict = evaluate(inputs);
    assert_eq!(
        verdict.summarize(),
        ReviewSummary {
            passed: false,
            score: 0,
            blocking: 5,
            unmet_criteria: 1,
            security_critical: false
        }
    );
}

#[test]
fn only_a_critical_issue_of_security_is_security_critical() {
    let mut inputs = with_issue(IssueSeverity::Critical);
    assert!(!evaluate(inputs.clone()).summarize().security_critical);
    inputs.issues.push(issue(IssueSeverity::Critical, IssueCategory::Security));
    assert!(evaluate(inputs).summarize().security_critical);
}

#[test]
fn a_verdict_survives_serialisation() {
    let verdict = evaluate(ReviewInputs {
        gates: vec![classify(&failed(&["a"]), Some(&failed(&["b"])), None)],
        criteria: vec![criterion(CriterionJudgement::Unmet { reason: "no".to_owned() })],
        ..with_issue(IssueSeverity::Error)
    });
    let json = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<tamma_core::review::ReviewVerdict>(&json).unwrap(), verdict);
    assert!(json.contains(r#""deductions":[["failed_gates",25],["errors",15]"#), "{json}");
}

fn any_issue() -> impl Strategy<Value = Issue> {
    (0..4_usize, 0..5_usize).prop_map(|(severity, category)| {
        use strum::IntoEnumIterator as _;
        issue(
            IssueSeverity::iter().nth(severity).unwrap(),
            IssueCategory::iter().nth(category).unwrap(),
        )
    })
}

proptest! {
    #[test]
    fn the_score_is_within_bounds_and_explained_and_a_pass_has_nothing_blocking(
        issues in prop::collection::vec(any_issue(), 0..20),
        runs in prop::collection::vec(any_gate(), 0..5),
        unmet in 0..5_usize,
        drift in 0..50_usize,
    ) {
        let inputs = ReviewInputs {
            gates: runs.iter().map(|run| classify(run, None, None)).collect(),
            issues,
            criteria: vec![criterion(CriterionJudgement::Unjudged); unmet],
            conformance: Conformance { unplanned: paths(drift), ..Conformance::default() },
            suggestions: Vec::new(),
        };
        let verdict = evaluate(inputs);
        prop_assert!(verdict.score <= 100);
        let off: u16 = verdict.deductions.iter().map(|(_, points)| u16::from(*points)).sum();
        prop_assert_eq!(u16::from(verdict.score), 100_u16.saturating_sub(off));
        let summary = verdict.summarize();
        prop_assert_eq!(summary.passed, summary.blocking == 0 && summary.unmet_criteria == 0);
        prop_assert!(!summary.security_critical || !summary.passed);
    }
}
