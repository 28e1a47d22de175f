//! The rules a project's tasks run under, as they are when a task comes in.

use std::path::Path;

use tamma_core::rules::{self, Alerts, Problem, Problems, Rules, Source};

use super::{App, Error};
use crate::problem::Fault;

const NAME: &str = "tamma.yaml";

impl App {
    /// What a repository says about alerts, with the addresses and keys of those who get them.
    pub(crate) async fn alerts_of(&self, repository: &str) -> Result<Alerts, Error> {
        Ok(self.rules_with_secrets(repository).await?.scrum_master.alerts)
    }

    /// The rules of a repository, without the secrets in them.
    pub(crate) async fn rules_of(&self, repository: &str) -> Result<Rules, Error> {
        Ok(self.rules_with_secrets(repository).await?.without_secrets())
    }

    /// The rules of a repository: its file, where it is a folder of this machine that has one, and
    /// the environment over it.
    async fn rules_with_secrets(&self, repository: &str) -> Result<Rules, Error> {
        let path = Path::new(repository.strip_prefix("file://").unwrap_or(repository)).join(NAME);
        let text = match tokio::fs::read(&path).await {
            Ok(bytes) => Some(String::from_utf8(bytes).map_err(|_| not_text(&path))?),
            // An address is no folder either, and has no file here.
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
        let source = text.as_deref().map(|text| Source { name: NAME, text });
        match rules::load(source, &self.environment) {
            Ok(loaded) => Ok(loaded.rules),
            Err(problems) => Err(broken(&path, &problems)),
        }
    }
}

fn broken(path: &Path, problems: &Problems) -> Error {
    let faults = problems.iter().map(fault).collect();
    Error::Rules { file: path.display().to_string(), faults }
}

fn fault(problem: &Problem) -> Fault {
    let place = problem.place();
    let message = match problem.variable() {
        Some(variable) => format!("{variable} in the environment: {problem}"),
        None => problem.to_string(),
    };
    Fault {
        message,
        help: problem.fault.help(),
        line: place.map(|at| at.line),
        column: place.map(|at| at.column),
    }
}

fn not_text(path: &Path) -> Error {
    let detail = format!("{} is not UTF-8 text.", path.display());
    Error::invalid(detail, "Save the file as UTF-8, and add the task again.")
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let detail = format!("The server cannot read {}: {error}.", path.display());
    Error::invalid(detail, "Let the server's user read the file, and add the task again.")
}
