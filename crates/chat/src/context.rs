//! Tasks and lessons that a message can refer to.

use serde::{Deserialize, Serialize};
use tamma_core::ids::{CommitId, KnowledgeId, PipelineId, PlanHash, TaskId};
use tamma_core::knowledge::EntryStatus;
use tamma_core::task_loop::{AnswerKind, State};

use crate::change::StoryAction;

/// Tasks and lessons that a message can refer to, and the state of the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatContext {
    /// Tasks of the project.
    #[serde(default)]
    pub tasks: Vec<ChatTask>,
    /// Approved and proposed entries of the knowledge base.
    #[serde(default)]
    pub lessons: Vec<ChatLesson>,
    /// Stories with a pipeline.
    #[serde(default)]
    pub stories: Vec<ChatStory>,
    /// Task that was mentioned last.
    #[serde(default)]
    pub last: Option<TaskId>,
    /// A command has just been shown and awaits confirmation.
    #[serde(default)]
    pub proposed: bool,
}

/// Task, with what a message can refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTask {
    /// ID of the task.
    pub id: TaskId,
    /// Number of the task in the list that the person sees, if any.
    #[serde(default)]
    pub number: Option<u32>,
    /// Title.
    pub title: String,
    /// Current state.
    pub state: State,
    /// The task is paused.
    #[serde(default)]
    pub paused: bool,
    /// Possible answers to the open question; empty if there is none.
    #[serde(default)]
    pub answers: Vec<AnswerKind>,
    /// Current plan, which an approval names.
    #[serde(default)]
    pub plan: Option<PlanHash>,
    /// Current commit, which a review names.
    #[serde(default)]
    pub commit: Option<CommitId>,
    /// Number of the open question. A repeated question has a new number, even for the same plan.
    #[serde(default)]
    pub question: Option<u32>,
}

/// Entry of the knowledge base, with what a message can refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatLesson {
    /// ID of the entry.
    pub id: KnowledgeId,
    /// Text of the entry.
    pub text: String,
    /// Status of the entry.
    pub status: EntryStatus,
}

/// Story with its pipeline, with what a message can refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatStory {
    /// ID of the pipeline.
    pub id: PipelineId,
    /// ID of the story.
    pub story_id: String,
    /// Folder of the feature.
    pub feature_dir: String,
    /// Name of the project.
    pub project: String,
    /// State in words.
    pub state: String,
    /// Number of the run.
    pub run: u32,
    /// Actions that are possible now.
    #[serde(default)]
    pub actions: Vec<StoryAction>,
}

impl ChatContext {
    /// Returns the story with this pipeline.
    pub fn story(&self, id: PipelineId) -> Option<&ChatStory> {
        self.stories.iter().find(|story| story.id == id)
    }

    /// Returns the task with this ID.
    pub fn task(&self, id: TaskId) -> Option<&ChatTask> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// Returns the lesson with this ID.
    pub fn lesson(&self, id: KnowledgeId) -> Option<&ChatLesson> {
        self.lessons.iter().find(|lesson| lesson.id == id)
    }
}
