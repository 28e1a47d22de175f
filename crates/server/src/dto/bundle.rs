//! Everything about a task, as files.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Everything about a task, as files without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskBundle {
    /// Files, the most important first.
    pub files: Vec<BundleFile>,
}

/// File of a task's bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BundleFile {
    /// Relative path.
    #[schema(example = "runs/4.1/transcript.jsonl")]
    pub path: String,
    /// Content.
    pub text: String,
}
