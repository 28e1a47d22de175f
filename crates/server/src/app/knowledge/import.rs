//! Import of exported knowledge entries.

use std::collections::{BTreeSet, HashSet};

use tamma_core::access::Permission;
use tamma_core::ids::ProjectId;
use tamma_core::knowledge::{EntryScope, EntryStatus, KnowledgeEntry, content_warnings};
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
        let target = self.project_filter(import.project.as_deref()).await?;
        let projects: BTreeSet<ProjectId> =
            self.store.projects().await?.into_iter().map(|project| project.id).collect();
        let ids: Vec<_> = import.entries.iter().map(|entry| entry.id).collect();
        let existing = self.store.knowledge_by_ids(&ids).await?;
        let mut result = KnowledgeImportResult::default();
        let mut permitted = HashSet::new();
        let mut changes: Vec<(KnowledgeEntry, Option<&StoredEntry>)> = Vec::new();
        for mut entry in import.entries {
            let name = short_id(entry.id.0);
            validate_entry(&entry).map_err(|error| with_entry_name(&name, error))?;
            if let EntryScope::Project(id) = &mut entry.scope {
                *id = target.unwrap_or(*id);
                if !projects.contains(id) {
                    return Err(Error::invalid(
                        format!("Entry {name} belongs to project {id}, which is not registered."),
                        "Name the target project (`--project`).",
                    ));
                }
            }
            let before = existing.iter().find(|stored| stored.entry.id == entry.id);
            // Imported entries can already be approved, so both scopes need the permission to decide.
            for scope in before.map(|stored| stored.entry.scope).into_iter().chain([entry.scope]) {
                if permitted.insert(scope) {
                    self.authorize_scope(by, Permission::Decide, scope).await?;
                }
            }
            if before.is_some_and(|stored| stored.entry == entry) {
                result.unchanged += 1;
                continue;
            }
            let warnings = content_warnings(&entry);
            let needs_approval = entry.status == EntryStatus::Approved
                && !import.ignore_warnings
                && !warnings.is_empty();
            if needs_approval {
                entry.status = EntryStatus::Pending;
            }
            match before {
                Some(stored) if stored.entry == entry => {
                    result.unchanged += 1;
                    continue;
                }
                Some(stored) => {
                    result.changed += 1;
                    result
                        .notes
                        .push(format!("{name}: {}", describe_difference(&stored.entry, &entry)));
                }
                None => result.added += 1,
            }
            if needs_approval {
                let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
                result.notes.push(format!("{name}: needs approval: {}", warnings.join("; ")));
            }
            changes.push((entry, before));
        }
        if import.dry_run {
            return Ok(result);
        }
        for (entry, before) in changes {
            if let Some(stored) = before {
                self.save_entry(&entry, stored.revision, KnowledgeAction::Imported, by, None)
                    .await?;
            } else {
                let by = Some(by.as_str());
                self.store.add_knowledge(&entry, KnowledgeAction::Imported, by, None).await?;
            }
        }
        Ok(result)
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
        let part = if before.text == after.text { "details" } else { "text" };
        all.push(format!("{part} changed"));
    }
    all.join(", ")
}

/// Adds the entry's name to an error.
fn with_entry_name(name: &str, error: Error) -> Error {
    match error {
        Error::Invalid { detail, hint } => {
            Error::Invalid { detail: format!("Entry {name}: {detail}"), hint }
        }
        error => error,
    }
}
