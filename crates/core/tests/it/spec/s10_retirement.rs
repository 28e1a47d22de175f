//! Section 10: suggestions to retire entries, and their reasons.

use chrono::{DateTime, Utc};
use rstest::rstest;
use tamma_core::ids::Reference;
use tamma_core::knowledge::{EntryStatus, KnowledgeEntry};
use tamma_core::learning::{
    EntryUsage, LessonEffect, RetirementSuggestion, UNMATCHED_TASKS_LIMIT, retirement_suggestions,
};

use super::s10_import_export::labelled;
use crate::world::text;

const FILES: [&str; 3] = ["src/main.rs", "src/shop/cart.rs", "README.md"];

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn entry() -> KnowledgeEntry {
    let globs = vec!["src/**/*.rs".to_owned()];
    let (status, expires_at) = (EntryStatus::Approved, None);
    KnowledgeEntry { globs, status, expires_at, ..labelled().swap_remove(0) }
}

/// Usage that gives no reason for retirement.
fn busy() -> EntryUsage<'static> {
    EntryUsage {
        tasks: 80,
        matched: 9,
        effect: LessonEffect::TooFew,
        files: None,
        missing_evidence: &[],
    }
}

#[test]
fn a_useful_entry_is_not_suggested() {
    assert_eq!(retirement_suggestions(&entry(), &busy(), now()), []);
    let helps = LessonEffect::Helps { with: 90, without: 60 };
    let files = FILES.map(str::to_owned);
    let usage = EntryUsage { effect: helps, files: Some(&files), ..busy() };
    assert_eq!(retirement_suggestions(&entry(), &usage, now()), []);
}

#[rstest]
#[case(UNMATCHED_TASKS_LIMIT - 1, 0, false)]
#[case(UNMATCHED_TASKS_LIMIT, 0, true)]
#[case(UNMATCHED_TASKS_LIMIT, 1, false)]
fn an_entry_without_matches_is_suggested_after_enough_tasks(
    #[case] tasks: u32,
    #[case] matched: u32,
    #[case] expected: bool,
) {
    let suggestions =
        retirement_suggestions(&entry(), &EntryUsage { tasks, matched, ..busy() }, now());
    assert_eq!(
        suggestions == [RetirementSuggestion::NeverMatched { tasks }],
        expected,
        "{suggestions:?}"
    );
    assert_eq!(suggestions.is_empty(), !expected);
}

#[rstest]
#[case(LessonEffect::NoDifference { with: 70, without: 68 })]
#[case(LessonEffect::Hurts { with: 40, without: 68 })]
fn an_entry_that_does_not_help_is_suggested(#[case] effect: LessonEffect) {
    let suggestions = retirement_suggestions(&entry(), &EntryUsage { effect, ..busy() }, now());
    assert_eq!(suggestions, [RetirementSuggestion::DoesNotHelp(effect)]);
}

#[test]
fn an_expired_entry_is_suggested() {
    let at = now();
    let entry = KnowledgeEntry { expires_at: Some(at), ..entry() };
    assert_eq!(retirement_suggestions(&entry, &busy(), at), [RetirementSuggestion::Expired { at }]);
    assert_eq!(retirement_suggestions(&entry, &busy(), at - chrono::TimeDelta::seconds(1)), []);
}

#[rstest]
#[case::there(&["src/**/*.rs"], &[])]
#[case::moved(&["lib/**", "src/**"], &["lib/**"])]
#[case::one_level_only(&["src/*.rs", "*.rs"], &["*.rs"])]
#[case::unreadable(&["src/[a"], &[])]
fn globs_that_match_no_file_are_suggested(#[case] globs: &[&str], #[case] missing: &[&str]) {
    let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let entry = KnowledgeEntry { globs: texts(globs), ..entry() };
    let files = FILES.map(str::to_owned);
    let suggestions =
        retirement_suggestions(&entry, &EntryUsage { files: Some(&files), ..busy() }, now());
    let expected = if missing.is_empty() {
        vec![]
    } else {
        vec![RetirementSuggestion::PathsGone { globs: texts(missing) }]
    };
    assert_eq!(suggestions, expected);
    assert_eq!(retirement_suggestions(&entry, &busy(), now()), [], "unknown without the files");
}

#[test]
fn an_entry_without_remaining_evidence_is_suggested() {
    let missing: [Reference; 2] = [text("commit:abc"), text("event:1/2")];
    let usage = EntryUsage { missing_evidence: &missing, ..busy() };
    let based_on =
        |evidence: &[Reference]| KnowledgeEntry { evidence: evidence.to_vec(), ..entry() };
    let suggestions = retirement_suggestions(&based_on(&missing), &usage, now());
    assert_eq!(suggestions, [RetirementSuggestion::EvidenceGone { evidence: missing.to_vec() }]);
    let more = [missing[0].clone(), text("https://example.com/incident")];
    assert_eq!(
        retirement_suggestions(&based_on(&more), &usage, now()),
        [],
        "some evidence is left"
    );
    assert_eq!(
        retirement_suggestions(&based_on(&[]), &usage, now()),
        [],
        "no evidence from the start"
    );
}

#[rstest]
#[case(EntryStatus::Pending)]
#[case(EntryStatus::Rejected)]
#[case(EntryStatus::Retired)]
fn only_entries_in_effect_are_suggested(#[case] status: EntryStatus) {
    let missing: [Reference; 1] = [text("commit:abc")];
    let evidence = missing.to_vec();
    let entry = KnowledgeEntry { status, evidence, expires_at: Some(now()), ..entry() };
    let effect = LessonEffect::Hurts { with: 1, without: 99 };
    let usage =
        EntryUsage { tasks: 99, matched: 0, effect, files: Some(&[]), missing_evidence: &missing };
    assert_eq!(retirement_suggestions(&entry, &usage, now()), []);
}

#[test]
fn every_suggestion_has_a_reason() {
    let all = [
        RetirementSuggestion::Expired { at: now() },
        RetirementSuggestion::NeverMatched { tasks: 61 },
        RetirementSuggestion::DoesNotHelp(LessonEffect::NoDifference { with: 70, without: 68 }),
        RetirementSuggestion::DoesNotHelp(LessonEffect::Hurts { with: 40, without: 68 }),
        RetirementSuggestion::PathsGone { globs: vec!["lib/**".to_owned(), "*.go".to_owned()] },
        RetirementSuggestion::EvidenceGone { evidence: vec![text("commit:abc")] },
    ];
    let messages: Vec<_> = all.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(messages.join("\n"), @r"
    expired on 2026-03-01
    matched none of the 61 tasks that finished since it took effect
    makes no difference: 70% pass the first review with it, 68% without
    hurts: 40% pass the first review with it, 68% without
    no files match `lib/**`, `*.go` any more
    evidence no longer exists: `commit:abc`
    ");
}
