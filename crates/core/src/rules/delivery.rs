//! Delivery: where a change that has passed goes.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Where a change that has passed goes, and where it started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Delivery {
    /// How it is delivered. Only `branch` is there yet.
    #[garde(custom(is_there))]
    pub mode: Mode,
    /// The branch that work starts from. By default the one that the repository's `HEAD` is at.
    #[garde(length(min = 1, max = 200))]
    pub base: Option<String>,
}

/// A way to deliver.
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
pub enum Mode {
    /// The change is left on a branch of its own.
    #[default]
    Branch,
    /// Planned, and refused until then: the change is merged through a queue.
    Merge,
    /// Planned, and refused until then: a pull request is opened.
    PullRequest,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn is_there(mode: &Mode, (): &()) -> garde::Result {
    match mode {
        Mode::Branch => Ok(()),
        Mode::Merge | Mode::PullRequest => Err(garde::Error::new(format!(
            "`{mode}` is planned and not there yet: write `branch`, and take the branch from there"
        ))),
    }
}
