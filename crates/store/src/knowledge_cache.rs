//! Cache of knowledge indexes, one per project. An index is rebuilt when an entry changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tamma_core::ids::ProjectId;
use tamma_core::knowledge::KnowledgeIndex;

use crate::connection::Store;
use crate::error::{Error, Result};
use crate::knowledge::KnowledgeFilter;

/// Index of each project, with the revision of the entries that it was built from.
type CachedIndexes = BTreeMap<ProjectId, (u64, Arc<KnowledgeIndex>)>;

/// Knowledge indexes of all projects. Cheap to clone; clones share the cache.
#[derive(Debug, Clone)]
pub struct KnowledgeCache {
    store: Store,
    indexes: Arc<Mutex<CachedIndexes>>,
}

impl KnowledgeCache {
    /// Creates an empty cache for a store.
    pub fn new(store: &Store) -> Self {
        Self { store: store.clone(), indexes: Arc::default() }
    }

    /// Returns the current index of the entries that apply to a project.
    pub async fn index(&self, project: ProjectId) -> Result<Arc<KnowledgeIndex>> {
        let revision = self.store.knowledge_revision(project).await?;
        self.index_at(project, revision).await
    }

    /// Returns the index of the entries that apply to a project. The caller has read their revision a
    /// short time ago.
    pub async fn index_at(&self, project: ProjectId, revision: u64) -> Result<Arc<KnowledgeIndex>> {
        let cached =
            self.indexes.lock().unwrap_or_else(PoisonError::into_inner).get(&project).cloned();
        if let Some((_, index)) = cached.filter(|(then, _)| *then == revision) {
            return Ok(index);
        }
        let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
        let entries = self.store.list_knowledge(&filter).await?;
        // With thousands of entries this takes a while, so it must not block other tasks on this
        // thread.
        let build = move || KnowledgeIndex::new(entries.into_iter().map(|stored| stored.entry));
        let built = tokio::task::spawn_blocking(build).await;
        let index = Arc::new(built.map_err(|error| Error::Unavailable(error.into()))?);
        // An entry that changed during the read has a newer revision, so the next call reads again.
        let mut all = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(project, (revision, index.clone()));
        Ok(index)
    }
}
