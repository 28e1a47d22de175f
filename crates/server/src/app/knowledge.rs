//! What the team knows: writing it down, deciding about it, and holding a plan against it.

mod aftermath;
mod import;

use std::sync::Arc;

use tamma_core::ids::{KnowledgeId, Name, PlanHash, ProjectId, Reference, TaskId};
use tamma_core::knowledge::{Entry, Hazard, Index, Match, Scope, Status, hazards};
use tamma_core::rules::Right;
use tamma_core::task::{Priority, Task};
use tamma_store::{Conflict, Deed, KnowledgeFilter, Known, MatchRole};
use uuid::Uuid;

use super::{App, By, Error};
use crate::clock;
use crate::shape::{
    Knowledge, KnowledgeAnswer, KnowledgeChange, KnowledgeDecision, KnowledgeEdit, KnowledgeList,
    KnowledgeMatch, KnowledgeQuestion, NewKnowledge, short,
};

/// How long the text of an entry may be.
const LONGEST: usize = 10_000;

/// How many globs, words and references an entry has at most, and how long each may be.
const MOST: usize = 100;
const LONGEST_PART: usize = 500;

/// How many entries a search finds at most.
const FOUND: usize = 20;

impl App {
    /// How many entries wait for somebody to approve them.
    pub(crate) async fn pending_knowledge(&self) -> Result<u64, Error> {
        let filter =
            KnowledgeFilter { status: Some(Status::Pending), ..KnowledgeFilter::default() };
        Ok(self.store.all_knowledge(&filter).await?.len() as u64)
    }

    /// Adds an entry, which is pending. One with the same id is found again.
    pub(crate) async fn add_knowledge(
        &self,
        new: NewKnowledge,
        by: &By,
    ) -> Result<Knowledge, Error> {
        let scope = if new.organisation {
            Scope::Organisation
        } else {
            Scope::Project(self.project(new.project.as_deref()).await?.id)
        };
        self.permit_scope(by, Right::Work, scope).await?;
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
            let found = Index::new(entries).search(search, FOUND);
            known.retain(|known| found.contains(&known.entry.id));
            known.sort_by_key(|known| found.iter().position(|id| *id == known.entry.id));
        }
        Ok(KnowledgeList { entries: known.into_iter().map(shown).collect() })
    }

    /// One entry with its history: by its id, or by digits that it begins or ends with.
    pub(crate) async fn knowledge_one(&self, said: &str) -> Result<Knowledge, Error> {
        let known = self.store.knowledge(self.which_entry(said).await?).await?;
        let changes = self.store.knowledge_changes(known.entry.id).await?;
        let [mut knowledge] = <[_; 1]>::try_from(self.aftermath(vec![known]).await?)
            .map_err(|_| Error::NotFound { what: "entry", key: said.to_owned() })?;
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
        if digits.len() < 4 || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(not_found());
        }
        let ids = self.store.knowledge_like(&digits).await?;
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
        by: &By,
    ) -> Result<Knowledge, Error> {
        let known = self.store.knowledge(self.which_entry(said).await?).await?;
        let mut entry = known.entry;
        self.permit_scope(by, Right::Decide, entry.scope).await?;
        if !entry.status.may_become(decision.status) {
            return Err(Error::Refused(format!(
                "The entry is {}, so it cannot become {}.",
                entry.status, decision.status
            )));
        }
        let doubts: Vec<_> = hazards(&entry).iter().map(ToString::to_string).collect();
        if decision.status == Status::Approved && !decision.despite && !doubts.is_empty() {
            return Err(Error::Doubtful(doubts));
        }
        let deed = match decision.status {
            Status::Approved => Deed::Approved,
            Status::Rejected => Deed::Rejected,
            Status::Retired => Deed::Retired,
            Status::Pending => Deed::Reopened,
        };
        entry.status = decision.status;
        if decision.status == Status::Approved && entry.owner.is_none() {
            entry.owner = Some(by.name.clone());
        }
        self.write_entry(&entry, decision.revision, deed, by, decision.reason.as_deref()).await
    }

    /// Says an entry in other words. It is pending again: people approved what it said before.
    pub(crate) async fn edit_knowledge(
        &self,
        said: &str,
        edit: KnowledgeEdit,
        by: &By,
    ) -> Result<Knowledge, Error> {
        let id = self.which_entry(said).await?;
        let mut entry = edit.entry;
        if entry.id != id {
            return Err(Error::invalid(
                "The entry has another id than the one that is to be changed.",
                "Leave its id as it is.",
            ));
        }
        // What was decided about is not undone by whoever may not decide.
        let before = self.store.knowledge(id).await?.entry;
        let right = if before.status == Status::Pending { Right::Work } else { Right::Decide };
        self.permit_scope(by, right, before.scope).await?;
        self.permit_scope(by, right, entry.scope).await?;
        entry.status = Status::Pending;
        sound(&entry)?;
        if let Scope::Project(id) = entry.scope {
            self.project(Some(&id.to_string())).await?;
        }
        self.write_entry(&entry, edit.revision, Deed::Edited, by, edit.reason.as_deref()).await
    }

    /// Refuses what a person may not do to an entry.
    async fn permit_scope(&self, by: &By, right: Right, scope: Scope) -> Result<(), Error> {
        match scope {
            Scope::Project(project) => self.permit(by, right, project).await,
            Scope::Organisation => self.permit_anywhere(by, right).await,
        }
    }

    async fn write_entry(
        &self,
        entry: &Entry,
        seen: u64,
        deed: Deed,
        by: &By,
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

    /// Holds a plan against what the team knows, as the loop does before anybody approves it.
    pub(crate) async fn check_knowledge(
        &self,
        question: KnowledgeQuestion,
    ) -> Result<KnowledgeAnswer, Error> {
        let project = self.project(question.project.as_deref()).await?;
        let rules = self.rules_of(&project.repository).await?;
        let index = match question.with {
            Some(id) => Arc::new(self.tried(project.id, KnowledgeId(id)).await?),
            None => self.library.of(project.id).await?,
        };
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
        let found = index.check(&task, &question.plan, clock::now(), &rules);
        let lists = [
            (MatchRole::Blocker, &found.blockers),
            (MatchRole::Warning, &found.warnings),
            (MatchRole::Recommendation, &found.recommendations),
            (MatchRole::Convention, &found.conventions),
            (MatchRole::Learning, &found.learnings),
        ];
        let all = lists.into_iter().flat_map(|(role, list)| list.iter().map(move |it| (role, it)));
        let matches = all.filter_map(|(role, matched)| {
            Some(met(role, matched, index.entry(matched.entry)?, false))
        });
        Ok(KnowledgeAnswer { can_proceed: found.can_proceed(), matches: matches.collect() })
    }

    /// What reaches a project, with one entry as if it were approved.
    async fn tried(&self, project: ProjectId, id: KnowledgeId) -> Result<Index, Error> {
        let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
        let known = self.store.all_knowledge(&filter).await?;
        let mut entries: Vec<Entry> = known.into_iter().map(|known| known.entry).collect();
        let tried = entries.iter_mut().find(|entry| entry.id == id);
        let tried = tried.ok_or_else(|| Error::NotFound { what: "entry", key: short(id.0) })?;
        tried.status = Status::Approved;
        Ok(Index::new(entries))
    }

    /// What matched a plan of a task when it was checked.
    pub(crate) async fn met_by(
        &self,
        task: TaskId,
        plan: PlanHash,
    ) -> Result<Vec<KnowledgeMatch>, Error> {
        let matches = self.store.matches(task, plan).await?;
        let ids: Vec<_> = matches.iter().map(|it| it.matched.entry).collect();
        let known = self.store.knowledge_of(&ids).await?;
        let matches = matches.iter().filter_map(|it| {
            let known = known.iter().find(|known| known.entry.id == it.matched.entry)?;
            Some(met(it.role, &it.matched, &known.entry, it.shown))
        });
        Ok(matches.collect())
    }
}

fn met(role: MatchRole, matched: &Match, entry: &Entry, shown: bool) -> KnowledgeMatch {
    KnowledgeMatch {
        role,
        id: entry.id.0,
        short: short(entry.id.0),
        text: entry.text.clone(),
        relevance: matched.relevance,
        because: matched.reasons.iter().map(ToString::to_string).collect(),
        reasons: matched.reasons.clone(),
        evidence: entry.evidence.iter().map(ToString::to_string).collect(),
        owner: entry.owner.as_ref().map(ToString::to_string),
        severity: entry.severity,
        shown,
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
        effect: None,
        offers: Vec::new(),
        entry: known.entry,
    }
}

/// Whether an entry can be kept at all. What is only doubtful is told when it is shown.
fn sound(entry: &Entry) -> Result<(), Error> {
    if entry.text.trim().is_empty() || entry.text.chars().count() > LONGEST {
        return Err(Error::invalid(
            format!("The text of an entry has 1 to {LONGEST} characters."),
            "Say it in a few sentences.",
        ));
    }
    let parts = || entry.globs.iter().chain(&entry.keywords).chain(&entry.pattern);
    let long = parts().any(|part| part.chars().count() > LONGEST_PART);
    if parts().count() > MOST || entry.evidence.len() > MOST || long {
        return Err(Error::invalid(
            format!(
                "An entry has at most {MOST} globs and words and {MOST} references, each of at most \
                 {LONGEST_PART} characters."
            ),
            "Make several entries of it, or widen its globs.",
        ));
    }
    // The database has no place for it, and an entry is kept to the letter.
    if entry.text.contains('\0') || parts().any(|part| part.contains('\0')) {
        return Err(Error::invalid("There is a NUL in the entry.", "Take it out."));
    }
    for hazard in hazards(entry) {
        match hazard {
            Hazard::Undecidable { condition } => {
                return Err(Error::invalid(
                    format!("`{condition}` is not a glob, a pattern or a word."),
                    "Write globs from the root of the repository, such as `src/**/*.rs`, and \
                     patterns as regular expressions.",
                ));
            }
            Hazard::Secret { form } => {
                return Err(Error::invalid(
                    format!("There is something in the entry that looks like {form}."),
                    "Take it out, and change it where it is used: an entry is shown to people and \
                     agents, and goes into files.",
                ));
            }
            _ => {}
        }
    }
    Ok(())
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
