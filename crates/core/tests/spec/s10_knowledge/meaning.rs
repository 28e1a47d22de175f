//! What a model says that entries mean only changes their order.

use tamma_core::ids::KnowledgeId;
use tamma_core::knowledge::{Entry, Findings, Index, Kind, Status, meaning};
use tamma_core::rules::Rules;

use super::{entry, id, now, plan, prohibition, task, texts};

/// Entries that have no condition and say these words.
fn saying(said: &[&str]) -> Vec<Entry> {
    let of = |(number, text): (u128, &&str)| Entry {
        id: id(number),
        text: (*text).to_owned(),
        ..entry(Kind::Learning)
    };
    (1..).zip(said).map(of).collect()
}

fn found_near(entries: &[Entry], least: u8, near: &[KnowledgeId]) -> Vec<(KnowledgeId, u8)> {
    let mut rules = Rules::default();
    rules.scrum_master.learning_capture.min_relevance_score = least;
    let found =
        Index::new(entries.iter().cloned()).check_with(&task(), &plan(), now(), &rules, near);
    found.learnings.iter().map(|found| (found.entry, found.relevance)).collect()
}

#[test]
fn what_means_the_same_moves_up_and_the_relevances_stay() {
    let entries = saying(&["Rotate tokens and cookies", "The cookie jar", "Sessions expire"]);
    let by_words = found_near(&entries, 0, &[]);
    let order: Vec<_> = by_words.iter().map(|(id, _)| *id).collect();
    let last = *order.last().unwrap();
    let fused = found_near(&entries, 0, &[last]);
    assert_eq!(fused[0].0, last);
    let relevances =
        |list: &[(KnowledgeId, u8)]| list.iter().map(|(_, it)| *it).collect::<Vec<_>>();
    assert_eq!(relevances(&fused), relevances(&by_words));
    assert_eq!(found_near(&entries, 0, &order), by_words);
}

#[test]
fn what_only_means_the_same_can_take_a_place() {
    let entries = saying(&["Rotate tokens", "Exchange credentials", "The jar", "A box"]);
    let fused = found_near(&entries, 0, &[id(2)]);
    assert_eq!(fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1)]);
    let entries = saying(&["Rotate tokens", "Exchange credentials", "Old sessions", "A flag"]);
    let fused: Vec<_> =
        found_near(&entries, 0, &[id(2), id(1)]).into_iter().map(|(id, _)| id).collect();
    assert_eq!(fused[0], id(1));
    assert!(fused.contains(&id(3)), "{fused:?}");
}

#[test]
fn what_is_not_in_force_or_unknown_takes_no_place() {
    let mut entries = saying(&["Rotate tokens", "Old sessions"]);
    let by_words = found_near(&entries, 0, &[]);
    entries.push(Entry { id: id(7), status: Status::Pending, ..entry(Kind::Learning) });
    let order: Vec<_> = by_words.iter().map(|(id, _)| *id).collect();
    let fused = found_near(&entries, 0, &[id(7), id(99)]);
    assert_eq!(fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(), order);
}

#[test]
fn prohibitions_do_not_depend_on_meaning() {
    let unrelated = Entry { keywords: texts(&["password"]), ..prohibition() };
    let index = Index::new([unrelated]);
    let found = index.check_with(&task(), &plan(), now(), &Rules::default(), &[id(1)]);
    assert_eq!(found, Findings::default());
    assert_eq!(meaning::of_entry(&prohibition()), None);
}

#[test]
fn the_nearest_vector_points_the_same_way() {
    let vectors: [(KnowledgeId, &[f32]); 5] = [
        (id(1), &[0.0, 1.0]),
        (id(2), &[5.0, 5.0]),
        (id(3), &[0.1, 0.0]),
        (id(4), &[0.0, 0.0]),
        (id(5), &[1.0, 0.0, 0.0]),
    ];
    assert_eq!(meaning::nearest(&[1.0, 0.0], vectors), [id(3), id(2), id(1)]);
}
