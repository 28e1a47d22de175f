//! Loading the rules of a project.

use std::path::{Path, PathBuf};

use tamma_core::repository_address::hide_url_credentials;
use tamma_core::rules::{self, AlertRules, ConfigFile, ConfigProblem, ConfigProblems, Rules};

use super::{App, Error};
use crate::problem::FileProblem;

const CONFIG_FILE: &str = "tamma.yaml";

impl App {
    /// Loads the alert rules of a repository, including receiver addresses and secrets.
    pub(crate) async fn alert_rules(&self, repository: &str) -> Result<AlertRules, Error> {
        Ok(self.rules_with_secrets(repository).await?.scrum_master.alerts)
    }

    /// Loads the rules of a repository, without secrets.
    pub(crate) async fn project_rules(&self, repository: &str) -> Result<Rules, Error> {
        Ok(self.rules_with_secrets(repository).await?.without_secrets())
    }

    /// Loads the rules of a repository from its file and from the environment, which takes precedence.
    pub(super) async fn rules_with_secrets(&self, repository: &str) -> Result<Rules, Error> {
        let path = config_path(repository);
        let text = self.config_text(repository).await?;
        let source = text.as_deref().map(|text| ConfigFile { name: CONFIG_FILE, text });
        match rules::load(source, &self.environment, &self.operator) {
            Ok(loaded) => Ok(loaded.rules),
            Err(problems) => Err(config_error(&path, &problems)),
        }
    }

    /// Returns whether a repository has a configuration.
    pub(super) async fn has_config(&self, repository: &str) -> Result<bool, Error> {
        Ok(self.config_text(repository).await?.is_some())
    }

    /// Reads the configuration of a repository, if it has one.
    async fn config_text(&self, repository: &str) -> Result<Option<String>, Error> {
        match &self.read_remote_config {
            Some(read) if is_remote(repository) => {
                let read = read(repository.to_owned()).await;
                read.map_err(|reason| Error::Unavailable {
                    what: "the repository of the project",
                    source: reason.into(),
                })
            }
            _ => read_local_config(&config_path(repository)).await,
        }
    }
}

/// Reads the configuration of a local repository, if it has one.
async fn read_local_config(path: &Path) -> Result<Option<String>, Error> {
    match tokio::fs::read(path).await {
        Ok(bytes) => Ok(Some(String::from_utf8(bytes).map_err(|_| not_utf8(path))?)),
        // A remote URL has no file on this machine.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Returns `true` for addresses of other machines.
fn is_remote(repository: &str) -> bool {
    !repository.starts_with('/') && !repository.starts_with("file://")
}

fn config_path(repository: &str) -> PathBuf {
    let repository = hide_url_credentials(repository);
    Path::new(repository.strip_prefix("file://").unwrap_or(&repository)).join(CONFIG_FILE)
}

fn config_error(path: &Path, problems: &ConfigProblems) -> Error {
    let problems = problems.iter().map(file_problem).collect();
    Error::InvalidConfig { file: path.display().to_string(), problems }
}

fn file_problem(problem: &ConfigProblem) -> FileProblem {
    let location = problem.location();
    let message = match problem.variable() {
        Some(variable) => format!("environment variable {variable}: {problem}"),
        None => problem.to_string(),
    };
    FileProblem {
        message,
        help: problem.fault.help(),
        line: location.map(|at| at.line),
        column: location.map(|at| at.column),
    }
}

fn not_utf8(path: &Path) -> Error {
    let detail = format!("Cannot read {}: it is not UTF-8 text.", path.display());
    Error::invalid(detail, "Save the file as UTF-8, then try again.")
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let detail = format!("Cannot read {}: {error}.", path.display());
    Error::invalid(detail, "Make the file readable for the server's user, then try again.")
}
