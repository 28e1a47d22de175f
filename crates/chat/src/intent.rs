//! Intents of a message, and clarifying questions for unclear ones.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};
use tamma_core::format::humanize;
use tamma_core::ids::{KnowledgeId, PipelineId, TaskId};

use crate::change::RequestedChange;
use crate::command_parser::Verb;
use crate::context::ChatContext;

/// Intent of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Intent {
    /// Status of a task.
    Status {
        /// Task to look up.
        task: TaskId,
    },
    /// List of tasks.
    List {
        /// Selection by state.
        #[serde(rename = "which")]
        selection: TaskSelection,
        /// Period to list; `None` for all time.
        period: Option<Period>,
        /// Text to search for.
        search: Option<String>,
    },
    /// Decisions waiting on the person.
    Inbox,
    /// Amount spent.
    Cost {
        /// Task to look up; `None` for all tasks.
        task: Option<TaskId>,
        /// Period to count; `None` for all time.
        period: Option<Period>,
    },
    /// One aspect of a task, such as its plan.
    Show {
        /// Task to look up.
        task: TaskId,
        /// Aspect to show.
        aspect: Aspect,
    },
    /// Question about the work, answered from the task history.
    Ask {
        /// Task in question, if one can be identified.
        task: Option<TaskId>,
        /// Topic of the question.
        #[serde(rename = "about")]
        topic: Topic,
    },
    /// Entries of the knowledge base.
    Lessons {
        /// Period to list; `None` for all time.
        period: Option<Period>,
        /// Text to search for.
        search: Option<String>,
    },
    /// Status of a story's pipeline.
    StoryStatus {
        /// Pipeline to look up.
        pipeline: PipelineId,
    },
    /// List of pipelines.
    Stories,
    /// List of open pull requests.
    PullRequests,
    /// Entries of the merge queue.
    MergeQueue,
    /// Help with using Tamma.
    Help,
    /// General talk; nothing to do or look up.
    Talk,
    /// Confirmation of the proposal just shown.
    Confirm,
    /// Rejection of the proposal just shown.
    Decline,
    /// Change, which must be proposed and confirmed.
    Change(RequestedChange),
    /// Unclear message, with the question to ask.
    Unclear(Clarification),
}

impl Intent {
    /// Returns the name of the intent; for a change, the name of its action.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Change(change) => change.name(),
            other => other.into(),
        }
    }
}

/// Clarifying question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Clarification {
    /// Several tasks or lessons match.
    #[serde(rename = "which")]
    #[strum(serialize = "which")]
    WhichTask {
        /// Matching tasks.
        tasks: Vec<TaskId>,
        /// Matching lessons.
        lessons: Vec<KnowledgeId>,
    },
    /// The action is not possible in the task's current state.
    #[serde(rename = "does_not_fit")]
    #[strum(serialize = "does_not_fit")]
    NotApplicable {
        /// Task that was named.
        task: TaskId,
        /// Action that was requested.
        verb: Verb,
    },
    /// No task matches, or none that allows the action.
    UnknownTask {
        /// Description that the person used.
        #[serde(rename = "said")]
        description: String,
    },
    /// Several commands match.
    WhichCommand {
        /// Matching commands.
        verbs: Vec<Verb>,
    },
    /// Several requests in one message, or one request for several tasks.
    OneAtATime,
    /// Conditional or scheduled request, which is not supported.
    Condition,
    /// Possibly a request, possibly a remark.
    #[serde(rename = "sure")]
    #[strum(serialize = "sure")]
    ConfirmIntent,
    /// Target state of a rollback is missing.
    #[serde(rename = "where_to")]
    #[strum(serialize = "where_to")]
    RollBackTarget {
        /// Task to roll back.
        task: TaskId,
    },
    /// Reason is missing; the history requires one.
    #[serde(rename = "reason")]
    #[strum(serialize = "reason")]
    MissingReason {
        /// Task that was named.
        task: TaskId,
    },
    /// The action is not possible in the story's current state.
    StoryState {
        /// Pipeline of the story.
        pipeline: PipelineId,
    },
    /// Story of a run is missing.
    MissingStory,
    /// Folder of the feature is missing.
    MissingFeature {
        /// ID of the story.
        story_id: String,
    },
    /// Number of stars is missing.
    #[serde(rename = "rating")]
    #[strum(serialize = "rating")]
    MissingRating {
        /// Task to rate.
        task: TaskId,
    },
    /// Question to the council is missing.
    #[serde(rename = "council_question")]
    #[strum(serialize = "council_question")]
    MissingQuestion {
        /// Task that the council should analyse.
        task: TaskId,
    },
    /// Confirmation without a pending proposal.
    #[serde(rename = "yes_to_what")]
    #[strum(serialize = "yes_to_what")]
    NothingToConfirm,
    /// Message not understood.
    #[serde(rename = "what")]
    #[strum(serialize = "what")]
    NotUnderstood,
}

impl Clarification {
    /// Returns the question as text.
    pub fn question(&self, context: &ChatContext) -> String {
        let title = |id: &TaskId| {
            let Some(task) = context.task(*id) else { return id.to_string() };
            let same = context.tasks.iter().filter(|it| it.title == task.title).count();
            // Only the ID tells tasks of the same title apart.
            let digits = id.to_string();
            let digits = digits.get(digits.len().saturating_sub(8)..).unwrap_or_default();
            if same > 1 {
                format!("“{}” ({digits})", task.title)
            } else {
                format!("“{}”", task.title)
            }
        };
        let or = |names: Vec<String>| names.join(" or ");
        match self {
            Self::WhichTask { tasks, lessons } if lessons.is_empty() => {
                format!("Which one: {}?", or(tasks.iter().map(title).collect()))
            }
            Self::WhichTask { lessons, .. } => {
                let text = |id: &KnowledgeId| {
                    context
                        .lesson(*id)
                        .map_or_else(|| id.to_string(), |lesson| format!("“{}”", lesson.text))
                };
                format!("Which lesson: {}?", or(lessons.iter().map(text).collect()))
            }
            Self::NotApplicable { task, verb } => {
                let state = context.task(*task).map(|task| task.state.to_string());
                let state = humanize(&state.unwrap_or_default());
                format!(
                    "{} is in state {state}, so {verb} is not possible. What should I do instead?",
                    title(task)
                )
            }
            Self::UnknownTask { description } if description.is_empty() => {
                "No matching task. Which one do you mean?".to_owned()
            }
            Self::UnknownTask { description } => {
                format!("I can't find “{description}”. Which task do you mean?")
            }
            Self::WhichCommand { verbs } => {
                format!("Do you mean {}?", or(verbs.iter().map(ToString::to_string).collect()))
            }
            Self::OneAtATime => "I can only do one thing at a time. Which one first?".to_owned(),
            Self::Condition => {
                "I can't schedule actions. Do it now, or ask me again later?".to_owned()
            }
            Self::ConfirmIntent => "Should I do that now?".to_owned(),
            Self::RollBackTarget { task } => {
                format!("Which state should {} go back to?", title(task))
            }
            Self::MissingReason { task } => {
                format!("Why? The history of {} needs a reason.", title(task))
            }
            Self::StoryState { pipeline } => match context.story(*pipeline) {
                Some(story) => format!(
                    "{} is {}, so that is not possible. What should I do instead?",
                    story.story_id, story.state
                ),
                None => "That is not possible now. What should I do instead?".to_owned(),
            },
            Self::MissingStory => "Which story? Give its ID, such as WISH-001.".to_owned(),
            Self::MissingFeature { story_id } => format!(
                "Which feature is {story_id} in? Give its folder, such as plans/features/wishlist."
            ),
            Self::MissingRating { task } => {
                format!("How many stars does {} get, 1 to 5?", title(task))
            }
            Self::MissingQuestion { task } => {
                format!("What should the council answer about {}?", title(task))
            }
            Self::NothingToConfirm => "There is nothing to confirm. What should I do?".to_owned(),
            Self::NotUnderstood => "I didn't understand that. Can you rephrase it?".to_owned(),
        }
    }
}

/// Selection of tasks in a list.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "names are self-explanatory")]
pub enum TaskSelection {
    Open,
    All,
    Running,
    Queued,
    Planning,
    Review,
    Paused,
    Stuck,
    Failed,
    Completed,
    Cancelled,
}

/// Period as people name it. The server, which has a clock, turns it into dates.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "names are self-explanatory")]
pub enum Period {
    Today,
    Yesterday,
    ThisWeek,
    LastWeek,
    ThisMonth,
    LastMonth,
}

/// Aspect of a task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "names are self-explanatory")]
pub enum Aspect {
    Plan,
    Diff,
    Log,
    History,
    Report,
}

/// Topic of a question about the work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Topic {
    /// Failures and attempts.
    Failure,
    /// People who decided.
    People,
    /// Reason for waiting.
    Waiting,
    /// Content of the change.
    Change,
    /// Risk.
    Risk,
    /// Duration.
    Time,
    /// Council's conclusion.
    Council,
    /// Related entries of the knowledge base.
    Knowledge,
    /// Consequence of an answer.
    Consequence,
    /// Summary of the task.
    #[serde(rename = "whole")]
    #[strum(serialize = "whole")]
    Overview,
}
