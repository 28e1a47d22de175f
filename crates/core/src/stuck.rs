//! When a task is stuck: it fails, and keeps failing alike.
//!
//! Three attempts in a row that touched the same files, or failed the same tests, or ended in the
//! same error, or made the same change, are one attempt made three times. Two more ways lead nowhere:
//! *flapping*, where each fix brings the other failure back, and *circular* fixes, where a change
//! comes back that has failed before. A stronger model and a second opinion help then; another try
//! does not.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::ids::Digest;
use crate::review::Fingerprint;
use crate::tier::Tier;

/// How many attempts alike make a task stuck.
pub const WINDOW: usize = 3;

/// How many attempts in turns make a task flap.
pub const FLAPPING: usize = 4;

/// How many attempts are remembered, so that a change that comes back is known. By default there are
/// seven before the council, after which the count begins anew.
pub const MEMORY: usize = 8;

/// One iteration, as far as later ones are compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The tier it ran in.
    pub tier: Tier,
    /// Whether its review passed.
    pub passed: bool,
    /// What its failure looked like.
    pub fingerprint: Fingerprint,
}

/// In what the attempts are alike.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Likeness {
    /// They touched the same files.
    SameFiles,
    /// The same tests failed.
    SameTests,
    /// The error was the same.
    SameError,
    /// The change was the same.
    SameDiff,
    /// Two sets of failing tests took turns.
    FlappingTests,
    /// Two errors took turns.
    FlappingError,
    /// A change came back that had failed before.
    CircularDiff,
}

impl Likeness {
    /// What people are told.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::SameFiles => "three attempts in a row touched the same files",
            Self::SameTests => "three attempts in a row failed the same tests",
            Self::SameError => "three attempts in a row ended in the same error",
            Self::SameDiff => "three attempts in a row made the same change",
            Self::FlappingTests => {
                "two sets of failing tests take turns: each fix breaks the other"
            }
            Self::FlappingError => "two errors take turns: each fix brings the other back",
            Self::CircularDiff => "the last change is one that had failed before",
        }
    }
}

/// A part of a fingerprint.
type Part = fn(&Fingerprint) -> Option<Digest>;

/// Tells whether the last attempts are stuck, and in what they are alike.
///
/// What is not known is not alike: three attempts without failing tests do not share them. Only what
/// failed since the last attempt that passed is looked at.
pub fn detect(attempts: &[Attempt]) -> Option<Likeness> {
    let since = attempts.iter().rposition(|attempt| attempt.passed).map_or(0, |passed| passed + 1);
    let failed = attempts.get(since..)?;
    alike(failed)
        .or_else(|| flaps(failed, |print| print.tests).then_some(Likeness::FlappingTests))
        .or_else(|| flaps(failed, |print| print.error).then_some(Likeness::FlappingError))
        .or_else(|| is_circular(failed).then_some(Likeness::CircularDiff))
}

/// Tells in what the last three attempts are alike. That is all that tasks of the first edition know.
pub fn alike(attempts: &[Attempt]) -> Option<Likeness> {
    let last = attempts.get(attempts.len().checked_sub(WINDOW)?..)?;
    if last.iter().any(|attempt| attempt.passed) {
        return None;
    }
    let alike = |part: Part| {
        let first = part(&last[0].fingerprint);
        first.is_some() && last.iter().all(|attempt| part(&attempt.fingerprint) == first)
    };
    if alike(|print| print.files) {
        Some(Likeness::SameFiles)
    } else if alike(|print| print.tests) {
        Some(Likeness::SameTests)
    } else if alike(|print| print.error) {
        Some(Likeness::SameError)
    } else if alike(|print| print.diff) {
        Some(Likeness::SameDiff)
    } else {
        None
    }
}

/// Whether two different failures have taken turns.
fn flaps(failed: &[Attempt], part: Part) -> bool {
    let start = failed.len().saturating_sub(FLAPPING);
    let parts: Vec<_> = failed[start..].iter().map(|attempt| part(&attempt.fingerprint)).collect();
    matches!(
        parts[..],
        [Some(one), Some(other), Some(again), Some(last)]
            if one == again && other == last && one != other
    )
}

/// Whether the newest change is that of an earlier attempt. The one just before it does not count:
/// a change that was made twice is made a third time before anybody worries.
fn is_circular(failed: &[Attempt]) -> bool {
    let Some((newest, [earlier @ .., _])) = failed.split_last() else {
        return false;
    };
    let diff = newest.fingerprint.diff;
    diff.is_some() && earlier.iter().any(|attempt| attempt.fingerprint.diff == diff)
}
