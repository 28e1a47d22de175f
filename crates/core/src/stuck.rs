//! When a task is stuck: it fails, and keeps failing alike.
//!
//! Three attempts in a row that touched the same files, or failed the same tests, or ended in the
//! same error, or made the same change, are one attempt made three times. A stronger model and a
//! second opinion help then; a fourth try does not.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::ids::Digest;
use crate::review::Fingerprint;
use crate::tier::Tier;

/// How many attempts alike make a task stuck.
pub const WINDOW: usize = 3;

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
}

/// Tells whether the last attempts are stuck, and in what they are alike.
///
/// What is not known is not alike: three attempts without failing tests do not share them.
pub fn detect(attempts: &[Attempt]) -> Option<Likeness> {
    let last = attempts.get(attempts.len().checked_sub(WINDOW)?..)?;
    if last.iter().any(|attempt| attempt.passed) {
        return None;
    }
    let alike = |part: fn(&Fingerprint) -> Option<Digest>| {
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
