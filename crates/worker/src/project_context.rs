//! Project on this machine: its configuration and its mirror.

use std::collections::BTreeMap;
use std::path::Path;

use tamma_core::operator::OperatorConfig;
use tamma_core::repository_address::RepositoryAddress;
use tamma_core::rules::{self, Rules};
use tamma_engine::git::Git;
use tamma_engine::mirror::{self, KnownCommits, Mirror};
use tamma_engine::sparse::SparseFolders;
use tamma_store::RegisteredProject;

use crate::error::Error;

/// File name of the configuration in a repository.
const CONFIG_FILE: &str = "tamma.yaml";

/// Project on this machine.
#[derive(Debug, Clone)]
pub(crate) struct ProjectContext {
    /// Stored project.
    pub(crate) project: RegisteredProject,
    /// Current configuration with secrets, used to select programs. Decisions use the rules that
    /// the task is pinned to.
    pub(crate) rules: Rules,
}

impl ProjectContext {
    /// Loads the configuration from the project's own directory, which agents cannot write. It is
    /// refused if it asks for more than the operator of this machine allows.
    pub(crate) async fn load(
        project: RegisteredProject,
        environment: &BTreeMap<String, String>,
        operator: &OperatorConfig,
    ) -> Result<Self, Error> {
        let path = Path::new(&project.repository).join(CONFIG_FILE);
        let text = match tokio::fs::read_to_string(&path).await {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            // A remote repository has no local file.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => None,
            Err(error) => return Err(Error::Configuration(format!("{}: {error}", path.display()))),
        };
        let name = path.display().to_string();
        let file = text.as_deref().map(|text| rules::ConfigFile { name: &name, text });
        let loaded = rules::load(file, environment, operator)
            .map_err(|problems| Error::Configuration(problems.to_string()))?;
        Ok(Self { project, rules: loaded.rules })
    }

    /// Opens the mirror of the repository.
    pub(crate) async fn mirror(
        &self,
        git: &Git,
        data: &Path,
        known_commits: &KnownCommits,
    ) -> Result<Mirror, Error> {
        let RegisteredProject { id, repository, .. } = &self.project;
        let sparse = SparseFolders::new(&self.rules.checkout.sparse);
        let source: RepositoryAddress = repository.parse().map_err(mirror::Error::from)?;
        let mirror = Mirror::open_with_cache(git.clone(), data, *id, &source, known_commits);
        Ok(mirror.await?.with_sparse(sparse))
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::ids::ProjectId;

    use super::*;

    #[tokio::test]
    async fn a_worker_refuses_a_project_that_asks_for_more_than_its_operator_allows() {
        let folder = tempfile::tempdir().expect("folder");
        let text = "engines:\n  sandbox: off\nagents:\n  codex:\n    key: TAMMA_TOKEN\n";
        std::fs::write(folder.path().join(CONFIG_FILE), text).expect("written");
        let project = RegisteredProject {
            id: ProjectId(uuid::Uuid::nil()),
            name: "greedy".to_owned(),
            repository: folder.path().display().to_string(),
        };
        let environment = [("TAMMA_TOKEN".to_owned(), "hush-hush".to_owned())].into();
        let load = async |operator: &OperatorConfig| {
            let loaded = ProjectContext::load(project.clone(), &environment, operator).await;
            loaded.expect_err("refused").to_string()
        };
        let refused = load(&OperatorConfig::default()).await;
        assert!(refused.contains("2:12: `engines.sandbox` is not allowed here"), "{refused}");
        assert!(refused.contains("5:10: `agents.codex.key` is not allowed here"), "{refused}");
        assert!(!refused.contains("hush"), "{refused}");
        let weak = OperatorConfig::parse("weakest_sandbox: off").expect("valid");
        let refused = load(&weak).await;
        assert!(!refused.contains("sandbox") && refused.contains("agents.codex.key"), "{refused}");
    }
}
