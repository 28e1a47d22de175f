//! What a message would change, and the exact command that stands for it.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};
use tamma_core::budget::Grant;
use tamma_core::cost::Usd;
use tamma_core::ids::{KnowledgeId, TaskId};
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::State;

use crate::Context;

/// What is written where a command needs a reason and the person gave none.
const NO_REASON: &str = "said in the chat, without a reason";

/// Something to be changed. It does nothing by itself: see [`Proposal`](crate::Proposal).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Something is done to a task.
    Task {
        /// Which.
        task: TaskId,
        /// What.
        act: Act,
    },
    /// There is a new task.
    Add(NewTask),
    /// An entry of the knowledge base is decided on.
    Lesson {
        /// Which.
        lesson: KnowledgeId,
        /// How.
        decision: Decision,
        /// Why, if they say so.
        reason: Option<String>,
    },
}

/// What is done to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "each is the action of its name, with what the person said")]
pub enum Act {
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
}

/// A new task, as far as a message describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// What is wanted, in one line.
    pub title: String,
    /// What else was said.
    pub description: Option<String>,
    /// What kind of work it seems to be.
    pub r#type: TaskType,
    /// How urgent it is, if they say so.
    pub priority: Option<Priority>,
}

/// What is decided of an entry of the knowledge base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "each is the one of its name")]
pub enum Decision {
    Approve,
    Reject,
    Retire,
}

impl Change {
    /// What is to be done, as a name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Task { act, .. } => act.into(),
            Self::Add(_) => "add",
            Self::Lesson { decision: Decision::Approve, .. } => "approve_lesson",
            Self::Lesson { decision: Decision::Reject, .. } => "reject_lesson",
            Self::Lesson { decision: Decision::Retire, .. } => "retire_lesson",
        }
    }

    /// The command that does exactly this. It names the plan or the commit that is there now, so
    /// that another one is not approved in its place.
    pub fn command(&self, context: &Context) -> CommandLine {
        match self {
            Self::Task { task, act } => act.command(*task, context),
            Self::Add(new) => new.command(),
            Self::Lesson { lesson, decision, reason } => {
                CommandLine::of(&["knowledge", &decision.to_string(), &lesson.to_string()])
                    .option("reason", reason.as_deref())
            }
        }
    }
}

impl Act {
    fn command(&self, task: TaskId, context: &Context) -> CommandLine {
        let subject = context.task(task);
        let plan = subject.and_then(|it| it.plan).map(|hash| hash.short());
        let commit = subject.and_then(|it| it.commit).map(|commit| commit.to_string());
        let id = &*task.to_string();
        let why = |reason: &Option<String>| reason.clone().unwrap_or_else(|| NO_REASON.to_owned());
        let answer = |word: &str| CommandLine::of(&["answer", id, word]);
        match self {
            Self::Approve { reason } => CommandLine::of(&["approve", id])
                .option("plan", plan.as_deref())
                .option("reason", reason.as_deref()),
            Self::Reject { reason } => CommandLine::of(&["reject", id])
                .option("plan", plan.as_deref())
                .option("reason", Some(&why(reason))),
            Self::Accept { reason } => answer("accept")
                .option("commit", commit.as_deref())
                .option("reason", reason.as_deref()),
            Self::Rework { reason } => answer("rework")
                .option("commit", commit.as_deref())
                .option("reason", Some(&why(reason))),
            Self::Override { reason } => {
                answer("override").option("plan", plan.as_deref()).option("reason", Some(reason))
            }
            Self::Modify { words } => CommandLine::of(&["modify", id, "--", words]),
            Self::Reply { words } => CommandLine::of(&["reply", id, "--", words]),
            Self::Pause => CommandLine::of(&["pause", id]),
            Self::Resume => CommandLine::of(&["resume", id]),
            Self::Cancel { reason } => {
                CommandLine::of(&["cancel", id]).option("reason", Some(&why(reason)))
            }
            Self::Retry { grant } => CommandLine::of(&["retry", id]).grant(grant),
            Self::Continue { grant } => answer("continue").grant(grant),
            Self::RollBack { to, reason } => answer("roll-back")
                .option("to", Some(&to.to_string()))
                .option("reason", Some(&why(reason))),
            Self::Skip { reason } => answer("skip").option("reason", Some(&why(reason))),
            Self::Abandon { reason } => answer("abandon").option("reason", Some(&why(reason))),
            Self::Acknowledge => answer("acknowledge"),
        }
    }
}

impl NewTask {
    fn command(&self) -> CommandLine {
        let mut line = CommandLine::of(&["task", "add"])
            .option("type", Some(&self.r#type.to_string()))
            .option("priority", self.priority.map(|it| it.to_string()).as_deref())
            .option("description", self.description.as_deref());
        line.0.extend(["--".to_owned(), self.title.clone()]);
        line
    }
}

/// A command, word by word. Written out, it can be pasted into a shell and does the same there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    fn of(words: &[&str]) -> Self {
        Self(std::iter::once("tamma").chain(words.iter().copied()).map(str::to_owned).collect())
    }

    /// An option with its value in one word, so that a value that begins with a dash stays a value.
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

    /// Its words, `tamma` first.
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
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
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
