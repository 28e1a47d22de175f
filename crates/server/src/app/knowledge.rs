//! Knowledge base: adding, deciding, editing and checking plans against entries.

mod effects;
mod import;

use std::sync::Arc;

use tamma_core::access::Permission;
use tamma_core::ids::{KnowledgeId, Name, PlanHash, ProjectId, Reference, TaskId};
use tamma_core::knowledge::{
    ContentWarning, EntryMatch, EntryScope, EntryStatus, KnowledgeEntry, KnowledgeIndex,
    content_warnings,
};
use tamma_core::task::{Priority, Task};
use tamma_store::{Conflict, KnowledgeAction, KnowledgeFilter, MatchRole, StoredEntry};
use uuid::Uuid;

use super::{App, Error, Principal};
use crate::audit;
use crate::clock;
use crate::dto::{
    KnowledgeChange, KnowledgeCheckRequest, KnowledgeCheckResult, KnowledgeDecision, KnowledgeEdit,
    KnowledgeEntryDetail, KnowledgeList, KnowledgeMatch, NewKnowledgeEntry, short_id,
};

/// Maximum length of an entry's text, in characters.
const MAX_TEXT_CHARS: usize = 10_000;

/// Maximum number of globs and keywords, and of references, and the maximum length of each.
const MAX_PARTS: usize = 100;
const MAX_PART_CHARS: usize = 500;

/// Maximum number of search results.
const MAX_SEARCH_RESULTS: usize = 20;

impl App {
    /// Counts the entries that await approval.
    pub(crate) async fn count_pending_knowledge(&self) -> Result<u64, Error> {
        let filter =
            KnowledgeFilter { status: Some(EntryStatus::Pending), ..KnowledgeFilter::default() };
        Ok(self.store.list_knowledge(&filter).await?.len() as u64)
    }

    /// Checks a permission in the scope of an entry. Nobody but an operator decides for all projects,
    /// or proposes for several organisations.
    async fn authorize_scope(
        &self,
        by: &Principal,
        permission: Permission,
        scope: EntryScope,
    ) -> Result<(), Error> {
        match (scope, permission) {
            (EntryScope::Project(project), _) => by.authorize(permission, project),
            (EntryScope::Organisation, Permission::Work)
                if self.identity.has_several_organisations().await? =>
            {
                by.require_operator()
            }
            (EntryScope::Organisation, Permission::Read | Permission::Work) => {
                by.authorize_anywhere(permission)
            }
            (
                EntryScope::Organisation,
                Permission::Decide | Permission::Administer | Permission::Operate,
            ) => by.require_operator(),
        }
    }

    /// Adds a pending entry, or returns the existing entry with the same ID.
    pub(crate) async fn add_knowledge(
        &self,
        new: NewKnowledgeEntry,
        by: &Principal,
    ) -> Result<KnowledgeEntryDetail, Error> {
        let scope = if new.organisation {
            EntryScope::Organisation
        } else {
            EntryScope::Project(self.resolve_project(new.project.as_deref()).await?.id)
        };
        self.authorize_scope(by, Permission::Work, scope).await?;
        let action = if new.imported { KnowledgeAction::Imported } else { KnowledgeAction::Added };
        let owner = new.owner.as_deref().map(parse_name).transpose()?;
        let entry = KnowledgeEntry {
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
            evidence: new
                .evidence
                .iter()
                .map(|it| parse_reference(it))
                .collect::<Result<_, _>>()?,
            status: EntryStatus::Pending,
            expires_at: new.expires_at,
            origin: None,
        };
        validate_entry(&entry)?;
        match self.store.knowledge_entry(entry.id).await {
            Ok(existing) => return Ok(entry_detail(existing)),
            Err(tamma_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let added = self.store.add_knowledge(&entry, action, Some(by.as_str()), None).await?;
        Ok(entry_detail(added))
    }

    /// Lists entries, oldest first, or search results, most relevant first.
    pub(crate) async fn list_knowledge(
        &self,
        filter: &KnowledgeFilter,
        search: Option<&str>,
    ) -> Result<KnowledgeList, Error> {
        let mut stored = self.store.list_knowledge(filter).await?;
        if let Some(search) = search {
            let entries: Vec<KnowledgeEntry> =
                stored.iter().map(|stored| stored.entry.clone()).collect();
            let matches = KnowledgeIndex::new(entries).search(search, MAX_SEARCH_RESULTS);
            stored.retain(|stored| matches.contains(&stored.entry.id));
            stored.sort_by_key(|stored| matches.iter().position(|id| *id == stored.entry.id));
        }
        Ok(KnowledgeList { entries: stored.into_iter().map(entry_detail).collect() })
    }

    /// Returns an entry with its changes and effects, by its ID or the first or last digits of it.
    pub(crate) async fn knowledge_entry(
        &self,
        id_or_digits: &str,
    ) -> Result<KnowledgeEntryDetail, Error> {
        let stored = self.store.knowledge_entry(self.resolve_entry_id(id_or_digits).await?).await?;
        let changes = self.store.knowledge_changes(stored.entry.id).await?;
        let [mut knowledge] = <[_; 1]>::try_from(self.with_effects(vec![stored]).await?)
            .map_err(|_| Error::NotFound { what: "entry", key: id_or_digits.to_owned() })?;
        knowledge.changes = changes
            .into_iter()
            .map(|change| KnowledgeChange {
                at: change.at,
                by: change.by,
                action: change.action,
                reason: change.reason,
            })
            .collect();
        Ok(knowledge)
    }

    async fn resolve_entry_id(&self, id_or_digits: &str) -> Result<KnowledgeId, Error> {
        if let Ok(id) = id_or_digits.parse::<Uuid>() {
            return Ok(KnowledgeId(id));
        }
        let digits = id_or_digits.replace('-', "").to_lowercase();
        let not_found = || Error::NotFound { what: "entry", key: id_or_digits.to_owned() };
        if digits.len() < 4 || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(not_found());
        }
        let ids = self.store.find_knowledge_ids(&digits).await?;
        match ids.as_slice() {
            [] => Err(not_found()),
            [id] => Ok(*id),
            several => Err(Error::invalid(
                format!("`{id_or_digits}` matches {} entries.", several.len()),
                "Give more characters of the ID.",
            )),
        }
    }

    /// Approves, rejects, retires or reopens an entry.
    pub(crate) async fn decide_knowledge(
        &self,
        id_or_digits: &str,
        decision: KnowledgeDecision,
        by: &Principal,
    ) -> Result<KnowledgeEntryDetail, Error> {
        let stored = self.store.knowledge_entry(self.resolve_entry_id(id_or_digits).await?).await?;
        let mut entry = stored.entry;
        audit::note_action(decision.status, entry.id);
        self.authorize_scope(by, Permission::Decide, entry.scope).await?;
        if !entry.status.can_become(decision.status) {
            return Err(Error::Refused(format!(
                "The entry is {}, so it cannot become {}.",
                entry.status, decision.status
            )));
        }
        let warnings: Vec<_> = content_warnings(&entry).iter().map(ToString::to_string).collect();
        if decision.status == EntryStatus::Approved
            && !decision.ignore_warnings
            && !warnings.is_empty()
        {
            return Err(Error::ContentWarnings(warnings));
        }
        let action = match decision.status {
            EntryStatus::Approved => KnowledgeAction::Approved,
            EntryStatus::Rejected => KnowledgeAction::Rejected,
            EntryStatus::Retired => KnowledgeAction::Retired,
            EntryStatus::Pending => KnowledgeAction::Reopened,
        };
        entry.status = decision.status;
        if decision.status == EntryStatus::Approved && entry.owner.is_none() {
            entry.owner = Some(by.name.clone());
        }
        self.save_entry(&entry, decision.revision, action, by, decision.reason.as_deref()).await
    }

    /// Edits an entry. It becomes pending again, because the approval covered the old content.
    pub(crate) async fn edit_knowledge(
        &self,
        id_or_digits: &str,
        edit: KnowledgeEdit,
        by: &Principal,
    ) -> Result<KnowledgeEntryDetail, Error> {
        let id = self.resolve_entry_id(id_or_digits).await?;
        let mut entry = edit.entry;
        if entry.id != id {
            return Err(Error::invalid(
                "The entry's ID differs from the ID in the request path.",
                "Keep the ID of the entry.",
            ));
        }
        // Editing a decided entry undoes the decision, so it needs the permission to decide.
        let before = self.store.knowledge_entry(id).await?.entry;
        let permission = if before.status == EntryStatus::Pending {
            Permission::Work
        } else {
            Permission::Decide
        };
        self.authorize_scope(by, permission, before.scope).await?;
        self.authorize_scope(by, permission, entry.scope).await?;
        entry.status = EntryStatus::Pending;
        // An edit does not change where the entry comes from.
        entry.origin = before.origin;
        validate_entry(&entry)?;
        if let EntryScope::Project(id) = entry.scope {
            self.resolve_project(Some(&id.to_string())).await?;
        }
        self.save_entry(&entry, edit.revision, KnowledgeAction::Edited, by, edit.reason.as_deref())
            .await
    }

    async fn save_entry(
        &self,
        entry: &KnowledgeEntry,
        revision: u64,
        action: KnowledgeAction,
        by: &Principal,
        reason: Option<&str>,
    ) -> Result<KnowledgeEntryDetail, Error> {
        let by = Some(by.as_str());
        match self.store.change_knowledge(entry, revision, action, by, reason).await {
            Ok(stored) => Ok(entry_detail(stored)),
            Err(tamma_store::Error::Conflict(Conflict::KnowledgeChanged { .. })) => {
                let now = self.store.knowledge_entry(entry.id).await?.revision.to_string();
                Err(Error::Changed { what: "entry revision", requested: revision.to_string(), now })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Checks a plan against the knowledge base, as the task loop does before approval.
    pub(crate) async fn check_knowledge(
        &self,
        request: KnowledgeCheckRequest,
    ) -> Result<KnowledgeCheckResult, Error> {
        let project = self.resolve_project(request.project.as_deref()).await?;
        let rules = self.project_rules(&project.repository).await?;
        let index = match request.assume_approved {
            Some(id) => {
                Arc::new(self.index_with_entry_approved(project.id, KnowledgeId(id)).await?)
            }
            None => self.knowledge_cache.index(project.id).await?,
        };
        let task = Task {
            id: tamma_core::ids::TaskId(clock::new_id()),
            project: project.id,
            title: request.title,
            description: request.description,
            r#type: request.r#type,
            priority: Priority::default(),
            acceptance_criteria: Vec::new(),
            labels: Vec::new(),
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            issue_number: None,
            metadata: std::collections::BTreeMap::new(),
        };
        let result = index.check(&task, &request.plan, clock::now(), &rules);
        let lists = [
            (MatchRole::Blocker, &result.blockers),
            (MatchRole::Warning, &result.warnings),
            (MatchRole::Recommendation, &result.recommendations),
            (MatchRole::Convention, &result.conventions),
            (MatchRole::Learning, &result.learnings),
        ];
        let all = lists.into_iter().flat_map(|(role, list)| list.iter().map(move |it| (role, it)));
        let matches = all.filter_map(|(role, matched)| {
            Some(knowledge_match(role, matched, index.entry(matched.entry)?, false))
        });
        Ok(KnowledgeCheckResult { can_proceed: result.can_proceed(), matches: matches.collect() })
    }

    /// Builds the index of a project with one more entry treated as approved.
    async fn index_with_entry_approved(
        &self,
        project: ProjectId,
        id: KnowledgeId,
    ) -> Result<KnowledgeIndex, Error> {
        let filter = KnowledgeFilter { project: Some(project), ..KnowledgeFilter::default() };
        let stored = self.store.list_knowledge(&filter).await?;
        let mut entries: Vec<KnowledgeEntry> =
            stored.into_iter().map(|stored| stored.entry).collect();
        let assumed = entries.iter_mut().find(|entry| entry.id == id);
        let assumed =
            assumed.ok_or_else(|| Error::NotFound { what: "entry", key: short_id(id.0) })?;
        assumed.status = EntryStatus::Approved;
        Ok(KnowledgeIndex::new(entries))
    }

    /// Returns the entries that matched a plan when it was checked.
    pub(crate) async fn knowledge_matches(
        &self,
        task: TaskId,
        plan: PlanHash,
    ) -> Result<Vec<KnowledgeMatch>, Error> {
        let matches = self.store.plan_matches(task, plan).await?;
        let ids: Vec<_> = matches.iter().map(|it| it.matched.entry).collect();
        let stored = self.store.knowledge_by_ids(&ids).await?;
        let matches = matches.iter().filter_map(|it| {
            let stored = stored.iter().find(|stored| stored.entry.id == it.matched.entry)?;
            Some(knowledge_match(it.role, &it.matched, &stored.entry, it.shown))
        });
        Ok(matches.collect())
    }
}

fn knowledge_match(
    role: MatchRole,
    matched: &EntryMatch,
    entry: &KnowledgeEntry,
    shown: bool,
) -> KnowledgeMatch {
    KnowledgeMatch {
        role,
        id: entry.id.0,
        short: short_id(entry.id.0),
        text: entry.text.clone(),
        relevance: matched.relevance,
        reason_texts: matched.reasons.iter().map(ToString::to_string).collect(),
        reasons: matched.reasons.clone(),
        evidence: entry.evidence.iter().map(ToString::to_string).collect(),
        owner: entry.owner.as_ref().map(ToString::to_string),
        severity: entry.severity,
        shown_to_agents: shown,
    }
}

fn entry_detail(stored: StoredEntry) -> KnowledgeEntryDetail {
    let warnings = content_warnings(&stored.entry).iter().map(ToString::to_string).collect();
    KnowledgeEntryDetail {
        short: short_id(stored.entry.id.0),
        revision: stored.revision,
        warnings,
        created_at: stored.created_at,
        updated_at: stored.updated_at,
        changes: Vec::new(),
        effect: None,
        retirement_suggestions: Vec::new(),
        entry: stored.entry,
    }
}

/// Describes what a decision to give an entry a status causes.
pub(crate) fn decision_consequence(status: EntryStatus) -> &'static str {
    match status {
        EntryStatus::Pending => "It becomes pending and takes effect after approval.",
        EntryStatus::Approved => {
            "It applies to the knowledge check and the prompts of matching tasks."
        }
        EntryStatus::Rejected => {
            "It will have no effect. If it is proposed again, it stays rejected."
        }
        EntryStatus::Retired => {
            "It will have no effect. Its history stays, and it can be reopened."
        }
    }
}

/// Checks that an entry can be stored. Content warnings do not prevent that.
fn validate_entry(entry: &KnowledgeEntry) -> Result<(), Error> {
    if entry.text.trim().is_empty() || entry.text.chars().count() > MAX_TEXT_CHARS {
        return Err(Error::invalid(
            format!("The entry text must have 1 to {MAX_TEXT_CHARS} characters."),
            "Use a few sentences.",
        ));
    }
    let parts = || entry.globs.iter().chain(&entry.keywords).chain(&entry.pattern);
    let long = parts().any(|part| part.chars().count() > MAX_PART_CHARS);
    if parts().count() > MAX_PARTS || entry.evidence.len() > MAX_PARTS || long {
        return Err(Error::invalid(
            format!(
                "An entry can have up to {MAX_PARTS} globs and keywords and {MAX_PARTS} references, each up to \
                 {MAX_PART_CHARS} characters."
            ),
            "Split it into several entries, or use wider globs.",
        ));
    }
    // PostgreSQL cannot store NUL, and entries are stored verbatim.
    if entry.text.contains('\0') || parts().any(|part| part.contains('\0')) {
        return Err(Error::invalid("The entry contains a NUL character.", "Remove it."));
    }
    for warning in content_warnings(entry) {
        match warning {
            ContentWarning::Undecidable { condition } => {
                return Err(Error::invalid(
                    format!("`{condition}` is not a valid glob, pattern or keyword."),
                    "Write globs relative to the repository root, such as `src/**/*.rs`, and \
                     patterns as regular expressions.",
                ));
            }
            ContentWarning::Secret { form } => {
                return Err(Error::invalid(
                    format!("The entry contains what looks like {form}."),
                    "Remove it and rotate the secret: entries are shown to people and agents, and \
                     exported to files.",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn parse_name(text: &str) -> Result<Name, Error> {
    text.parse().map_err(|_| {
        Error::invalid(format!("`{text}` is not a valid name."), "Use 1 to 100 characters.")
    })
}

fn parse_reference(text: &str) -> Result<Reference, Error> {
    text.parse().map_err(|_| {
        let text: String = text.chars().take(40).collect();
        Error::invalid(
            format!("`{text}` is not valid evidence."),
            "Use a short reference, such as an event, a commit or a URL.",
        )
    })
}
