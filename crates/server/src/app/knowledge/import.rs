//! Taking in what was exported.

use std::collections::{BTreeSet, HashSet};

use tamma_core::ids::ProjectId;
use tamma_core::knowledge::{Entry, Scope, Status, hazards};
use tamma_core::rules::Right;
use tamma_store::{Deed, Known};

use super::{App, By, Error, sound};
use crate::shape::{KnowledgeImport, KnowledgeImported, short};

impl App {
    /// Takes in what was exported. Everything is as it was, with its status: who imports a file has
    /// read it, as with any file of the repository. Only what is doubtful waits for approval.
    ///
    /// Nothing is taken in if something of it cannot be.
    pub(crate) async fn import_knowledge(
        &self,
        import: KnowledgeImport,
        by: &By,
    ) -> Result<KnowledgeImported, Error> {
        let into = match &import.project {
            Some(project) => Some(self.project(Some(project)).await?.id),
            None => None,
        };
        let projects: BTreeSet<ProjectId> =
            self.store.projects().await?.into_iter().map(|project| project.id).collect();
        let ids: Vec<_> = import.entries.iter().map(|entry| entry.id).collect();
        let there = self.store.knowledge_of(&ids).await?;
        let mut done = KnowledgeImported::default();
        let mut permitted = HashSet::new();
        let mut changes: Vec<(Entry, Option<&Known>)> = Vec::new();
        for mut entry in import.entries {
            let name = short(entry.id.0);
            sound(&entry).map_err(|error| whose(&name, error))?;
            if let Scope::Project(id) = &mut entry.scope {
                *id = into.unwrap_or(*id);
                if !projects.contains(id) {
                    return Err(Error::invalid(
                        format!("The entry {name} is of a project that is not here: {id}."),
                        "Name the project that it belongs to: `--project`.",
                    ));
                }
            }
            let before = there.iter().find(|known| known.entry.id == entry.id);
            // What is imported is as it was, so it may be approved already.
            for scope in before.map(|known| known.entry.scope).into_iter().chain([entry.scope]) {
                if permitted.insert(scope) {
                    self.permit_scope(by, Right::Decide, scope).await?;
                }
            }
            if before.is_some_and(|known| known.entry == entry) {
                done.same += 1;
                continue;
            }
            let doubts = hazards(&entry);
            let waits = entry.status == Status::Approved && !import.despite && !doubts.is_empty();
            if waits {
                entry.status = Status::Pending;
            }
            match before {
                Some(known) if known.entry == entry => {
                    done.same += 1;
                    continue;
                }
                Some(known) => {
                    done.changed += 1;
                    done.notes.push(format!("{name}: {}", difference(&known.entry, &entry)));
                }
                None => done.added += 1,
            }
            if waits {
                let doubts: Vec<_> = doubts.iter().map(ToString::to_string).collect();
                done.notes.push(format!("{name}: waits for approval: {}", doubts.join("; ")));
            }
            changes.push((entry, before));
        }
        if import.dry_run {
            return Ok(done);
        }
        for (entry, before) in changes {
            if let Some(known) = before {
                self.write_entry(&entry, known.revision, Deed::Imported, by, None).await?;
            } else {
                let by = Some(by.as_str());
                self.store.add_knowledge(&entry, Deed::Imported, by, None).await?;
            }
        }
        Ok(done)
    }
}

/// What an import changes of an entry, in words.
fn difference(before: &Entry, after: &Entry) -> String {
    let mut all = Vec::new();
    if before.status != after.status {
        all.push(format!("{} becomes {}", before.status, after.status));
    }
    let rest = Entry { status: after.status, ..before.clone() };
    if rest != *after {
        let says = if before.text == after.text { "is about" } else { "says" };
        all.push(format!("{says} something else now"));
    }
    all.join(", ")
}

/// An error with the entry that it is about.
fn whose(name: &str, error: Error) -> Error {
    match error {
        Error::Invalid { detail, what_to_do } => {
            Error::Invalid { detail: format!("The entry {name}: {detail}"), what_to_do }
        }
        error => error,
    }
}
