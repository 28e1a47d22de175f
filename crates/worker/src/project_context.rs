//! Project on this machine: its configuration and its mirror.

use std::collections::BTreeMap;
use std::path::Path;

use tamma_core::operator::OperatorConfig;
use tamma_core::repository_address::{RepositoryAddress, hide_url_credentials};
use tamma_core::rules::{self, Rules};
use tamma_engine::git::Git;
use tamma_engine::mirror::{self, KnownCommits, Mirror};
use tamma_engine::sparse::SparseFolders;
use tamma_store::RegisteredProject;

use crate::error::Error;
use crate::project_config::CONFIG_FILE;

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
    /// Loads the configuration from the text of its file, if there is one. It is refused if it asks for
    /// more than the operator of this machine allows.
    pub(crate) fn load(
        project: RegisteredProject,
        text: Option<&str>,
        environment: &BTreeMap<String, String>,
        operator: &OperatorConfig,
    ) -> Result<Self, Error> {
        let name = format!("{}/{CONFIG_FILE}", hide_url_credentials(&project.repository));
        let file = text.map(|text| rules::ConfigFile { name: &name, text });
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

    #[test]
    fn a_worker_refuses_a_project_that_asks_for_more_than_its_operator_allows() {
        let text = "engines:\n  sandbox: off\nagents:\n  codex:\n    key: TAMMA_TOKEN\n";
        let project = RegisteredProject {
            id: ProjectId(uuid::Uuid::nil()),
            name: "greedy".to_owned(),
            repository: "https://forge.example/acme/greedy".to_owned(),
        };
        let environment = [("TAMMA_TOKEN".to_owned(), "hush-hush".to_owned())].into();
        let load = |operator: &OperatorConfig| {
            let loaded = ProjectContext::load(project.clone(), Some(text), &environment, operator);
            loaded.expect_err("refused").to_string()
        };
        let refused = load(&OperatorConfig::default());
        assert!(refused.contains("2:12: `engines.sandbox` is not allowed here"), "{refused}");
        assert!(refused.contains("5:10: `agents.codex.key` is not allowed here"), "{refused}");
        assert!(!refused.contains("hush"), "{refused}");
        let weak = OperatorConfig::parse("weakest_sandbox: off").expect("valid");
        let refused = load(&weak);
        assert!(!refused.contains("sandbox") && refused.contains("agents.codex.key"), "{refused}");
    }
}
