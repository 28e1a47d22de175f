//! Knowledge entries that agents get in their prompts and tools.

use std::sync::Arc;

use tamma_core::ids::ProjectId;
use tamma_core::knowledge::{EntryKind, KnowledgeEntry, KnowledgeIndex};
use tamma_core::plan::Plan;
use tamma_engine::agent_tools::KnowledgeSearch;
use tamma_store::KnowledgeCache;

use crate::activities::{Activities, JobContext, now};
use crate::error::Error;

/// Maximum number of entries in a search result, and in the prompt of a planner.
const MAX_RESULTS: usize = 8;

impl Activities {
    /// Returns entries relevant to the task, for a planner that has no plan yet.
    pub(crate) async fn knowledge_for_task(&self, work: &JobContext) -> Result<Vec<String>, Error> {
        let project = work.request.pending.project;
        let index = self.knowledge.index(project).await?;
        let text = format!("{}\n{}", work.task.title, work.task.description);
        Ok(find_entries(&index, project, &text))
    }

    /// Returns entries that the knowledge check selected for a plan.
    pub(crate) async fn knowledge_for_plan(
        &self,
        work: &JobContext,
        plan: &Plan,
    ) -> Result<Vec<String>, Error> {
        let index = self.knowledge.index(work.request.pending.project).await?;
        let matches = self.store.plan_matches(work.task.id, plan.hash()).await?;
        let shown = matches.into_iter().filter(|it| it.shown);
        let entries = shown.filter_map(|it| index.entry(it.matched.entry).map(describe_entry));
        Ok(entries.collect())
    }
}

/// Returns the search function of the agent tools.
pub(crate) fn knowledge_search(library: &KnowledgeCache, project: ProjectId) -> KnowledgeSearch {
    let library = library.clone();
    Arc::new(move |query| {
        let library = library.clone();
        Box::pin(async move {
            match library.index(project).await {
                Ok(index) => find_entries(&index, project, &query),
                Err(error) => {
                    tracing::warn!(%error, "knowledge search failed");
                    Vec::new()
                }
            }
        })
    })
}

/// Returns the entries in force that are most relevant to a text.
fn find_entries(index: &KnowledgeIndex, project: ProjectId, text: &str) -> Vec<String> {
    let moment = now();
    let entries = index.search(text, usize::MAX);
    let entries = entries.into_iter().filter_map(|id| index.entry(id));
    entries
        .filter(|entry| entry.is_in_force(project, moment))
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
