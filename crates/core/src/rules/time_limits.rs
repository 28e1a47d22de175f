//! Times of the rules: hard time limits of jobs, and intervals of progress and updates.
//! `timeout_ms` is the ceiling of all limits.

use chrono::TimeDelta;
use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TaskLoopRules, UserInteraction};
use crate::time::Timestamp;
use crate::update_clock::UpdateClock;

/// Hard time limits by kind of job, in seconds. The defaults leave room for real agents and test
/// suites; for a small repository, 300, 120 and 60 s for the first three are enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct JobTimeouts {
    /// One implementation run.
    #[garde(range(min = 1, max = 86_400))]
    pub implementation: u32,
    /// All gates of one commit.
    #[garde(range(min = 1, max = 86_400))]
    pub quality_gates: u32,
    /// One validation of the acceptance criteria.
    #[garde(range(min = 1, max = 86_400))]
    pub requirements: u32,
    /// One planning run.
    #[serde(skip_serializing_if = "is_default_read_only_timeout")]
    #[garde(range(min = 1, max = 86_400))]
    pub planning: u32,
    /// One run of a council member or its chair.
    #[serde(skip_serializing_if = "is_default_read_only_timeout")]
    #[garde(range(min = 1, max = 86_400))]
    pub council: u32,
}

/// Default limit of a read-only run, in seconds.
const READ_ONLY_TIMEOUT: u32 = 1_800;

/// Leaves the default out of serialised rules, so that policy versions from before these keys existed
/// stay valid.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_default_read_only_timeout(seconds: &u32) -> bool {
    *seconds == READ_ONLY_TIMEOUT
}

impl Default for JobTimeouts {
    fn default() -> Self {
        Self {
            implementation: 3_600,
            quality_gates: 1_800,
            requirements: READ_ONLY_TIMEOUT,
            planning: READ_ONLY_TIMEOUT,
            council: READ_ONLY_TIMEOUT,
        }
    }
}

impl TaskLoopRules {
    /// Returns the time limit of one implementation run, in seconds. A run that timed out gets it
    /// again, once.
    pub fn implementation_seconds(&self) -> u32 {
        self.capped(self.timeouts.implementation)
    }

    /// Returns the time limit of all gates of one commit, in seconds.
    pub fn quality_gates_seconds(&self) -> u32 {
        self.capped(self.timeouts.quality_gates)
    }

    /// Returns the time limit of one planning run, in seconds.
    pub fn planning_seconds(&self) -> u32 {
        self.capped(self.timeouts.planning)
    }

    /// Returns the time limit of one run of a council member, in seconds.
    pub fn council_seconds(&self) -> u32 {
        self.capped(self.timeouts.council)
    }

    /// Returns the time limit of one run that validates or learns, in seconds.
    pub fn requirements_seconds(&self) -> u32 {
        self.capped(self.timeouts.requirements)
    }

    fn capped(&self, seconds: u32) -> u32 {
        seconds.min(u32::try_from(self.timeout_ms / 1_000).unwrap_or(u32::MAX))
    }

    /// Returns the clock of a run's progress reports.
    pub fn progress_clock(&self, started_at: Timestamp) -> UpdateClock {
        let milliseconds = i64::try_from(self.progress_update_interval_ms).unwrap_or(i64::MAX);
        let interval = TimeDelta::try_milliseconds(milliseconds).unwrap_or(TimeDelta::MAX);
        UpdateClock::new(started_at, interval)
    }
}

impl UserInteraction {
    /// Returns the clock of regular updates about a task, or `None` if they are turned off.
    pub fn update_clock(&self, now: Timestamp) -> Option<UpdateClock> {
        let interval = TimeDelta::seconds(self.update_interval_seconds.into());
        self.proactive_updates.then(|| UpdateClock::new(now, interval))
    }
}
