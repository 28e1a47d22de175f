//! Detection of stuck tasks: failures that repeat.
//!
//! A task is stuck if three attempts in a row failed the same tests, ended with the same error or
//! made the same change. It is also stuck if failures *flap*, where each fix brings another failure
//! back, or if fixes are *circular*, where a failed change or earlier failures return. In no case
//! is a task stuck while the number of failing tests still decreases. A stronger model and a second
//! opinion help a stuck task; another retry does not.
//!
//! Tasks of older editions were compared without the number of failing tests, and also by the files
//! that they touched.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::ids::Digest;
use crate::review::{FailureCount, Fingerprint};
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
    /// Number of failing tests and errors, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailureCount>,
}

/// Similarity of the attempts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AttemptSimilarity {
    /// Same files touched. Only in older editions: an agent that keeps to the plan touches the same files.
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
    /// More than two sets of failing tests return in the same order.
    CircularTests,
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
            Self::CircularTests => "earlier sets of failing tests return in the same order",
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

/// Detects a stuck task of the newest edition: failures repeat, alternate or return, and the number
/// of failing tests has stopped decreasing.
///
/// An attempt makes *progress* if it fails fewer tests, or as many tests with fewer errors, than
/// every attempt that it is compared with. Without known numbers there is no progress.
pub fn detect_without_progress(attempts: &[AttemptRecord]) -> Option<AttemptSimilarity> {
    let since = attempts.iter().rposition(|attempt| attempt.passed).map_or(0, |passed| passed + 1);
    let failed = attempts.get(since..)?;
    let repeated = || {
        let recent = failed.get(failed.len().checked_sub(REPETITION_WINDOW)?..)?;
        if has_progress(recent, REPETITION_WINDOW - 1) {
            return None;
        }
        let parts: [(AttemptSimilarity, FingerprintPart); 3] = [
            (AttemptSimilarity::SameTests, |fingerprint| fingerprint.tests),
            (AttemptSimilarity::SameError, |fingerprint| fingerprint.error),
            (AttemptSimilarity::SameDiff, |fingerprint| fingerprint.diff),
        ];
        let same = parts.into_iter().find(|(_, part)| is_repeated(recent, *part));
        same.map(|(similarity, _)| similarity)
    };
    let returned = || {
        if has_progress(failed, 1) {
            return None;
        }
        if is_flapping(failed, |fingerprint| fingerprint.tests) {
            Some(AttemptSimilarity::FlappingTests)
        } else if is_flapping(failed, |fingerprint| fingerprint.error) {
            Some(AttemptSimilarity::FlappingError)
        } else if is_circular(failed) {
            Some(AttemptSimilarity::CircularDiff)
        } else {
            is_returning(failed, |fingerprint| fingerprint.tests)
                .then_some(AttemptSimilarity::CircularTests)
        }
    };
    repeated().or_else(returned)
}

/// Returns `true` if one of the last attempts fails less than all attempts before it.
fn has_progress(attempts: &[AttemptRecord], last: usize) -> bool {
    let first = attempts.len().saturating_sub(last);
    (first..attempts.len()).any(|index| {
        let lowest = attempts[..index].iter().filter_map(|attempt| attempt.failing).min();
        match (attempts[index].failing, lowest) {
            (Some(failing), Some(lowest)) => failing < lowest,
            (_, None) | (None, _) => false,
        }
    })
}

/// Returns `true` if a known part is the same in all attempts.
fn is_repeated(attempts: &[AttemptRecord], part: FingerprintPart) -> bool {
    let first = attempts.first().and_then(|attempt| part(&attempt.fingerprint));
    first.is_some() && attempts.iter().all(|attempt| part(&attempt.fingerprint) == first)
}

/// Returns `true` if the last two failures are those of an earlier pair of attempts, at least three
/// attempts before.
fn is_returning(failed: &[AttemptRecord], part: FingerprintPart) -> bool {
    let values: Vec<_> = failed.iter().map(|attempt| part(&attempt.fingerprint)).collect();
    let Some((_, pair)) = values.split_last_chunk::<2>() else {
        return false;
    };
    let earlier = &values[..values.len().saturating_sub(REPETITION_WINDOW)];
    pair.iter().all(Option::is_some) && earlier.windows(2).any(|window| window == pair)
}

/// Keeps only the attempt that another tier starts from, the last one. So that tier has two attempts
/// of its own before three in a row can be similar.
pub(crate) fn forget_earlier_tier(attempts: &mut Vec<AttemptRecord>) {
    let earlier = attempts.len().saturating_sub(1);
    attempts.drain(..earlier);
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
