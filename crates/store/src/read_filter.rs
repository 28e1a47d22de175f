//! Limit of a store handle to the projects that a caller can read.
//!
//! Lists apply it in SQL; single rows are checked by their project. A row outside it is missing, not
//! forbidden, so that nobody learns that it exists. Writes are not limited: use cases check them.

use std::sync::Arc;

use sqlx::types::Uuid;
use tamma_core::access::ProjectScope;
use tamma_core::ids::ProjectId;
use tamma_core::knowledge::EntryScope;

use crate::connection::Store;

/// Projects that the queries of a store can return.
#[derive(Debug, Clone)]
pub(crate) struct ReadFilter {
    all: bool,
    projects: Arc<[Uuid]>,
}

impl ReadFilter {
    /// Filter that excludes nothing.
    pub(crate) fn all() -> Self {
        Self { all: true, projects: Arc::new([]) }
    }
}

impl Store {
    /// Returns a handle that reads nothing outside these projects.
    #[must_use]
    pub fn limited_to(&self, scope: &ProjectScope) -> Self {
        let filter = match scope {
            ProjectScope::All => ReadFilter::all(),
            ProjectScope::Only(projects) => ReadFilter {
                all: false,
                projects: projects.iter().map(|project| project.0).collect(),
            },
        };
        Self { filter, ..self.clone() }
    }

    /// Returns true if queries need no filter.
    pub(crate) fn reads_all(&self) -> bool {
        self.filter.all
    }

    /// Returns the projects that queries can return, unless they need no filter.
    pub(crate) fn readable_projects(&self) -> &[Uuid] {
        &self.filter.projects
    }

    /// Returns true if rows of a project can be returned.
    pub(crate) fn can_read(&self, project: ProjectId) -> bool {
        self.filter.all || self.filter.projects.contains(&project.0)
    }

    /// Returns true if knowledge of this scope can be returned. The organisation's entries are for
    /// everybody who can read a project.
    pub(crate) fn can_read_entry(&self, scope: EntryScope) -> bool {
        match scope {
            EntryScope::Project(project) => self.can_read(project),
            EntryScope::Organisation => self.filter.all || !self.filter.projects.is_empty(),
        }
    }
}
