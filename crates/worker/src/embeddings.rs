//! Semantic similarity between plans and knowledge entries, if the operator has an embedding model.
//!
//! The check of a plan waits at most the embedder's limit and never fails because of the model.
//! Without a response, entries match by keywords and conditions only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tamma_connect::model::{Embedder, MAX_BATCH};
use tamma_core::ids::{Digest, KnowledgeId};
use tamma_core::knowledge::{KnowledgeIndex, embeddings};
use tamma_core::operator::ModelApi;
use tamma_core::plan::Plan;
use tamma_core::task::Task;
use tamma_store::{EntryEmbedding, Store};

use crate::config::WorkerConfig;

/// Time limit of the request.
const TIMEOUT: Duration = Embedder::TIMEOUT;

/// Error of a similarity search.
#[derive(Debug, thiserror::Error)]
enum EmbeddingError {
    #[error(transparent)]
    Model(#[from] tamma_connect::model::Error),
    #[error(transparent)]
    Store(#[from] tamma_store::Error),
}

/// In-memory cache of embeddings, shared by its clones.
#[derive(Clone)]
pub(crate) struct EmbeddingCache {
    vectors: Arc<Mutex<CachedEmbeddings>>,
    /// Embedding model of the operator.
    model: Option<ModelApi>,
    /// API key of the embedding model, from the worker's environment.
    key: Option<String>,
}

/// Hash of the text and its embedding, by model and entry.
type CachedEmbeddings = BTreeMap<(String, KnowledgeId), (Digest, Arc<[f32]>)>;

impl EmbeddingCache {
    /// Creates an empty cache that uses the embedding model of a worker's operator. A project cannot
    /// name another one, because it would get the key and the knowledge of all projects.
    pub(crate) fn new(config: &WorkerConfig) -> Self {
        let key = config.environment.get(Embedder::KEY_VARIABLE).cloned();
        Self { vectors: Arc::default(), model: config.operator.embeddings.clone(), key }
    }

    /// Returns the entries most similar to a plan, nearest first. It is empty without a model or a
    /// response.
    pub(crate) async fn nearest_entries(
        &self,
        store: &Store,
        index: &KnowledgeIndex,
        (task, plan): (&Task, &Plan),
    ) -> Vec<KnowledgeId> {
        let Some(ModelApi { url, model }) = &self.model else { return Vec::new() };
        let query = tokio::time::timeout(
            TIMEOUT,
            self.query_model(store, index, (task, plan), (url, model)),
        );
        match query.await {
            Ok(Ok(near)) => near,
            Ok(Err(error)) => {
                tracing::warn!(%error, "embedding request failed; checking without similarity");
                Vec::new()
            }
            Err(_) => {
                tracing::warn!(limit = ?TIMEOUT, "embedding request timed out; checking without similarity");
                Vec::new()
            }
        }
    }

    async fn query_model(
        &self,
        store: &Store,
        index: &KnowledgeIndex,
        (task, plan): (&Task, &Plan),
        (url, model): (&str, &str),
    ) -> Result<Vec<KnowledgeId>, EmbeddingError> {
        let embedder = Embedder::new(url, model, self.key.clone())?;
        let texts: BTreeMap<KnowledgeId, (Digest, String)> = index
            .entries()
            .filter_map(|entry| {
                let text = embeddings::entry_text(entry)?;
                Some((entry.id, (Digest::of(text.as_bytes()), text)))
            })
            .collect();
        let unknown = self.missing_entries(model, &texts);
        if !unknown.is_empty() {
            self.insert(model, store.embeddings(model, &unknown).await?);
        }
        // The plan comes first, with as many entries as fit. The rest follows with later plans.
        let unknown: Vec<KnowledgeId> =
            self.missing_entries(model, &texts).into_iter().take(MAX_BATCH - 1).collect();
        let mut input = vec![embeddings::plan_text(task, plan)];
        input.extend(unknown.iter().filter_map(|id| texts.get(id)).map(|(_, text)| text.clone()));
        let mut vectors = embedder.embed(&input).await?.into_iter();
        let of_plan = vectors.next().unwrap_or_default();
        let new: Vec<EntryEmbedding> = unknown
            .iter()
            .zip(vectors)
            .filter_map(|(id, vector)| {
                let (digest, _) = texts.get(id)?;
                Some(EntryEmbedding { entry: *id, digest: *digest, vector })
            })
            .collect();
        store.save_embeddings(model, &new).await?;
        self.insert(model, new);
        let entry_vectors: Vec<(KnowledgeId, Arc<[f32]>)> = {
            let cache = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
            let cached = |id: &KnowledgeId| {
                cache.get(&(model.to_owned(), *id)).map(|(_, vector)| (*id, vector.clone()))
            };
            texts.keys().filter_map(cached).collect()
        };
        Ok(embeddings::nearest_entries(
            &of_plan,
            entry_vectors.iter().map(|(id, vector)| (*id, &**vector)),
        ))
    }

    /// Returns the entries without a cached embedding of their current text.
    fn missing_entries(
        &self,
        model: &str,
        texts: &BTreeMap<KnowledgeId, (Digest, String)>,
    ) -> Vec<KnowledgeId> {
        let cache = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let is_cached = |id: &KnowledgeId, digest: &Digest| {
            cache.get(&(model.to_owned(), *id)).is_some_and(|(of, _)| of == digest)
        };
        let unknown = texts.iter().filter(|(id, (digest, _))| !is_cached(id, digest));
        unknown.map(|(id, _)| *id).collect()
    }

    fn insert(&self, model: &str, vectors: Vec<EntryEmbedding>) {
        let mut cache = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        for it in vectors {
            cache.insert((model.to_owned(), it.entry), (it.digest, it.vector.into()));
        }
    }
}
