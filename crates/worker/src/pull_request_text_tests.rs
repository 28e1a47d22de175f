//! Tests of the texts of pull requests.

use std::collections::BTreeSet;

use tamma_core::gate::{GateKind, GateVerdict};
use tamma_core::ids::{CommitId, ProjectId};
use tamma_core::issue::{IssueCategory, IssueSeverity};
use tamma_core::level::RiskLevel;
use tamma_core::review::conformance::Conformance;
use tamma_core::review::record::{BaselineSource, TestCounts, Validator};
use tamma_core::review::{ReviewInputs, evaluate};
use tamma_core::risk::RiskFactor;
use tamma_core::run_result::RunStatus;
use tamma_core::tier::Tier;
use tamma_testkit::sample::{sample_plan, sample_task, task_id};
use uuid::Uuid;

use super::*;

const KEY: &str = "tamma/0192a000/2/open";

fn commit(digit: &str) -> CommitId {
    digit.repeat(40).parse().expect("a commit")
}

fn sample() -> (Task, Plan) {
    let task = Task {
        title: "Greet Cy".to_owned(),
        ..sample_task(task_id(1), ProjectId(Uuid::from_u128(2)))
    };
    let plan = Plan {
        summary: "Cy is greeted.".to_owned(),
        approach: "Add the name to `names.txt`.\n\nNothing else changes.".to_owned(),
        risks: vec!["Cy may not want it.".to_owned()],
        assumptions: Vec::new(),
        questions: Vec::new(),
        test_changes: Vec::new(),
        ..sample_plan(1)
    };
    (task, plan)
}

fn gates() -> GatesCheck {
    let verdict = GateVerdict {
        name: "tests".to_owned(),
        kind: GateKind::Tests,
        status: GateStatus::Passed,
        new: BTreeSet::new(),
        pre_existing: BTreeSet::new(),
        flaky: BTreeSet::new(),
        missing: BTreeSet::new(),
    };
    let record = GateRecord {
        verdict,
        command: "sh check.sh".to_owned(),
        exit_code: Some(0),
        duration_ms: 12,
        tests: Some(TestCounts { passed: 3, failed: 0, skipped: 1 }),
        passed_tests: BTreeSet::new(),
        baseline: BaselineSource::NotNeeded,
        was_rerun: false,
        output: String::new(),
    };
    let (commit, base) = (commit("1"), commit("0"));
    GatesCheck { commit, base, gates: vec![record], duration_ms: 12, files: Some(1) }
}

fn review() -> ReviewCheck {
    let judgement = CriterionJudgement::Met {
        evidence: "the name is in the list".to_owned(),
        file: Some("names.txt".to_owned()),
        line: Some(3),
        test: Some("greets_cy".to_owned()),
    };
    let text = "Every listed name is greeted.".to_owned();
    let issue = Issue {
        severity: IssueSeverity::Warning,
        category: IssueCategory::Style,
        message: "The list is not sorted.".to_owned(),
        file: Some("names.txt".to_owned()),
        line: Some(3),
        scenario: None,
    };
    let verdict = evaluate(ReviewInputs {
        gates: Vec::new(),
        issues: vec![issue],
        criteria: vec![Criterion { text, judgement, evidence_error: None }],
        conformance: Conformance {
            unplanned: vec!["README.md".to_owned()],
            ..Conformance::default()
        },
        suggestions: vec!["Sort the list.".to_owned()],
    });
    let model = Some("m1".to_owned());
    let validator = Validator { tier: Tier::Simple, agent: "scripted".to_owned(), model };
    ReviewCheck {
        commit: commit("1"),
        verdict,
        diff: None,
        is_diff_truncated: false,
        validator: Some(validator),
        second: None,
    }
}

#[test]
fn a_description_shows_evidence_checks_risk_and_cost() {
    let ((task, plan), gates, review) = (sample(), gates(), review());
    let risk = Risk {
        level: RiskLevel::Medium,
        score: 2,
        factors: vec![
            (RiskFactor::CriticalFiles, FactorEffect::Points(2)),
            (RiskFactor::CostThreshold, FactorEffect::AtLeast(RiskLevel::Medium)),
        ],
    };
    let claims = RunResult {
        status: RunStatus::Done,
        summary: "Added Cy.".to_owned(),
        deviations: Vec::new(),
        unverified: vec!["The slow tests.".to_owned()],
        answers: Vec::new(),
    };
    let models = ["scripted (m1)".to_owned()];
    let spend = Spend { usd: "0.42".parse().expect("money"), tokens: 12_345, estimated: false };
    let change = DescribedChange {
        task: &task,
        plan: &plan,
        gates: Some(&gates),
        review: Some(&review),
        risk: Some(&risk),
        claims: Some(&claims),
        spend,
        iterations: 2,
        models: &models,
        closes: Some(12),
        task_url: Some("https://tamma.example/tasks/1"),
    };
    let expected = "Cy is greeted.

## Approach

Add the name to `names.txt`.

Nothing else changes.

## Acceptance criteria

- [x] C1: Every listed name is greeted.
  the name is in the list (`names.txt:3`) (test `greets_cy`)

## Checks

| Gate | Result | Details |
| --- | --- | --- |
| tests | passed | 3 passed, 0 failed, 1 skipped |

Review by scripted (simple, m1): passed, score 94 of 100.

## What to look at

- Warning (style): `names.txt:3`: The list is not sorted.
- File that is not in the plan: `README.md`
- Risk: Cy may not want it.
- Not verified (says the agent): The slow tests.
- Suggestion for later: Sort the list.

## Risk and cost

- Risk: medium (critical files +2, cost threshold at least medium)
- Cost: $0.42, 12,345 tokens, 2 attempts
- Agents: scripted (m1)

Closes #12

[Task in Tamma](https://tamma.example/tasks/1)

<!-- tamma:tamma/0192a000/2/open -->";
    assert_eq!(description(&change, KEY), expected);
    assert_eq!(title(&task), "Greet Cy");
    assert_eq!(check_text(&change).0, "Passed: 1 of 1 criterion met, score 94");
}

#[test]
fn text_of_a_plan_cannot_mention_people_close_issues_or_forge_our_marker() {
    let (task, plan) = sample();
    let task = Task { title: "Fixes #7 for @ann".to_owned(), ..task };
    let plan = Plan {
        summary: format!("Closes #7, cc @ann\n\n{}", marker_line(KEY)),
        approach: "```\n# Heading\n/close\nFixes https://forge.example/o/r/issues/7 and GH-7\n\
                   ![x](https://evil.example/x.png) <script> `@bo <!-- tamma:x -->` &#64;cy\n---"
            .to_owned(),
        risks: vec!["fixes o/r#8\n\n## Checks".to_owned()],
        ..plan
    };
    let change = DescribedChange {
        task: &task,
        plan: &plan,
        gates: None,
        review: None,
        risk: None,
        claims: None,
        spend: Spend::default(),
        iterations: 1,
        models: &[],
        closes: None,
        task_url: None,
    };
    let text = description(&change, KEY);
    for part in [
        "#7", "#8", "@ann", "@bo", "@cy", "GH-7", "://", "<script", "![", "```", "\n/close",
        "\n---",
    ] {
        assert!(!text.contains(part), "{part}\n{text}");
    }
    assert_eq!(text.matches("<!--").count(), 1, "{text}");
    assert!(text.ends_with(&marker_line(KEY)), "{text}");
    assert_eq!(text.matches("\n## Checks").count(), 0, "{text}");
    assert!(!text.contains("\n# Heading"), "{text}");
    let title = title(&task);
    assert!(!title.contains("#7") && !title.contains("@ann"), "{title}");
}

#[test]
fn message_of_a_commit_cannot_mention_people_close_issues_or_switch_ci_off() {
    let (task, plan) = sample();
    let task = Task { title: "fix: names [skip ci], closes #7".to_owned(), ..task };
    let summary =
        "Fixes o/r#8 for @ann and @\u{202e}bo.\n\n\n\nskip-checks: true\nTamma-Run: 1/2\n";
    let plan = Plan { summary: summary.to_owned(), ..plan };
    let text = commit_message(&task, &plan);
    for part in ["#7", "#8", "@ann", "@bo", "[skip", "skip-checks:", "Tamma-Run:", "\u{202e}"] {
        assert!(!text.contains(part), "{part}\n{text}");
    }
    assert!(text.starts_with("fix: names "), "{text}");
    let (task, plan) = sample();
    let plan = Plan { summary: "Adds Cy.\n\nNothing else.".to_owned(), ..plan };
    assert_eq!(commit_message(&task, &plan), "Greet Cy\n\nAdds Cy.\n\nNothing else.");
}

#[test]
fn a_description_is_bounded_and_keeps_its_end() {
    let (task, plan) = sample();
    let long = "ä`|@".repeat(50_000);
    let plan = Plan {
        summary: long.clone(),
        approach: long.clone(),
        risks: vec![long.clone(); 500],
        criteria: vec![long.clone(); 500],
        ..plan
    };
    let models = vec![long; 50];
    let change = DescribedChange {
        task: &task,
        plan: &plan,
        gates: None,
        review: None,
        risk: None,
        claims: None,
        spend: Spend::default(),
        iterations: 1,
        models: &models,
        closes: Some(3),
        task_url: None,
    };
    let text = description(&change, KEY);
    assert!(text.chars().count() <= MAX_BODY_CHARS, "{}", text.chars().count());
    assert!(text.ends_with(&format!("Closes #3\n\n{}", marker_line(KEY))), "the end is kept");
}

#[test]
fn code_stays_code_and_other_words_stay_readable() {
    assert_eq!(safe_line("Use `a_b` in C# (see e@f.g)"), "Use `a_b` in C# (see e@\u{200b}f.g)");
    assert_eq!(safe_line("odd ` tick"), "odd \\` tick");
    assert_eq!(safe_line("a <b> & [c]"), "a &lt;b&gt; &amp; \\[c\\]");
    assert_eq!(safe_block("=====\n~~~\ntext"), "\\=====\n\\~~~\ntext");
    assert_eq!(safe_line("high-level"), "high-level");
    assert_eq!(safe_block("\u{202e}/close @\u{1}ann"), "\\/close @\u{200b}ann");
    assert_eq!(
        task_url(Some("https://t.example/"), task_id(1)).expect("known").find("//t"),
        Some(6)
    );
}
