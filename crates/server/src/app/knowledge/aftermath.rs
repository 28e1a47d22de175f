//! What became of entries: what they did to tasks, and which could be retired.

use std::collections::{BTreeMap, BTreeSet};

use tamma_core::ids::{ProjectId, Reference, TaskId};
use tamma_core::knowledge::{Entry, Scope};
use tamma_core::learning::{Facts, offers};
use tamma_store::{Followed, KnowledgeFilter, Known};

use super::{App, Error, shown};
use crate::clock;
use crate::server::Sight;
use crate::shape::{Knowledge, KnowledgeList};

impl App {
    /// The entries of a filter that could be retired, each with why.
    pub(crate) async fn knowledge_offers(
        &self,
        filter: &KnowledgeFilter,
    ) -> Result<KnowledgeList, Error> {
        let known = self.store.all_knowledge(filter).await?;
        let mut entries = self.aftermath(known).await?;
        entries.retain(|known| !known.offers.is_empty());
        Ok(KnowledgeList { entries })
    }

    /// Entries with what became of them, in their order.
    pub(super) async fn aftermath(&self, known: Vec<Known>) -> Result<Vec<Knowledge>, Error> {
        let followed = self.store.followed(&known).await?;
        let sights = self.sights(&known).await?;
        let gone = self.gone_tasks(&known).await?;
        let now = clock::now();
        let one = |(known, followed): (Known, Followed)| {
            let seen = reached(&known.entry, &sights);
            let files = seen.as_ref().map(|seen| seen.files.as_slice());
            let is_gone = |evidence: &&Reference| is_gone(evidence, &gone, seen.as_ref());
            let gone: Vec<_> = known.entry.evidence.iter().filter(is_gone).cloned().collect();
            let facts = Facts {
                tasks: followed.tasks,
                matched: followed.matched,
                effect: followed.effect(),
                files,
                gone: &gone,
            };
            let offers = offers(&known.entry, &facts, now);
            let offers = offers.iter().map(ToString::to_string).collect();
            Knowledge { effect: Some(followed.into()), offers, ..shown(known) }
        };
        Ok(known.into_iter().zip(followed).map(one).collect())
    }

    /// What there is in every repository that entries reach.
    async fn sights(&self, known: &[Known]) -> Result<BTreeMap<ProjectId, Option<Sight>>, Error> {
        let evidence = known.iter().flat_map(|known| &known.entry.evidence);
        let commits: BTreeSet<String> = evidence
            .filter_map(|it| it.as_str().strip_prefix("commit:"))
            .map(ToOwned::to_owned)
            .collect();
        let mut all = BTreeMap::new();
        for project in self.store.projects().await? {
            let reached = known.iter().any(|known| known.entry.scope.covers(project.id));
            let seen = match &self.look {
                Some(look) if reached => {
                    look(project.repository, commits.iter().cloned().collect()).await
                }
                _ => None,
            };
            all.insert(project.id, seen);
        }
        Ok(all)
    }

    /// The tasks that evidence speaks of and that are not there.
    async fn gone_tasks(&self, known: &[Known]) -> Result<BTreeSet<TaskId>, Error> {
        let evidence = known.iter().flat_map(|known| &known.entry.evidence);
        let named: BTreeSet<TaskId> = evidence.filter_map(|it| task_of(it.as_str())).collect();
        let there = self.store.which_tasks(&named).await?;
        Ok(named.difference(&there).copied().collect())
    }
}

/// What there is in all the repositories that an entry reaches; nothing where one cannot be looked at.
fn reached(entry: &Entry, sights: &BTreeMap<ProjectId, Option<Sight>>) -> Option<Sight> {
    let mut all: Option<Sight> = None;
    for seen in sights.iter().filter(|(id, _)| entry.scope.covers(**id)).map(|(_, seen)| seen) {
        let seen = seen.clone()?;
        let Some(all) = &mut all else {
            all = Some(seen);
            continue;
        };
        all.files.extend(seen.files);
        // What one of them has is there.
        all.absent.retain(|commit| seen.absent.contains(commit));
    }
    all.filter(|_| match entry.scope {
        Scope::Project(id) => sights.contains_key(&id),
        Scope::Organisation => true,
    })
}

/// Whether evidence can no longer be looked up. What we cannot look up ourselves, such as an address, is
/// taken to be there.
fn is_gone(evidence: &Reference, tasks: &BTreeSet<TaskId>, seen: Option<&Sight>) -> bool {
    let text = evidence.as_str();
    if let Some(task) = task_of(text) {
        return tasks.contains(&task);
    }
    let Some(seen) = seen else { return false };
    if let Some(commit) = text.strip_prefix("commit:") {
        return seen.absent.iter().any(|absent| absent == commit);
    }
    let path = text.strip_prefix("file:").and_then(|place| place.rsplit_once(':'));
    path.is_some_and(|(path, _)| !seen.files.iter().any(|file| file == path))
}

/// The task that evidence is of: `event:TASK/12`, `plan:TASK/1`, `check:TASK/3`.
fn task_of(evidence: &str) -> Option<TaskId> {
    let (kind, place) = evidence.split_once(':')?;
    let (task, _) = place.split_once('/')?;
    let known = ["event", "plan", "check"].contains(&kind);
    task.parse().ok().filter(|_| known).map(TaskId)
}
