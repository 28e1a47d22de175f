//! Sandbox for agent processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Sandbox for agent processes.
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
pub enum SandboxMode {
    /// Best sandbox that the machine supports. If there is none, agents do not start.
    #[default]
    Auto,
    /// Bubblewrap. If it is unavailable, agents do not start.
    Bubblewrap,
    /// Landlock. Weaker than Bubblewrap: see docs/sandbox.md.
    Landlock,
    /// Seatbelt of macOS. Never tested on macOS: see docs/sandbox.md.
    Seatbelt,
    /// No sandbox. An agent can do everything that the worker's user can.
    Off,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
pub(super) fn is_absolute_path(path: &str, (): &()) -> garde::Result {
    // The root directory is refused, because it would expose the whole machine.
    if path.starts_with('/') && !path.trim_matches('/').is_empty() {
        Ok(())
    } else {
        Err(garde::Error::new(format!(
            "`{path}` is not an absolute path below `/`: write a path such as `/srv/cache`"
        )))
    }
}
