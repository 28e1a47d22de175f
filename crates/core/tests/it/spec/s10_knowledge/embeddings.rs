//! Embeddings only change the order of entries.

use tamma_core::ids::KnowledgeId;
use tamma_core::knowledge::{
    EntryKind, EntryStatus, KnowledgeEntry, KnowledgeFindings, KnowledgeIndex, embeddings,
};
use tamma_core::rules::Rules;

use super::{entry, id, now, plan, prohibition, task, texts};

/// Returns entries with these texts and without conditions.
fn entries_with(texts: &[&str]) -> Vec<KnowledgeEntry> {
    let of = |(number, text): (u128, &&str)| KnowledgeEntry {
        id: id(number),
        text: (*text).to_owned(),
        ..entry(EntryKind::Learning)
    };
    (1..).zip(texts).map(of).collect()
}

fn ranking(
    entries: &[KnowledgeEntry],
    least: u8,
    nearest: &[KnowledgeId],
) -> Vec<(KnowledgeId, u8)> {
    let mut rules = Rules::default();
    rules.scrum_master.learning_capture.min_relevance_score = least;
    let findings = KnowledgeIndex::new(entries.iter().cloned()).check_with_nearest(
        &task(),
        &plan(),
        now(),
        &rules,
        nearest,
    );
    findings.learnings.iter().map(|item| (item.entry, item.relevance)).collect()
}

#[test]
fn a_similar_entry_moves_up_and_relevance_stays_with_the_position() {
    let entries = entries_with(&["Rotate tokens and cookies", "The cookie jar", "Sessions expire"]);
    let by_words = ranking(&entries, 0, &[]);
    let order: Vec<_> = by_words.iter().map(|(id, _)| *id).collect();
    let last = *order.last().unwrap();
    let fused = ranking(&entries, 0, &[last]);
    assert_eq!(fused[0].0, last);
    let relevances =
        |list: &[(KnowledgeId, u8)]| list.iter().map(|(_, it)| *it).collect::<Vec<_>>();
    assert_eq!(relevances(&fused), relevances(&by_words));
    assert_eq!(ranking(&entries, 0, &order), by_words);
}

#[test]
fn an_entry_with_only_a_similar_meaning_can_be_listed() {
    let entries = entries_with(&["Rotate tokens", "Exchange credentials", "The jar", "A box"]);
    let fused = ranking(&entries, 0, &[id(2)]);
    assert_eq!(fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1)]);
    let entries =
        entries_with(&["Rotate tokens", "Exchange credentials", "Old sessions", "A flag"]);
    let fused: Vec<_> =
        ranking(&entries, 0, &[id(2), id(1)]).into_iter().map(|(id, _)| id).collect();
    assert_eq!(fused[0], id(1));
    assert!(fused.contains(&id(3)), "{fused:?}");
}

#[test]
fn an_entry_that_is_unknown_or_not_in_effect_is_not_listed() {
    let mut entries = entries_with(&["Rotate tokens", "Old sessions"]);
    let by_words = ranking(&entries, 0, &[]);
    entries.push(KnowledgeEntry {
        id: id(7),
        status: EntryStatus::Pending,
        ..entry(EntryKind::Learning)
    });
    let order: Vec<_> = by_words.iter().map(|(id, _)| *id).collect();
    let fused = ranking(&entries, 0, &[id(7), id(99)]);
    assert_eq!(fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(), order);
}

#[test]
fn prohibitions_do_not_depend_on_embeddings() {
    let unrelated = KnowledgeEntry { keywords: texts(&["password"]), ..prohibition() };
    let index = KnowledgeIndex::new([unrelated]);
    let findings = index.check_with_nearest(&task(), &plan(), now(), &Rules::default(), &[id(1)]);
    assert_eq!(findings, KnowledgeFindings::default());
    assert_eq!(embeddings::entry_text(&prohibition()), None);
}

#[test]
fn the_nearest_vector_has_the_same_direction() {
    let vectors: [(KnowledgeId, &[f32]); 5] = [
        (id(1), &[0.0, 1.0]),
        (id(2), &[5.0, 5.0]),
        (id(3), &[0.1, 0.0]),
        (id(4), &[0.0, 0.0]),
        (id(5), &[1.0, 0.0, 0.0]),
    ];
    assert_eq!(embeddings::nearest_entries(&[1.0, 0.0], vectors), [id(3), id(2), id(1)]);
}
