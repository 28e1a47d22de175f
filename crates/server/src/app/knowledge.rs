//! What the team knows: writing it down, deciding about it, and holding a plan against it.

use tamma_core::ids::{KnowledgeId, Name, ProjectId, Reference};
use tamma_core::knowledge::{Entry, Scope, Status, hazards};
use tamma_core::task::{Priority, Task};
use tamma_store::{Conflict, Deed, KnowledgeFilter, Known, MatchRole};
use uuid::Uuid;

use super::{App, Error};
use crate::clock;
use crate::shape::{
    Knowledge, KnowledgeAnswer, KnowledgeChange, KnowledgeDecision, KnowledgeEdit, KnowledgeImport,
    KnowledgeImported, KnowledgeList, KnowledgeMatch, KnowledgeQuestion, NewKnowledge, short,
};

/// How long the text of an entry may be.
const LONGEST: usize = 10_000;

/// How many entries a search finds at most.
const FOUND: usize = 20;

impl App {
    /// Adds an entry, which is pending. One with the same id is found again.
    pub(crate) async fn add_knowledge(
        &self,
        new: NewKnowledge,
        by: &Name,
    ) -> Result<Knowledge, Error> {
        let scope = if new.organisation {
            Scope::Organisation
        } else {
            Scope::Project(self.project(new.project.as_deref()).await?.id)
        };
        let deed = if new.imported { Deed::Imported } else { Deed::Added };
        let owner = new.owner.as_deref().map(named).transpose()?;
        let entry = Entry {
            id: KnowledgeId(new.id.unwrap_or_else(clock::new_id)),
            kind: new.kind,
            text: new.text,
            scope,
            globs: new.globs,
            task_types: new.task_types,
            keywords: new.keywords,
            actions: new.actions,
            pattern: new.pattern,
            severity: new.severity,
            owner,
            evidence: new.evidence.iter().map(|it| referred(it)).collect::<Result<_, _>>()?,
            status: Status::Pending,
            expires_at: new.expires_at,
        };
        sound(&entry)?;
        match self.store.knowledge(entry.id).await {
            Ok(there) => return Ok(shown(there)),
            Err(tamma_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let added = self.store.add_knowledge(&entry, deed, Some(by.as_str()), None).await?;
        Ok(shown(added))
    }

    /// Some entries, the oldest first; or those that a text finds, the most relevant first.
    pub(crate) async fn knowledge_list(
        &self,
        filter: &KnowledgeFilter,
        search: Option<&str>,
    ) -> Result<KnowledgeList, Error> {
        let mut known = self.store.all_knowledge(filter).await?;
        if let Some(search) = search {
            let entries: Vec<Entry> = known.iter().map(|known| known.entry.clone()).collect();
            let found = tamma_core::knowledge::Index::new(entries).search(search, FOUND);
            known.retain(|known| found.contains(&known.entry.id));
            known.sort_by_key(|known| found.iter().position(|id| *id == known.entry.id));
        }
        Ok(KnowledgeList { entries: known.into_iter().map(shown).collect() })
    }

    /// One entry with its history: by its id, or by digits that it begins or ends with.
    pub(crate) async fn knowledge_one(&self, said: &str) -> Result<Knowledge, Error> {
        let known = self.store.knowledge(self.which_entry(said).await?).await?;
        let changes = self.store.knowledge_changes(known.entry.id).await?;
        let mut knowledge = shown(known);
        knowledge.changes = changes
            .into_iter()
            .map(|change| KnowledgeChange {
                at: change.at,
                by: change.by,
                deed: change.deed,
                reason: change.reason,
            })
            .collect();
        Ok(knowledge)
    }

    async fn which_entry(&self, said: &str) -> Result<KnowledgeId, Error> {
        if let Ok(id) = said.parse::<Uuid>() {
            return Ok(KnowledgeId(id));
        }
        let digits = said.replace('-', "").to_lowercase();
        let not_found = || Error::NotFound { what: "entry", key: said.to_owned() };
        if digits.len() < 4 {
            return Err(not_found());
        }
        let all = self.store.all_knowledge(&KnowledgeFilter::default()).await?;
        let ids = all.into_iter().map(|known| known.entry.id).filter(|id| {
            let text = id.0.simple().to_string();
            text.starts_with(&digits) || text.ends_with(&digits)
        });
        let ids: Vec<_> = ids.collect();
        match ids.as_slice() {
            [] => Err(not_found()),
            [id] => Ok(*id),
            several => Err(Error::invalid(
                format!("`{said}` could be one of {} entries.", several.len()),
                "Give more digits.",
            )),
        }
    }

    /// Approves an entry, turns it down, retires it, or takes it up again.
    pub(crate) async fn decide_knowledge(
        &self,
        said: &str,
        decision: KnowledgeDecision,
        by: &Name,
    ) -> Result<Knowledge, Error> {
        let known = self.store.knowledge(self.which_entry(said).await?).await?;
        let mut entry = known.entry;
        if !entry.status.may_become(decision.status) {
            return Err(Error::Refused(format!(
                "The entry is {}, so it cannot become {}.",
                entry.status, decision.status
            )));
        }
        let deed = match decision.status {
            Status::Approved => Deed::Approved,
            Status::Rejected => Deed::Rejected,
            Status::Retired => Deed::Retired,
            Status::Pending => Deed::Reopened,
        };
        entry.status = decision.status;
        if decision.status == Status::Approved && entry.owner.is_none() {
            entry.owner = Some(by.clone());
        }
        self.write_entry(&entry, decision.revision, deed, by, decision.reason.as_deref()).await
    }

    /// Says an entry in other words. It is pending again: people approved what it said before.
    pub(crate) async fn edit_knowledge(
        &self,
        said: &str,
        edit: KnowledgeEdit,
        by: &Name,
    ) -> Result<Knowledge, Error> {
        let id = self.which_entry(said).await?;
        let mut entry = edit.entry;
        if entry.id != id {
            return Err(Error::invalid(
                "The entry has another id than the one that is to be changed.",
                "Leave its id as it is.",
            ));
        }
        entry.status = Status::Pending;
        sound(&entry)?;
        self.write_entry(&entry, edit.revision, Deed::Edited, by, edit.reason.as_deref()).await
    }

    async fn write_entry(
        &self,
        entry: &Entry,
        seen: u64,
        deed: Deed,
        by: &Name,
        reason: Option<&str>,
    ) -> Result<Knowledge, Error> {
        let by = Some(by.as_str());
        match self.store.change_knowledge(entry, seen, deed, by, reason).await {
            Ok(known) => Ok(shown(known)),
            Err(tamma_store::Error::Conflict(Conflict::KnowledgeChanged { .. })) => {
                let now = self.store.knowledge(entry.id).await?.revision.to_string();
                Err(Error::Changed { what: "entry", seen: seen.to_string(), now })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes in what was exported. Everything is as it was, with its status: who imports a file has
    /// read it, as with any file of the repository.
    pub(crate) async fn import_knowledge(
        &self,
        import: KnowledgeImport,
        by: &Name,
    ) -> Result<KnowledgeImported, Error> {
        let mut done = KnowledgeImported::default();
        for entry in import.entries {
            sound(&entry)?;
            match self.store.knowledge(entry.id).await {
                Ok(there) if there.entry == entry => done.same += 1,
                Ok(there) => {
                    self.write_entry(&entry, there.revision, Deed::Imported, by, None).await?;
                    done.changed += 1;
                }
                Err(tamma_store::Error::NotFound { .. }) => {
                    let by = Some(by.as_str());
                    self.store.add_knowledge(&entry, Deed::Imported, by, None).await?;
                    done.added += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    /// Holds a plan against what the team knows, as the loop does before anybody approves it.
    pub(crate) async fn check_knowledge(
        &self,
        question: KnowledgeQuestion,
    ) -> Result<KnowledgeAnswer, Error> {
        let project = self.project(question.project.as_deref()).await?;
        let rules = self.rules_of(&project.repository).await?;
        let mut known = self.knowledge_of(project.id).await?;
        if let Some(id) = question.with {
            let tried = known.iter_mut().find(|known| known.id.0 == id);
            let tried = tried.ok_or_else(|| Error::NotFound { what: "entry", key: short(id) })?;
            tried.status = Status::Approved;
        }
        let task = Task {
            id: tamma_core::ids::TaskId(clock::new_id()),
            project: project.id,
            title: question.title,
            description: question.description,
            r#type: question.r#type,
            priority: Priority::default(),
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            metadata: std::collections::BTreeMap::new(),
        };
        let index = tamma_core::knowledge::Index::new(known);
        let found = index.check(&task, &question.plan, clock::now(), &rules);
        let mut matches = Vec::new();
        for (role, list) in [
            (MatchRole::Blocker, &found.blockers),
            (MatchRole::Warning, &found.warnings),
            (MatchRole::Recommendation, &found.recommendations),
            (MatchRole::Convention, &found.conventions),
            (MatchRole::Learning, &found.learnings),
        ] {
            for found in list {
                let Some(entry) = index.entry(found.entry) else { continue };
                matches.push(KnowledgeMatch {
                    role,
                    id: found.entry.0,
                    short: short(found.entry.0),
                    text: entry.text.clone(),
                    relevance: found.relevance,
                    because: found.reasons.iter().map(ToString::to_string).collect(),
                    reasons: found.reasons.clone(),
                    evidence: entry.evidence.iter().map(ToString::to_string).collect(),
                });
            }
        }
        Ok(KnowledgeAnswer { can_proceed: found.can_proceed(), matches })
    }

    async fn knowledge_of(&self, project: ProjectId) -> Result<Vec<Entry>, Error> {
        let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
        let known = self.store.all_knowledge(&filter).await?;
        Ok(known.into_iter().map(|known| known.entry).collect())
    }
}

fn shown(known: Known) -> Knowledge {
    let hazards = hazards(&known.entry).iter().map(ToString::to_string).collect();
    Knowledge {
        short: short(known.entry.id.0),
        revision: known.revision,
        hazards,
        created_at: known.created_at,
        updated_at: known.updated_at,
        changes: Vec::new(),
        entry: known.entry,
    }
}

/// Whether an entry can be kept at all. What is only doubtful is told when it is shown.
fn sound(entry: &Entry) -> Result<(), Error> {
    use tamma_core::knowledge::Hazard;
    if entry.text.trim().is_empty() || entry.text.chars().count() > LONGEST {
        return Err(Error::invalid(
            format!("The text of an entry has 1 to {LONGEST} characters."),
            "Say it in a few sentences.",
        ));
    }
    let undecidable = hazards(entry).into_iter().find_map(|hazard| match hazard {
        Hazard::Undecidable { condition } => Some(condition),
        _ => None,
    });
    match undecidable {
        None => Ok(()),
        Some(condition) => Err(Error::invalid(
            format!("`{condition}` is not a glob or a pattern."),
            "Write globs from the root of the repository, such as `src/**/*.rs`, and patterns as \
             regular expressions.",
        )),
    }
}

fn named(text: &str) -> Result<Name, Error> {
    text.parse().map_err(|_| {
        Error::invalid(format!("`{text}` is not a name."), "A name has 1 to 100 characters.")
    })
}

fn referred(text: &str) -> Result<Reference, Error> {
    text.parse().map_err(|_| {
        let text: String = text.chars().take(40).collect();
        Error::invalid(
            format!("`{text}` cannot be evidence."),
            "Evidence is a short reference, such as an event, a commit or an address.",
        )
    })
}
