//! What entries and plans mean to a model that makes vectors of texts, where one is configured.
//!
//! Vectors only change the order of what is ranked: two orders, one by words and one by meaning, are
//! fused by rank. Prohibitions never depend on them, and without them everything else goes on.

use std::collections::BTreeMap;

use super::{Entry, Kind};
use crate::ids::KnowledgeId;
use crate::plan::Plan;
use crate::task::Task;

/// How fast a later place counts less. The usual figure for lists of a hundred; ours are shorter.
const DAMPING: f32 = 10.0;

/// How much the order by meaning counts against the one by words and conditions, which knows paths,
/// types and names.
const BY_MEANING: f32 = 0.2;

/// The text of an entry, as a model is given it; nothing for a prohibition, which is never ranked.
pub fn of_entry(entry: &Entry) -> Option<String> {
    let mut text = entry.text.clone();
    if !entry.keywords.is_empty() {
        text.push('\n');
        text.push_str(&entry.keywords.join(", "));
    }
    (entry.kind != Kind::Prohibition).then_some(text)
}

/// The text of a task and its plan, as a model is given it.
pub fn of_plan(task: &Task, plan: &Plan) -> String {
    let mut texts = vec![&*task.title, &*task.description, &*plan.summary, &*plan.approach];
    texts.extend(plan.file_changes.iter().map(|change| &*change.description));
    texts.retain(|text| !text.trim().is_empty());
    texts.join("\n")
}

/// Entries by how near their vectors are to another, the nearest first. Vectors of another length
/// are of another model and left out, and so are those that point nowhere.
pub fn nearest<'a>(
    to: &[f32],
    vectors: impl IntoIterator<Item = (KnowledgeId, &'a [f32])>,
) -> Vec<KnowledgeId> {
    let length = |vector: &[f32]| vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    let whole = length(to);
    let likeness = |(id, vector): (KnowledgeId, &'a [f32])| {
        let product: f32 = vector.iter().zip(to).map(|(a, b)| a * b).sum();
        let likeness = product / (whole * length(vector));
        (vector.len() == to.len() && likeness.is_finite()).then_some((likeness, id))
    };
    let mut near: Vec<(f32, KnowledgeId)> = vectors.into_iter().filter_map(likeness).collect();
    near.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
    near.into_iter().map(|(_, id)| id).collect()
}

/// Fuses two orders by rank: what is early in either comes early. Ties keep the first order's.
///
/// The relevances stay where they are, and the entries move: what comes third is as relevant as what
/// came third by words. So the configured relevance means the same with and without a model.
pub(super) fn fused<T: Copy + Ord>(by_words: &[(u8, T)], by_meaning: &[T]) -> Vec<(u8, T)> {
    #[expect(clippy::cast_precision_loss, reason = "places in a list")]
    let worth = |place: usize| 1.0 / (DAMPING + 1.0 + place as f32);
    let mut worths: BTreeMap<T, (f32, usize)> = BTreeMap::new();
    for (place, (_, it)) in by_words.iter().enumerate() {
        worths.insert(*it, (worth(place), place));
    }
    for (place, it) in by_meaning.iter().enumerate() {
        let known = worths.entry(*it).or_insert((0.0, by_words.len() + place));
        known.0 += BY_MEANING * worth(place);
    }
    let mut order: Vec<(f32, usize, T)> =
        worths.into_iter().map(|(it, (worth, place))| (worth, place, it)).collect();
    order.sort_by(|(one, a, _), (other, b, _)| other.total_cmp(one).then(a.cmp(b)));
    let relevances = by_words.iter().map(|(relevance, _)| *relevance).chain(std::iter::repeat(0));
    relevances.zip(order).map(|(relevance, (_, _, it))| (relevance, it)).collect()
}
