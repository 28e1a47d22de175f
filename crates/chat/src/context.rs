//! What can be spoken of: tasks, and what the team knows.

use serde::{Deserialize, Serialize};
use tamma_core::ids::{CommitId, KnowledgeId, PlanHash, TaskId};
use tamma_core::knowledge::Status;
use tamma_core::task_loop::{Answer, State};

/// What can be spoken of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The tasks.
    #[serde(default)]
    pub tasks: Vec<Subject>,
    /// What the team knows, or is asked to approve.
    #[serde(default)]
    pub lessons: Vec<Lesson>,
    /// The task that was spoken of last.
    #[serde(default)]
    pub last: Option<TaskId>,
    /// Whether a command has just been shown and waits for a yes.
    #[serde(default)]
    pub proposed: bool,
}

/// A task as far as it can be spoken of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Its identity.
    pub id: TaskId,
    /// The number it has on the list that the person sees, if they see one.
    #[serde(default)]
    pub number: Option<u32>,
    /// Its title.
    pub title: String,
    /// Where it is.
    pub state: State,
    /// Whether it is paused.
    #[serde(default)]
    pub paused: bool,
    /// What a person may answer now; nothing where it does not wait for one.
    #[serde(default)]
    pub answers: Vec<Answer>,
    /// The plan that is there now, which an approval names.
    #[serde(default)]
    pub plan: Option<PlanHash>,
    /// The commit that is there now, which a review names.
    #[serde(default)]
    pub commit: Option<CommitId>,
    /// The number of the question that is open. What is asked anew is not what was answered, even if
    /// the plan is the same again.
    #[serde(default)]
    pub question: Option<u32>,
}

/// An entry of the knowledge base as far as it can be spoken of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// Its identity.
    pub id: KnowledgeId,
    /// What it says.
    pub text: String,
    /// Where it stands.
    pub status: Status,
}

impl Context {
    /// A task by its identity.
    pub fn task(&self, id: TaskId) -> Option<&Subject> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// A lesson by its identity.
    pub fn lesson(&self, id: KnowledgeId) -> Option<&Lesson> {
        self.lessons.iter().find(|lesson| lesson.id == id)
    }
}
