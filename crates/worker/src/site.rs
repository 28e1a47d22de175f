//! One project on this machine: its rules, and our own copy of its repository.

use std::collections::BTreeMap;
use std::path::Path;

use tamma_core::rules::{self, Rules};
use tamma_engine::git::Git;
use tamma_engine::mirror::{Known, Mirror};
use tamma_store::Project;

use crate::error::Error;

/// The name of the configuration in a repository.
const FILE: &str = "tamma.yaml";

/// A project on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// The project.
    pub(crate) project: Project,
    /// What its configuration says now, with its secrets. For which programs to run; decisions are
    /// made under the rules that the task is pinned to.
    pub(crate) rules: Rules,
}

impl Site {
    /// Reads the configuration from the project's own folder. An agent never writes there: it has
    /// a worktree of its own.
    pub(crate) async fn of(
        project: Project,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let path = Path::new(&project.repository).join(FILE);
        let text = match tokio::fs::read_to_string(&path).await {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            // A repository that is not a folder here has no file here.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => None,
            Err(error) => return Err(Error::Configuration(format!("{}: {error}", path.display()))),
        };
        let name = path.display().to_string();
        let file = text.as_deref().map(|text| rules::Source { name: &name, text });
        let loaded = rules::load(file, environment)
            .map_err(|problems| Error::Configuration(problems.to_string()))?;
        Ok(Self { project, rules: loaded.rules })
    }

    /// Our own copy of the repository.
    pub(crate) async fn mirror(
        &self,
        git: &Git,
        data: &Path,
        known: &Known,
    ) -> Result<Mirror, Error> {
        let Project { id, repository, .. } = &self.project;
        Ok(Mirror::open_knowing(git.clone(), data, *id, repository, known).await?)
    }
}
