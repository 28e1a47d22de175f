//! Learning: what a finished task can teach, and what became of what was taught.
//!
//! Lessons are written elsewhere, by a model or a person; here it is decided when there is
//! occasion for one, whether it is known already, and whether it helped. A lesson enters the
//! knowledge base as a pending entry, always: nothing that a task produced has any effect until a
//! person approves it. Failing to learn never fails a task, so nothing here can fail.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::{Digest, KnowledgeId, ProjectId, Reference};
use crate::knowledge::{Entry, Kind, Scope, Severity, Status, words};
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
    /// How bad it is to ignore it.
    pub severity: Severity,
    /// What it is based on: the reports of the task.
    pub evidence: Vec<Reference>,
}

impl Lesson {
    /// By what two lessons are the same: see [`fingerprint`].
    pub fn fingerprint(&self) -> Digest {
        fingerprint(self.kind, &self.text)
    }

    /// The entry it becomes, waiting for a person.
    pub fn into_entry(self, id: KnowledgeId) -> Entry {
        Entry {
            id,
            kind: self.kind,
            text: self.text,
            scope: Scope::Project(self.project),
            globs: Vec::new(),
            task_types: Vec::new(),
            keywords: self.keywords,
            actions: Vec::new(),
            pattern: None,
            severity: self.severity,
            owner: None,
            evidence: self.evidence,
            status: Status::Pending,
            expires_at: None,
        }
    }
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

/// Looks for a lesson among the entries that reach its project.
///
/// One that was turned down or retired is found too, so that nobody is asked the same thing twice;
/// the evidence that gathers there may make somebody take it up again.
pub fn merge(existing: &[Entry], new: &Lesson) -> Merge {
    let fingerprint_of_new = new.fingerprint();
    existing
        .iter()
        .filter(|entry| {
            entry.scope.covers(new.project)
                && fingerprint(entry.kind, &entry.text) == fingerprint_of_new
        })
        .min_by_key(|entry| entry.id)
        .map_or(Merge::New, |entry| Merge::Duplicate {
            of: entry.id,
            evidence: new
                .evidence
                .iter()
                .filter(|one| !entry.evidence.contains(one))
                .cloned()
                .collect(),
        })
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
