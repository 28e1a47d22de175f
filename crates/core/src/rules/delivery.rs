//! Delivery of changes that passed review.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::is_default;
use crate::level::RiskLevel;

/// Base branch, and delivery of changes that passed review.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryRules {
    /// Delivery mode. `pull_request` and `merge` need a forge (`tamma forge add`).
    #[garde(skip)]
    pub mode: DeliveryMode,
    /// Branch that work starts from, and that pull requests go to. Default: the branch that the
    /// repository's `HEAD` points to.
    #[garde(length(min = 1, max = 200))]
    pub base: Option<String>,
    /// Delivery modes of risk levels that differ from `mode`.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub by_risk: BTreeMap<RiskLevel, DeliveryMode>,
    /// Pull requests.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub pull_requests: PullRequestRules,
    /// Merge queue.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive, custom(|queue: &MergeQueueRules, (): &()| {
        must_fit_method(queue.mode, self.pull_requests.merge_method)
    }))]
    pub queue: MergeQueueRules,
    /// Issues that become tasks.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub intake: IntakeRules,
    /// Effects of merged changes.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(dive)]
    pub aftercare: AftercareRules,
}

impl DeliveryRules {
    /// Returns the delivery mode of a change.
    pub fn mode_for(&self, risk: RiskLevel) -> DeliveryMode {
        self.by_risk.get(&risk).copied().unwrap_or(self.mode)
    }
}

/// Tamma's queue tests the commit that lands, and forges know a change as merged by its commits. A
/// squashed or rebased change would have others.
fn must_fit_method(mode: MergeQueueMode, method: MergeMethod) -> garde::Result {
    if mode == MergeQueueMode::Tamma && method != MergeMethod::Merge {
        return Err(garde::Error::new(format!(
            "the merge queue of Tamma lands merge commits, not `{method}`: set \
             `delivery.pull_requests.merge_method` to `merge`, or `delivery.queue.mode` to `off`"
        )));
    }
    Ok(())
}

/// Delivery mode.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryMode {
    /// Leave the change on its own branch.
    #[default]
    Branch,
    /// Open a pull request, and merge it when its checks and reviews allow it.
    Merge,
    /// Open a pull request, answer its checks and reviews, and leave the merge to a person.
    PullRequest,
}

/// Pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct PullRequestRules {
    /// How a pull request is merged. Only `merge` if `delivery.queue.mode` is `tamma`.
    #[garde(skip)]
    pub merge_method: MergeMethod,
    /// Checks that must pass besides those that the forge requires, by name.
    #[garde(length(max = 50))]
    pub required_checks: Vec<String>,
    /// Minutes without any check after which a person is asked whether the repository has no CI.
    #[garde(range(min = 1, max = 1_440))]
    pub no_checks_minutes: u32,
    /// Approving reviews that Tamma waits for before it merges. The forge can require more.
    #[garde(range(min = 0, max = 10))]
    pub approvals: u8,
    /// Rounds of failed checks and review comments that go back to the agent before a person is
    /// asked.
    #[garde(range(min = 0, max = 20))]
    pub max_rounds: u8,
    /// Labels of new pull requests.
    #[garde(length(max = 20))]
    pub labels: Vec<String>,
    /// Accounts that are asked for a review.
    #[garde(length(max = 20))]
    pub reviewers: Vec<String>,
}

impl Default for PullRequestRules {
    fn default() -> Self {
        Self {
            merge_method: MergeMethod::default(),
            required_checks: Vec::new(),
            no_checks_minutes: 10,
            approvals: 0,
            max_rounds: 5,
            labels: Vec::new(),
            reviewers: Vec::new(),
        }
    }
}

/// How a pull request is merged.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MergeMethod {
    /// Merge commit.
    #[default]
    Merge,
    /// One new commit.
    Squash,
    /// The commits again, on top of the base.
    Rebase,
}

/// Merge queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct MergeQueueRules {
    /// Queue that merges go through.
    #[garde(skip)]
    pub mode: MergeQueueMode,
    /// Most changes that are tested together. A failed batch is split.
    #[garde(range(min = 1, max = 50))]
    pub batch: u8,
}

impl Default for MergeQueueRules {
    fn default() -> Self {
        Self { mode: MergeQueueMode::default(), batch: 8 }
    }
}

/// Queue that merges go through.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MergeQueueMode {
    /// None of Tamma's. The forge merges each pull request, through its own queue if the branch requires
    /// one.
    #[default]
    Off,
    /// Tamma's own queue, which lands merge commits.
    Tamma,
}

/// Issues that become tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct IntakeRules {
    /// Label of issues that become tasks. Default: none does.
    #[garde(length(min = 1, max = 100))]
    pub label: Option<String>,
    /// Account whose mention, by somebody who can push, makes an issue a task; without `@`.
    #[garde(length(min = 1, max = 100))]
    pub mention: Option<String>,
}

/// Effects of merged changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct AftercareRules {
    /// Days after a merge in which reverts, fixes of the same lines and a red base branch are traced to
    /// the task. 0 traces nothing.
    #[garde(range(min = 0, max = 90))]
    pub days: u16,
}

impl Default for AftercareRules {
    fn default() -> Self {
        Self { days: 14 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Option<String> {
        let rules: DeliveryRules = serde_json::from_str(text).expect("delivery");
        rules.validate().err().map(|problems| problems.to_string())
    }

    #[test]
    fn the_queue_lands_merge_commits_only() {
        for method in ["squash", "rebase"] {
            let methods = format!(r#""pull_requests": {{ "merge_method": "{method}" }}"#);
            let queue = r#""queue": { "mode": "tamma" }"#;
            let found = problems(&format!("{{ {methods}, {queue} }}")).expect("refused");
            assert!(found.contains(method) && found.contains("merge_method"), "{found}");
            assert_eq!(problems(&format!("{{ {methods} }}")), None);
        }
        assert_eq!(problems(r#"{ "queue": { "mode": "tamma" } }"#), None);
    }

    #[test]
    fn a_queue_of_the_forge_needs_no_mode() {
        let found = serde_json::from_str::<DeliveryRules>(r#"{ "queue": { "mode": "forge" } }"#);
        let problem = found.expect_err("refused").to_string();
        assert!(problem.contains("`off` or `tamma`"), "{problem}");
    }
}
