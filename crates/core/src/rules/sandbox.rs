//! The sandbox: what confines an agent's process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// What confines an agent's process.
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
pub enum Sandbox {
    /// The best that the machine has; where it has none, agents do not start.
    #[default]
    Auto,
    /// Bubblewrap, and nothing less.
    Bubblewrap,
    /// Landlock. It protects less: see the document on confinement.
    Landlock,
    /// None. An agent can do whatever the worker's user can.
    Off,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
pub(super) fn is_whole(path: &str, (): &()) -> garde::Result {
    // All of the machine is what the list is there to avoid.
    if path.starts_with('/') && !path.trim_matches('/').is_empty() {
        Ok(())
    } else {
        Err(garde::Error::new(format!(
            "`{path}` is no whole path: write where it is from the root on, such as `/srv/cache`"
        )))
    }
}
