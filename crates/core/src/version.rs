//! Which version wrote something: the form it is kept in, and the behaviour it follows.

use serde::{Deserialize, Serialize};

use crate::stuck;

/// The version of a serialised form. This program writes 1 and reads 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Format;

impl Format {
    /// The version that is written.
    pub const CURRENT: u16 = 1;
}

impl From<Format> for u16 {
    fn from(Format: Format) -> Self {
        Format::CURRENT
    }
}

impl TryFrom<u16> for Format {
    type Error = String;
    fn try_from(found: u16) -> Result<Self, String> {
        if found == Self::CURRENT {
            Ok(Self)
        } else {
            Err(format!(
                "format {found} is not known here: this program reads format {}. A newer Tamma \
                 wrote it; upgrade this one",
                Self::CURRENT
            ))
        }
    }
}

/// Which behaviour a task was started with.
///
/// A change of behaviour that an old history would replay differently gets a new edition. Tasks
/// keep the one they were started with for as long as they live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Edition {
    /// The first. What says nothing of an edition was written by it.
    #[default]
    #[serde(rename = "2026-11")]
    November2026,
    /// Flapping and circular fixes count as stuck, and the council sits seat by seat.
    #[serde(rename = "2026-11-review")]
    Review2026,
    /// A model may be asked what a task teaches, and what came of that is an event, also after the end.
    #[serde(rename = "2026-11-knowledge")]
    Knowledge2026,
}

impl Edition {
    /// What new tasks are started with.
    pub const NEWEST: Self = Self::Knowledge2026;

    /// Whether it is the one that says nothing of itself.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
    pub(crate) fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a model may be asked what a task teaches.
    pub(crate) fn asks_what_it_taught(self) -> bool {
        self >= Self::Knowledge2026
    }

    /// How many attempts a task remembers.
    pub(crate) fn remembers(self) -> usize {
        match self {
            Self::November2026 => stuck::WINDOW,
            Self::Review2026 | Self::Knowledge2026 => stuck::MEMORY,
        }
    }
}
