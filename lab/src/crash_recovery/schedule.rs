//! Victims and times of the kills: random, and reproducible with the same seed.

use std::fmt;
use std::time::Duration;

/// Process to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// Agent only.
    Agent,
    /// Worker, with its disk. Its agent ends with it.
    Worker,
    /// Agent and worker, with the disk.
    Both,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Both => "both",
        })
    }
}

/// Planned kill.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kill {
    pub(crate) victim: Victim,
    /// Delay after the first line.
    pub(crate) after: Duration,
}

/// Pseudo-random sequence of kills.
#[derive(Debug)]
pub(crate) struct KillSchedule(u64);

impl KillSchedule {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next kill. Victims alternate, so that a short run covers each of them.
    pub(crate) fn kill(&mut self, number: u32) -> Kill {
        let victim = [Victim::Worker, Victim::Both, Victim::Agent][number as usize % 3];
        Kill { victim, after: Duration::from_millis(200 + self.next() % 5_000) }
    }

    /// Returns the next number of the `SplitMix64` generator.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Returns a seed from the clock.
pub(crate) fn seed() -> u64 {
    u64::try_from(now().as_nanos() & u128::from(u32::MAX)).unwrap_or_default()
}

/// Returns the time since the Unix epoch, as the agent writes it.
#[expect(clippy::disallowed_methods, reason = "the experiment reads the clock")]
pub(crate) fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
