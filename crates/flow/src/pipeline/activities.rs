//! Activity interface of the pipeline's workflow.
//!
//! Serialised names are part of recorded workflow histories, so they never change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tamma_core::ids::{CommitId, Name, PipelineId, PolicyVersion, ProjectId, Reference, TaskId};
use tamma_core::pipeline::{PhaseRecord, PipelineEvent, PipelineRun, StoryTask};
use tamma_core::pipeline_alert::PipelineAlert;
use tamma_core::time::Timestamp;
use temporalio_common::ActivityDefinition;

use crate::activities::is_zero;

/// Activity names. Recorded histories contain them, so they never change.
pub mod names {
    /// Name of [`RecordPipelineActivity`](super::RecordPipelineActivity).
    pub const RECORD: &str = "pipeline_record";
    /// Name of [`PrepareActivity`](super::PrepareActivity).
    pub const PREPARE: &str = "pipeline_prepare";
    /// Name of [`PhaseActivity`](super::PhaseActivity).
    pub const PHASE: &str = "pipeline_phase";
    /// Name of [`StoryTasksActivity`](super::StoryTasksActivity).
    pub const STORY_TASKS: &str = "pipeline_tasks";
    /// Name of [`MergeTaskActivity`](super::MergeTaskActivity).
    pub const MERGE_TASK: &str = "pipeline_merge_task";
    /// Name of [`CancelTasksActivity`](super::CancelTasksActivity).
    pub const CANCEL_TASKS: &str = "pipeline_cancel_tasks";
    /// Name of [`FinishActivity`](super::FinishActivity).
    pub const FINISH: &str = "pipeline_finish";
}

/// Run as the database keeps it. Saving it twice, or after a newer one, has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineSnapshot {
    /// Pipeline of the story.
    pub pipeline: PipelineId,
    /// Number of the run of this story, from 1.
    pub number: u32,
    /// Number of events applied to the run.
    pub revision: u64,
    /// Time of the snapshot.
    pub at: Timestamp,
    /// Person who started the run.
    pub started_by: Name,
    /// Start of the run.
    pub started_at: Timestamp,
    /// The run.
    pub run: PipelineRun,
    /// Base commit and folder of the story, once they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<PreparedStory>,
    /// Delivered branch, once the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<DeliveredStory>,
    /// Set while the story's files and branch are delivered, after the last phase has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finishing: bool,
    /// Alert about the state of the run, if it needs a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<PipelineAlert>,
}

/// Story that phases can run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedStory {
    /// Commit that the story's branch starts from.
    pub base: CommitId,
    /// Folder of the story, from the root of the repository.
    pub story_path: String,
    /// Records of phases that the story's files contain.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub records: BTreeMap<u8, PhaseRecord>,
}

/// Branch of a story in the project's repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredStory {
    /// Name of the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Delivered commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// Reason why the branch was not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Request to prepare a story, to run one of its phases, or to end its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRequest {
    /// Pipeline of the story.
    pub pipeline: PipelineId,
    /// Project of the story.
    pub project: ProjectId,
    /// Policy version of the rules that the run is pinned to.
    pub policy: PolicyVersion,
    /// Person who started the run.
    pub started_by: Name,
    /// Base commit, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<CommitId>,
    /// Folder of the story, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub story_path: Option<String>,
    /// The run when the activity was requested.
    pub run: PipelineRun,
    /// Number of the phase.
    pub phase: u8,
    /// Number of the job; 0 for the preparation.
    pub job_number: u32,
    /// Added to the attempt number of the activity. A phase that is requested again is a new activity, whose
    /// attempts start again at 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub earlier_attempts: u32,
}

/// Result of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseResult {
    /// Phase ended.
    Ended {
        /// Time of the end.
        at: Timestamp,
        /// Event for the pipeline.
        event: Box<PipelineEvent>,
    },
    /// Phase cannot run yet; the workflow requests it again after this delay.
    RetryAfter {
        /// Delay, in seconds.
        seconds: u32,
        /// Attempts that began to run the phase.
        #[serde(default)]
        attempts: u32,
    },
}

/// Request for tasks of a split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoryTasksRequest {
    /// Stored split.
    pub split: Reference,
    /// Keys of the tasks.
    pub keys: Vec<String>,
}

/// Request to merge a completed task into its story's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRequest {
    /// Story of the task.
    pub story: PhaseRequest,
    /// Completed task.
    pub task: TaskId,
}

/// Result of a merge. Merging a task again has no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedTask {
    /// Reason why the task was not merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Request to cancel the tasks of a story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelTasksRequest {
    /// Pipeline of the story.
    pub pipeline: PipelineId,
    /// ID of the story.
    pub story_id: String,
    /// Tasks that may still be open.
    pub tasks: Vec<TaskId>,
    /// Person who cancelled the pipeline.
    pub by: Name,
}

macro_rules! define_activity {
    ($(#[$doc:meta])* $type:ident $name:ident $input:ty => $output:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $type;

        impl ActivityDefinition for $type {
            type Input = $input;
            type Output = $output;

            fn name(&self) -> &str {
                names::$name
            }
        }
    };
}

define_activity! {
    /// Activity that saves a run.
    RecordPipelineActivity RECORD PipelineSnapshot => ()
}
define_activity! {
    /// Activity that prepares a story.
    PrepareActivity PREPARE PhaseRequest => PreparedStory
}
define_activity! {
    /// Activity that runs a phase.
    PhaseActivity PHASE PhaseRequest => PhaseResult
}
define_activity! {
    /// Activity that loads tasks of a split.
    StoryTasksActivity STORY_TASKS StoryTasksRequest => Vec<StoryTask>
}
define_activity! {
    /// Activity that merges a completed task into its story's branch.
    MergeTaskActivity MERGE_TASK MergeRequest => MergedTask
}
define_activity! {
    /// Activity that cancels the tasks of a story.
    CancelTasksActivity CANCEL_TASKS CancelTasksRequest => ()
}
define_activity! {
    /// Activity that writes the story's files at the end of a run and delivers its branch.
    FinishActivity FINISH PhaseRequest => DeliveredStory
}
