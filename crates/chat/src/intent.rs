//! What a message can ask for, and what to ask back where nobody can tell.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};
use tamma_core::ids::{KnowledgeId, TaskId};

use crate::change::Change;
use crate::context::Context;
use crate::order::Verb;

/// What a message asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Intent {
    /// How a task stands.
    Status {
        /// Which.
        task: TaskId,
    },
    /// Which tasks there are.
    List {
        /// Only these.
        which: Which,
        /// Only of this time.
        period: Option<Period>,
        /// Only those that speak of this.
        search: Option<String>,
    },
    /// What waits for the person.
    Inbox,
    /// What was spent.
    Cost {
        /// On which task; on all of them where none is named.
        task: Option<TaskId>,
        /// In which time.
        period: Option<Period>,
    },
    /// A piece of a task as it is.
    Show {
        /// Of which task.
        task: TaskId,
        /// Which piece.
        aspect: Aspect,
    },
    /// Something about the work that is to be answered from its record.
    Ask {
        /// About which task, if one can be told.
        task: Option<TaskId>,
        /// What about it.
        about: Topic,
    },
    /// What the team knows.
    Lessons {
        /// Only of this time.
        period: Option<Period>,
        /// Only what speaks of this.
        search: Option<String>,
    },
    /// How Tamma is used.
    Help,
    /// Nothing that wants anything done or looked up.
    Talk,
    /// Yes to what was just proposed.
    Confirm,
    /// No to what was just proposed.
    Decline,
    /// Something to be changed. It has to be proposed and confirmed.
    Change(Change),
    /// Nobody can tell, and this is what to ask back.
    Unclear(Unclear),
}

impl Intent {
    /// Its name; of a change, what is to be done.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Change(change) => change.name(),
            other => other.into(),
        }
    }
}

/// What to ask back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Unclear {
    /// Which of these tasks or lessons is meant?
    Which {
        /// The tasks it may be.
        tasks: Vec<TaskId>,
        /// The lessons it may be.
        lessons: Vec<KnowledgeId>,
    },
    /// This cannot be done to that task now; what else?
    DoesNotFit {
        /// The task.
        task: TaskId,
        /// What was asked for.
        verb: Verb,
    },
    /// There is no such task, or nothing that this could be done to; which one?
    UnknownTask {
        /// What it was called.
        said: String,
    },
    /// Which of these commands is meant?
    WhichCommand {
        /// They may be.
        verbs: Vec<Verb>,
    },
    /// Several things, or one for several tasks; which one first?
    OneAtATime,
    /// Nothing is kept for later: now, or not?
    Condition,
    /// Is that a wish, or a thought?
    Sure,
    /// Back to which state?
    WhereTo {
        /// The task.
        task: TaskId,
    },
    /// Why? It is needed for the log.
    Reason {
        /// The task.
        task: TaskId,
    },
    /// Nothing waits for a yes; yes to what?
    YesToWhat,
    /// What is to be done, or said?
    What,
}

impl Unclear {
    /// The question, in words.
    pub fn question(&self, context: &Context) -> String {
        let title = |id: &TaskId| {
            context.task(*id).map_or_else(|| id.to_string(), |task| format!("“{}”", task.title))
        };
        let or = |names: Vec<String>| names.join(" or ");
        match self {
            Self::Which { tasks, lessons } if lessons.is_empty() => {
                format!("Which one: {}?", or(tasks.iter().map(title).collect()))
            }
            Self::Which { lessons, .. } => {
                let text = |id: &KnowledgeId| {
                    context
                        .lesson(*id)
                        .map_or_else(|| id.to_string(), |it| format!("“{}”", it.text))
                };
                format!("Which lesson: {}?", or(lessons.iter().map(text).collect()))
            }
            Self::DoesNotFit { task, verb } => {
                let state = context.task(*task).map(|task| task.state.to_string());
                let state = state.unwrap_or_default().replace('_', " ");
                format!("{} is in {state}: {verb} does not fit there. What else?", title(task))
            }
            Self::UnknownTask { said } if said.is_empty() => {
                "There is no task that fits. Which one do you mean?".to_owned()
            }
            Self::UnknownTask { said } => format!("I know no “{said}”. Which task do you mean?"),
            Self::WhichCommand { verbs } => {
                format!("Do you mean {}?", or(verbs.iter().map(ToString::to_string).collect()))
            }
            Self::OneAtATime => "One thing at a time: which one first?".to_owned(),
            Self::Condition => {
                "I keep no wish for later. Shall I do it now, or will you tell me then?".to_owned()
            }
            Self::Sure => "Shall I, or are you thinking aloud?".to_owned(),
            Self::WhereTo { task } => format!("Back to which state shall {} go?", title(task)),
            Self::Reason { task } => format!("Why? The log of {} needs a reason.", title(task)),
            Self::YesToWhat => "Nothing waits for a yes. What shall I do?".to_owned(),
            Self::What => {
                "I do not understand what you want. Can you say it differently?".to_owned()
            }
        }
    }
}

/// Which tasks a list has.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "each is the one of its name")]
pub enum Which {
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

/// A span of time, as people name it. Whoever has a clock turns it into one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "each is the one of its name")]
pub enum Period {
    Today,
    Yesterday,
    ThisWeek,
    LastWeek,
    ThisMonth,
    LastMonth,
}

/// A piece of a task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "each is the one of its name")]
pub enum Aspect {
    Plan,
    Diff,
    Log,
    History,
    Report,
}

/// What a question about the work is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Topic {
    /// Why it failed, and what was tried.
    Failure,
    /// Who decided.
    People,
    /// What it waits for.
    Waiting,
    /// What was changed.
    Change,
    /// How risky it is.
    Risk,
    /// How long it took.
    Time,
    /// What the council said.
    Council,
    /// What the team knows about it.
    Knowledge,
    /// What would come of an answer.
    Consequence,
    /// How it went.
    Whole,
}
