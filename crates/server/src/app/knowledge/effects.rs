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
        let stored = self.store.list_knowledge(filter).await?;
        let mut entries = self.with_effects(stored).await?;
        entries.retain(|entry| !entry.retirement_suggestions.is_empty());
        Ok(KnowledgeList { entries })
    }

    /// Adds effects and retirement suggestions to entries. The order stays the same.
    pub(super) async fn with_effects(
        &self,
        stored: Vec<StoredEntry>,
    ) -> Result<Vec<KnowledgeEntryDetail>, Error> {
        let effects = self.store.entry_effects(&stored).await?;
        let repositories = self.repository_contents(&stored).await?;
        let missing_tasks = self.missing_tasks(&stored).await?;
        let now = clock::now();
        let one = |(stored, effect): (StoredEntry, EntryEffect)| {
            let contents = contents_in_scope(&stored.entry, &repositories);
            let files = contents.as_ref().map(|contents| contents.files.as_slice());
            let is_gone =
                |evidence: &&Reference| is_missing(evidence, &missing_tasks, contents.as_ref());
            let missing_evidence: Vec<_> =
                stored.entry.evidence.iter().filter(is_gone).cloned().collect();
            let facts = EntryUsage {
                tasks: effect.tasks,
                matched: effect.matched,
                effect: effect.effect(),
                files,
                missing_evidence: &missing_evidence,
            };
            let suggestions = retirement_suggestions(&stored.entry, &facts, now);
            let suggestions = suggestions.iter().map(ToString::to_string).collect();
            KnowledgeEntryDetail {
                effect: Some(effect.into()),
                retirement_suggestions: suggestions,
                ..entry_detail(stored)
            }
        };
        Ok(stored.into_iter().zip(effects).map(one).collect())
    }

    /// Inspects every repository that is in the scope of an entry.
    async fn repository_contents(
        &self,
        stored: &[StoredEntry],
    ) -> Result<BTreeMap<ProjectId, Option<RepositoryContents>>, Error> {
        let evidence = stored.iter().flat_map(|stored| &stored.entry.evidence);
        let commits: BTreeSet<String> = evidence
            .filter_map(|it| it.as_str().strip_prefix("commit:"))
            .map(ToOwned::to_owned)
            .collect();
        let mut all = BTreeMap::new();
        for project in self.store.projects().await? {
            let in_scope = stored.iter().any(|stored| stored.entry.scope.covers(project.id));
            let contents = match &self.inspect_repository {
                Some(inspect) if in_scope => {
                    inspect(project.repository, commits.iter().cloned().collect()).await
                }
                _ => None,
            };
            all.insert(project.id, contents);
        }
        Ok(all)
    }

    /// Returns the tasks that evidence refers to and that no longer exist.
    async fn missing_tasks(&self, stored: &[StoredEntry]) -> Result<BTreeSet<TaskId>, Error> {
        let evidence = stored.iter().flat_map(|stored| &stored.entry.evidence);
        let named: BTreeSet<TaskId> =
            evidence.filter_map(|it| referenced_task(it.as_str())).collect();
        let existing = self.store.existing_tasks(&named).await?;
        Ok(named.difference(&existing).copied().collect())
    }
}

/// Combines the contents of all repositories in scope; `None` if one cannot be inspected.
fn contents_in_scope(
    entry: &KnowledgeEntry,
    repositories: &BTreeMap<ProjectId, Option<RepositoryContents>>,
) -> Option<RepositoryContents> {
    let mut all: Option<RepositoryContents> = None;
    for contents in
        repositories.iter().filter(|(id, _)| entry.scope.covers(**id)).map(|(_, contents)| contents)
    {
        let contents = contents.clone()?;
        let Some(all) = &mut all else {
            all = Some(contents);
            continue;
        };
        all.files.extend(contents.files);
        // A commit is missing only if every repository lacks it.
        all.missing_commits.retain(|commit| contents.missing_commits.contains(commit));
    }
    all.filter(|_| match entry.scope {
        EntryScope::Project(id) => repositories.contains_key(&id),
        EntryScope::Organisation => true,
    })
}

/// Returns whether evidence no longer exists. Evidence that cannot be looked up, such as a URL,
/// counts as existing.
fn is_missing(
    evidence: &Reference,
    tasks: &BTreeSet<TaskId>,
    contents: Option<&RepositoryContents>,
) -> bool {
    let text = evidence.as_str();
    if let Some(task) = referenced_task(text) {
        return tasks.contains(&task);
    }
    let Some(contents) = contents else { return false };
    if let Some(commit) = text.strip_prefix("commit:") {
        return contents.missing_commits.iter().any(|absent| absent == commit);
    }
    let path = text.strip_prefix("file:").and_then(|location| location.rsplit_once(':'));
    path.is_some_and(|(path, _)| !contents.files.iter().any(|file| file == path))
}

/// Parses the task from evidence such as `event:TASK/12`, `plan:TASK/1` or `check:TASK/3`.
fn referenced_task(evidence: &str) -> Option<TaskId> {
    let (kind, location) = evidence.split_once(':')?;
    let (task, _) = location.split_once('/')?;
    let names_task = ["event", "plan", "check"].contains(&kind);
    task.parse().ok().filter(|_| names_task).map(TaskId)
}
