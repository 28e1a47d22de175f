//! Retention of data, in days.

use serde::{Deserialize, Serialize};

/// Shortest retention, in days. Running tasks need recent data.
const MIN_DAYS: u32 = 7;

/// Days after which data is removed. Without a value, it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionDays {
    /// Log lines of agents, by whole months.
    pub log_lines: Option<u32>,
    /// Job results, gate results and failures of closed tasks, and gate results of base commits.
    pub job_results: Option<u32>,
    /// Metered model calls, by whole months.
    pub model_calls: Option<u32>,
    /// Ended deliveries of alerts.
    pub deliveries: Option<u32>,
    /// Accepted webhooks of forges, and settled effects and merge queue entries of closed tasks.
    pub forge_records: Option<u32>,
    /// Texts that no open task refers to, such as briefs and notes, and comments on lines of closed
    /// tasks.
    pub texts: Option<u32>,
    /// Transcripts of runs.
    pub transcripts: Option<u32>,
    /// Worktrees, homes and gate checkouts of ended tasks and stories, on each worker.
    pub workspaces: Option<u32>,
}

impl Default for RetentionDays {
    fn default() -> Self {
        Self {
            log_lines: Some(90),
            job_results: None,
            model_calls: None,
            deliveries: None,
            forge_records: None,
            texts: None,
            transcripts: None,
            workspaces: None,
        }
    }
}

impl RetentionDays {
    /// Returns the name of a value that is too short.
    pub(super) fn too_short(&self) -> Option<&'static str> {
        [
            ("log_lines", self.log_lines),
            ("job_results", self.job_results),
            ("model_calls", self.model_calls),
            ("deliveries", self.deliveries),
            ("forge_records", self.forge_records),
            ("texts", self.texts),
            ("transcripts", self.transcripts),
            ("workspaces", self.workspaces),
        ]
        .into_iter()
        .find(|(_, days)| days.is_some_and(|days| days < MIN_DAYS))
        .map(|(name, _)| name)
    }
}
