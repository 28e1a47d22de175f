//! Ranking by embeddings, if a model is configured.
//!
//! Embeddings only change the order of ranked entries: the rankings by words and by embedding are
//! fused by rank. Prohibitions never depend on them, and everything works without them.

use std::collections::BTreeMap;

use super::{EntryKind, KnowledgeEntry};
use crate::ids::KnowledgeId;
use crate::plan::Plan;
use crate::task::Task;

/// Damping of later ranks. 60 is usual for lists of a hundred; ours are shorter.
const DAMPING: f32 = 10.0;

/// Weight of the ranking by embedding, relative to the one by words and conditions, which knows
/// paths, types and names.
const EMBEDDING_WEIGHT: f32 = 0.2;

/// Returns the text of an entry to embed; `None` for a prohibition, which is never ranked.
pub fn entry_text(entry: &KnowledgeEntry) -> Option<String> {
    let mut text = entry.text.clone();
    if !entry.keywords.is_empty() {
        text.push('\n');
        text.push_str(&entry.keywords.join(", "));
    }
    (entry.kind != EntryKind::Prohibition).then_some(text)
}

/// Returns the text of a task and its plan to embed.
pub fn plan_text(task: &Task, plan: &Plan) -> String {
    let mut texts = vec![&*task.title, &*task.description, &*plan.summary, &*plan.approach];
    texts.extend(plan.file_changes.iter().map(|change| &*change.description));
    texts.retain(|text| !text.trim().is_empty());
    texts.join("\n")
}

/// Returns entries by the similarity of their embeddings, nearest first. Vectors of another length
/// are from another model and are skipped, as are zero vectors.
pub fn nearest_entries<'a>(
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

/// Fuses two rankings by rank; ties keep the order of the first one.
///
/// Relevance stays with the position: the third entry gets the relevance of the third entry by
/// words. The configured relevance threshold thus means the same with and without a model.
pub(super) fn fuse_rankings<T: Copy + Ord>(by_words: &[(u8, T)], by_meaning: &[T]) -> Vec<(u8, T)> {
    #[expect(clippy::cast_precision_loss, reason = "places in a list")]
    let worth = |place: usize| 1.0 / (DAMPING + 1.0 + place as f32);
    let mut worths: BTreeMap<T, (f32, usize)> = BTreeMap::new();
    for (place, (_, it)) in by_words.iter().enumerate() {
        worths.insert(*it, (worth(place), place));
    }
    for (place, it) in by_meaning.iter().enumerate() {
        let known = worths.entry(*it).or_insert((0.0, by_words.len() + place));
        known.0 += EMBEDDING_WEIGHT * worth(place);
    }
    let mut order: Vec<(f32, usize, T)> =
        worths.into_iter().map(|(it, (worth, place))| (worth, place, it)).collect();
    order.sort_by(|(one, a, _), (other, b, _)| other.total_cmp(one).then(a.cmp(b)));
    let relevances = by_words.iter().map(|(relevance, _)| *relevance).chain(std::iter::repeat(0));
    relevances.zip(order).map(|(relevance, (_, _, it))| (relevance, it)).collect()
}
