//! Import of exported knowledge entries.

use std::collections::{BTreeSet, HashSet};

use tamma_core::ids::ProjectId;
use tamma_core::knowledge::{EntryScope, EntryStatus, KnowledgeEntry, content_warnings};
use tamma_core::rules::Permission;
use tamma_store::{KnowledgeAction, StoredEntry};

use super::{App, Error, Principal, validate_entry};
use crate::dto::{KnowledgeImportRequest, KnowledgeImportResult, short_id};

impl App {
    /// Imports exported entries with their status, because the importer is trusted to have read
    /// them. Approved entries with content warnings become pending.
    ///
    /// If one entry is refused, nothing is imported.
    pub(crate) async fn import_knowledge(
        &self,
        import: KnowledgeImportRequest,
        by: &Principal,
    ) -> Result<KnowledgeImportResult, Error> {
        let into = match &import.project {
            Some(project) => Some(self.resolve_project(Some(project)).await?.id),
            None => None,
        };
        let projects: BTreeSet<ProjectId> =
            self.store.projects().await?.into_iter().map(|project| project.id).collect();
        let ids: Vec<_> = import.entries.iter().map(|entry| entry.id).collect();
        let there = self.store.knowledge_by_ids(&ids).await?;
        let mut done = KnowledgeImportResult::default();
        let mut permitted = HashSet::new();
        let mut changes: Vec<(KnowledgeEntry, Option<&StoredEntry>)> = Vec::new();
        for mut entry in import.entries {
            let name = short_id(entry.id.0);
            validate_entry(&entry).map_err(|error| with_entry_name(&name, error))?;
            if let EntryScope::Project(id) = &mut entry.scope {
                *id = into.unwrap_or(*id);
                if !projects.contains(id) {
                    return Err(Error::invalid(
                        format!("Entry {name} belongs to project {id}, which is not registered."),
                        "Name the target project (`--project`).",
                    ));
                }
            }
            let before = there.iter().find(|known| known.entry.id == entry.id);
            // Imported entries can already be approved, so both scopes need the permission to decide.
            for scope in before.map(|known| known.entry.scope).into_iter().chain([entry.scope]) {
                if permitted.insert(scope) {
                    self.authorize_scope(by, Permission::Decide, scope).await?;
                }
            }
            if before.is_some_and(|known| known.entry == entry) {
                done.unchanged += 1;
                continue;
            }
            let doubts = content_warnings(&entry);
            let waits = entry.status == EntryStatus::Approved
                && !import.ignore_warnings
                && !doubts.is_empty();
            if waits {
                entry.status = EntryStatus::Pending;
            }
            match before {
                Some(known) if known.entry == entry => {
                    done.unchanged += 1;
                    continue;
                }
                Some(known) => {
                    done.changed += 1;
                    done.notes
                        .push(format!("{name}: {}", describe_difference(&known.entry, &entry)));
                }
                None => done.added += 1,
            }
            if waits {
                let doubts: Vec<_> = doubts.iter().map(ToString::to_string).collect();
                done.notes.push(format!("{name}: needs approval: {}", doubts.join("; ")));
            }
            changes.push((entry, before));
        }
        if import.dry_run {
            return Ok(done);
        }
        for (entry, before) in changes {
            if let Some(known) = before {
                self.save_entry(&entry, known.revision, KnowledgeAction::Imported, by, None)
                    .await?;
            } else {
                let by = Some(by.as_str());
                self.store.add_knowledge(&entry, KnowledgeAction::Imported, by, None).await?;
            }
        }
        Ok(done)
    }
}

/// Describes how an import changes an entry.
fn describe_difference(before: &KnowledgeEntry, after: &KnowledgeEntry) -> String {
    let mut all = Vec::new();
    if before.status != after.status {
        all.push(format!("status changes from {} to {}", before.status, after.status));
    }
    let rest = KnowledgeEntry { status: after.status, ..before.clone() };
    if rest != *after {
        let says = if before.text == after.text { "details" } else { "text" };
        all.push(format!("{says} changed"));
    }
    all.join(", ")
}

/// Adds the entry's name to an error.
fn with_entry_name(name: &str, error: Error) -> Error {
    match error {
        Error::Invalid { detail, hint: what_to_do } => {
            Error::Invalid { detail: format!("Entry {name}: {detail}"), hint: what_to_do }
        }
        error => error,
    }
}
