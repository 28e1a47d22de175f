//! Size of a change, shown before the button that accepts it.

use tamma_core::format::{format_number, pluralize};
use tamma_core::ids::TaskId;
use tamma_core::review::patch::{self, PatchLine};
use uuid::Uuid;

use crate::app::{App, Error};

/// Change that a decision is about, with the page that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::web) struct ChangeSummary {
    pub(in crate::web) href: String,
    /// `None` if the patch of the commit is not stored.
    pub(in crate::web) size: Option<ChangeSize>,
}

/// Number of files and lines of a patch, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::web) struct ChangeSize {
    pub(in crate::web) files: String,
    pub(in crate::web) added: String,
    pub(in crate::web) removed: String,
    /// The end of the patch is missing, so there is more.
    pub(in crate::web) is_truncated: bool,
}

impl ChangeSummary {
    /// Loads the size of a commit of a task.
    pub(super) async fn load(app: &App, task: Uuid, commit: Option<&str>) -> Result<Self, Error> {
        let size = match app.latest_change(TaskId(task)).await {
            Ok(change) if Some(change.commit.as_str()) == commit => {
                Some(ChangeSize::of(&change.patch, change.is_truncated))
            }
            // A patch of another commit says nothing about this one.
            Ok(_) | Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { href: format!("/tasks/{task}/change#question"), size })
    }
}

impl ChangeSize {
    fn of(patch: &str, is_truncated: bool) -> Self {
        let (mut files, mut added, mut removed) = (0_usize, 0_u64, 0_u64);
        for line in patch::lines(patch) {
            match line {
                PatchLine::File(_) => files += 1,
                PatchLine::Added(..) => added += 1,
                PatchLine::Removed(_) => removed += 1,
                PatchLine::Hunk(..) | PatchLine::Context(..) | PatchLine::Header(_) => {}
            }
        }
        Self {
            files: pluralize(files, "file"),
            added: format_number(added),
            removed: format_number(removed),
            is_truncated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_lines_of_a_patch_are_counted() {
        let patch = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@\n x\n-y\n+z\n+z\n\
            diff --git a/b.png b/b.png\nBinary files a/b.png and b/b.png differ\n";
        let size = ChangeSize::of(patch, false);
        assert_eq!((&*size.files, &*size.added, &*size.removed), ("2 files", "2", "1"));
    }
}
