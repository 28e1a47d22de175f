//! What agents are told of what the team knows.

use std::sync::Arc;

use tamma_core::ids::ProjectId;
use tamma_core::knowledge::{Entry, Index, Kind};
use tamma_core::plan::Plan;
use tamma_engine::desk::Search;
use tamma_store::Library;

use crate::error::Error;
use crate::hands::{Activities, Work, now};

/// How many entries a search finds, and a planner is told before there is a plan.
const FOUND: usize = 8;

impl Activities {
    /// What a planner is told: what has to do with the task, before there is a plan to hold it against.
    pub(crate) async fn known_of_task(&self, work: &Work) -> Result<Vec<String>, Error> {
        let project = work.call.errand.diary.project;
        let index = self.library.of(project).await?;
        let text = format!("{}\n{}", work.task.title, work.task.description);
        Ok(found(&index, project, &text))
    }

    /// What whoever carries out a plan is told: what the check found and chose.
    pub(crate) async fn known_of_plan(
        &self,
        work: &Work,
        plan: &Plan,
    ) -> Result<Vec<String>, Error> {
        let index = self.library.of(work.call.errand.diary.project).await?;
        let matches = self.store.matches(work.task.id, plan.hash()).await?;
        let shown = matches.into_iter().filter(|it| it.shown);
        let entries = shown.filter_map(|it| index.entry(it.matched.entry).map(in_words));
        Ok(entries.collect())
    }
}

/// The search that agents have in their session.
pub(crate) fn search(library: &Library, project: ProjectId) -> Search {
    let library = library.clone();
    Arc::new(move |query| {
        let library = library.clone();
        Box::pin(async move {
            match library.of(project).await {
                Ok(index) => found(&index, project, &query),
                Err(error) => {
                    tracing::warn!(%error, "an agent could not search what is known");
                    Vec::new()
                }
            }
        })
    })
}

/// What is in force and has the most to do with a text.
fn found(index: &Index, project: ProjectId, text: &str) -> Vec<String> {
    let moment = now();
    let entries = index.search(text, usize::MAX);
    let entries = entries.into_iter().filter_map(|id| index.entry(id));
    entries.filter(|entry| entry.is_in_force(project, moment)).take(FOUND).map(in_words).collect()
}

fn in_words(entry: &Entry) -> String {
    let kind = match entry.kind {
        Kind::Prohibition => "Forbidden",
        Kind::Recommendation => "Recommended",
        Kind::Convention => "Convention",
        Kind::Learning => "Learned before",
    };
    let about = if entry.globs.is_empty() {
        String::new()
    } else {
        format!(" (about {})", entry.globs.join(", "))
    };
    format!("{kind}: {}{about}", entry.text.trim().replace('\n', " "))
}
