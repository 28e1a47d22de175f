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
    query: &[f32],
    vectors: impl IntoIterator<Item = (KnowledgeId, &'a [f32])>,
) -> Vec<KnowledgeId> {
    let length = |vector: &[f32]| vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    let query_length = length(query);
    let similarity = |(id, vector): (KnowledgeId, &'a [f32])| {
        let product: f32 = vector.iter().zip(query).map(|(a, b)| a * b).sum();
        let similarity = product / (query_length * length(vector));
        (vector.len() == query.len() && similarity.is_finite()).then_some((similarity, id))
    };
    let mut ranked: Vec<(f32, KnowledgeId)> = vectors.into_iter().filter_map(similarity).collect();
    ranked.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
    ranked.into_iter().map(|(_, id)| id).collect()
}

/// Fuses two rankings by rank; ties keep the order of the first one.
///
/// Relevance stays with the position: the third entry gets the relevance of the third entry by
/// words. The configured relevance threshold thus means the same with and without a model.
pub(super) fn fuse_rankings<T: Copy + Ord>(
    by_words: &[(u8, T)],
    by_embedding: &[T],
) -> Vec<(u8, T)> {
    #[expect(clippy::cast_precision_loss, reason = "ranks in a list")]
    let rank_score = |rank: usize| 1.0 / (DAMPING + 1.0 + rank as f32);
    let mut scores: BTreeMap<T, (f32, usize)> = BTreeMap::new();
    for (rank, (_, item)) in by_words.iter().enumerate() {
        scores.insert(*item, (rank_score(rank), rank));
    }
    for (rank, item) in by_embedding.iter().enumerate() {
        let score = scores.entry(*item).or_insert((0.0, by_words.len() + rank));
        score.0 += EMBEDDING_WEIGHT * rank_score(rank);
    }
    let mut fused: Vec<(f32, usize, T)> =
        scores.into_iter().map(|(item, (rank_score, rank))| (rank_score, rank, item)).collect();
    fused.sort_by(|(one, a, _), (other, b, _)| other.total_cmp(one).then(a.cmp(b)));
    let relevances = by_words.iter().map(|(relevance, _)| *relevance).chain(std::iter::repeat(0));
    relevances.zip(fused).map(|(relevance, (_, _, item))| (relevance, item)).collect()
}
