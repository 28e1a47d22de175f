//! Prompts that a project replaces.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Paths of prompts in the repository, by the prompt they replace. They are Jinja templates; see
/// `docs/agents.md` for their variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct PromptRules {
    /// Prompt of the planner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_repository_file)))]
    pub plan: Option<String>,
    /// Prompt of the implementing agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_repository_file)))]
    pub implement: Option<String>,
    /// Prompt of the validator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_repository_file)))]
    pub validate: Option<String>,
    /// Prompt of a council member.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_repository_file)))]
    pub advise: Option<String>,
    /// Prompt of the council's chair.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_repository_file)))]
    pub conclude: Option<String>,
    /// Prompt of the run that extracts lessons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(is_repository_file)))]
    pub learn: Option<String>,
}

impl PromptRules {
    /// Returns the replaced prompts by name, with the paths of their files.
    pub fn paths(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("plan", &self.plan),
            ("implement", &self.implement),
            ("validate", &self.validate),
            ("advise", &self.advise),
            ("conclude", &self.conclude),
            ("learn", &self.learn),
        ]
        .into_iter()
        .filter_map(|(name, path)| Some((name, path.as_deref()?)))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_repository_file(path: &str, (): &()) -> garde::Result {
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    if path.split('/').all(is_name) && !path.contains(['\0', ':']) {
        Ok(())
    } else {
        Err(garde::Error::new(format!(
            "`{path}` is not a file in the repository: write its path from the root, without a \
             leading `/` and without `..`"
        )))
    }
}
