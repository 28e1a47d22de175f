//! What is known, kept ready in memory: a project's entries as an index, until one of them changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tamma_core::ids::ProjectId;
use tamma_core::knowledge::Index;

use crate::connection::Store;
use crate::error::{Error, Result};
use crate::knowledge::KnowledgeFilter;

/// A project's index, and the revision of the entries that it was made of.
type Kept = BTreeMap<ProjectId, (u64, Arc<Index>)>;

/// What is known, project by project. Cheap to clone, and shared by its clones.
#[derive(Debug, Clone)]
pub struct Library {
    store: Store,
    kept: Arc<Mutex<Kept>>,
}

impl Library {
    /// A library of what a store has.
    pub fn new(store: &Store) -> Self {
        Self { store: store.clone(), kept: Arc::default() }
    }

    /// The entries that reach a project, as they are now.
    pub async fn of(&self, project: ProjectId) -> Result<Arc<Index>> {
        let revision = self.store.knowledge_revision(project).await?;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&project).cloned();
        if let Some((_, index)) = kept.filter(|(then, _)| *then == revision) {
            return Ok(index);
        }
        let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
        let known = self.store.all_knowledge(&filter).await?;
        // With thousands of entries this takes a moment, in which others must not stand still.
        let made = move || Index::new(known.into_iter().map(|known| known.entry));
        let made = tokio::task::spawn_blocking(made).await;
        let index = Arc::new(made.map_err(|error| Error::Unavailable(error.into()))?);
        // One that changed while it was read has another revision, and is read again the next time.
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(project, (revision, index.clone()));
        Ok(index)
    }
}
