//! Learning: what a finished task can teach, and what became of what was taught.
//!
//! A [`Record`] is what there is to learn from, with a name for everything in it that can be looked up.
//! A model writes lessons from it ([`Draft`]); where none can be asked there is a [`plain()`] one, and what
//! fails in task after task is told as a [`pattern()`]. Here it is decided when there is occasion for a
//! lesson, whether it is known already, and whether it helped. A lesson enters the
//! knowledge base as a pending entry, always: nothing that a task produced has any effect until a
//! person approves it. Failing to learn never fails a task, so nothing here can fail.

mod draft;
mod near;
mod offer;
mod pattern;
mod plain;
mod record;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

pub use self::draft::{Draft, Taught};
pub use self::near::{Gist, NEAR};
pub use self::offer::{Facts, IDLE, Offer, offers};
pub use self::pattern::{Sighting, TASKS, pattern};
pub use self::plain::plain;
pub use self::record::{Evidence, Item, Record, Source, Trouble};
use crate::ids::{Digest, KnowledgeId, ProjectId, Reference, TaskId};
use crate::knowledge::{Entry, Kind, Scope, Severity, Status, words};
use crate::plan::Action;
use crate::review::patterns;
use crate::rules::Rules;

/// What a lesson was learned from.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Occasion {
    /// It worked: what made it work?
    Success,
    /// It did not: what stood in the way?
    Failure,
    /// It worked in the end: what failed first, and how was it mended?
    Improvement,
}

/// What a finished task gives occasion to learn.
pub fn occasions(succeeded: bool, retries: u16, rules: &Rules) -> Vec<Occasion> {
    let capture = &rules.scrum_master.learning_capture;
    [
        (Occasion::Success, succeeded && capture.capture_success),
        (Occasion::Failure, !succeeded && capture.capture_failure),
        (Occasion::Improvement, succeeded && retries > 0 && capture.capture_failure),
    ]
    .into_iter()
    .filter_map(|(occasion, given)| given.then_some(occasion))
    .collect()
}

/// Something that a task taught.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// The project it was learned in, which is where it will hold.
    pub project: ProjectId,
    /// What it was learned from.
    pub occasion: Occasion,
    /// What it should become.
    pub kind: Kind,
    /// What it says.
    pub text: String,
    /// The words it is about.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// The paths it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub globs: Vec<String>,
    /// What is planned to happen to files under its globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// The code it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// How bad it is to ignore it.
    pub severity: Severity,
    /// What it is based on: events, commits and checks that can be looked up.
    pub evidence: Vec<Reference>,
    /// How it came to be taught, for whoever decides about it: how often it failed, what it cost.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Lesson {
    /// By what two lessons are the same: see [`fingerprint`].
    pub fn fingerprint(&self) -> Digest {
        fingerprint(self.kind, &self.text)
    }

    /// The identity of the entry that a task's lesson becomes. It is always the same, so that a task
    /// that is asked twice does not teach twice.
    pub fn id(&self, task: TaskId) -> KnowledgeId {
        id_of(&format!("{task}/{}", self.fingerprint()))
    }

    /// The entry it becomes, waiting for a person.
    pub fn into_entry(self, id: KnowledgeId) -> Entry {
        Entry {
            id,
            kind: self.kind,
            text: self.text,
            scope: Scope::Project(self.project),
            globs: self.globs,
            task_types: Vec::new(),
            keywords: self.keywords,
            actions: self.actions,
            pattern: self.pattern,
            severity: self.severity,
            owner: None,
            evidence: self.evidence,
            status: Status::Pending,
            expires_at: None,
        }
    }

    /// The same without anything that looks like a secret, and what was taken out. A lesson is written
    /// from what tasks have said, and is shown to people and models.
    #[must_use]
    pub fn without_secrets(mut self) -> (Self, Vec<&'static str>) {
        let mut found = Vec::new();
        let texts = [&mut self.text, &mut self.note].into_iter();
        let texts = texts.chain(&mut self.keywords).chain(&mut self.globs).chain(&mut self.pattern);
        for text in texts {
            let (clean, forms) = patterns::redacted(text);
            if !forms.is_empty() {
                *text = clean;
                found.extend(forms);
            }
        }
        (self, found)
    }
}

/// The identity of what is made from some words, the same every time.
fn id_of(words: &str) -> KnowledgeId {
    let digest = Digest::of(words.as_bytes()).to_string();
    let number = u128::from_str_radix(&digest[..32], 16).unwrap_or_default();
    KnowledgeId(uuid::Builder::from_custom_bytes(number.to_be_bytes()).into_uuid())
}

/// By what two pieces of knowledge are the same: their kind and the words they use, whatever the
/// order, case and punctuation.
pub fn fingerprint(kind: Kind, text: &str) -> Digest {
    let words: BTreeSet<String> = words(text).into_iter().collect();
    let words: Vec<String> = words.into_iter().collect();
    Digest::of(format!("{kind}\n{}", words.join(" ")).as_bytes())
}

/// What to do with a lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// Nobody said it before: keep it, pending.
    New,
    /// It is there already.
    Duplicate {
        /// Where.
        of: KnowledgeId,
        /// What that entry gains: evidence that it did not have.
        evidence: Vec<Reference>,
    },
}

/// Looks for a lesson among the entries that reach its project: one that says the same or nearly so
/// ([`Gist`]), under the same conditions.
///
/// One that was turned down or retired is found too, so that nobody is asked the same thing twice;
/// the evidence that gathers there may make somebody take it up again.
pub fn merge<'a>(existing: impl IntoIterator<Item = &'a Entry>, new: &Lesson) -> Merge {
    let (gist, print) = (Gist::of(&new.text, &new.keywords), new.fingerprint());
    let likeness = |entry: &Entry| {
        let same_place = entry.scope.covers(new.project) && entry.kind == new.kind;
        if !same_place || !has_conditions_of(entry, new) {
            return None;
        }
        let other = Gist::of(&entry.text, &entry.keywords);
        let same = fingerprint(entry.kind, &entry.text) == print && !gist.is_apart(&other);
        if same {
            return Some(100);
        }
        gist.is_near(&other).then(|| gist.likeness(&other))
    };
    existing
        .into_iter()
        .filter_map(|entry| Some((likeness(entry)?, entry)))
        .max_by_key(|(likeness, entry)| (*likeness, Reverse(entry.id)))
        .map_or(Merge::New, |(_, entry)| Merge::Duplicate {
            of: entry.id,
            evidence: new
                .evidence
                .iter()
                .filter(|one| !entry.evidence.contains(one))
                .cloned()
                .collect(),
        })
}

/// Whether an entry is about what a lesson is about. For a prohibition every condition decides what it
/// stops, so all of them must be the same; to the others a path is a hint, and only other paths keep
/// them apart.
fn has_conditions_of(entry: &Entry, lesson: &Lesson) -> bool {
    let set = |globs: &[String]| globs.iter().cloned().collect::<BTreeSet<_>>();
    let (mine, theirs) = (set(&entry.globs), set(&lesson.globs));
    if entry.kind == Kind::Prohibition {
        let actions = |list: &[Action]| list.iter().copied().collect::<BTreeSet<_>>();
        return mine == theirs
            && entry.pattern == lesson.pattern
            && entry.task_types.is_empty()
            && actions(&entry.actions) == actions(&lesson.actions);
    }
    mine.is_subset(&theirs) || theirs.is_subset(&mine)
}

/// How some tasks went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// How many there were.
    pub tasks: u32,
    /// How many of them passed their first review.
    pub first_pass: u32,
}

impl Outcomes {
    /// The fewest tasks that say anything.
    pub const ENOUGH: u32 = 10;

    /// The share that passed the first review, in percent, if there are enough tasks to tell.
    pub fn first_pass_rate(self) -> Option<u8> {
        if self.tasks < Self::ENOUGH {
            return None;
        }
        let percent = u64::from(self.first_pass) * 100 / u64::from(self.tasks);
        Some(u8::try_from(percent).map_or(100, |percent| percent.min(100)))
    }
}

/// What an approved lesson did to later tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// More tasks passed at once.
    #[strum(to_string = "helps: {with} % pass at once with it, {without} % without")]
    Helps {
        /// Percent of the tasks it was shown to.
        with: u8,
        /// Percent of the others.
        without: u8,
    },
    /// About as many did.
    #[strum(to_string = "makes no difference: {with} % pass at once with it, {without} % without")]
    NoDifference {
        /// Percent of the tasks it was shown to.
        with: u8,
        /// Percent of the others.
        without: u8,
    },
    /// Fewer did.
    #[strum(to_string = "hurts: {with} % pass at once with it, {without} % without")]
    Hurts {
        /// Percent of the tasks it was shown to.
        with: u8,
        /// Percent of the others.
        without: u8,
    },
    /// Nobody can tell yet.
    #[strum(to_string = "too few tasks to tell")]
    TooFew,
}

impl Effect {
    /// The fewest points of difference that are more than chance.
    pub const MARGIN: u8 = 10;

    /// Whether a person should be offered to retire the lesson. Knowledge that does not help still
    /// takes room in every prompt.
    pub fn offer_retirement(self) -> bool {
        matches!(self, Self::NoDifference { .. } | Self::Hurts { .. })
    }
}

/// Compares tasks that a lesson was shown to with tasks like them that it was not shown to.
pub fn effect(with: Outcomes, without: Outcomes) -> Effect {
    let (Some(with), Some(without)) = (with.first_pass_rate(), without.first_pass_rate()) else {
        return Effect::TooFew;
    };
    if with >= without + Effect::MARGIN {
        Effect::Helps { with, without }
    } else if without >= with + Effect::MARGIN {
        Effect::Hurts { with, without }
    } else {
        Effect::NoDifference { with, without }
    }
}
