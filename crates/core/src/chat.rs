//! What a person's message asks for, by a small grammar.
//!
//! [`understand`] takes a message for one [`Intent`]: something to look up, something to change, talk,
//! or [`Intent::Unclear`] with the question to ask back. It never guesses between two tasks, and what
//! is negated, supposed, quoted or told of others is never a change: a change is read only where one
//! of the [`VERBS`] stands where an order stands, after nothing but polite words.
//!
//! A [`Change`] does nothing. It becomes a [`Proposal`], which shows the exact command, and only a
//! person's yes to that proposal makes it [`Confirmed`], which is what a face of Tamma may carry out.
//! A model that understands better than this grammar ([`question`], [`answered`]) hands in the same
//! `Change` and gets no further.

mod change;
mod model;
mod order;
mod proposal;
mod reading;
mod refer;
mod request;
mod words;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

pub use self::change::{Act, Change, CommandLine, Decision, NewTask};
pub use self::model::{Nonsense, Question, answered, question};
pub use self::order::{VERBS, Verb};
pub use self::proposal::{Confirmed, Conversation, Heard, Proposal, Unconfirmed};
use self::words::Own;
use crate::ids::{CommitId, KnowledgeId, PlanHash, TaskId};
use crate::knowledge::Status;
use crate::task_loop::{Answer, State};

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

/// What a message was taken for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Understood {
    /// What it asks for.
    pub intent: Intent,
    /// How sure the grammar is, 0 to 100. It only says so: nothing is done or left because of it.
    pub confidence: u8,
    /// What it went by, for people.
    pub why: String,
}

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

/// Takes a message for what it asks for.
pub fn understand(message: &str, context: &Context) -> Understood {
    let own = Own::of(message);
    reading::yes_or_no(&own, context)
        .or_else(|| request::read(&own, context))
        .unwrap_or_else(|| reading::read(&own, context))
}

/// What one of these words has in common with the words of a text.
fn shared(words: &BTreeSet<String>, text: &BTreeSet<String>) -> BTreeSet<String> {
    words
        .iter()
        .filter(|word| text.iter().any(|other| refer::alike(word, other)))
        .cloned()
        .collect()
}

fn understood(intent: Intent, confidence: u8, why: impl Into<String>) -> Understood {
    Understood { intent, confidence, why: why.into() }
}
