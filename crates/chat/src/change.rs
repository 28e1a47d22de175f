//! Changes that a message can request, and the exact command of each.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};
use tamma_core::budget::Grant;
use tamma_core::cost::Usd;
use tamma_core::ids::{KnowledgeId, PipelineId, TaskId};
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::State;

use crate::ChatContext;

/// Recorded if a command needs a reason and the person gave none.
const NO_REASON: &str = "requested in chat, no reason given";

/// Change that a message requests. It has no effect by itself: see [`Proposal`](crate::Proposal).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedChange {
    /// Action on a task.
    Task {
        /// Task to change.
        task: TaskId,
        /// Action with its arguments.
        #[serde(rename = "act")]
        action: ChatAction,
    },
    /// New task.
    Add(TaskDraft),
    /// New run of a story's pipeline.
    RunPipeline(PipelineDraft),
    /// Action on a story's pipeline.
    Story {
        /// Pipeline of the story.
        pipeline: PipelineId,
        /// Action.
        action: StoryAction,
    },
    /// Decision on an entry of the knowledge base.
    Lesson {
        /// Entry to decide on.
        lesson: KnowledgeId,
        /// Decision.
        decision: LessonDecision,
        /// Reason, if the person gave one.
        reason: Option<String>,
    },
}

/// Action on a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "named after actions, with the person's words")]
pub enum ChatAction {
    Approve { reason: Option<String> },
    Reject { reason: Option<String> },
    Accept { reason: Option<String> },
    Rework { reason: Option<String> },
    Override { reason: String },
    Modify { words: String },
    Reply { words: String },
    Pause,
    Resume,
    Cancel { reason: Option<String> },
    Retry { grant: Grant },
    Continue { grant: Grant },
    RollBack { to: State, reason: Option<String> },
    Skip { reason: Option<String> },
    Abandon { reason: Option<String> },
    Acknowledge,
    Rate { stars: u8, reason: Option<String> },
    Convene { question: String },
}

/// New task, as far as a message describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDraft {
    /// Title, on one line.
    pub title: String,
    /// Further text of the message.
    pub description: Option<String>,
    /// Type, guessed from the words.
    pub r#type: TaskType,
    /// Priority, if the person gave one.
    pub priority: Option<Priority>,
}

/// Run of a pipeline, as far as a message describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineDraft {
    /// Name of the project, if the story is known.
    pub project: Option<String>,
    /// Folder of the feature.
    pub feature_dir: String,
    /// ID of the story.
    pub story_id: String,
    /// First phase, if the person gave one.
    pub from: Option<u8>,
    /// Last phase, if the person gave one.
    pub to: Option<u8>,
    /// Phases that need approval before they start.
    pub approve: Vec<u8>,
}

/// Action on a story's pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "names are self-explanatory")]
pub enum StoryAction {
    Continue,
    Skip,
    Stop,
    Cancel,
    Resume,
}

/// Decision on an entry of the knowledge base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "names are self-explanatory")]
pub enum LessonDecision {
    Approve,
    Reject,
    Retire,
}

impl RequestedChange {
    /// Returns the name of the action.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Task { action, .. } => action.into(),
            Self::Add(_) => "add",
            Self::RunPipeline(_) => "run_pipeline",
            Self::Story { action, .. } => action.into(),
            Self::Lesson { decision: LessonDecision::Approve, .. } => "approve_lesson",
            Self::Lesson { decision: LessonDecision::Reject, .. } => "reject_lesson",
            Self::Lesson { decision: LessonDecision::Retire, .. } => "retire_lesson",
        }
    }

    /// Returns the command that makes exactly this change. It names the current plan or commit, so
    /// that no other one can be approved instead.
    pub fn command(&self, context: &ChatContext) -> CommandLine {
        match self {
            Self::Task { task, action } => action.command(*task, context),
            Self::Add(draft) => draft.command(),
            Self::RunPipeline(draft) => draft.command(),
            Self::Story { pipeline, action } => {
                let (id, word) = (pipeline.to_string(), action.to_string());
                match action {
                    StoryAction::Continue | StoryAction::Skip | StoryAction::Stop => {
                        CommandLine::new(&["pipeline", "answer", &id, &word])
                    }
                    StoryAction::Cancel | StoryAction::Resume => {
                        CommandLine::new(&["pipeline", &word, &id])
                    }
                }
            }
            Self::Lesson { lesson, decision, reason } => {
                CommandLine::new(&["knowledge", &decision.to_string(), &lesson.to_string()])
                    .option("reason", reason.as_deref())
            }
        }
    }
}

impl ChatAction {
    fn command(&self, task: TaskId, context: &ChatContext) -> CommandLine {
        let subject = context.task(task);
        let plan = subject.and_then(|task| task.plan).map(|hash| hash.short());
        let commit = subject.and_then(|task| task.commit).map(|commit| commit.to_string());
        let id = &*task.to_string();
        let reason_or_default =
            |reason: &Option<String>| reason.clone().unwrap_or_else(|| NO_REASON.to_owned());
        let answer = |word: &str| CommandLine::new(&["answer", id, word]);
        match self {
            Self::Approve { reason } => CommandLine::new(&["approve", id])
                .option("plan", plan.as_deref())
                .option("reason", reason.as_deref()),
            Self::Reject { reason } => CommandLine::new(&["reject", id])
                .option("plan", plan.as_deref())
                .option("reason", Some(&reason_or_default(reason))),
            Self::Accept { reason } => answer("accept")
                .option("commit", commit.as_deref())
                .option("reason", reason.as_deref()),
            Self::Rework { reason } => answer("request-changes")
                .option("commit", commit.as_deref())
                .option("reason", Some(&reason_or_default(reason))),
            Self::Override { reason } => {
                answer("override").option("plan", plan.as_deref()).option("reason", Some(reason))
            }
            Self::Modify { words } => CommandLine::new(&["change-task", id, "--", words]),
            Self::Reply { words } => CommandLine::new(&["reply", id, "--", words]),
            Self::Pause => CommandLine::new(&["pause", id]),
            Self::Resume => CommandLine::new(&["resume", id]),
            Self::Cancel { reason } => {
                CommandLine::new(&["cancel", id]).option("reason", Some(&reason_or_default(reason)))
            }
            Self::Retry { grant } => CommandLine::new(&["retry", id]).grant(grant),
            Self::Continue { grant } => answer("continue").grant(grant),
            Self::RollBack { to, reason } => answer("roll-back")
                .option("to", Some(&to.to_string()))
                .option("reason", Some(&reason_or_default(reason))),
            Self::Skip { reason } => {
                answer("skip").option("reason", Some(&reason_or_default(reason)))
            }
            Self::Abandon { reason } => {
                answer("abandon").option("reason", Some(&reason_or_default(reason)))
            }
            Self::Acknowledge => answer("acknowledge"),
            Self::Rate { stars, reason } => CommandLine::new(&["rate", id, &stars.to_string()])
                .option("reason", reason.as_deref()),
            Self::Convene { question } => CommandLine::new(&["council", id, "--", question]),
        }
    }
}

impl TaskDraft {
    fn command(&self) -> CommandLine {
        let mut line = CommandLine::new(&["task", "add"])
            .option("type", Some(&self.r#type.to_string()))
            .option("priority", self.priority.map(|priority| priority.to_string()).as_deref())
            .option("description", self.description.as_deref());
        line.0.extend(["--".to_owned(), self.title.clone()]);
        line
    }
}

impl PipelineDraft {
    fn command(&self) -> CommandLine {
        let text = |number: Option<u8>| number.map(|number| number.to_string());
        let gates: Vec<_> = self.approve.iter().map(ToString::to_string).collect();
        let gates = (!gates.is_empty()).then(|| gates.join(","));
        CommandLine::new(&["pipeline", "run", &self.feature_dir, &self.story_id])
            .option("from", text(self.from).as_deref())
            .option("to", text(self.to).as_deref())
            .option("approve", gates.as_deref())
            .option("project", self.project.as_deref())
    }
}

/// Command as separate words. Its text form can be pasted into a shell and has the same effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    fn new(words: &[&str]) -> Self {
        Self(std::iter::once("tamma").chain(words.iter().copied()).map(str::to_owned).collect())
    }

    /// Adds an option and its value as one word, so that a value with a leading dash stays a value.
    fn option(mut self, name: &str, value: Option<&str>) -> Self {
        self.0.extend(value.map(|value| format!("--{name}={value}")));
        self
    }

    fn grant(self, grant: &Grant) -> Self {
        let usd = (grant.usd != Usd::ZERO).then(|| grant.usd.to_string().replace('$', ""));
        let runs = (grant.iterations > 0).then(|| grant.iterations.to_string());
        let tokens = (grant.tokens > 0).then(|| grant.tokens.to_string());
        self.option("grant-usd", usd.as_deref())
            .option("grant-runs", runs.as_deref())
            .option("grant-tokens", tokens.as_deref())
    }

    /// Returns the words, starting with `tamma`.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
            if !word.is_empty() && word.chars().all(is_safe) {
                f.write_str(word)?;
            } else if let Some((name, value)) =
                word.split_once('=').filter(|(name, _)| name.starts_with("--"))
            {
                write!(f, "{name}='{}'", value.replace('\'', r"'\''"))?;
            } else {
                write!(f, "'{}'", word.replace('\'', r"'\''"))?;
            }
        }
        Ok(())
    }
}
