//! Sections 5 and 10: the knowledge check, prohibited code, lessons and their effect.

mod embeddings;

use chrono::{DateTime, Duration, Utc};
use proptest::prelude::*;
use rstest::rstest;
use strum::IntoEnumIterator as _;
use tamma_core::complexity::Signals;
use tamma_core::ids::{KnowledgeId, ProjectId, TaskId};
use tamma_core::issue;
use tamma_core::knowledge::{
    EntryKind, EntryScope, EntrySeverity, EntryStatus, KnowledgeEntry, KnowledgeFindings,
    KnowledgeIndex, MatchReason, ProhibitionViolation, check, check_added_lines,
};
use tamma_core::learning::{LessonEffect, ReviewOutcomes, measure_effect};
use tamma_core::plan::{FileAction, FileChange, Plan};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use uuid::Uuid;

const HERE: ProjectId = ProjectId(Uuid::from_u128(1));
const ELSEWHERE: ProjectId = ProjectId(Uuid::from_u128(2));

pub(super) fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn id(number: u128) -> KnowledgeId {
    KnowledgeId(Uuid::from_u128(number))
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

pub(super) fn task() -> Task {
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
        issue_number: None,
        metadata: std::collections::BTreeMap::new(),
    }
}

pub(super) fn plan() -> Plan {
    Plan {
        summary: "A feature flag guards it".to_owned(),
        approach: "Call `unsafe_decode()` on the cookie".to_owned(),
        file_changes: vec![
            FileChange {
                path: "src/auth/token.rs".to_owned(),
                action: FileAction::Modify,
                description: "Use SQL directly".to_owned(),
                estimated_lines: 10,
            },
            FileChange {
                path: "README.md".to_owned(),
                action: FileAction::Modify,
                description: "Say so".to_owned(),
                estimated_lines: 1,
            },
        ],
        testing_strategy: "a unit test with selenium".to_owned(),
        signals: Signals::default().into(),
        estimated_tokens: None,
        estimated_cost_usd: None,
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
        criteria: Vec::new(),
        assumptions: Vec::new(),
        questions: Vec::new(),
        verification: Vec::new(),
        estimated_signals: Vec::new(),
    }
}

fn entry(kind: EntryKind) -> KnowledgeEntry {
    KnowledgeEntry {
        id: id(1),
        kind,
        text: "Tokens are opaque".to_owned(),
        scope: EntryScope::Project(HERE),
        globs: Vec::new(),
        task_types: Vec::new(),
        keywords: Vec::new(),
        actions: Vec::new(),
        pattern: None,
        severity: EntrySeverity::Critical,
        owner: None,
        evidence: Vec::new(),
        status: EntryStatus::Approved,
        expires_at: None,
        origin: None,
    }
}

fn prohibition() -> KnowledgeEntry {
    entry(EntryKind::Prohibition)
}

fn checked(entry: KnowledgeEntry) -> KnowledgeFindings {
    check(&task(), &plan(), &[entry], now(), &Rules::default())
}

/// Returns the reasons for which the only entry blocks; empty if it does not.
fn blocks(entry: KnowledgeEntry) -> Vec<MatchReason> {
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

// Entries in effect.

#[rstest]
#[case::in_force(prohibition(), true)]
#[case::organisation(KnowledgeEntry { scope: EntryScope::Organisation, ..prohibition() }, true)]
#[case::elsewhere(KnowledgeEntry { scope: EntryScope::Project(ELSEWHERE), ..prohibition() }, false)]
#[case::pending(KnowledgeEntry { status: EntryStatus::Pending, ..prohibition() }, false)]
#[case::rejected(KnowledgeEntry { status: EntryStatus::Rejected, ..prohibition() }, false)]
#[case::retired(KnowledgeEntry { status: EntryStatus::Retired, ..prohibition() }, false)]
#[case::not_yet_expired(
    KnowledgeEntry { expires_at: Some(now() + Duration::seconds(1)), ..prohibition() },
    true
)]
#[case::expires_now(KnowledgeEntry { expires_at: Some(now()), ..prohibition() }, false)]
fn only_approved_unexpired_entries_in_scope_take_effect(
    #[case] entry: KnowledgeEntry,
    #[case] counts: bool,
) {
    let entry = KnowledgeEntry {
        task_types: vec![TaskType::Bugfix],
        pattern: Some("SQL|tokens".to_owned()),
        ..entry
    };
    assert_eq!(entry.is_in_force(HERE, now()), counts);
    assert_eq!(!blocks(entry.clone()).is_empty(), counts);
    let lines = check_added_lines(&task(), &[entry], now(), "a.rs", &[(1, "tokens")]);
    assert_eq!(!lines.is_empty(), counts);
}

// Prohibitions.

#[test]
fn a_prohibition_with_no_condition_matches_nothing() {
    assert_eq!(checked(prohibition()), KnowledgeFindings::default());
}

#[rstest]
#[case(EntrySeverity::Low, false)]
#[case(EntrySeverity::Medium, false)]
#[case(EntrySeverity::High, false)]
#[case(EntrySeverity::Critical, true)]
fn a_critical_prohibition_blocks_and_any_other_warns(
    #[case] severity: EntrySeverity,
    #[case] is_blocker: bool,
) {
    let findings =
        checked(KnowledgeEntry { severity, task_types: vec![TaskType::Bugfix], ..prohibition() });
    assert_eq!(findings.blockers.len(), usize::from(is_blocker));
    assert_eq!(findings.warnings.len(), usize::from(!is_blocker));
    assert_eq!(findings.can_proceed(), !is_blocker);
}

#[rstest]
#[case::glob(KnowledgeEntry { globs: texts(&["docs/**"]), ..prohibition() })]
#[case::task_type(KnowledgeEntry { task_types: vec![TaskType::Docs], ..prohibition() })]
#[case::keyword(KnowledgeEntry { keywords: texts(&["password"]), ..prohibition() })]
#[case::pattern(KnowledgeEntry { pattern: Some("eval".to_owned()), ..prohibition() })]
fn conditions_of_different_kinds_must_all_match(#[case] failing: KnowledgeEntry) {
    let holding = KnowledgeEntry {
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
    let one_fails = KnowledgeEntry {
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
    KnowledgeEntry { globs: texts(&["docs/**", "*.md"]), ..prohibition() },
    path("*.md", "README.md")
)]
#[case::task_type(
    KnowledgeEntry { task_types: vec![TaskType::Docs, TaskType::Bugfix], ..prohibition() },
    MatchReason::TaskType(TaskType::Bugfix)
)]
#[case::keyword(
    KnowledgeEntry { keywords: texts(&["password", "tokens"]), ..prohibition() },
    keyword("tokens")
)]
fn within_a_kind_one_match_is_enough(#[case] entry: KnowledgeEntry, #[case] reason: MatchReason) {
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
fn keywords_match_whole_words_in_any_case(#[case] word: &str, #[case] matches: bool) {
    let reasons = blocks(KnowledgeEntry { keywords: texts(&[word]), ..prohibition() });
    assert_eq!(reasons, if matches { vec![keyword(word)] } else { Vec::new() });
}

#[test]
fn a_long_match_is_truncated() {
    let mut plan = plan();
    plan.file_changes[0].description = "x".repeat(200);
    let entry = KnowledgeEntry { pattern: Some("x+".to_owned()), ..prohibition() };
    let findings = check(&task(), &plan, &[entry], now(), &Rules::default());
    assert_eq!(findings.blockers[0].reasons[0], pattern("x+", &"x".repeat(80)));
}

#[rstest]
#[case::pattern(KnowledgeEntry { pattern: Some("(".to_owned()), ..prohibition() }, "(")]
#[case::glob(KnowledgeEntry { globs: texts(&["docs/**", "a{"]), ..prohibition() }, "a{")]
fn an_undecidable_entry_counts_as_a_match(#[case] entry: KnowledgeEntry, #[case] condition: &str) {
    assert_eq!(blocks(entry.clone()), [undecidable(condition)]);
    let high = checked(KnowledgeEntry { severity: EntrySeverity::High, ..entry.clone() });
    assert_eq!(high.warnings[0].reasons, [undecidable(condition)]);
    let learning = checked(KnowledgeEntry { kind: EntryKind::Learning, ..entry });
    assert_eq!(learning.warnings[0].reasons, [undecidable(condition)]);
    assert!(learning.learnings.is_empty() && learning.can_proceed());
}

#[test]
fn an_invalid_pattern_does_not_matter_if_another_condition_fails() {
    let entry = KnowledgeEntry {
        task_types: vec![TaskType::Docs],
        pattern: Some("(".to_owned()),
        ..prohibition()
    };
    assert!(blocks(entry).is_empty());
}

// Ranked entries.

pub(super) fn half_relevant(kind: EntryKind) -> KnowledgeEntry {
    KnowledgeEntry {
        task_types: vec![TaskType::Bugfix],
        keywords: texts(&["tokens", "password"]),
        severity: EntrySeverity::Low,
        ..entry(kind)
    }
}

/// Returns all findings, however low their relevance.
fn check_all(entries: &[KnowledgeEntry]) -> KnowledgeFindings {
    let mut rules = Rules::default();
    rules.scrum_master.learning_capture.min_relevance_score = 0;
    check(&task(), &plan(), entries, now(), &rules)
}

/// Returns the relevance of one entry among others.
fn relevance(entries: &[KnowledgeEntry], of: KnowledgeId) -> u8 {
    let matches = check_all(entries).learnings;
    matches.iter().find(|item| item.entry == of).map_or(0, |item| item.relevance)
}

#[test]
fn ranked_entries_are_shown_at_or_above_the_configured_relevance() {
    let entry = half_relevant(EntryKind::Learning);
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
fn every_kind_has_its_own_list() {
    let list = |kind| {
        let findings = checked(half_relevant(kind));
        [findings.recommendations.len(), findings.conventions.len(), findings.learnings.len()]
    };
    assert_eq!(list(EntryKind::Recommendation), [1, 0, 0]);
    assert_eq!(list(EntryKind::Convention), [0, 1, 0]);
    assert_eq!(list(EntryKind::Learning), [0, 0, 1]);
}

#[rstest]
#[case::glob(
    KnowledgeEntry { globs: texts(&["src/auth/*.rs"]), ..entry(EntryKind::Learning) },
    KnowledgeEntry { globs: texts(&["docs/**"]), ..entry(EntryKind::Learning) }
)]
#[case::precise_glob(
    KnowledgeEntry { globs: texts(&["src/auth/token.rs"]), ..entry(EntryKind::Learning) },
    KnowledgeEntry { globs: texts(&["**"]), ..entry(EntryKind::Learning) }
)]
#[case::task_type(
    KnowledgeEntry { task_types: vec![TaskType::Bugfix], ..entry(EntryKind::Learning) },
    KnowledgeEntry { task_types: vec![TaskType::Docs], ..entry(EntryKind::Learning) }
)]
#[case::keyword(
    KnowledgeEntry { keywords: texts(&["cookie"]), ..entry(EntryKind::Learning) },
    KnowledgeEntry { keywords: texts(&["password"]), ..entry(EntryKind::Learning) }
)]
#[case::another_form_of_the_word(
    KnowledgeEntry { keywords: texts(&["rotation"]), ..entry(EntryKind::Learning) },
    KnowledgeEntry { keywords: texts(&["notation"]), ..entry(EntryKind::Learning) }
)]
#[case::pattern(
    KnowledgeEntry { pattern: Some("SQL".to_owned()), ..entry(EntryKind::Learning) },
    KnowledgeEntry { pattern: Some("HTML".to_owned()), ..entry(EntryKind::Learning) }
)]
#[case::words(
    KnowledgeEntry { text: "Old sessions stay valid".to_owned(), ..entry(EntryKind::Learning) },
    KnowledgeEntry { text: "Old passwords expire soon".to_owned(), ..entry(EntryKind::Learning) }
)]
fn a_matching_condition_counts_more_than_a_failing_one(
    #[case] holds: KnowledgeEntry,
    #[case] fails: KnowledgeEntry,
) {
    let fails = KnowledgeEntry { id: id(2), ..fails };
    let entries = [fails, holds];
    assert!(relevance(&entries, id(1)) > relevance(&entries, id(2)));
}

#[test]
fn a_rare_word_counts_more() {
    let of = |number, text: &str| KnowledgeEntry {
        id: id(number),
        text: text.to_owned(),
        ..entry(EntryKind::Learning)
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
fn an_entry_without_conditions_reports_the_shared_words() {
    let entry =
        KnowledgeEntry { text: "A cookie is opaque".to_owned(), ..entry(EntryKind::Learning) };
    let matches = check_all(&[entry]).learnings;
    assert_eq!(matches[0].reasons, [MatchReason::Words(texts(&["cookie"]))]);
}

#[test]
fn the_number_of_listed_entries_per_kind_is_limited() {
    let entries: Vec<_> = (1..60)
        .map(|number| KnowledgeEntry { id: id(number), ..half_relevant(EntryKind::Learning) })
        .collect();
    assert_eq!(check_all(&entries).learnings.len(), 20);
}

#[rstest]
#[case::modified(vec![FileAction::Modify], true)]
#[case::deleted(vec![FileAction::Delete], false)]
#[case::one_of(vec![FileAction::Delete, FileAction::Modify], true)]
#[case::any(vec![], true)]
fn actions_restrict_the_paths(#[case] actions: Vec<FileAction>, #[case] holds: bool) {
    let entry = KnowledgeEntry { globs: texts(&["src/auth/**"]), actions, ..prohibition() };
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
    let entry = KnowledgeEntry { globs: texts(&[glob]), ..prohibition() };
    assert_eq!(!blocks(entry).is_empty(), holds);
    let lines = check_added_lines(
        &task(),
        &[KnowledgeEntry { globs: texts(&[glob]), pattern: Some("x".to_owned()), ..prohibition() }],
        now(),
        if glob.contains("README") { "README.md" } else { "src/auth/token.rs" },
        &[(1, "x")],
    );
    assert_eq!(!lines.is_empty(), holds);
}

#[test]
fn a_search_finds_the_entries_with_the_most_shared_words() {
    let of = |number, text: &str, status| KnowledgeEntry {
        id: id(number),
        text: text.to_owned(),
        status,
        ..entry(EntryKind::Learning)
    };
    let index = KnowledgeIndex::new([
        of(1, "Charge a card once", EntryStatus::Approved),
        of(2, "Charged cards are kept", EntryStatus::Pending),
        of(3, "Something else", EntryStatus::Approved),
    ]);
    assert_eq!(index.search("charging the card once", 9), [id(1), id(2)]);
    assert_eq!(index.search("charging the card once", 1), [id(1)]);
    assert!(index.search("nothing", 9).is_empty());
}

#[test]
fn an_entry_unrelated_to_a_plan_is_never_shown() {
    let silent = KnowledgeEntry { text: "Beware".to_owned(), ..entry(EntryKind::Convention) };
    let unrelated = KnowledgeEntry { keywords: texts(&["password"]), ..silent.clone() };
    for entry in [unrelated, silent] {
        assert_eq!(check_all(&[entry]), KnowledgeFindings::default());
    }
}

#[test]
fn the_most_relevant_entries_come_first() {
    let full = KnowledgeEntry {
        id: id(3),
        globs: texts(&["src/auth/**"]),
        ..half_relevant(EntryKind::Learning)
    };
    let entries = [
        KnowledgeEntry { id: id(2), ..half_relevant(EntryKind::Learning) },
        half_relevant(EntryKind::Learning),
        full,
    ];
    let findings = check(&task(), &plan(), &entries, now(), &Rules::default());
    let order: Vec<_> = findings.learnings.iter().map(|one| one.entry).collect();
    assert_eq!(order, [id(3), id(1), id(2)]);
}

fn any_entry() -> impl Strategy<Value = KnowledgeEntry> {
    (
        any::<u8>(),
        0..4_usize,
        0..4_usize,
        prop::collection::vec("[a-z*/{\\[]{0,6}", 0..3),
        prop::collection::vec("(sql|cookie|no|)", 0..3),
        prop::option::of("[a-z(|*]{0,5}"),
    )
        .prop_map(|(number, kind, severity, globs, keywords, pattern)| KnowledgeEntry {
            id: id(number.into()),
            kind: EntryKind::iter().nth(kind).unwrap(),
            severity: EntrySeverity::iter().nth(severity).unwrap(),
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
fn every_reason_has_a_text() {
    let messages: Vec<_> = [
        path("src/**", "src/a.rs"),
        MatchReason::TaskType(TaskType::Bugfix),
        keyword("sql"),
        pattern("a+", "aa"),
        MatchReason::Words(texts(&["a", "b"])),
        MatchReason::Embedding,
        undecidable("("),
    ]
    .iter()
    .map(ToString::to_string)
    .collect();
    assert_eq!(
        messages,
        [
            "`src/a.rs` matches `src/**`",
            "task type is bugfix",
            "mentions `sql`",
            "`aa` matches `a+`",
            "shares the words `a`, `b`",
            "similar meaning",
            "cannot evaluate `(`: not a valid glob or pattern; fix the entry",
        ]
    );
}

// Prohibited code.

fn no_panics() -> KnowledgeEntry {
    KnowledgeEntry { pattern: Some(r"\.unwrap\(\)".to_owned()), ..prohibition() }
}

fn violation(line: Option<u32>, reason: MatchReason) -> ProhibitionViolation {
    ProhibitionViolation {
        entry: id(1),
        severity: EntrySeverity::Critical,
        file: "src/a.rs".to_owned(),
        line,
        reason,
    }
}

fn violations(entries: &[KnowledgeEntry]) -> Vec<ProhibitionViolation> {
    let lines = [(3, "let a = b.unwrap();"), (4, "let c = d?;"), (9, "e.unwrap()")];
    check_added_lines(&task(), entries, now(), "src/a.rs", &lines)
}

#[test]
fn prohibited_code_is_found_on_the_added_lines() {
    let matched = || pattern(r"\.unwrap\(\)", ".unwrap()");
    let expected = [violation(Some(3), matched()), violation(Some(9), matched())];
    assert_eq!(violations(&[no_panics()]), expected);
}

#[rstest]
#[case::path(KnowledgeEntry { globs: texts(&["src/**"]), ..no_panics() }, true)]
#[case::other_path(KnowledgeEntry { globs: texts(&["docs/**"]), ..no_panics() }, false)]
#[case::task_type(KnowledgeEntry { task_types: vec![TaskType::Bugfix], ..no_panics() }, true)]
#[case::other_task_type(KnowledgeEntry { task_types: vec![TaskType::Docs], ..no_panics() }, false)]
#[case::keywords_are_about_plans(KnowledgeEntry { keywords: texts(&["none"]), ..no_panics() }, true)]
#[case::recommendation(KnowledgeEntry { kind: EntryKind::Recommendation, ..no_panics() }, false)]
#[case::no_pattern(KnowledgeEntry { pattern: None, globs: texts(&["**"]), ..no_panics() }, false)]
fn prohibited_code_is_restricted_by_paths_and_task_types(
    #[case] entry: KnowledgeEntry,
    #[case] expected: bool,
) {
    assert_eq!(!violations(&[entry]).is_empty(), expected);
}

#[test]
fn an_invalid_pattern_is_reported_for_the_file() {
    let broken = KnowledgeEntry { pattern: Some("(".to_owned()), ..prohibition() };
    assert_eq!(violations(std::slice::from_ref(&broken)), [violation(None, undecidable("("))]);
    assert!(check_added_lines(&task(), &[broken], now(), "src/a.rs", &[]).is_empty());
}

#[test]
fn violations_are_in_line_order() {
    let other = KnowledgeEntry { id: id(2), pattern: Some("let".to_owned()), ..prohibition() };
    let order: Vec<_> =
        violations(&[other, no_panics()]).iter().map(|one| (one.line, one.entry)).collect();
    assert_eq!(order, [(Some(3), id(1)), (Some(3), id(2)), (Some(4), id(2)), (Some(9), id(1))]);
}

#[rstest]
#[case(EntrySeverity::Low, issue::IssueSeverity::Warning)]
#[case(EntrySeverity::Medium, issue::IssueSeverity::Warning)]
#[case(EntrySeverity::High, issue::IssueSeverity::Warning)]
#[case(EntrySeverity::Critical, issue::IssueSeverity::Critical)]
fn only_a_critical_violation_blocks_the_review(
    #[case] severity: EntrySeverity,
    #[case] of_issue: issue::IssueSeverity,
) {
    let violation = ProhibitionViolation { severity, ..violation(Some(3), pattern("a+", "aa")) };
    assert_eq!(
        violation.to_issue(),
        issue::Issue {
            severity: of_issue,
            category: issue::IssueCategory::Code,
            message: format!("prohibited by {}: `aa` matches `a+`", id(1)),
            file: Some("src/a.rs".to_owned()),
            line: Some(3),
            scenario: None,
        }
    );
}

// Status.

#[test]
fn only_a_pending_entry_can_be_approved_and_every_change_is_to_another_status() {
    let allowed: Vec<_> = EntryStatus::iter()
        .flat_map(|from| EntryStatus::iter().map(move |to| (from, to)))
        .filter(|(from, to)| from.can_become(*to))
        .collect();
    assert_eq!(
        allowed,
        [
            (EntryStatus::Pending, EntryStatus::Approved),
            (EntryStatus::Pending, EntryStatus::Rejected),
            (EntryStatus::Approved, EntryStatus::Retired),
            (EntryStatus::Rejected, EntryStatus::Pending),
            (EntryStatus::Retired, EntryStatus::Pending),
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
    assert_eq!(ReviewOutcomes { tasks, first_pass }.first_pass_rate(), rate);
}

#[rstest]
#[case(60, 50, LessonEffect::Helps { with: 60, without: 50 })]
#[case(59, 50, LessonEffect::NoDifference { with: 59, without: 50 })]
#[case(50, 59, LessonEffect::NoDifference { with: 50, without: 59 })]
#[case(50, 60, LessonEffect::Hurts { with: 50, without: 60 })]
fn an_effect_is_at_least_ten_points_of_the_first_pass_rate(
    #[case] with: u32,
    #[case] without: u32,
    #[case] expected: LessonEffect,
) {
    let of = |first_pass| ReviewOutcomes { tasks: 100, first_pass };
    assert_eq!(measure_effect(of(with), of(without)), expected);
}

#[test]
fn too_few_tasks_on_either_side_give_no_effect() {
    let (few, enough) =
        (ReviewOutcomes { tasks: 9, first_pass: 9 }, ReviewOutcomes { tasks: 10, first_pass: 0 });
    assert_eq!(measure_effect(few, enough), LessonEffect::TooFew);
    assert_eq!(measure_effect(enough, few), LessonEffect::TooFew);
}

#[rstest]
#[case(LessonEffect::Helps { with: 60, without: 50 }, false, "helps: 60% pass the first review with it, 50% without")]
#[case(
    LessonEffect::NoDifference { with: 50, without: 50 },
    true,
    "makes no difference: 50% pass the first review with it, 50% without"
)]
#[case(LessonEffect::Hurts { with: 50, without: 60 }, true, "hurts: 50% pass the first review with it, 60% without")]
#[case(LessonEffect::TooFew, false, "not enough tasks yet")]
fn a_lesson_that_does_not_help_is_suggested_for_retirement(
    #[case] effect: LessonEffect,
    #[case] offered: bool,
    #[case] text: &str,
) {
    assert_eq!(effect.suggests_retirement(), offered);
    assert_eq!(effect.to_string(), text);
}
