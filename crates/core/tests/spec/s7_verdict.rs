//! Section 7: gates, plan conformance, criteria, the verdict and its score, fingerprints.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rstest::rstest;
use tamma_core::gate::{
    GateResult, Judged, Kind, Outcome, Standing, classify, judge, judge_old_tests, names,
};
use tamma_core::issue::{Category, Issue, Severity};
use tamma_core::plan::{Action, FileChange};
use tamma_core::review::conformance::{Conformance, Mismatch, compare};
use tamma_core::review::evidence::{Doubt, Ground};
use tamma_core::review::{
    Criterion, Deduction, Fingerprint, Inputs, Judgement, Summary, criteria, verdict,
};
use tamma_core::rules::{self, Rules, is_critical};

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn gate(outcome: Outcome, failures: &[&str]) -> GateResult {
    GateResult {
        name: "unit".to_owned(),
        kind: Kind::Tests,
        outcome,
        failures: set(failures),
        passed: BTreeSet::new(),
        skipped: BTreeSet::new(),
    }
}

fn passed() -> GateResult {
    gate(Outcome::Passed, &[])
}

fn failed(failures: &[&str]) -> GateResult {
    gate(Outcome::Failed, failures)
}

fn timed_out(failures: &[&str]) -> GateResult {
    gate(Outcome::TimedOut, failures)
}

fn judged(standing: Standing) -> Judged {
    Judged {
        name: "unit".to_owned(),
        kind: Kind::Tests,
        standing,
        new: BTreeSet::new(),
        pre_existing: BTreeSet::new(),
        flaky: BTreeSet::new(),
        missing: BTreeSet::new(),
    }
}

// Gates.

#[test]
fn a_gate_that_passes_has_passed_whatever_the_base_commit_did() {
    let hints = gate(Outcome::Passed, &["hint"]);
    assert_eq!(classify(&hints, Some(&failed(&["a"])), None), judged(Standing::Passed));
    assert_eq!(classify(&passed(), None, Some(&failed(&["a"]))), judged(Standing::Passed));
}

#[test]
fn a_failure_the_base_commit_has_too_is_pre_existing_and_does_not_count() {
    let it = classify(&failed(&["a"]), Some(&failed(&["a", "b"])), None);
    assert_eq!(it, Judged { pre_existing: set(&["a"]), ..judged(Standing::PreExisting) });
    assert!(!it.counts());
}

#[test]
fn a_failure_that_passes_when_run_again_is_flaky_and_does_not_count() {
    for rerun in [passed(), failed(&["b"])] {
        let it = classify(&failed(&["a"]), Some(&passed()), Some(&rerun));
        assert_eq!(it, Judged { flaky: set(&["a"]), ..judged(Standing::Flaky) });
        assert!(!it.counts());
    }
}

#[test]
fn a_failure_that_repeats_counts() {
    let it = classify(&failed(&["a"]), Some(&passed()), Some(&failed(&["a"])));
    assert_eq!(it, Judged { new: set(&["a"]), ..judged(Standing::Failed) });
    assert!(it.counts());
}

#[test]
fn a_failure_counts_when_there_is_nothing_to_compare_it_with() {
    let it = classify(&failed(&["a"]), None, None);
    assert_eq!(it, Judged { new: set(&["a"]), ..judged(Standing::Failed) });
}

#[test]
fn each_failure_is_judged_by_its_name_and_only_the_new_ones_are_new() {
    let it = classify(
        &failed(&["new", "old", "sometimes"]),
        Some(&failed(&["old"])),
        Some(&failed(&["new", "old"])),
    );
    let sets = Judged {
        new: set(&["new"]),
        pre_existing: set(&["old"]),
        flaky: set(&["sometimes"]),
        ..judged(Standing::Failed)
    };
    assert_eq!(it, sets);
}

#[test]
fn what_is_partly_pre_existing_and_partly_flaky_is_flaky() {
    let it = classify(&failed(&["a", "b"]), Some(&failed(&["a"])), Some(&passed()));
    assert_eq!(it.standing, Standing::Flaky);
    assert_eq!((it.pre_existing, it.flaky), (set(&["a"]), set(&["b"])));
}

#[rstest]
#[case::base_failed_too(Some(failed(&[])), None, Standing::PreExisting)]
#[case::base_failed_by_name(Some(failed(&["a"])), None, Standing::Failed)]
#[case::base_passed(Some(passed()), None, Standing::Failed)]
#[case::passed_again(None, Some(passed()), Standing::Flaky)]
#[case::failed_again(None, Some(failed(&[])), Standing::Failed)]
#[case::failed_again_by_name(None, Some(failed(&["a"])), Standing::Failed)]
fn a_failure_without_names_is_judged_by_the_whole_gate(
    #[case] baseline: Option<GateResult>,
    #[case] rerun: Option<GateResult>,
    #[case] standing: Standing,
) {
    let it = classify(&failed(&[]), baseline.as_ref(), rerun.as_ref());
    assert_eq!(it.standing, standing);
    let all = [it.new, it.pre_existing, it.flaky].concat_sets();
    assert_eq!(all, set(&["unit"]), "the gate itself stands for what has no name");
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
fn a_named_failure_that_nobody_can_compare_counts(
    #[case] baseline: Option<GateResult>,
    #[case] rerun: Option<GateResult>,
) {
    let it = classify(&failed(&["a"]), baseline.as_ref(), rerun.as_ref());
    assert_eq!(it, Judged { new: set(&["a"]), ..judged(Standing::Failed) });
}

#[rstest]
#[case::alone(None, None, Standing::TimedOut)]
#[case::base_passed(Some(passed()), None, Standing::TimedOut)]
#[case::again(Some(passed()), Some(timed_out(&[])), Standing::TimedOut)]
#[case::failed_again(Some(passed()), Some(failed(&["a"])), Standing::TimedOut)]
#[case::passed_again(Some(passed()), Some(passed()), Standing::Flaky)]
#[case::base_timed_out_too(Some(timed_out(&[])), None, Standing::PreExisting)]
#[case::base_timed_out_and_passed_again(Some(timed_out(&[])), Some(passed()), Standing::PreExisting)]
fn a_gate_that_timed_out_counts_unless_the_base_commit_did_too_or_it_passes_again(
    #[case] baseline: Option<GateResult>,
    #[case] rerun: Option<GateResult>,
    #[case] standing: Standing,
) {
    let it = classify(&timed_out(&[]), baseline.as_ref(), rerun.as_ref());
    assert_eq!(it, judged(standing));
    assert_eq!(it.counts(), standing == Standing::TimedOut);
}

#[test]
fn a_gate_that_timed_out_keeps_what_it_had() {
    let it = classify(&timed_out(&["a", "b"]), Some(&failed(&["b"])), None);
    let kept = Judged { new: set(&["a"]), pre_existing: set(&["b"]), ..judged(Standing::TimedOut) };
    assert_eq!(it, kept);
}

#[test]
fn when_both_commits_time_out_what_was_found_still_counts_by_name() {
    let it = classify(&timed_out(&["a"]), Some(&timed_out(&[])), None);
    assert_eq!(it, Judged { new: set(&["a"]), ..judged(Standing::Failed) });
    let it = classify(&timed_out(&["a"]), Some(&timed_out(&["a"])), None);
    assert_eq!(it.standing, Standing::PreExisting);
}

fn any_gate() -> impl Strategy<Value = GateResult> {
    let outcome =
        prop_oneof![Just(Outcome::Passed), Just(Outcome::Failed), Just(Outcome::TimedOut)];
    (outcome, prop::collection::btree_set("[a-d]", 0..4))
        .prop_map(|(outcome, failures)| GateResult { failures, ..gate(outcome, &[]) })
}

/// One whose report names tests: what failed, what passed and what was skipped.
fn any_tests() -> impl Strategy<Value = GateResult> {
    let names = || prop::collection::btree_set("[a-d]", 0..4);
    (any_gate(), names(), names()).prop_map(|(gate, passed, skipped)| GateResult {
        skipped: &(&skipped - &passed) - &gate.failures,
        passed: &passed - &gate.failures,
        ..gate
    })
}

fn ran(outcome: Outcome, failures: &[&str], passed: &[&str], skipped: &[&str]) -> GateResult {
    GateResult { passed: set(passed), skipped: set(skipped), ..gate(outcome, failures) }
}

// Missing tests.

#[test]
fn a_test_that_no_longer_runs_is_missing_and_counts_also_where_the_gate_passes() {
    let base = ran(Outcome::Failed, &["b"], &["a", "c"], &["d"]);
    let now = ran(Outcome::Passed, &[], &["a"], &["c", "d"]);
    let it = judge(&now, Some(&base), None, &[]);
    assert_eq!(it, Judged { missing: set(&["b", "c"]), ..judged(Standing::Failed) });
    assert!(it.counts());
    let planned = ["b".to_owned(), "c".to_owned()];
    assert_eq!(judge(&now, Some(&base), None, &planned), judged(Standing::Passed));
    assert_eq!(judge(&now, None, None, &[]), judged(Standing::Passed));
}

#[test]
fn a_finding_that_is_gone_is_not_missing() {
    let lint = |run: GateResult| GateResult { kind: Kind::Lint, ..run };
    let it = judge(&lint(passed()), Some(&lint(failed(&["a"]))), None, &[]);
    assert_eq!(it, Judged { kind: Kind::Lint, ..judged(Standing::Passed) });
}

#[test]
fn one_that_broke_off_is_not_said_to_have_removed_what_it_did_not_reach() {
    let base = ran(Outcome::Passed, &[], &["a", "b"], &[]);
    for now in [timed_out(&[]), failed(&[])] {
        let it = judge(&now, Some(&base), None, &[]);
        assert!(it.missing.is_empty() && it.counts(), "{it:?}");
    }
    // A report without a single test is another matter.
    assert_eq!(judge(&passed(), Some(&base), None, &[]).missing, set(&["a", "b"]));
}

#[test]
fn what_the_second_run_ran_is_not_missing() {
    let base = ran(Outcome::Passed, &[], &["a", "b"], &[]);
    let stopped_early = ran(Outcome::Failed, &["x"], &["a"], &[]);
    let again = ran(Outcome::Passed, &[], &["a", "b", "x"], &[]);
    let it = judge(&stopped_early, Some(&base), Some(&again), &[]);
    assert_eq!(it, Judged { flaky: set(&["b", "x"]), ..judged(Standing::Flaky) });
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
    assert_eq!(names(&[entry.to_owned()], test), named);
}

#[test]
fn the_tests_as_they_were_must_pass_unless_the_plan_names_them() {
    let it = judge_old_tests(&failed(&["a", "b"]), Some(&passed()), None, &["a".to_owned()]);
    assert_eq!(it, Judged { new: set(&["b"]), ..judged(Standing::Failed) });
    let both = ["a".to_owned(), "b".to_owned()];
    let it = judge_old_tests(&failed(&["a", "b"]), Some(&passed()), None, &both);
    assert_eq!(it, judged(Standing::Passed));
    let it = judge_old_tests(&failed(&["a", "b"]), Some(&failed(&["b"])), None, &both);
    assert_eq!(it.standing, Standing::PreExisting);
    // A gate that names nothing cannot be excused by a name.
    assert!(judge_old_tests(&failed(&[]), Some(&passed()), None, &both).counts());
}

#[test]
fn a_test_that_the_change_makes_pass_must_pass_as_it_was() {
    let base = failed(&["a", "b"]);
    // Somebody has edited `a` until it passed.
    let it = judge_old_tests(&failed(&["a", "b"]), Some(&base.without(&set(&["a"]))), None, &[]);
    assert_eq!((it.new, it.pre_existing), (set(&["a"]), set(&["b"])));
    assert_eq!(base.without(&set(&[])), base);
    assert_eq!(base.without(&set(&["a", "b"])).outcome, Outcome::Passed);
    assert_eq!(failed(&[]).without(&set(&["a"])), failed(&[]), "it has no names to go by");
}

#[test]
fn what_fails_in_one_of_two_runs_of_the_base_commit_is_known_to_fail() {
    let base = failed(&["a"]).joined(&failed(&["b"]));
    assert_eq!(base.failures, set(&["a", "b"]));
    assert!(!classify(&failed(&["a", "b"]), Some(&base), None).counts());
    assert!(!classify(&failed(&[]), Some(&failed(&[]).joined(&passed())), None).counts());
    assert_eq!(passed().joined(&passed()), passed());
}

proptest! {
    #[test]
    fn no_failure_is_lost_or_judged_twice(
        result in any_gate(),
        baseline in prop::option::of(any_gate()),
        rerun in prop::option::of(any_gate()),
    ) {
        let it = classify(&result, baseline.as_ref(), rerun.as_ref());
        let judged = it.new.len() + it.pre_existing.len() + it.flaky.len();
        prop_assert!(it.new.is_empty() || it.counts());
        let all = [it.new, it.pre_existing, it.flaky].concat_sets();
        prop_assert_eq!(all.len(), judged);
        if result.outcome != Outcome::Passed {
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
        prop_assert!(!same.counts());
        prop_assert!(same.new.is_subset(&alone.new));
    }

    #[test]
    fn a_second_run_of_the_base_commit_only_excuses_failures(
        result in any_tests(),
        one in any_tests(),
        two in any_tests(),
        rerun in prop::option::of(any_tests()),
    ) {
        let both = one.joined(&two);
        prop_assert_eq!(&both.failures, &two.joined(&one).failures);
        let it = classify(&result, Some(&both), rerun.as_ref());
        for base in [&one, &two] {
            let alone = classify(&result, Some(base), rerun.as_ref());
            prop_assert!(it.new.is_subset(&alone.new));
            prop_assert!(!it.counts() || alone.counts());
        }
    }

    #[test]
    fn a_missing_test_always_counts_and_a_plan_can_only_excuse(
        result in any_tests(),
        base in any_tests(),
        rerun in prop::option::of(any_tests()),
        planned in prop::collection::vec("[a-d]", 0..4),
    ) {
        let plain = classify(&result, Some(&base), rerun.as_ref());
        let strict = judge(&result, Some(&base), rerun.as_ref(), &[]);
        let it = judge(&result, Some(&base), rerun.as_ref(), &planned);
        prop_assert!(it.missing.is_empty() || it.counts());
        prop_assert!(it.missing.is_subset(&strict.missing));
        prop_assert!(it.missing.iter().all(|test| !names(&planned, test)));
        prop_assert!(strict.missing.iter().all(|test| !result.passed.contains(test)));
        prop_assert!(!plain.counts() || it.counts(), "nothing is excused by what is missing");
        prop_assert!(!it.counts() || strict.counts());
        let same = judge(&result, Some(&result), rerun.as_ref(), &[]);
        prop_assert!(!same.counts());
    }
}

// Conformance.

fn planned(path: &str, action: Action) -> FileChange {
    FileChange { path: path.to_owned(), action, description: String::new(), estimated_lines: 1 }
}

fn touched(files: &[(&str, Action)]) -> BTreeMap<String, Action> {
    files.iter().map(|(path, action)| ((*path).to_owned(), *action)).collect()
}

#[test]
fn a_change_that_does_what_was_planned_conforms() {
    let plan = [planned("src/a.rs", Action::Modify), planned("src/auth/b.rs", Action::Create)];
    let done = touched(&[("src/a.rs", Action::Modify), ("src/auth/b.rs", Action::Create)]);
    assert_eq!(compare(&plan, &done, &Rules::default()), Conformance::default());
}

#[test]
fn every_difference_from_the_plan_is_named() {
    let plan = [planned("src/a.rs", Action::Modify), planned("src/b.rs", Action::Delete)];
    let done = touched(&[
        ("Cargo.lock", Action::Modify),
        ("pytest.ini", Action::Create),
        ("src/auth/login.rs", Action::Create),
        ("src/b.rs", Action::Modify),
        ("src/c.rs", Action::Create),
    ]);
    let conformance = compare(&plan, &done, &Rules::default());
    assert_eq!(
        conformance,
        Conformance {
            unplanned_critical: vec!["Cargo.lock".to_owned(), "src/auth/login.rs".to_owned()],
            unplanned_guarded: vec!["pytest.ini".to_owned()],
            unplanned: vec!["src/c.rs".to_owned()],
            untouched: vec!["src/a.rs".to_owned()],
            mismatched: vec![Mismatch {
                path: "src/b.rs".to_owned(),
                planned: Action::Delete,
                done: Action::Modify,
            }],
        }
    );
    assert_eq!(conformance.drift(), 2);
}

fn with_gates(commands: &[&str]) -> Rules {
    let gates = commands.iter().enumerate();
    let gates: Vec<_> =
        gates.map(|(at, command)| format!("  g{at}: {{ command: '{command}' }}\n")).collect();
    let text = format!("gates:\n{}", gates.concat());
    let file = rules::Source { name: "tamma.yaml", text: &text };
    rules::load(Some(file), &BTreeMap::new()).unwrap().rules
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
#[case::code("src/lib.rs", "cargo test --lib", false)]
fn a_file_that_decides_how_gates_run_needs_a_plan(
    #[case] path: &str,
    #[case] command: &str,
    #[case] guarded: bool,
) {
    let rules = with_gates(&["true", command]);
    let done = touched(&[(path, Action::Modify)]);
    let found = compare(&[], &done, &rules);
    assert_eq!(!found.unplanned_guarded.is_empty(), guarded, "{found:?}");
    assert_eq!(verdict(with_conformance(found)).passed, !guarded);
    // People have seen a plan that names it.
    let found = compare(&[planned(path, Action::Modify)], &done, &rules);
    assert_eq!(found, Conformance::default());
}

proptest! {
    #[test]
    fn every_touched_file_that_is_not_planned_is_named_once(
        plan in prop::collection::btree_set("(src/|)(auth/|)[ab](\\.rs|\\.sh|/conftest\\.py)", 0..5),
        done in prop::collection::btree_set("(src/|)(auth/|)[ab](\\.rs|\\.sh|/conftest\\.py)", 0..8),
    ) {
        let rules = with_gates(&["sh a.sh"]);
        let plan: Vec<_> = plan.iter().map(|path| planned(path, Action::Modify)).collect();
        let done: BTreeMap<_, _> = done.into_iter().map(|path| (path, Action::Modify)).collect();
        let found = compare(&plan, &done, &rules);
        let mut named: Vec<_> =
            [&found.unplanned_critical, &found.unplanned_guarded, &found.unplanned]
                .into_iter().flatten().cloned().collect();
        named.sort();
        let unplanned: Vec<_> =
            done.keys().filter(|path| plan.iter().all(|it| it.path != **path)).cloned().collect();
        prop_assert_eq!(&named, &unplanned);
        let blocks = unplanned.iter().any(|path| {
            path.contains("auth/") || path.ends_with("conftest.py") || path == "a.sh"
        });
        prop_assert_eq!(verdict(with_conformance(found)).passed, !blocks);
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

// Criteria.

fn criterion(judgement: Judgement) -> Criterion {
    let said = BTreeMap::from([("it works".to_owned(), judgement)]);
    let ground = Ground { passed: set(&["tests::it_works"]), ..Ground::default() };
    ground.weigh(criteria(&["it works".to_owned()], &said)).remove(0)
}

fn met(evidence: &str) -> Judgement {
    let test = Some("it_works".to_owned());
    Judgement::Met { evidence: evidence.to_owned(), file: None, line: None, test }
}

#[rstest]
#[case(met("tests::it_works passes"), true)]
#[case::no_evidence(met(""), false)]
#[case::blank_evidence(met(" \n"), false)]
#[case(Judgement::Unmet { why: "it does not".to_owned() }, false)]
#[case(Judgement::Unjudged, false)]
fn a_criterion_is_met_only_with_evidence(#[case] judgement: Judgement, #[case] is_met: bool) {
    assert_eq!(criterion(judgement.clone()).is_met(), is_met);
    let inputs = Inputs { criteria: vec![criterion(judgement)], ..Inputs::default() };
    assert_eq!(verdict(inputs).passed, is_met);
}

#[test]
fn the_task_decides_which_criteria_there_are() {
    let said =
        BTreeMap::from([("b".to_owned(), met("here")), ("made up".to_owned(), met("there"))]);
    assert_eq!(
        criteria(&["a".to_owned(), "b".to_owned()], &said),
        [
            Criterion { text: "a".to_owned(), judgement: Judgement::Unjudged, doubt: None },
            // Until somebody has looked, it is a claim.
            Criterion { text: "b".to_owned(), judgement: met("here"), doubt: Some(Doubt::Nowhere) },
        ]
    );
}

// The verdict.

fn issue(severity: Severity, category: Category) -> Issue {
    Issue { severity, category, message: "it is odd".to_owned(), file: None, line: None }
}

fn with_issue(severity: Severity) -> Inputs {
    Inputs { issues: vec![issue(severity, Category::Code)], ..Inputs::default() }
}

fn with_gate(standing: Standing) -> Inputs {
    Inputs { gates: vec![judged(standing)], ..Inputs::default() }
}

fn with_conformance(conformance: Conformance) -> Inputs {
    Inputs { conformance, ..Inputs::default() }
}

fn paths(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("src/{number}.rs")).collect()
}

#[test]
fn a_change_with_nothing_against_it_passes_with_a_hundred() {
    let verdict = verdict(Inputs::default());
    assert!(verdict.passed);
    assert_eq!((verdict.score, verdict.deductions.len()), (100, 0));
}

#[rstest]
#[case(with_gate(Standing::Failed), Deduction::FailedGates, 25)]
#[case(with_gate(Standing::TimedOut), Deduction::FailedGates, 25)]
#[case(with_issue(Severity::Critical), Deduction::CriticalIssues, 40)]
#[case(with_issue(Severity::Error), Deduction::Errors, 15)]
#[case(
    Inputs { criteria: vec![criterion(Judgement::Unjudged)], ..Inputs::default() },
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
fn any_one_of_these_fails_the_review(
    #[case] inputs: Inputs,
    #[case] deduction: Deduction,
    #[case] points: u8,
) {
    let verdict = verdict(inputs);
    assert!(!verdict.passed);
    assert_eq!(verdict.deductions, [(deduction, points)]);
    assert_eq!(verdict.score, 100 - points);
}

#[rstest]
#[case::warning(with_issue(Severity::Warning), &[(Deduction::Warnings, 3)])]
#[case::info(with_issue(Severity::Info), &[])]
#[case::pre_existing(with_gate(Standing::PreExisting), &[])]
#[case::flaky(with_gate(Standing::Flaky), &[])]
#[case::passed(with_gate(Standing::Passed), &[])]
#[case::unplanned(
    with_conformance(Conformance { unplanned: paths(2), ..Conformance::default() }),
    &[(Deduction::PlanDrift, 6)]
)]
#[case::mismatched(
    with_conformance(Conformance {
        mismatched: vec![Mismatch {
            path: "a".to_owned(),
            planned: Action::Create,
            done: Action::Delete,
        }],
        ..Conformance::default()
    }),
    &[(Deduction::PlanDrift, 3)]
)]
#[case::untouched(
    with_conformance(Conformance { untouched: paths(2), ..Conformance::default() }),
    &[]
)]
fn these_are_shown_and_do_not_fail_the_review(
    #[case] inputs: Inputs,
    #[case] deductions: &[(Deduction, u8)],
) {
    let verdict = verdict(inputs.clone());
    assert!(verdict.passed);
    assert_eq!(verdict.deductions, deductions);
    assert_eq!(verdict.inputs, inputs);
    assert_eq!(verdict.summary().blocking, 0);
}

#[test]
fn the_score_never_goes_below_zero() {
    let many = Inputs {
        issues: vec![issue(Severity::Critical, Category::Code); 1_000],
        gates: vec![judged(Standing::Failed); 3],
        ..Inputs::default()
    };
    let verdict = verdict(many);
    assert_eq!(verdict.score, 0);
    assert_eq!(
        verdict.deductions,
        [(Deduction::FailedGates, 75), (Deduction::CriticalIssues, 100)]
    );
}

#[test]
fn no_factor_takes_off_more_than_there_is() {
    let five = Inputs { gates: vec![judged(Standing::Failed); 5], ..Inputs::default() };
    assert_eq!(verdict(five).deductions, [(Deduction::FailedGates, 100)]);
}

#[test]
fn the_summary_counts_what_blocks_and_what_is_unmet() {
    let inputs = Inputs {
        gates: vec![judged(Standing::Failed), judged(Standing::TimedOut), judged(Standing::Flaky)],
        issues: vec![
            issue(Severity::Error, Category::Security),
            issue(Severity::Critical, Category::Code),
            issue(Severity::Warning, Category::Style),
        ],
        criteria: vec![criterion(met("")), criterion(met("here"))],
        conformance: Conformance { unplanned_critical: paths(1), ..Conformance::default() },
    };
    let verdict = verdict(inputs);
    assert_eq!(
        verdict.summary(),
        Summary { passed: false, score: 0, blocking: 5, unmet: 1, security_critical: false }
    );
}

#[test]
fn only_a_critical_issue_of_security_is_security_critical() {
    let mut inputs = with_issue(Severity::Critical);
    assert!(!verdict(inputs.clone()).summary().security_critical);
    inputs.issues.push(issue(Severity::Critical, Category::Security));
    assert!(verdict(inputs).summary().security_critical);
}

#[test]
fn a_verdict_is_kept_as_it_is() {
    let verdict = verdict(Inputs {
        gates: vec![classify(&failed(&["a"]), Some(&failed(&["b"])), None)],
        criteria: vec![criterion(Judgement::Unmet { why: "no".to_owned() })],
        ..with_issue(Severity::Error)
    });
    let json = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<tamma_core::review::Verdict>(&json).unwrap(), verdict);
    assert!(json.contains(r#""deductions":[["failed_gates",25],["errors",15]"#), "{json}");
}

fn any_issue() -> impl Strategy<Value = Issue> {
    (0..4_usize, 0..5_usize).prop_map(|(severity, category)| {
        use strum::IntoEnumIterator as _;
        issue(Severity::iter().nth(severity).unwrap(), Category::iter().nth(category).unwrap())
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
        let inputs = Inputs {
            gates: runs.iter().map(|run| classify(run, None, None)).collect(),
            issues,
            criteria: vec![criterion(Judgement::Unjudged); unmet],
            conformance: Conformance { unplanned: paths(drift), ..Conformance::default() },
        };
        let verdict = verdict(inputs);
        prop_assert!(verdict.score <= 100);
        let off: u16 = verdict.deductions.iter().map(|(_, points)| u16::from(*points)).sum();
        prop_assert_eq!(u16::from(verdict.score), 100_u16.saturating_sub(off));
        let summary = verdict.summary();
        prop_assert_eq!(summary.passed, summary.blocking == 0 && summary.unmet == 0);
        prop_assert!(!summary.security_critical || !summary.passed);
    }
}

// Fingerprints.

fn error(text: &str) -> Fingerprint {
    Fingerprint::of([], [], text, "")
}

#[test]
fn what_is_empty_has_no_digest() {
    assert_eq!(Fingerprint::of([], [], "", ""), Fingerprint::default());
    assert_eq!(Fingerprint::of([], [], " \n", "\n"), Fingerprint::default());
}

#[test]
fn each_part_has_a_digest_of_its_own() {
    let all = Fingerprint::of(["a"], ["b"], "c", "d");
    assert!(all.files.is_some() && all.tests.is_some());
    assert!(all.error.is_some() && all.diff.is_some());
    assert_eq!(Fingerprint::of(["a"], [], "", "").files, all.files);
    assert_eq!(Fingerprint::of([], ["b"], "", "").tests, all.tests);
    assert_eq!(Fingerprint::of([], [], "c", "").error, all.error);
    assert_eq!(Fingerprint::of([], [], "", "d").diff, all.diff);
}

#[test]
fn sets_have_no_order_and_no_repetition() {
    let one = Fingerprint::of(["a", "b", "a"], ["y", "x"], "", "");
    assert_eq!(one, Fingerprint::of(["b", "a"], ["x", "y", "y"], "", ""));
    assert_ne!(one.files, Fingerprint::of(["ab"], [], "", "").files);
}

#[test]
fn a_diff_is_compared_to_the_letter() {
    let of = |diff| Fingerprint::of([], [], "", diff).diff;
    assert_eq!(of("+let a = 1;"), of("+let a = 1;"));
    assert_ne!(of("+let a = 1;"), of("+let a = 2;"));
}

#[rstest]
#[case::line("src/a.rs:12:5: no such field", "src/a.rs:98:17: no such field")]
#[case::address("segfault at 0x7ffe12ab", "segfault at 0xdeadbeef01")]
#[case::commit(
    "at 0123456789abcdef0123456789abcdef01234567",
    "at fedcba9876543210fedcba9876543210fedcba98"
)]
#[case::id(
    "task 0b1c2d3e-aaaa-4bbb-8ccc-0123456789ab failed",
    "task ffffffff-eeee-4ddd-8ccc-ba9876543210 failed"
)]
#[case::unit("took 980ms.", "took 1.2s.")]
#[case::two_units("took 1m 30s.", "took 59s.")]
#[case::glued_units("took 1m30s.", "took 2 seconds.")]
#[case::time("2026-01-02T03:04:05.678Z boom", "2026-11-12 13:14:15+01:00 boom")]
#[case::temporary("in /tmp/.tmpAbC/x: gone", "in /var/folders/zz/T/y: gone")]
#[case::private("in /private/tmp/a1/x: gone", "in /var/tmp/qq: gone")]
#[case::digits("3 of 7 failed", "12 of 40 failed")]
#[case::colour("\u{1b}[1;31merror\u{1b}[0m: no", "error: no")]
#[case::space("error:\n    no\n", "error: no")]
fn the_same_error_in_another_run_has_the_same_digest(#[case] one: &str, #[case] other: &str) {
    assert!(error(one).error.is_some());
    assert_eq!(error(one), error(other));
}

#[rstest]
#[case("no such field `a`", "no such field `b`")]
#[case("src/a.rs:1: no", "src/b.rs:1: no")]
#[case("expected <n>", "expected s")]
#[case::part_of_a_word("in a5s only", "in a5m only")]
fn different_errors_have_different_digests(#[case] one: &str, #[case] other: &str) {
    assert_ne!(error(one), error(other));
}
