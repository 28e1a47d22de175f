//! Pull request on the card of a task.

use serde::{Deserialize, Serialize};
use strum::Display;
use tamma_core::forge::{CheckFact, CheckResult};
use tamma_store::{StoredPullRequest, StoredStatus};
use utoipa::ToSchema;

/// Pull request on the card of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullRequestBadge {
    /// Number of the pull request.
    pub number: u64,
    /// URL of its page.
    pub url: String,
    /// Status: open, merged or closed.
    #[schema(value_type = String, example = "open")]
    pub status: StoredStatus,
    /// Summary of the checks: none, pending, passed or failed.
    #[schema(value_type = String, example = "passed")]
    pub checks: ChecksSummary,
}

/// Summary of the checks of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ChecksSummary {
    /// No check, or none known yet.
    None,
    /// Some have not finished, and none failed.
    Pending,
    /// All passed.
    Passed,
    /// At least one failed.
    Failed,
}

impl ChecksSummary {
    /// Summarises the checks of a commit.
    pub(crate) fn of(checks: &[CheckFact]) -> Self {
        let any = |result| checks.iter().any(|check| check.result == result);
        if any(CheckResult::Failed) {
            Self::Failed
        } else if any(CheckResult::Pending) {
            Self::Pending
        } else if checks.is_empty() {
            Self::None
        } else {
            Self::Passed
        }
    }
}

impl From<&StoredPullRequest> for PullRequestBadge {
    fn from(stored: &StoredPullRequest) -> Self {
        let checks = stored.facts.as_ref().map(|facts| facts.checks.as_slice());
        Self {
            number: stored.number,
            url: stored.url.clone(),
            status: stored.status,
            checks: ChecksSummary::of(checks.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_check_decides_the_summary() {
        use CheckResult::{Failed, Passed, Pending};
        let summary = |results: &[CheckResult]| {
            let check = |result: &CheckResult| CheckFact {
                name: "ci".to_owned(),
                id: "1".to_owned(),
                required: false,
                result: *result,
            };
            ChecksSummary::of(&results.iter().map(check).collect::<Vec<_>>())
        };
        assert_eq!(summary(&[]), ChecksSummary::None);
        assert_eq!(summary(&[Passed, Passed]), ChecksSummary::Passed);
        assert_eq!(summary(&[Passed, Pending]), ChecksSummary::Pending);
        assert_eq!(summary(&[Pending, Failed]), ChecksSummary::Failed);
    }
}
