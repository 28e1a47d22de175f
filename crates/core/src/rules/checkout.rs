//! Checkouts of the repository.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Checkouts of the repository, for agents and gates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct CheckoutRules {
    /// Folders to check out, from the root, for repositories that are too large to check out
    /// completely. The files above them are checked out too. Agents and gates see nothing else.
    /// Empty: everything.
    #[garde(inner(custom(is_folder)))]
    pub sparse: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_folder(path: &str, (): &()) -> garde::Result {
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    let is_plain = !path.contains(['*', '?', '[', '\0']);
    if is_plain && path.strip_suffix('/').unwrap_or(path).split('/').all(is_name) {
        Ok(())
    } else {
        Err(garde::Error::new(format!(
            "`{path}` is not a folder of the repository: write it without a leading `/`, `..` and \
             wildcards, such as `web/app`"
        )))
    }
}
