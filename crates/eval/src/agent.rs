//! Scripted agents: `oracle` applies the known patch, `idle` does nothing, and `stand-in` takes the
//! places of planner and validator where an evaluation measures an agent without them.
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
}

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
    /// New content; `None` if the file is deleted or only planned.
    #[serde(default)]
    pub content: Option<String>,
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
            changes.push(ScriptedChange { path, action, content });
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
                    std::fs::write(&path, content)?;
                }
                (FileAction::Create | FileAction::Modify, None) => {}
            }
        }
        Ok(())
    }
}
