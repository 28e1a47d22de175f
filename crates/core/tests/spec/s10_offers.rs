//! Section 10: what is offered for retirement, and why.

use chrono::{DateTime, Utc};
use rstest::rstest;
use tamma_core::ids::Reference;
use tamma_core::knowledge::{Entry, Status};
use tamma_core::learning::{Effect, Facts, IDLE, Offer, offers};

use crate::s10_paper::labelled;
use crate::world::text;

const FILES: [&str; 3] = ["src/main.rs", "src/shop/cart.rs", "README.md"];

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn entry() -> Entry {
    let globs = vec!["src/**/*.rs".to_owned()];
    let (status, expires_at) = (Status::Approved, None);
    Entry { globs, status, expires_at, ..labelled().swap_remove(0) }
}

/// An entry about which there is nothing to say.
fn busy() -> Facts<'static> {
    Facts { tasks: 80, matched: 9, effect: Effect::TooFew, files: None, gone: &[] }
}

#[test]
fn an_entry_that_is_of_use_is_not_offered() {
    assert_eq!(offers(&entry(), &busy(), now()), []);
    let helps = Effect::Helps { with: 90, without: 60 };
    let files = FILES.map(str::to_owned);
    let facts = Facts { effect: helps, files: Some(&files), ..busy() };
    assert_eq!(offers(&entry(), &facts, now()), []);
}

#[rstest]
#[case(IDLE - 1, 0, false)]
#[case(IDLE, 0, true)]
#[case(IDLE, 1, false)]
fn an_entry_that_never_matches_is_offered_after_enough_tasks(
    #[case] tasks: u32,
    #[case] matched: u32,
    #[case] offered: bool,
) {
    let found = offers(&entry(), &Facts { tasks, matched, ..busy() }, now());
    assert_eq!(found == [Offer::NeverMatched { tasks }], offered, "{found:?}");
    assert_eq!(found.is_empty(), !offered);
}

#[rstest]
#[case(Effect::NoDifference { with: 70, without: 68 })]
#[case(Effect::Hurts { with: 40, without: 68 })]
fn an_entry_that_does_not_help_is_offered(#[case] effect: Effect) {
    let found = offers(&entry(), &Facts { effect, ..busy() }, now());
    assert_eq!(found, [Offer::DoesNotHelp(effect)]);
}

#[test]
fn an_entry_whose_time_is_over_is_offered() {
    let at = now();
    let entry = Entry { expires_at: Some(at), ..entry() };
    assert_eq!(offers(&entry, &busy(), at), [Offer::Expired { at }]);
    assert_eq!(offers(&entry, &busy(), at - chrono::TimeDelta::seconds(1)), []);
}

#[rstest]
#[case::there(&["src/**/*.rs"], &[])]
#[case::moved(&["lib/**", "src/**"], &["lib/**"])]
#[case::one_level_only(&["src/*.rs", "*.rs"], &["*.rs"])]
#[case::unreadable(&["src/[a"], &[])]
fn paths_that_reach_nothing_are_offered(#[case] globs: &[&str], #[case] gone: &[&str]) {
    let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let entry = Entry { globs: texts(globs), ..entry() };
    let files = FILES.map(str::to_owned);
    let found = offers(&entry, &Facts { files: Some(&files), ..busy() }, now());
    let expected =
        if gone.is_empty() { vec![] } else { vec![Offer::PathsGone { globs: texts(gone) }] };
    assert_eq!(found, expected);
    assert_eq!(offers(&entry, &busy(), now()), [], "without the files nobody can tell");
}

#[test]
fn an_entry_is_offered_when_nothing_is_left_of_its_evidence() {
    let gone: [Reference; 2] = [text("commit:abc"), text("event:1/2")];
    let facts = Facts { gone: &gone, ..busy() };
    let based_on = |evidence: &[Reference]| Entry { evidence: evidence.to_vec(), ..entry() };
    let found = offers(&based_on(&gone), &facts, now());
    assert_eq!(found, [Offer::EvidenceGone { evidence: gone.to_vec() }]);
    let more = [gone[0].clone(), text("https://example.com/incident")];
    assert_eq!(offers(&based_on(&more), &facts, now()), [], "something is left");
    assert_eq!(offers(&based_on(&[]), &facts, now()), [], "it never had any");
}

#[rstest]
#[case(Status::Pending)]
#[case(Status::Rejected)]
#[case(Status::Retired)]
fn only_what_counts_can_be_retired(#[case] status: Status) {
    let gone: [Reference; 1] = [text("commit:abc")];
    let evidence = gone.to_vec();
    let entry = Entry { status, evidence, expires_at: Some(now()), ..entry() };
    let effect = Effect::Hurts { with: 1, without: 99 };
    let facts = Facts { tasks: 99, matched: 0, effect, files: Some(&[]), gone: &gone };
    assert_eq!(offers(&entry, &facts, now()), []);
}

#[test]
fn every_offer_says_why() {
    let all = [
        Offer::Expired { at: now() },
        Offer::NeverMatched { tasks: 61 },
        Offer::DoesNotHelp(Effect::NoDifference { with: 70, without: 68 }),
        Offer::DoesNotHelp(Effect::Hurts { with: 40, without: 68 }),
        Offer::PathsGone { globs: vec!["lib/**".to_owned(), "*.go".to_owned()] },
        Offer::EvidenceGone { evidence: vec![text("commit:abc")] },
    ];
    let told: Vec<_> = all.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    it no longer counts since 2026-03-01
    it has matched none of the 61 tasks that ended since it counts
    it makes no difference: 70 % pass at once with it, 68 % without
    it hurts: 40 % pass at once with it, 68 % without
    no file is under `lib/**`, `*.go` any more
    its evidence is gone: `commit:abc`
    ");
}
