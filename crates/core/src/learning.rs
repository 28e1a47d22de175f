//! Learning: lessons from finished tasks, and their effect on later ones.
//!
//! A [`TaskRecord`] collects what happened, with a label for everything that can be looked up. A
//! model writes lessons from it ([`LessonDraft`]). Without a model there is [`fallback_lesson()`],
//! and a failure that recurs across tasks becomes a [`recurring_failure_lesson()`]. This module
//! decides when to write a lesson, whether it is known already, and whether it helped.
//!
//! A lesson always enters the knowledge base as a pending entry: nothing that a task produced takes
//! effect until a person approves it. Functions here cannot fail, because a problem with learning
//! must not fail a task.

mod aftercare;
mod draft;
mod fallback;
mod recurring_failure;
mod retirement;
mod similarity;
mod task_record;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::Display;

pub use self::aftercare::aftercare_lesson;
pub use self::draft::{LessonDraft, LessonSubmission};
pub use self::fallback::fallback_lesson;
pub use self::recurring_failure::{FailureOccurrence, MIN_TASKS, recurring_failure_lesson};
pub use self::retirement::{
    EntryUsage, RetirementSuggestion, UNMATCHED_TASKS_LIMIT, retirement_suggestions,
};
pub use self::similarity::{SIMILARITY_THRESHOLD, TextFeatures};
pub use self::task_record::{LessonEvidence, RecordItem, RecordSource, RecordedFault, TaskRecord};
use crate::ids::{Digest, KnowledgeId, ProjectId, Reference, TaskId};
pub use crate::knowledge::LessonTrigger;
use crate::knowledge::{
    EntryKind, EntryScope, EntrySeverity, EntryStatus, KnowledgeEntry, LessonOrigin, split_words,
};
use crate::plan::FileAction;
use crate::review::patterns;
use crate::rules::Rules;

/// Returns the triggers for lessons of a finished task.
pub fn lesson_triggers(succeeded: bool, retries: u16, rules: &Rules) -> Vec<LessonTrigger> {
    let capture = &rules.scrum_master.learning_capture;
    [
        (LessonTrigger::Success, succeeded && capture.capture_success),
        (LessonTrigger::Failure, !succeeded && capture.capture_failure),
        (LessonTrigger::Improvement, succeeded && retries > 0 && capture.capture_failure),
    ]
    .into_iter()
    .filter_map(|(trigger, applies)| applies.then_some(trigger))
    .collect()
}

/// Lesson from a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// Project in which it was learned, and in which it will apply.
    pub project: ProjectId,
    /// Event that triggered it.
    #[serde(rename = "occasion")]
    pub trigger: LessonTrigger,
    /// Kind of the proposed entry.
    pub kind: EntryKind,
    /// Title, one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Text of the proposed entry.
    pub text: String,
    /// Keywords that a plan must mention.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Globs of the files it applies to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub globs: Vec<String>,
    /// Planned actions on files under its globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<FileAction>,
    /// Regular expression for code that it applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Severity of ignoring it.
    pub severity: EntrySeverity,
    /// Sources that it is based on: events, commits and checks.
    pub evidence: Vec<Reference>,
    /// Note for the person who decides: number of failures, and their cost.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Lesson {
    /// Returns the fingerprint of its kind and text: see [`fingerprint`].
    pub fn fingerprint(&self) -> Digest {
        fingerprint(self.kind, &self.text)
    }

    /// Returns the ID of the entry that a task's lesson becomes. It is deterministic, so that a
    /// repeated job proposes the lesson once.
    pub fn id(&self, task: TaskId) -> KnowledgeId {
        derive_id(&format!("{task}/{}", self.fingerprint()))
    }

    /// Converts the lesson to a pending entry.
    pub fn into_entry(self, id: KnowledgeId) -> KnowledgeEntry {
        let title = match self.title.trim() {
            "" => shorten_to_title(&self.text),
            title => title.to_owned(),
        };
        KnowledgeEntry {
            origin: Some(LessonOrigin { title, occasion: self.trigger }),
            id,
            kind: self.kind,
            text: self.text,
            scope: EntryScope::Project(self.project),
            globs: self.globs,
            task_types: Vec::new(),
            keywords: self.keywords,
            actions: self.actions,
            pattern: self.pattern,
            severity: self.severity,
            owner: None,
            evidence: self.evidence,
            status: EntryStatus::Pending,
            expires_at: None,
        }
    }

    /// Returns the lesson without possible secrets, and the kinds of secrets removed. Lessons are
    /// written from task output and shown to people and models.
    #[must_use]
    pub fn without_secrets(mut self) -> (Self, Vec<&'static str>) {
        let mut secret_kinds = Vec::new();
        let texts = [&mut self.title, &mut self.text, &mut self.note].into_iter();
        let texts = texts.chain(&mut self.keywords).chain(&mut self.globs).chain(&mut self.pattern);
        for text in texts {
            let (redacted, kinds) = patterns::redact_secrets(text);
            if !kinds.is_empty() {
                *text = redacted;
                secret_kinds.extend(kinds);
            }
        }
        (self, secret_kinds)
    }
}

/// Longest title that is taken from a text, in characters.
const MAX_TITLE_CHARS: usize = 80;

/// Returns the title of an entry: its lesson's, or the beginning of its text.
pub fn lesson_title(entry: &KnowledgeEntry) -> String {
    match &entry.origin {
        Some(origin) => origin.title.clone(),
        None => shorten_to_title(&entry.text),
    }
}

/// Returns the first sentence of a text, shortened to the length of a title.
fn shorten_to_title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let sentence = line.split_once(". ").map_or(line, |(first, _)| first);
    let sentence = sentence.trim_end_matches('.');
    if sentence.chars().count() <= MAX_TITLE_CHARS {
        return sentence.to_owned();
    }
    let start: String = sentence.chars().take(MAX_TITLE_CHARS).collect();
    let cut = start.rfind(' ').unwrap_or(start.len());
    format!("{} …", &start[..cut])
}

/// Derives an ID from a text. The same text gives the same ID.
fn derive_id(name: &str) -> KnowledgeId {
    let digest = Digest::of(name.as_bytes()).to_string();
    let number = u128::from_str_radix(&digest[..32], 16).unwrap_or_default();
    KnowledgeId(uuid::Builder::from_custom_bytes(number.to_be_bytes()).into_uuid())
}

/// Returns a hash of the kind and the words of a text. Word order, case and punctuation do not
/// matter.
pub fn fingerprint(kind: EntryKind, text: &str) -> Digest {
    let words: BTreeSet<String> = split_words(text).into_iter().collect();
    let words: Vec<String> = words.into_iter().collect();
    Digest::of(format!("{kind}\n{}", words.join(" ")).as_bytes())
}

/// Result of comparing a lesson with existing entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonMerge {
    /// No existing entry is similar: add it as pending.
    New,
    /// An existing entry says the same.
    Duplicate {
        /// ID of the existing entry.
        of: KnowledgeId,
        /// Evidence that the existing entry does not have yet.
        evidence: Vec<Reference>,
    },
}

/// Searches the entries that apply to the lesson's project for one with the same or nearly the same
/// text ([`TextFeatures`]) and the same conditions.
///
/// Rejected and retired entries are found too, so that nobody has to decide twice. New evidence is
/// added to them, and may lead someone to reconsider.
pub fn merge_lesson<'a>(
    existing: impl IntoIterator<Item = &'a KnowledgeEntry>,
    new: &Lesson,
) -> LessonMerge {
    let (features, lesson_fingerprint) =
        (TextFeatures::new(&new.text, &new.keywords), new.fingerprint());
    let similarity = |entry: &KnowledgeEntry| {
        let same_scope = entry.scope.covers(new.project) && entry.kind == new.kind;
        if !same_scope || !has_same_conditions(entry, new) {
            return None;
        }
        let other = TextFeatures::new(&entry.text, &entry.keywords);
        let is_same = fingerprint(entry.kind, &entry.text) == lesson_fingerprint
            && !features.is_different(&other);
        if is_same {
            return Some(100);
        }
        features.is_similar(&other).then(|| features.similarity(&other))
    };
    existing
        .into_iter()
        .filter_map(|entry| Some((similarity(entry)?, entry)))
        .max_by_key(|(similarity, entry)| (*similarity, Reverse(entry.id)))
        .map_or(LessonMerge::New, |(_, entry)| LessonMerge::Duplicate {
            of: entry.id,
            evidence: new
                .evidence
                .iter()
                .filter(|reference| !entry.evidence.contains(reference))
                .cloned()
                .collect(),
        })
}

/// Returns true if an entry has the same conditions as a lesson. For a prohibition all conditions
/// must be equal, because each of them decides what it blocks. For other entries paths are hints,
/// and only different paths make them different.
fn has_same_conditions(entry: &KnowledgeEntry, lesson: &Lesson) -> bool {
    let set = |globs: &[String]| globs.iter().cloned().collect::<BTreeSet<_>>();
    let (entry_globs, lesson_globs) = (set(&entry.globs), set(&lesson.globs));
    if entry.kind == EntryKind::Prohibition {
        let actions = |list: &[FileAction]| list.iter().copied().collect::<BTreeSet<_>>();
        return entry_globs == lesson_globs
            && entry.pattern == lesson.pattern
            && entry.task_types.is_empty()
            && actions(&entry.actions) == actions(&lesson.actions);
    }
    entry_globs.is_subset(&lesson_globs) || lesson_globs.is_subset(&entry_globs)
}

/// Review outcomes of a group of tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewOutcomes {
    /// Number of tasks.
    pub tasks: u32,
    /// Tasks that passed their first review.
    pub first_pass: u32,
}

impl ReviewOutcomes {
    /// Fewest tasks from which a rate is computed.
    pub const MIN_TASKS: u32 = 10;

    /// Returns the percentage of tasks that passed their first review; `None` below the minimum
    /// number of tasks.
    pub fn first_pass_rate(self) -> Option<u8> {
        if self.tasks < Self::MIN_TASKS {
            return None;
        }
        let percent = u64::from(self.first_pass) * 100 / u64::from(self.tasks);
        Some(u8::try_from(percent).map_or(100, |percent| percent.min(100)))
    }
}

/// Effect of an approved lesson on later tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
pub enum LessonEffect {
    /// More tasks pass their first review.
    #[strum(to_string = "helps: {with}% pass the first review with it, {without}% without")]
    Helps {
        /// Percentage among tasks that were shown the lesson.
        with: u8,
        /// Percentage among the others.
        without: u8,
    },
    /// About as many pass.
    #[strum(
        to_string = "makes no difference: {with}% pass the first review with it, {without}% without"
    )]
    NoDifference {
        /// Percentage among tasks that were shown the lesson.
        with: u8,
        /// Percentage among the others.
        without: u8,
    },
    /// Fewer tasks pass their first review.
    #[strum(to_string = "hurts: {with}% pass the first review with it, {without}% without")]
    Hurts {
        /// Percentage among tasks that were shown the lesson.
        with: u8,
        /// Percentage among the others.
        without: u8,
    },
    /// Not enough tasks yet.
    #[strum(to_string = "not enough tasks yet")]
    TooFew,
}

impl LessonEffect {
    /// Smallest difference that counts, in percentage points.
    pub const MARGIN: u8 = 10;

    /// Returns true if retirement should be suggested. A lesson without benefit still takes space
    /// in every prompt.
    pub fn suggests_retirement(self) -> bool {
        matches!(self, Self::NoDifference { .. } | Self::Hurts { .. })
    }
}

/// Compares tasks that were shown a lesson with similar tasks that were not.
pub fn measure_effect(with: ReviewOutcomes, without: ReviewOutcomes) -> LessonEffect {
    let (Some(with), Some(without)) = (with.first_pass_rate(), without.first_pass_rate()) else {
        return LessonEffect::TooFew;
    };
    if with >= without + LessonEffect::MARGIN {
        LessonEffect::Helps { with, without }
    } else if without >= with + LessonEffect::MARGIN {
        LessonEffect::Hurts { with, without }
    } else {
        LessonEffect::NoDifference { with, without }
    }
}
