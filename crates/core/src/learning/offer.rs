//! What should make a person think of retiring an entry.
//!
//! What is known takes room in prompts and stops plans for as long as it is in force, so what has no
//! use is offered for retirement, with the reason. Nothing retires itself.

use std::fmt;

use chrono::{DateTime, Utc};
use globset::GlobBuilder;
use serde::{Deserialize, Serialize};

use super::Effect;
use crate::ids::Reference;
use crate::knowledge::{Entry, Status};

/// After how many ended tasks an entry that has matched none of them is offered.
pub const IDLE: u32 = 50;

/// A reason to retire an entry, or to write it anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offer {
    /// Its time is over.
    Expired {
        /// Since when.
        at: DateTime<Utc>,
    },
    /// It has matched no task.
    NeverMatched {
        /// Of how many.
        tasks: u32,
    },
    /// Tasks do no better with it.
    DoesNotHelp(Effect),
    /// Paths it is about are no longer there.
    PathsGone {
        /// The globs that reach no file.
        globs: Vec<String>,
    },
    /// What it is based on is no longer there.
    EvidenceGone {
        /// What of it.
        evidence: Vec<Reference>,
    },
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { at } => write!(f, "it no longer counts since {}", at.date_naive()),
            Self::NeverMatched { tasks } => {
                write!(f, "it has matched none of the {tasks} tasks that ended since it counts")
            }
            Self::DoesNotHelp(effect) => write!(f, "it {effect}"),
            Self::PathsGone { globs } => {
                write!(f, "no file is under {} any more", listed(globs.iter()))
            }
            Self::EvidenceGone { evidence } => {
                write!(f, "its evidence is gone: {}", listed(evidence.iter()))
            }
        }
    }
}

fn listed(all: impl Iterator<Item = impl fmt::Display>) -> String {
    all.map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
}

/// What is known of an entry besides what it says.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// How many tasks have ended that it could have matched.
    pub tasks: u32,
    /// How many it matched.
    pub matched: u32,
    /// What it did to them.
    pub effect: Effect,
    /// The files of the repositories that it reaches, where they can be read.
    pub files: Option<&'a [String]>,
    /// What of its evidence is no longer there. Git forgets the commits of attempts that came to
    /// nothing, so an entry is offered only when nothing is left of what it is based on.
    pub gone: &'a [Reference],
}

/// Why an entry that a person has approved should be looked at again.
pub fn offers(entry: &Entry, facts: &Facts<'_>, now: DateTime<Utc>) -> Vec<Offer> {
    let mut all = Vec::new();
    if entry.status != Status::Approved {
        return all;
    }
    if let Some(at) = entry.expires_at.filter(|at| *at <= now) {
        all.push(Offer::Expired { at });
    }
    if facts.matched == 0 && facts.tasks >= IDLE {
        all.push(Offer::NeverMatched { tasks: facts.tasks });
    }
    if facts.effect.offer_retirement() {
        all.push(Offer::DoesNotHelp(facts.effect));
    }
    let globs = facts.files.map(|files| unreached(&entry.globs, files)).unwrap_or_default();
    if !globs.is_empty() {
        all.push(Offer::PathsGone { globs });
    }
    let gone = |evidence: &Reference| facts.gone.contains(evidence);
    if !entry.evidence.is_empty() && entry.evidence.iter().all(gone) {
        all.push(Offer::EvidenceGone { evidence: facts.gone.to_vec() });
    }
    all
}

/// The globs that reach no file. What cannot be read as a glob is a hazard and no staleness.
fn unreached(globs: &[String], files: &[String]) -> Vec<String> {
    let reaches = |glob: &String| {
        let Ok(glob) = GlobBuilder::new(glob).literal_separator(true).build() else { return true };
        let glob = glob.compile_matcher();
        files.iter().any(|file| glob.is_match(file))
    };
    globs.iter().filter(|glob| !reaches(glob)).cloned().collect()
}
