//! Knowledge entries that agents get in their prompts and tools.

use std::sync::Arc;

use tamma_core::ids::{KnowledgeId, ProjectId};
use tamma_core::knowledge::{EntryKind, KnowledgeEntry, KnowledgeIndex};
use tamma_core::plan::Plan;
use tamma_engine::agent_tools::KnowledgeSearch;
use tamma_store::{KnowledgeCache, Store};

use crate::clock::now;
use crate::config::WorkerConfig;
use crate::embeddings::EmbeddingCache;
use crate::error::Error;
use crate::job_context::JobContext;

/// Maximum number of entries in a search result, and in the prompt of a planner.
const MAX_RESULTS: usize = 8;

/// Approved knowledge entries and their embeddings, cached. Clones share the caches.
#[derive(Clone)]
pub(crate) struct Knowledge {
    store: Store,
    entries: KnowledgeCache,
    embeddings: EmbeddingCache,
}

impl Knowledge {
    /// Creates the caches of a worker.
    pub(crate) fn new(store: &Store, config: &WorkerConfig) -> Self {
        let entries = KnowledgeCache::new(store);
        Self { store: store.clone(), entries, embeddings: EmbeddingCache::new(config) }
    }

    /// Returns the index of the entries of a job's project when the job started, or newer ones.
    pub(crate) async fn index(&self, ctx: &JobContext) -> Result<Arc<KnowledgeIndex>, Error> {
        Ok(match ctx.knowledge_revision {
            Some(revision) => self.entries.index_at(ctx.project(), revision).await?,
            None => self.entries.index(ctx.project()).await?,
        })
    }

    /// Returns the entries most similar to a plan, nearest first. It is empty without an embedding
    /// model or a response.
    pub(crate) async fn nearest_entries(
        &self,
        ctx: &JobContext,
        index: &KnowledgeIndex,
        plan: &Plan,
    ) -> Vec<KnowledgeId> {
        let task = &ctx.task;
        self.embeddings.nearest_entries(&self.store, index, (task, plan)).await
    }

    /// Returns entries relevant to the task, for a planner that has no plan yet.
    pub(crate) async fn for_task(&self, ctx: &JobContext) -> Result<Vec<String>, Error> {
        let index = self.index(ctx).await?;
        let text = format!("{}\n{}", ctx.task.title, ctx.task.description);
        Ok(find_entries(&index, ctx.project(), &text))
    }

    /// Returns entries that the knowledge check selected for a plan.
    pub(crate) async fn for_plan(
        &self,
        ctx: &JobContext,
        plan: &Plan,
    ) -> Result<Vec<String>, Error> {
        let index = self.index(ctx).await?;
        if index.entries().next().is_none() {
            return Ok(Vec::new());
        }
        let matches = self.store.plan_matches(ctx.task.id, plan.hash()).await?;
        let shown = matches.into_iter().filter(|it| it.shown);
        let entries = shown.filter_map(|it| index.entry(it.matched.entry).map(describe_entry));
        Ok(entries.collect())
    }

    /// Returns the search function of the agent tools.
    pub(crate) fn search(&self, project: ProjectId) -> KnowledgeSearch {
        let entries = self.entries.clone();
        Arc::new(move |query| {
            let entries = entries.clone();
            Box::pin(async move {
                match entries.index(project).await {
                    Ok(index) => find_entries(&index, project, &query),
                    Err(error) => {
                        tracing::warn!(%error, "knowledge search failed");
                        Vec::new()
                    }
                }
            })
        })
    }
}

/// Returns the entries in force that are most relevant to a text.
fn find_entries(index: &KnowledgeIndex, project: ProjectId, text: &str) -> Vec<String> {
    let at = now();
    let entries = index.search(text, usize::MAX);
    let entries = entries.into_iter().filter_map(|id| index.entry(id));
    entries
        .filter(|entry| entry.is_in_force(project, at))
        .take(MAX_RESULTS)
        .map(describe_entry)
        .collect()
}

fn describe_entry(entry: &KnowledgeEntry) -> String {
    let kind = match entry.kind {
        EntryKind::Prohibition => "Forbidden",
        EntryKind::Recommendation => "Recommended",
        EntryKind::Convention => "Convention",
        EntryKind::Learning => "Lesson",
    };
    let about = if entry.globs.is_empty() {
        String::new()
    } else {
        format!(" (for {})", entry.globs.join(", "))
    };
    format!("{kind}: {}{about}", entry.text.trim().replace('\n', " "))
}
