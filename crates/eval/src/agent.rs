//! Scripted agents: `oracle` applies the known patch, `idle` does nothing, `stand-in` takes the places of
//! planner and validator where an evaluation measures an agent without them, and `demo` shows the task
//! loop without a model.
//!
//! They speak the Agent Client Protocol on standard input and output, and submit through the tools of
//! their session like any agent. They recognise the kind of a run by the tools that it offers, and
//! the form of a submission by the schema of its tool.

mod session;
mod submissions;
mod tool_client;

use std::path::Path;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use tamma_core::plan::FileAction;

use crate::Error;
use crate::task_set::{ExpectedOutcome, OracleNotes, TaskFiles};

pub use session::serve;

/// Behaviour of a scripted agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display, EnumString)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ScriptedRole {
    /// Solves the task with the known patch.
    Oracle,
    /// Ends every turn at once.
    Idle,
    /// Plans without knowing anything, and judges nothing.
    StandIn,
    /// Follows the script of an example project.
    Demo,
}

/// Choice of a script by the prompt.
pub(crate) type ScriptChoice = Box<dyn Fn(&str) -> AgentScript + Send + Sync>;

/// Script of the agents for one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentScript {
    /// Outcome that counts as solved.
    pub expected: ExpectedOutcome,
    /// Acceptance criteria of the task.
    pub criteria: Vec<String>,
    /// Reply to the question of the agent.
    #[serde(default)]
    pub answer: Option<String>,
    /// Texts of the submissions.
    #[serde(default)]
    pub notes: OracleNotes,
    /// Changed files.
    #[serde(default)]
    pub changes: Vec<ScriptedChange>,
}

/// Change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptedChange {
    /// Path from the root of the repository.
    pub path: String,
    /// Action on the file.
    pub action: FileAction,
    /// Purpose in the plan; `None` for the summary of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// New content; `None` if the file is deleted or only planned.
    #[serde(default)]
    pub content: Option<String>,
    /// Content that the first attempt writes instead. The next attempt finds it and replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_attempt: Option<String>,
}

impl AgentScript {
    /// Returns the script for `stand-in`. It contains nothing that the task does not say.
    pub fn without_solution(task: &TaskFiles) -> Self {
        Self {
            expected: task.task.expected,
            criteria: task.task.criteria.clone(),
            answer: None,
            notes: OracleNotes::default(),
            changes: Vec::new(),
        }
    }

    /// Returns the script for `oracle`. `solved` contains the files with the known patch applied.
    pub fn with_solution(task: &TaskFiles, solved: &Path) -> Result<Self, Error> {
        let mut changes = Vec::new();
        for (path, action) in task.oracle_files() {
            let content = match action {
                FileAction::Create | FileAction::Modify if task.oracle_patch().is_some() => {
                    let file = solved.join(&path);
                    Some(std::fs::read_to_string(&file).map_err(Error::disk("read", &file))?)
                }
                _ => None,
            };
            let (description, first_attempt) = (None, None);
            changes.push(ScriptedChange { path, action, description, content, first_attempt });
        }
        Ok(Self {
            answer: task.task.answer.clone(),
            notes: task.task.oracle.clone(),
            changes,
            ..Self::without_solution(task)
        })
    }

    /// Writes the script to a file.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        std::fs::write(path, bytes).map_err(Error::disk("write", path))
    }

    /// Reads the script from a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(Error::disk("read", path))?;
        serde_json::from_slice(&bytes)
            .map_err(|source| Error::Stored { path: path.to_owned(), source })
    }

    /// Makes the changes in a working directory.
    fn apply(&self, folder: &Path) -> std::io::Result<()> {
        for change in &self.changes {
            let path = folder.join(&change.path);
            match (change.action, &change.content) {
                (FileAction::Delete, _) => match std::fs::remove_file(&path) {
                    // A run before this one has deleted it.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed?,
                },
                (FileAction::Create | FileAction::Modify, Some(content)) => {
                    if let Some(above) = path.parent() {
                        std::fs::create_dir_all(above)?;
                    }
                    let is_second = |first: &String| {
                        std::fs::read_to_string(&path).is_ok_and(|found| found == *first)
                    };
                    let first = change.first_attempt.as_ref().filter(|first| !is_second(first));
                    std::fs::write(&path, first.unwrap_or(content))?;
                }
                (FileAction::Create | FileAction::Modify, None) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_attempt_replaces_the_first_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = AgentScript {
            expected: ExpectedOutcome::Delivered,
            criteria: Vec::new(),
            answer: None,
            notes: OracleNotes::default(),
            changes: vec![ScriptedChange {
                path: "deep/a.sh".to_owned(),
                action: FileAction::Create,
                description: None,
                content: Some("right\n".to_owned()),
                first_attempt: Some("wrong\n".to_owned()),
            }],
        };
        for expected in ["wrong\n", "right\n"] {
            script.apply(folder.path()).expect("written");
            let found = std::fs::read_to_string(folder.path().join("deep/a.sh")).expect("there");
            assert_eq!(found, expected);
        }
    }
}
