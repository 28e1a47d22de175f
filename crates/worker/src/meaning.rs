//! Which entries mean the same as a plan, where a model for that is configured.
//!
//! A plan never waits longer for it than [`LIMIT`], and never fails for it: without an answer it is
//! held against the entries by their words and conditions alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tamma_connect::model::{AT_ONCE, Embedder};
use tamma_core::ids::{Digest, KnowledgeId};
use tamma_core::knowledge::{Index, meaning};
use tamma_core::plan::Plan;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_store::{KnowledgeVector, Store};

/// How long a plan waits.
const LIMIT: Duration = Embedder::LIMIT;

/// Why nobody can tell what means the same.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    Model(#[from] tamma_connect::model::Error),
    #[error(transparent)]
    Store(#[from] tamma_store::Error),
}

/// What models have said of entries, kept in memory. Cheap to clone, and shared by its clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meanings {
    kept: Arc<Mutex<Kept>>,
}

/// By model and entry: of which text, and the vector.
type Kept = BTreeMap<(String, KnowledgeId), (Digest, Arc<[f32]>)>;

impl Meanings {
    /// The entries that mean the most like a plan, the nearest first; none where no model is
    /// configured or it does not answer.
    pub(crate) async fn near(
        &self,
        store: &Store,
        index: &Index,
        (task, plan): (&Task, &Plan),
        rules: &Rules,
    ) -> Vec<KnowledgeId> {
        let Some((url, model)) = rules.embeddings.endpoint() else { return Vec::new() };
        let asked = tokio::time::timeout(LIMIT, self.ask(store, index, (task, plan), (url, model)));
        match asked.await {
            Ok(Ok(near)) => near,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a plan is checked by words alone");
                Vec::new()
            }
            Err(_) => {
                tracing::warn!(limit = ?LIMIT, "a plan is checked by words alone: embeddings are slow");
                Vec::new()
            }
        }
    }

    async fn ask(
        &self,
        store: &Store,
        index: &Index,
        (task, plan): (&Task, &Plan),
        (url, model): (&str, &str),
    ) -> Result<Vec<KnowledgeId>, NoAnswer> {
        let embedder = Embedder::new(url, model, std::env::var(Embedder::KEY).ok())?;
        let texts: BTreeMap<KnowledgeId, (Digest, String)> = index
            .entries()
            .filter_map(|entry| {
                let text = meaning::of_entry(entry)?;
                Some((entry.id, (Digest::of(text.as_bytes()), text)))
            })
            .collect();
        let unknown = self.unknown(model, &texts);
        if !unknown.is_empty() {
            self.keep(model, store.knowledge_vectors(model, &unknown).await?);
        }
        // The plan comes first, and as many entries as go with it: the others have their turn with
        // the plans that follow.
        let unknown: Vec<KnowledgeId> =
            self.unknown(model, &texts).into_iter().take(AT_ONCE - 1).collect();
        let mut input = vec![meaning::of_plan(task, plan)];
        input.extend(unknown.iter().filter_map(|id| texts.get(id)).map(|(_, text)| text.clone()));
        let mut vectors = embedder.vectors(&input).await?.into_iter();
        let of_plan = vectors.next().unwrap_or_default();
        let new: Vec<KnowledgeVector> = unknown
            .iter()
            .zip(vectors)
            .filter_map(|(id, vector)| {
                let (digest, _) = texts.get(id)?;
                Some(KnowledgeVector { entry: *id, digest: *digest, vector })
            })
            .collect();
        store.keep_knowledge_vectors(model, &new).await?;
        self.keep(model, new);
        let known: Vec<(KnowledgeId, Arc<[f32]>)> = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let known = |id: &KnowledgeId| {
                kept.get(&(model.to_owned(), *id)).map(|(_, vector)| (*id, vector.clone()))
            };
            texts.keys().filter_map(known).collect()
        };
        Ok(meaning::nearest(&of_plan, known.iter().map(|(id, vector)| (*id, &**vector))))
    }

    /// The entries whose text, as it is now, no vector is kept of.
    fn unknown(
        &self,
        model: &str,
        texts: &BTreeMap<KnowledgeId, (Digest, String)>,
    ) -> Vec<KnowledgeId> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |id: &KnowledgeId, digest: &Digest| {
            kept.get(&(model.to_owned(), *id)).is_some_and(|(of, _)| of == digest)
        };
        let unknown = texts.iter().filter(|(id, (digest, _))| !is_kept(id, digest));
        unknown.map(|(id, _)| *id).collect()
    }

    fn keep(&self, model: &str, vectors: Vec<KnowledgeVector>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for it in vectors {
            kept.insert((model.to_owned(), it.entry), (it.digest, it.vector.into()));
        }
    }
}
