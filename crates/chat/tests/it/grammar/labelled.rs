//! Labelled messages of `lab/inputs/chat`, and their comparison with the grammar's interpretation.
//! The `chat` experiment of the lab uses this file too.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use tamma_chat::{
    ChatAction, ChatContext, ChatLesson, ChatTask, Intent, Interpretation, RequestedChange,
    interpret,
};
use tamma_core::ids::{KnowledgeId, TaskId};

const MESSAGES: &str = include_str!("../../../../../lab/inputs/chat/messages.yaml");
const SEEN: &str = include_str!("../../../../../lab/inputs/chat/blind.jsonl");
const BLIND: &str = include_str!("../../../../../lab/inputs/chat/blind2.jsonl");
const WORDINGS: &str = include_str!("../../../../../lab/inputs/chat/wordings.yaml");
const WORLDS: &str = include_str!("../../../../../lab/inputs/chat/worlds.yaml");

#[derive(Debug, Deserialize)]
pub(crate) struct World {
    tasks: Vec<Keyed<ChatTask>>,
    lessons: Vec<Keyed<ChatLesson>>,
}

#[derive(Debug, Deserialize)]
struct Keyed<T> {
    key: String,
    #[serde(flatten)]
    it: T,
}

/// Message with its labels; see lab/inputs/chat/README.md.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: String,
    /// Part of the set. Only the YAML files have it.
    #[serde(default)]
    pub(crate) split: String,
    pub(crate) text: String,
    #[serde(default = "shop")]
    pub(crate) world: String,
    pub(crate) last: Option<String>,
    #[serde(default)]
    pub(crate) proposed: bool,
    pub(crate) intent: String,
    #[serde(flatten)]
    pub(crate) slots: BTreeMap<String, Slot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Slot {
    Text(String),
    Number(u32),
    Several(Vec<String>),
}

fn shop() -> String {
    "shop".to_owned()
}

pub(crate) fn worlds() -> &'static BTreeMap<String, World> {
    static READ: LazyLock<BTreeMap<String, World>> =
        LazyLock::new(|| serde_saphyr::from_str(WORLDS).expect("valid worlds"));
    &READ
}

pub(crate) fn messages() -> &'static [Message] {
    static READ: LazyLock<Vec<Message>> =
        LazyLock::new(|| serde_saphyr::from_str(MESSAGES).expect("valid messages"));
    &READ
}

/// Wordings of the author of the grammar, all of which it reads.
pub(crate) fn wordings() -> &'static [Message] {
    static READ: LazyLock<Vec<Message>> =
        LazyLock::new(|| serde_saphyr::from_str(WORDINGS).expect("valid wordings"));
    &READ
}

/// Messages of the first blind run. The grammar has learned from them since.
pub(crate) fn seen_messages() -> &'static [Message] {
    static READ: LazyLock<Vec<Message>> = LazyLock::new(|| read_lines(SEEN, "seen"));
    &READ
}

/// Messages of an author who has not seen the grammar, measured and never tuned on. The file is empty
/// until the set is written. A message that another set has too is left out.
pub(crate) fn blind_messages() -> &'static [Message] {
    static READ: LazyLock<Vec<Message>> = LazyLock::new(|| {
        let known = || messages().iter().chain(wordings()).chain(seen_messages());
        let mut blind = read_lines(BLIND, "blind 2");
        blind.retain(|message| {
            !known().any(|other| {
                other.text.eq_ignore_ascii_case(&message.text)
                    && (&other.world, &other.last) == (&message.world, &message.last)
            })
        });
        blind
    });
    &READ
}

/// Reads messages from one JSON object per line.
fn read_lines(text: &str, split: &str) -> Vec<Message> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(index, line): (usize, &str)| {
        let message: Message = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{split} line {}: {error}", index + 1));
        Message { split: split.to_owned(), ..message }
    };
    lines.map(read).collect()
}

impl World {
    pub(crate) fn task(&self, key: &str) -> TaskId {
        self.tasks.iter().find(|task| task.key == key).map(|task| task.it.id).expect("known task")
    }

    pub(crate) fn task_key(&self, id: TaskId) -> String {
        let entry = self.tasks.iter().find(|task| task.it.id == id);
        entry.map(|task| task.key.clone()).expect("known task")
    }

    fn lesson_key(&self, id: KnowledgeId) -> String {
        let entry = self.lessons.iter().find(|lesson| lesson.it.id == id);
        entry.map(|lesson| lesson.key.clone()).expect("known lesson")
    }

    pub(crate) fn context(&self, last: Option<&str>, proposed: bool) -> ChatContext {
        ChatContext {
            tasks: self.tasks.iter().map(|task| task.it.clone()).collect(),
            lessons: self.lessons.iter().map(|lesson| lesson.it.clone()).collect(),
            stories: Vec::new(),
            last: last.map(|key| self.task(key)),
            proposed,
        }
    }

    /// Returns the labels of an intent.
    pub(crate) fn labels(&self, intent: &Intent) -> BTreeMap<String, Slot> {
        let mut slots = BTreeMap::new();
        let mut put = |name: &str, value: Option<String>| {
            slots.extend(value.map(|value| (name.to_owned(), Slot::Text(value))));
        };
        let text = |value: &dyn ToString| Some(value.to_string());
        match intent {
            Intent::Status { task } => put("task", Some(self.task_key(*task))),
            Intent::List { selection, period, search } => {
                put("filter", text(selection));
                put("period", period.map(|period| period.to_string()));
                put("search", search.clone());
            }
            Intent::Cost { task, period } => {
                put("task", task.map(|task| self.task_key(task)));
                put("period", period.map(|period| period.to_string()));
            }
            Intent::Show { task, aspect } => {
                put("task", Some(self.task_key(*task)));
                put("aspect", text(aspect));
            }
            Intent::Ask { task, .. } => put("task", task.map(|task| self.task_key(task))),
            Intent::Lessons { period, search } => {
                put("period", period.map(|period| period.to_string()));
                put("search", search.clone());
            }
            Intent::Unclear(unclear) => put("asks", Some(<&str>::from(unclear).to_owned())),
            Intent::Change(RequestedChange::Add(draft)) => {
                put("title", Some(draft.title.clone()));
                put("type", text(&draft.r#type));
                put("priority", draft.priority.map(|priority| priority.to_string()));
            }
            Intent::Change(RequestedChange::Lesson { lesson, reason, .. }) => {
                put("lesson", Some(self.lesson_key(*lesson)));
                put("reason", reason.clone());
            }
            Intent::Change(RequestedChange::Task { task, action }) => {
                put("task", Some(self.task_key(*task)));
                match action {
                    ChatAction::Approve { reason }
                    | ChatAction::Reject { reason }
                    | ChatAction::Accept { reason }
                    | ChatAction::Rework { reason }
                    | ChatAction::Cancel { reason }
                    | ChatAction::Skip { reason }
                    | ChatAction::Rate { reason, .. }
                    | ChatAction::Abandon { reason } => put("reason", reason.clone()),
                    ChatAction::RollBack { to, reason } => {
                        put("to", text(to));
                        put("reason", reason.clone());
                    }
                    ChatAction::Override { reason } => put("reason", Some(reason.clone())),
                    ChatAction::Modify { words }
                    | ChatAction::Reply { words }
                    | ChatAction::Convene { question: words } => {
                        put("words", Some(words.clone()));
                    }
                    ChatAction::Retry { grant } | ChatAction::Continue { grant } => {
                        let usd = grant.usd.to_string().replace('$', "");
                        put("grant_usd", Some(usd).filter(|usd| usd != "0"));
                        if grant.iterations > 0 {
                            let runs = Slot::Number(grant.iterations.into());
                            slots.insert("grant_runs".to_owned(), runs);
                        }
                    }
                    ChatAction::Pause | ChatAction::Resume | ChatAction::Acknowledge => {}
                }
            }
            // The worlds have no stories.
            Intent::StoryStatus { .. }
            | Intent::Stories
            | Intent::PullRequests
            | Intent::MergeQueue
            | Intent::Change(RequestedChange::RunPipeline(_) | RequestedChange::Story { .. })
            | Intent::Inbox
            | Intent::Help
            | Intent::Talk
            | Intent::Confirm
            | Intent::Decline => {}
        }
        slots
    }
}

/// Interpretation of a message by the grammar, next to its labels.
pub(crate) struct Reading {
    pub(crate) found: Interpretation,
    /// Difficulty labels of the message.
    pub(crate) hard: Vec<String>,
    pub(crate) wanted: BTreeMap<String, Slot>,
    pub(crate) slots: BTreeMap<String, Slot>,
    /// The grammar reads a change that the message does not request, or one of another task.
    pub(crate) wrong_change: bool,
    /// The intent is correct.
    pub(crate) right: bool,
    /// All slots are correct too.
    pub(crate) whole: bool,
}

impl Message {
    /// Interprets the message with the grammar alone.
    pub(crate) fn read(&self) -> Reading {
        let world = &worlds()[&self.world];
        let found = interpret(&self.text, &world.context(self.last.as_deref(), self.proposed));
        let mut wanted = self.slots.clone();
        let hard = match wanted.remove("hard") {
            Some(Slot::Several(kinds)) => kinds,
            _ => Vec::new(),
        };
        let slots = world.labels(&found.intent);
        // The text added to a task can be phrased in many ways: without labelled words, none are
        // compared.
        let mut compared = slots.clone();
        if !wanted.contains_key("words") {
            compared.remove("words");
        }
        let right = found.intent.name() == self.intent;
        let whole = right && compared == wanted;
        let wrong_change = matches!(found.intent, Intent::Change(_))
            && !(right && slots.get("task") == wanted.get("task"));
        Reading { found, hard, wanted, slots, wrong_change, right, whole }
    }
}
