//! Delivery of changes that passed review.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Base branch, and delivery of changes that passed review.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryRules {
    /// Delivery mode. Only `branch` is supported.
    #[garde(custom(is_supported))]
    pub mode: DeliveryMode,
    /// Branch that work starts from. Default: the branch that the repository's `HEAD` points to.
    #[garde(length(min = 1, max = 200))]
    pub base: Option<String>,
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
    /// Merge through a queue. Planned; refused for now.
    Merge,
    /// Open a pull request. Planned; refused for now.
    PullRequest,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_supported(mode: &DeliveryMode, (): &()) -> garde::Result {
    match mode {
        DeliveryMode::Branch => Ok(()),
        DeliveryMode::Merge | DeliveryMode::PullRequest => Err(garde::Error::new(format!(
            "`{mode}` is not supported yet: use `branch`, then merge the branch yourself"
        ))),
    }
}
