//! Loading the rules of a project.

use std::path::{Path, PathBuf};

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

    /// Loads the rules of a repository from its file, if it is a local directory with one, and from
    /// the environment, which takes precedence.
    pub(super) async fn rules_with_secrets(&self, repository: &str) -> Result<Rules, Error> {
        let path = config_path(repository);
        let text = match tokio::fs::read(&path).await {
            Ok(bytes) => Some(String::from_utf8(bytes).map_err(|_| not_utf8(&path))?),
            // A remote URL has no file on this machine.
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                None
            }
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let source = text.as_deref().map(|text| ConfigFile { name: CONFIG_FILE, text });
        match rules::load(source, &self.environment, &self.operator) {
            Ok(loaded) => Ok(loaded.rules),
            Err(problems) => Err(config_error(&path, &problems)),
        }
    }
}

/// Returns whether a repository is a local directory with a configuration.
pub(super) async fn has_config(repository: &str) -> bool {
    tokio::fs::try_exists(config_path(repository)).await.unwrap_or(true)
}

fn config_path(repository: &str) -> PathBuf {
    Path::new(repository.strip_prefix("file://").unwrap_or(repository)).join(CONFIG_FILE)
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
