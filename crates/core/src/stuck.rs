//! Detection of stuck tasks: failures that repeat.
//!
//! A task is stuck if three attempts in a row touched the same files, failed the same tests, ended
//! with the same error or made the same change. It is also stuck if failures *flap*, where each fix
//! brings another failure back, or if fixes are *circular*, where a failed change returns. A
//! stronger model and a second opinion help then; another retry does not.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::ids::Digest;
use crate::review::Fingerprint;
use crate::tier::Tier;

/// Number of similar attempts that make a task stuck.
pub const REPETITION_WINDOW: usize = 3;

/// Number of alternating attempts that count as flapping.
pub const FLAPPING_WINDOW: usize = 4;

/// Number of attempts kept for the detection of circular fixes. By default, seven attempts fit
/// before a council, which resets the count.
pub const ATTEMPT_HISTORY: usize = 8;

/// Facts of one iteration that later ones are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Tier of the run.
    pub tier: Tier,
    /// The review passed.
    pub passed: bool,
    /// Fingerprint of the failure.
    pub fingerprint: Fingerprint,
}

/// Similarity of the attempts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AttemptSimilarity {
    /// Same files touched.
    SameFiles,
    /// Same tests failed.
    SameTests,
    /// Same error.
    SameError,
    /// Same change.
    SameDiff,
    /// Two sets of failing tests alternate.
    FlappingTests,
    /// Two errors alternate.
    FlappingError,
    /// A change returned that had failed before.
    CircularDiff,
}

impl AttemptSimilarity {
    /// Returns the text that reports show.
    pub fn description(self) -> &'static str {
        match self {
            Self::SameFiles => "three attempts in a row changed the same files",
            Self::SameTests => "three attempts in a row failed the same tests",
            Self::SameError => "three attempts in a row ended with the same error",
            Self::SameDiff => "three attempts in a row made the same change",
            Self::FlappingTests => "two sets of failing tests alternate: each fix breaks the other",
            Self::FlappingError => "two errors alternate: each fix brings the other back",
            Self::CircularDiff => "the last change repeats one that failed before",
        }
    }
}

/// Part of a fingerprint.
type FingerprintPart = fn(&Fingerprint) -> Option<Digest>;

/// Detects a stuck task from its last attempts and returns their similarity.
///
/// Unknown parts are never similar: attempts without failing tests do not share them. Only attempts
/// after the last one that passed are compared.
pub fn detect(attempts: &[AttemptRecord]) -> Option<AttemptSimilarity> {
    let since = attempts.iter().rposition(|attempt| attempt.passed).map_or(0, |passed| passed + 1);
    let failed = attempts.get(since..)?;
    detect_repetition(failed)
        .or_else(|| {
            is_flapping(failed, |fingerprint| fingerprint.tests)
                .then_some(AttemptSimilarity::FlappingTests)
        })
        .or_else(|| {
            is_flapping(failed, |fingerprint| fingerprint.error)
                .then_some(AttemptSimilarity::FlappingError)
        })
        .or_else(|| is_circular(failed).then_some(AttemptSimilarity::CircularDiff))
}

/// Compares the last three attempts. Tasks of the first edition use only this check.
pub fn detect_repetition(attempts: &[AttemptRecord]) -> Option<AttemptSimilarity> {
    let recent = attempts.get(attempts.len().checked_sub(REPETITION_WINDOW)?..)?;
    if recent.iter().any(|attempt| attempt.passed) {
        return None;
    }
    let all_same = |part: FingerprintPart| {
        let first = part(&recent[0].fingerprint);
        first.is_some() && recent.iter().all(|attempt| part(&attempt.fingerprint) == first)
    };
    if all_same(|fingerprint| fingerprint.files) {
        Some(AttemptSimilarity::SameFiles)
    } else if all_same(|fingerprint| fingerprint.tests) {
        Some(AttemptSimilarity::SameTests)
    } else if all_same(|fingerprint| fingerprint.error) {
        Some(AttemptSimilarity::SameError)
    } else if all_same(|fingerprint| fingerprint.diff) {
        Some(AttemptSimilarity::SameDiff)
    } else {
        None
    }
}

/// Returns `true` if two different failures alternate.
fn is_flapping(failed: &[AttemptRecord], part: FingerprintPart) -> bool {
    let start = failed.len().saturating_sub(FLAPPING_WINDOW);
    let values: Vec<_> = failed[start..].iter().map(|attempt| part(&attempt.fingerprint)).collect();
    matches!(
        values[..],
        [Some(first), Some(second), Some(third), Some(fourth)]
            if first == third && second == fourth && first != second
    )
}

/// Returns `true` if the newest change repeats one from before the previous attempt. An immediate
/// repetition does not count here; it has its own limit of three.
fn is_circular(failed: &[AttemptRecord]) -> bool {
    let Some((newest, [earlier @ .., _])) = failed.split_last() else {
        return false;
    };
    let diff = newest.fingerprint.diff;
    diff.is_some() && earlier.iter().any(|attempt| attempt.fingerprint.diff == diff)
}
