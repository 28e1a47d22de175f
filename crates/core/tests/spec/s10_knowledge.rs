//! Sections 5 and 10: the knowledge check, prohibited code, lessons and their effect.

mod meaning;

use chrono::{DateTime, Duration, Utc};
use proptest::prelude::*;
use rstest::rstest;
use strum::IntoEnumIterator as _;
use tamma_core::complexity::Signals;
use tamma_core::ids::{KnowledgeId, ProjectId, TaskId};
use tamma_core::issue;
use tamma_core::knowledge::{
    Entry, Findings, Index, Kind, MatchReason, Scope, Severity, Status, Violation, added_lines,
    check,
};
use tamma_core::learning::{Effect, Outcomes, effect};
use tamma_core::plan::{Action, FileChange, Plan};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use uuid::Uuid;

const HERE: ProjectId = ProjectId(Uuid::from_u128(1));
const ELSEWHERE: ProjectId = ProjectId(Uuid::from_u128(2));

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn id(number: u128) -> KnowledgeId {
    KnowledgeId(Uuid::from_u128(number))
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn task() -> Task {
    Task {
        id: TaskId(Uuid::from_u128(9)),
        project: HERE,
        title: "Rotate the tokens".to_owned(),
        description: "Old sessions stay valid.".to_owned(),
        r#type: TaskType::Bugfix,
        priority: Priority::Medium,
        acceptance_criteria: Vec::new(),
        labels: Vec::new(),
        depends_on: Vec::new(),
        suggested_agent: None,
        issue_url: None,
        metadata: std::collections::BTreeMap::new(),
    }
}

fn plan() -> Plan {
    Plan {
        summary: "A feature flag guards it".to_owned(),
        approach: "Call `unsafe_decode()` on the cookie".to_owned(),
        file_changes: vec![
            FileChange {
                path: "src/auth/token.rs".to_owned(),
                action: Action::Modify,
                description: "Use SQL directly".to_owned(),
                estimated_lines: 10,
            },
            FileChange {
                path: "README.md".to_owned(),
                action: Action::Modify,
                description: "Say so".to_owned(),
                estimated_lines: 1,
            },
        ],
        testing_strategy: "a unit test with selenium".to_owned(),
        signals: Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

fn entry(kind: Kind) -> Entry {
    Entry {
        id: id(1),
        kind,
        text: "Tokens are opaque".to_owned(),
        scope: Scope::Project(HERE),
        globs: Vec::new(),
        task_types: Vec::new(),
        keywords: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: Severity::Critical,
        owner: None,
        evidence: Vec::new(),
        status: Status::Approved,
        expires_at: None,
    }
}

fn prohibition() -> Entry {
    entry(Kind::Prohibition)
}

fn checked(entry: Entry) -> Findings {
    check(&task(), &plan(), &[entry], now(), &Rules::default())
}

/// The reasons for which the one entry blocks; none when it does not.
fn blocks(entry: Entry) -> Vec<MatchReason> {
    let findings = checked(entry);
    assert_eq!(findings.can_proceed(), findings.blockers.is_empty());
    assert!(findings.warnings.is_empty());
    findings.blockers.into_iter().flat_map(|one| one.reasons).collect()
}

fn keyword(word: &str) -> MatchReason {
    MatchReason::Keyword(word.to_owned())
}

fn path(glob: &str, path: &str) -> MatchReason {
    MatchReason::Path { glob: glob.to_owned(), path: path.to_owned() }
}

fn pattern(pattern: &str, found: &str) -> MatchReason {
    MatchReason::Pattern { pattern: pattern.to_owned(), found: found.to_owned() }
}

fn undecidable(condition: &str) -> MatchReason {
    MatchReason::Undecidable { condition: condition.to_owned() }
}

// What counts at all.

#[rstest]
#[case::in_force(prohibition(), true)]
#[case::organisation(Entry { scope: Scope::Organisation, ..prohibition() }, true)]
#[case::elsewhere(Entry { scope: Scope::Project(ELSEWHERE), ..prohibition() }, false)]
#[case::pending(Entry { status: Status::Pending, ..prohibition() }, false)]
#[case::rejected(Entry { status: Status::Rejected, ..prohibition() }, false)]
#[case::retired(Entry { status: Status::Retired, ..prohibition() }, false)]
#[case::not_yet_expired(
    Entry { expires_at: Some(now() + Duration::seconds(1)), ..prohibition() },
    true
)]
#[case::expires_now(Entry { expires_at: Some(now()), ..prohibition() }, false)]
fn only_approved_unexpired_entries_in_scope_count(#[case] entry: Entry, #[case] counts: bool) {
    let entry = Entry {
        task_types: vec![TaskType::Bugfix],
        pattern: Some("SQL|tokens".to_owned()),
        ..entry
    };
    assert_eq!(entry.is_in_force(HERE, now()), counts);
    assert_eq!(!blocks(entry.clone()).is_empty(), counts);
    let lines = added_lines(&task(), &[entry], now(), "a.rs", &[(1, "tokens")]);
    assert_eq!(!lines.is_empty(), counts);
}

// Prohibitions.

#[test]
fn a_prohibition_with_no_condition_matches_nothing() {
    assert_eq!(checked(prohibition()), Findings::default());
}

#[rstest]
#[case(Severity::Low, false)]
#[case(Severity::Medium, false)]
#[case(Severity::High, false)]
#[case(Severity::Critical, true)]
fn a_critical_prohibition_blocks_and_any_other_warns(
    #[case] severity: Severity,
    #[case] is_blocker: bool,
) {
    let findings = checked(Entry { severity, task_types: vec![TaskType::Bugfix], ..prohibition() });
    assert_eq!(findings.blockers.len(), usize::from(is_blocker));
    assert_eq!(findings.warnings.len(), usize::from(!is_blocker));
    assert_eq!(findings.can_proceed(), !is_blocker);
}

#[rstest]
#[case::glob(Entry { globs: texts(&["docs/**"]), ..prohibition() })]
#[case::task_type(Entry { task_types: vec![TaskType::Docs], ..prohibition() })]
#[case::keyword(Entry { keywords: texts(&["password"]), ..prohibition() })]
#[case::pattern(Entry { pattern: Some("eval".to_owned()), ..prohibition() })]
fn conditions_of_different_kinds_must_all_hold(#[case] failing: Entry) {
    let holding = Entry {
        globs: texts(&["src/auth/**"]),
        task_types: vec![TaskType::Bugfix],
        keywords: texts(&["cookie"]),
        actions: Vec::new(),
        pattern: Some(r"unsafe_\w+".to_owned()),
        ..prohibition()
    };
    assert_eq!(
        blocks(holding.clone()),
        [
            path("src/auth/**", "src/auth/token.rs"),
            MatchReason::TaskType(TaskType::Bugfix),
            keyword("cookie"),
            pattern(r"unsafe_\w+", "unsafe_decode"),
        ]
    );
    let or = |ours: Vec<String>, theirs| if ours.is_empty() { theirs } else { ours };
    let one_fails = Entry {
        globs: or(failing.globs, holding.globs),
        task_types: if failing.task_types.is_empty() {
            holding.task_types
        } else {
            failing.task_types
        },
        keywords: or(failing.keywords, holding.keywords),
        actions: Vec::new(),
        pattern: failing.pattern.or(holding.pattern),
        ..prohibition()
    };
    assert!(blocks(one_fails).is_empty());
}

#[rstest]
#[case::glob(
    Entry { globs: texts(&["docs/**", "*.md"]), ..prohibition() },
    path("*.md", "README.md")
)]
#[case::task_type(
    Entry { task_types: vec![TaskType::Docs, TaskType::Bugfix], ..prohibition() },
    MatchReason::TaskType(TaskType::Bugfix)
)]
#[case::keyword(
    Entry { keywords: texts(&["password", "tokens"]), ..prohibition() },
    keyword("tokens")
)]
fn within_a_kind_one_that_holds_is_enough(#[case] entry: Entry, #[case] reason: MatchReason) {
    assert_eq!(blocks(entry), [reason]);
}

#[rstest]
#[case::title("rotate", true)]
#[case::description("sessions", true)]
#[case::summary("guards", true)]
#[case::approach("cookie", true)]
#[case::file_description("sql", true)]
#[case::case("TOKENS", true)]
#[case::singular("token", true)]
#[case::part_of_a_word("toke", false)]
#[case::part_of_an_identifier("unsafe", false)]
#[case::identifier("unsafe_decode", true)]
#[case::phrase("Feature Flag", true)]
#[case::phrase_with_marks("feature-flag", true)]
#[case::phrase_in_another_order("flag feature", false)]
#[case::phrase_across_texts("it call", false)]
#[case::how_it_is_tested("selenium", true)]
#[case::nothing("", false)]
#[case::only_marks("++", false)]
fn keywords_match_whole_words_whatever_their_case(#[case] word: &str, #[case] matches: bool) {
    let reasons = blocks(Entry { keywords: texts(&[word]), ..prohibition() });
    assert_eq!(reasons, if matches { vec![keyword(word)] } else { Vec::new() });
}

#[test]
fn a_long_match_is_cut_for_people() {
    let mut plan = plan();
    plan.file_changes[0].description = "x".repeat(200);
    let entry = Entry { pattern: Some("x+".to_owned()), ..prohibition() };
    let findings = check(&task(), &plan, &[entry], now(), &Rules::default());
    assert_eq!(findings.blockers[0].reasons[0], pattern("x+", &"x".repeat(80)));
}

#[rstest]
#[case::pattern(Entry { pattern: Some("(".to_owned()), ..prohibition() }, "(")]
#[case::glob(Entry { globs: texts(&["docs/**", "a{"]), ..prohibition() }, "a{")]
fn what_cannot_be_decided_does_not_pass(#[case] entry: Entry, #[case] condition: &str) {
    assert_eq!(blocks(entry.clone()), [undecidable(condition)]);
    let high = checked(Entry { severity: Severity::High, ..entry.clone() });
    assert_eq!(high.warnings[0].reasons, [undecidable(condition)]);
    let learning = checked(Entry { kind: Kind::Learning, ..entry });
    assert_eq!(learning.warnings[0].reasons, [undecidable(condition)]);
    assert!(learning.learnings.is_empty() && learning.can_proceed());
}

#[test]
fn what_is_decided_by_another_condition_needs_no_pattern() {
    let entry =
        Entry { task_types: vec![TaskType::Docs], pattern: Some("(".to_owned()), ..prohibition() };
    assert!(blocks(entry).is_empty());
}

// Ranked entries.

fn half_relevant(kind: Kind) -> Entry {
    Entry {
        task_types: vec![TaskType::Bugfix],
        keywords: texts(&["tokens", "password"]),
        severity: Severity::Low,
        ..entry(kind)
    }
}

/// What is found of some entries when everything that is found is shown.
fn all_found(entries: &[Entry]) -> Findings {
    let mut rules = Rules::default();
    rules.scrum_master.learning_capture.min_relevance_score = 0;
    check(&task(), &plan(), entries, now(), &rules)
}

/// How relevant a learning is among others.
fn relevance(entries: &[Entry], of: KnowledgeId) -> u8 {
    let found = all_found(entries).learnings;
    found.iter().find(|found| found.entry == of).map_or(0, |found| found.relevance)
}

#[test]
fn ranked_entries_are_shown_at_or_above_the_configured_relevance() {
    let entry = half_relevant(Kind::Learning);
    let least = relevance(std::slice::from_ref(&entry), entry.id);
    assert!((70..100).contains(&least), "{least}");
    let shown = |least| {
        let mut rules = Rules::default();
        rules.scrum_master.learning_capture.min_relevance_score = least;
        check(&task(), &plan(), std::slice::from_ref(&entry), now(), &rules).learnings.len()
    };
    assert_eq!([shown(0), shown(least), shown(least + 1)], [1, 1, 0]);
}

#[test]
fn every_kind_has_a_list_of_its_own() {
    let list = |kind| {
        let findings = checked(half_relevant(kind));
        [findings.recommendations.len(), findings.conventions.len(), findings.learnings.len()]
    };
    assert_eq!(list(Kind::Recommendation), [1, 0, 0]);
    assert_eq!(list(Kind::Convention), [0, 1, 0]);
    assert_eq!(list(Kind::Learning), [0, 0, 1]);
}

#[rstest]
#[case::glob(
    Entry { globs: texts(&["src/auth/*.rs"]), ..entry(Kind::Learning) },
    Entry { globs: texts(&["docs/**"]), ..entry(Kind::Learning) }
)]
#[case::precise_glob(
    Entry { globs: texts(&["src/auth/token.rs"]), ..entry(Kind::Learning) },
    Entry { globs: texts(&["**"]), ..entry(Kind::Learning) }
)]
#[case::task_type(
    Entry { task_types: vec![TaskType::Bugfix], ..entry(Kind::Learning) },
    Entry { task_types: vec![TaskType::Docs], ..entry(Kind::Learning) }
)]
#[case::keyword(
    Entry { keywords: texts(&["cookie"]), ..entry(Kind::Learning) },
    Entry { keywords: texts(&["password"]), ..entry(Kind::Learning) }
)]
#[case::another_form_of_the_word(
    Entry { keywords: texts(&["rotation"]), ..entry(Kind::Learning) },
    Entry { keywords: texts(&["notation"]), ..entry(Kind::Learning) }
)]
#[case::pattern(
    Entry { pattern: Some("SQL".to_owned()), ..entry(Kind::Learning) },
    Entry { pattern: Some("HTML".to_owned()), ..entry(Kind::Learning) }
)]
#[case::words(
    Entry { text: "Old sessions stay valid".to_owned(), ..entry(Kind::Learning) },
    Entry { text: "Old passwords expire soon".to_owned(), ..entry(Kind::Learning) }
)]
fn what_holds_counts_more_than_what_does_not(#[case] holds: Entry, #[case] fails: Entry) {
    let fails = Entry { id: id(2), ..fails };
    let entries = [fails, holds];
    assert!(relevance(&entries, id(1)) > relevance(&entries, id(2)));
}

#[test]
fn a_word_that_few_entries_have_says_more() {
    let of = |number, text: &str| Entry {
        id: id(number),
        text: text.to_owned(),
        ..entry(Kind::Learning)
    };
    let entries = [
        of(1, "The cookie jar"),
        of(2, "The token jar"),
        of(3, "The token bin"),
        of(4, "The token box"),
    ];
    assert!(relevance(&entries, id(1)) > relevance(&entries, id(2)));
}

#[test]
fn an_entry_without_conditions_says_which_words_it_shares() {
    let entry = Entry { text: "A cookie is opaque".to_owned(), ..entry(Kind::Learning) };
    let found = all_found(&[entry]).learnings;
    assert_eq!(found[0].reasons, [MatchReason::Words(texts(&["cookie"]))]);
}

#[test]
fn no_more_of_a_kind_are_listed_than_somebody_reads() {
    let entries: Vec<_> =
        (1..60).map(|number| Entry { id: id(number), ..half_relevant(Kind::Learning) }).collect();
    assert_eq!(all_found(&entries).learnings.len(), 20);
}

#[rstest]
#[case::modified(vec![Action::Modify], true)]
#[case::deleted(vec![Action::Delete], false)]
#[case::one_of(vec![Action::Delete, Action::Modify], true)]
#[case::any(vec![], true)]
fn actions_narrow_the_paths(#[case] actions: Vec<Action>, #[case] holds: bool) {
    let entry = Entry { globs: texts(&["src/auth/**"]), actions, ..prohibition() };
    assert_eq!(!blocks(entry).is_empty(), holds);
}

#[rstest]
#[case("src/*.rs", false)]
#[case("src/*/*.rs", true)]
#[case("src/**", true)]
#[case("**/token.rs", true)]
#[case("**/README.md", true)]
#[case("src/auth", false)]
#[case("SRC/**", false)]
fn a_star_stays_within_a_folder(#[case] glob: &str, #[case] holds: bool) {
    let entry = Entry { globs: texts(&[glob]), ..prohibition() };
    assert_eq!(!blocks(entry).is_empty(), holds);
    let lines = added_lines(
        &task(),
        &[Entry { globs: texts(&[glob]), pattern: Some("x".to_owned()), ..prohibition() }],
        now(),
        if glob.contains("README") { "README.md" } else { "src/auth/token.rs" },
        &[(1, "x")],
    );
    assert_eq!(!lines.is_empty(), holds);
}

#[test]
fn a_search_finds_whatever_shares_the_most_words() {
    let of = |number, text: &str, status| Entry {
        id: id(number),
        text: text.to_owned(),
        status,
        ..entry(Kind::Learning)
    };
    let index = Index::new([
        of(1, "Charge a card once", Status::Approved),
        of(2, "Charged cards are kept", Status::Pending),
        of(3, "Something else", Status::Approved),
    ]);
    assert_eq!(index.search("charging the card once", 9), [id(1), id(2)]);
    assert_eq!(index.search("charging the card once", 1), [id(1)]);
    assert!(index.search("nothing", 9).is_empty());
}

#[test]
fn what_has_nothing_in_common_with_a_plan_is_never_shown() {
    let silent = Entry { text: "Beware".to_owned(), ..entry(Kind::Convention) };
    let unrelated = Entry { keywords: texts(&["password"]), ..silent.clone() };
    for entry in [unrelated, silent] {
        assert_eq!(all_found(&[entry]), Findings::default());
    }
}

#[test]
fn the_most_relevant_come_first() {
    let full = Entry { id: id(3), globs: texts(&["src/auth/**"]), ..half_relevant(Kind::Learning) };
    let entries =
        [Entry { id: id(2), ..half_relevant(Kind::Learning) }, half_relevant(Kind::Learning), full];
    let findings = check(&task(), &plan(), &entries, now(), &Rules::default());
    let order: Vec<_> = findings.learnings.iter().map(|one| one.entry).collect();
    assert_eq!(order, [id(3), id(1), id(2)]);
}

fn any_entry() -> impl Strategy<Value = Entry> {
    (
        any::<u8>(),
        0..4_usize,
        0..4_usize,
        prop::collection::vec("[a-z*/{\\[]{0,6}", 0..3),
        prop::collection::vec("(sql|cookie|no|)", 0..3),
        prop::option::of("[a-z(|*]{0,5}"),
    )
        .prop_map(|(number, kind, severity, globs, keywords, pattern)| Entry {
            id: id(number.into()),
            kind: Kind::iter().nth(kind).unwrap(),
            severity: Severity::iter().nth(severity).unwrap(),
            globs,
            keywords,
            actions: Vec::new(),
            pattern,
            ..prohibition()
        })
}

proptest! {
    #[test]
    fn the_check_does_not_depend_on_the_order_of_the_entries(
        mut entries in prop::collection::vec(any_entry(), 0..6),
    ) {
        entries.sort_by_key(|entry| entry.id);
        entries.dedup_by_key(|entry| entry.id);
        let forwards = check(&task(), &plan(), &entries, now(), &Rules::default());
        entries.reverse();
        let backwards = check(&task(), &plan(), &entries, now(), &Rules::default());
        prop_assert_eq!(&forwards, &backwards);
        for one in forwards.blockers.iter().chain(&forwards.learnings) {
            prop_assert!(one.relevance <= 100 && !one.reasons.is_empty());
        }
    }
}

#[test]
fn every_reason_is_told_to_people() {
    let told: Vec<_> = [
        path("src/**", "src/a.rs"),
        MatchReason::TaskType(TaskType::Bugfix),
        keyword("sql"),
        pattern("a+", "aa"),
        MatchReason::Words(texts(&["a", "b"])),
        MatchReason::Meaning,
        undecidable("("),
    ]
    .iter()
    .map(ToString::to_string)
    .collect();
    assert_eq!(
        told,
        [
            "`src/a.rs` is under `src/**`",
            "the task is a bugfix",
            "it speaks of `sql`",
            "`aa` matches `a+`",
            "it shares `a`, `b`",
            "it means much the same",
            "cannot be decided: `(` is not a glob or pattern; mend the entry",
        ]
    );
}

// Prohibited code.

fn no_panics() -> Entry {
    Entry { pattern: Some(r"\.unwrap\(\)".to_owned()), ..prohibition() }
}

fn violation(line: Option<u32>, reason: MatchReason) -> Violation {
    Violation {
        entry: id(1),
        severity: Severity::Critical,
        file: "src/a.rs".to_owned(),
        line,
        reason,
    }
}

fn violations(entries: &[Entry]) -> Vec<Violation> {
    let lines = [(3, "let a = b.unwrap();"), (4, "let c = d?;"), (9, "e.unwrap()")];
    added_lines(&task(), entries, now(), "src/a.rs", &lines)
}

#[test]
fn prohibited_code_is_found_on_the_added_lines() {
    let found = || pattern(r"\.unwrap\(\)", ".unwrap()");
    let expected = [violation(Some(3), found()), violation(Some(9), found())];
    assert_eq!(violations(&[no_panics()]), expected);
}

#[rstest]
#[case::path(Entry { globs: texts(&["src/**"]), ..no_panics() }, true)]
#[case::other_path(Entry { globs: texts(&["docs/**"]), ..no_panics() }, false)]
#[case::task_type(Entry { task_types: vec![TaskType::Bugfix], ..no_panics() }, true)]
#[case::other_task_type(Entry { task_types: vec![TaskType::Docs], ..no_panics() }, false)]
#[case::keywords_are_about_plans(Entry { keywords: texts(&["none"]), ..no_panics() }, true)]
#[case::recommendation(Entry { kind: Kind::Recommendation, ..no_panics() }, false)]
#[case::no_pattern(Entry { pattern: None, globs: texts(&["**"]), ..no_panics() }, false)]
fn prohibited_code_is_narrowed_by_paths_and_task_types(#[case] entry: Entry, #[case] found: bool) {
    assert_eq!(!violations(&[entry]).is_empty(), found);
}

#[test]
fn a_pattern_that_cannot_be_read_forbids_the_file_and_not_a_line() {
    let broken = Entry { pattern: Some("(".to_owned()), ..prohibition() };
    assert_eq!(violations(std::slice::from_ref(&broken)), [violation(None, undecidable("("))]);
    assert!(added_lines(&task(), &[broken], now(), "src/a.rs", &[]).is_empty());
}

#[test]
fn violations_come_in_the_order_of_the_lines() {
    let other = Entry { id: id(2), pattern: Some("let".to_owned()), ..prohibition() };
    let order: Vec<_> =
        violations(&[other, no_panics()]).iter().map(|one| (one.line, one.entry)).collect();
    assert_eq!(order, [(Some(3), id(1)), (Some(3), id(2)), (Some(4), id(2)), (Some(9), id(1))]);
}

#[rstest]
#[case(Severity::Low, issue::Severity::Warning)]
#[case(Severity::Medium, issue::Severity::Warning)]
#[case(Severity::High, issue::Severity::Warning)]
#[case(Severity::Critical, issue::Severity::Critical)]
fn only_a_critical_violation_blocks_the_review(
    #[case] severity: Severity,
    #[case] of_issue: issue::Severity,
) {
    let violation = Violation { severity, ..violation(Some(3), pattern("a+", "aa")) };
    assert_eq!(
        violation.issue(),
        issue::Issue {
            severity: of_issue,
            category: issue::Category::Code,
            message: format!("prohibited by {}: `aa` matches `a+`", id(1)),
            file: Some("src/a.rs".to_owned()),
            line: Some(3),
        }
    );
}

// Status.

#[test]
fn only_a_pending_entry_can_be_approved_and_nothing_stays_what_it_is_by_changing() {
    let allowed: Vec<_> = Status::iter()
        .flat_map(|from| Status::iter().map(move |to| (from, to)))
        .filter(|(from, to)| from.may_become(*to))
        .collect();
    assert_eq!(
        allowed,
        [
            (Status::Pending, Status::Approved),
            (Status::Pending, Status::Rejected),
            (Status::Approved, Status::Retired),
            (Status::Rejected, Status::Pending),
            (Status::Retired, Status::Pending),
        ]
    );
}

// Effect.

#[rstest]
#[case(9, 9, None)]
#[case(10, 0, Some(0))]
#[case(10, 7, Some(70))]
#[case(30, 20, Some(66))]
#[case::more_than_there_were(10, 15, Some(100))]
#[case::far_more_than_there_were(10, u32::MAX, Some(100))]
fn a_rate_needs_ten_tasks(#[case] tasks: u32, #[case] first_pass: u32, #[case] rate: Option<u8>) {
    assert_eq!(Outcomes { tasks, first_pass }.first_pass_rate(), rate);
}

#[rstest]
#[case(60, 50, Effect::Helps { with: 60, without: 50 })]
#[case(59, 50, Effect::NoDifference { with: 59, without: 50 })]
#[case(50, 59, Effect::NoDifference { with: 50, without: 59 })]
#[case(50, 60, Effect::Hurts { with: 50, without: 60 })]
fn an_effect_is_ten_points_of_the_first_pass_rate(
    #[case] with: u32,
    #[case] without: u32,
    #[case] expected: Effect,
) {
    let of = |first_pass| Outcomes { tasks: 100, first_pass };
    assert_eq!(effect(of(with), of(without)), expected);
}

#[test]
fn with_too_few_tasks_on_either_side_nobody_can_tell() {
    let (few, enough) =
        (Outcomes { tasks: 9, first_pass: 9 }, Outcomes { tasks: 10, first_pass: 0 });
    assert_eq!(effect(few, enough), Effect::TooFew);
    assert_eq!(effect(enough, few), Effect::TooFew);
}

#[rstest]
#[case(Effect::Helps { with: 60, without: 50 }, false, "helps: 60 % pass at once with it, 50 % without")]
#[case(
    Effect::NoDifference { with: 50, without: 50 },
    true,
    "makes no difference: 50 % pass at once with it, 50 % without"
)]
#[case(Effect::Hurts { with: 50, without: 60 }, true, "hurts: 50 % pass at once with it, 60 % without")]
#[case(Effect::TooFew, false, "too few tasks to tell")]
fn a_lesson_that_does_not_help_is_offered_for_retirement(
    #[case] effect: Effect,
    #[case] offered: bool,
    #[case] told: &str,
) {
    assert_eq!(effect.offer_retirement(), offered);
    assert_eq!(effect.to_string(), told);
}
