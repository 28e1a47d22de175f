//! Versions of serialised data (format) and of behaviour (edition).

use serde::{Deserialize, Serialize};

use crate::stuck;

/// Version of a serialised type. This program writes and reads version 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct FormatVersion;

impl FormatVersion {
    /// Version that is written.
    pub const CURRENT: u16 = 1;
}

impl From<FormatVersion> for u16 {
    fn from(FormatVersion: FormatVersion) -> Self {
        FormatVersion::CURRENT
    }
}

impl TryFrom<u16> for FormatVersion {
    type Error = String;
    fn try_from(version: u16) -> Result<Self, String> {
        if version == Self::CURRENT {
            Ok(Self)
        } else {
            Err(format!(
                "unknown format {version}: this version of Tamma reads format {}; the data comes from \
                 a newer one, so upgrade Tamma",
                Self::CURRENT
            ))
        }
    }
}

/// Behaviour that a task started with.
///
/// Any change that makes an old history replay differently needs a new edition. A task keeps its
/// edition for as long as it exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Edition {
    /// First edition; also of data that names no edition.
    #[default]
    #[serde(rename = "2026-11")]
    November2026,
    /// Flapping and circular fixes count as stuck, and the council is asked seat by seat.
    #[serde(rename = "2026-11-review")]
    Review2026,
    /// A model can extract lessons, and their result is an event, even after the task is closed.
    #[serde(rename = "2026-11-knowledge")]
    Knowledge2026,
    /// A task is stuck only if failing tests stop decreasing, and a change of the tier starts the
    /// comparison again.
    #[serde(rename = "2026-11-harness")]
    Harness2026,
    /// Three failures in any state call the council, people can convene it, and it returns the task
    /// to the state that it came from.
    #[serde(rename = "2026-11-council")]
    Council2026,
}

impl Edition {
    /// Newest edition. New tasks have it once all programs know it: [`NewTaskBehaviour`].
    pub const NEWEST: Self = Self::Council2026;

    /// Returns `true` for the first edition, which is not serialised.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if a model can extract lessons.
    pub(crate) fn uses_model_for_learning(self) -> bool {
        self >= Self::Knowledge2026
    }

    /// Returns `true` if attempts of an earlier tier are forgotten, except the last one.
    pub(crate) fn forgets_earlier_tiers(self) -> bool {
        self >= Self::Harness2026
    }

    /// Returns `true` if a review reserves the cost of the validator's tier.
    pub(crate) fn reserves_validator_tier(self) -> bool {
        self >= Self::Harness2026
    }

    /// Returns `true` if the council serves every state and returns the task to it.
    pub(crate) fn has_council_for_every_state(self) -> bool {
        self >= Self::Council2026
    }

    /// Returns the number of attempts that a task keeps.
    pub(crate) fn attempt_history_len(self) -> usize {
        match self {
            Self::November2026 => stuck::REPETITION_WINDOW,
            Self::Review2026 | Self::Knowledge2026 | Self::Harness2026 | Self::Council2026 => {
                stuck::ATTEMPT_HISTORY
            }
        }
    }
}

/// Version of the schema whose programs know compact histories.
const COMPACT_HISTORY: i64 = 34;

/// Behaviour of new tasks, which all workers of an installation must know.
///
/// During an upgrade, workers of the old version take over tasks that servers of the new version have
/// added, and after a step back all of them do. So each behaviour belongs to the migration of its
/// release, and new tasks have it once no program without that migration can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTaskBehaviour {
    /// Edition of the task.
    pub edition: Edition,
    /// Workflow adds fewer events to its history.
    pub compact_history: bool,
}

impl NewTaskBehaviour {
    /// Newest behaviour.
    pub const NEWEST: Self = Self { edition: Edition::NEWEST, compact_history: true };

    /// Returns the newest behaviour that every program knows whose schema has this version.
    pub fn known_since(schema: i64) -> Self {
        // All programs that know migrations know this edition; a newer one depends on the version.
        let edition = Edition::Council2026;
        Self { edition, compact_history: schema >= COMPACT_HISTORY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_tasks_have_the_newest_behaviour_once_all_programs_know_it() {
        assert_eq!(NewTaskBehaviour::known_since(COMPACT_HISTORY), NewTaskBehaviour::NEWEST);
        assert_eq!(NewTaskBehaviour::known_since(i64::MAX), NewTaskBehaviour::NEWEST);
        let before = NewTaskBehaviour::known_since(COMPACT_HISTORY - 1);
        assert!(!before.compact_history, "workers without it take over new tasks");
    }
}
