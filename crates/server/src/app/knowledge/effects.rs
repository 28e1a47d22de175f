//! Effects of knowledge entries on tasks, and retirement suggestions.

use std::collections::{BTreeMap, BTreeSet};

use tamma_core::ids::{ProjectId, Reference, TaskId};
use tamma_core::knowledge::{EntryScope, KnowledgeEntry};
use tamma_core::learning::{EntryUsage, retirement_suggestions};
use tamma_store::{EntryEffect, KnowledgeFilter, StoredEntry};

use super::{App, Error, entry_detail};
use crate::clock;
use crate::dto::{KnowledgeEntryDetail, KnowledgeList};
use crate::server::RepositoryContents;

impl App {
    /// Lists the entries that could be retired, each with the reasons.
    pub(crate) async fn retirement_suggestions(
        &self,
        filter: &KnowledgeFilter,
    ) -> Result<KnowledgeList, Error> {
        let known = self.store.list_knowledge(filter).await?;
        let mut entries = self.with_effects(known).await?;
        entries.retain(|known| !known.retirement_suggestions.is_empty());
        Ok(KnowledgeList { entries })
    }

    /// Adds effects and retirement suggestions to entries. The order stays the same.
    pub(super) async fn with_effects(
        &self,
        known: Vec<StoredEntry>,
    ) -> Result<Vec<KnowledgeEntryDetail>, Error> {
        let followed = self.store.entry_effects(&known).await?;
        let sights = self.repository_contents(&known).await?;
        let gone = self.missing_tasks(&known).await?;
        let now = clock::now();
        let one = |(known, followed): (StoredEntry, EntryEffect)| {
            let seen = contents_in_scope(&known.entry, &sights);
            let files = seen.as_ref().map(|seen| seen.files.as_slice());
            let is_gone = |evidence: &&Reference| is_missing(evidence, &gone, seen.as_ref());
            let gone: Vec<_> = known.entry.evidence.iter().filter(is_gone).cloned().collect();
            let facts = EntryUsage {
                tasks: followed.tasks,
                matched: followed.matched,
                effect: followed.effect(),
                files,
                missing_evidence: &gone,
            };
            let offers = retirement_suggestions(&known.entry, &facts, now);
            let offers = offers.iter().map(ToString::to_string).collect();
            KnowledgeEntryDetail {
                effect: Some(followed.into()),
                retirement_suggestions: offers,
                ..entry_detail(known)
            }
        };
        Ok(known.into_iter().zip(followed).map(one).collect())
    }

    /// Inspects every repository that is in the scope of an entry.
    async fn repository_contents(
        &self,
        known: &[StoredEntry],
    ) -> Result<BTreeMap<ProjectId, Option<RepositoryContents>>, Error> {
        let evidence = known.iter().flat_map(|known| &known.entry.evidence);
        let commits: BTreeSet<String> = evidence
            .filter_map(|it| it.as_str().strip_prefix("commit:"))
            .map(ToOwned::to_owned)
            .collect();
        let mut all = BTreeMap::new();
        for project in self.store.projects().await? {
            let reached = known.iter().any(|known| known.entry.scope.covers(project.id));
            let seen = match &self.inspect_repository {
                Some(look) if reached => {
                    look(project.repository, commits.iter().cloned().collect()).await
                }
                _ => None,
            };
            all.insert(project.id, seen);
        }
        Ok(all)
    }

    /// Returns the tasks that evidence refers to and that no longer exist.
    async fn missing_tasks(&self, known: &[StoredEntry]) -> Result<BTreeSet<TaskId>, Error> {
        let evidence = known.iter().flat_map(|known| &known.entry.evidence);
        let named: BTreeSet<TaskId> =
            evidence.filter_map(|it| referenced_task(it.as_str())).collect();
        let there = self.store.existing_tasks(&named).await?;
        Ok(named.difference(&there).copied().collect())
    }
}

/// Combines the contents of all repositories in scope; `None` if one cannot be inspected.
fn contents_in_scope(
    entry: &KnowledgeEntry,
    sights: &BTreeMap<ProjectId, Option<RepositoryContents>>,
) -> Option<RepositoryContents> {
    let mut all: Option<RepositoryContents> = None;
    for seen in sights.iter().filter(|(id, _)| entry.scope.covers(**id)).map(|(_, seen)| seen) {
        let seen = seen.clone()?;
        let Some(all) = &mut all else {
            all = Some(seen);
            continue;
        };
        all.files.extend(seen.files);
        // A commit is missing only if every repository lacks it.
        all.missing_commits.retain(|commit| seen.missing_commits.contains(commit));
    }
    all.filter(|_| match entry.scope {
        EntryScope::Project(id) => sights.contains_key(&id),
        EntryScope::Organisation => true,
    })
}

/// Returns whether evidence no longer exists. Evidence that cannot be looked up, such as a URL,
/// counts as existing.
fn is_missing(
    evidence: &Reference,
    tasks: &BTreeSet<TaskId>,
    seen: Option<&RepositoryContents>,
) -> bool {
    let text = evidence.as_str();
    if let Some(task) = referenced_task(text) {
        return tasks.contains(&task);
    }
    let Some(seen) = seen else { return false };
    if let Some(commit) = text.strip_prefix("commit:") {
        return seen.missing_commits.iter().any(|absent| absent == commit);
    }
    let path = text.strip_prefix("file:").and_then(|place| place.rsplit_once(':'));
    path.is_some_and(|(path, _)| !seen.files.iter().any(|file| file == path))
}

/// Parses the task from evidence such as `event:TASK/12`, `plan:TASK/1` or `check:TASK/3`.
fn referenced_task(evidence: &str) -> Option<TaskId> {
    let (kind, place) = evidence.split_once(':')?;
    let (task, _) = place.split_once('/')?;
    let known = ["event", "plan", "check"].contains(&kind);
    task.parse().ok().filter(|_| known).map(TaskId)
}
