//! Maintenance of mirrors: packing, and removal of objects that nothing refers to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::fs;

use super::{Error, disk_error, try_lock_file};
use crate::git::Git;

/// Time limit of one mirror. Nobody can fetch or add a worktree meanwhile.
const MAINTENANCE_LIMIT: Duration = Duration::from_mins(10);

/// Age of unreferenced objects that are removed. Worktrees of paused tasks may still need them.
const PRUNE: &str = "--prune=90.days.ago";

/// Result of maintaining the mirrors of a data directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MirrorMaintenance {
    /// Number of maintained mirrors.
    pub done: usize,
    /// Number of mirrors that were in use.
    pub in_use: usize,
    /// Mirrors that failed, with the reason.
    pub failed: Vec<(PathBuf, String)>,
}

/// Packs all mirrors of a data directory, one after the other. Mirrors in use are skipped.
pub async fn maintain_mirrors(git: &Git, data: &Path) -> Result<MirrorMaintenance, Error> {
    let mut result = MirrorMaintenance::default();
    let folder = data.join("mirrors");
    let mut entries = match fs::read_dir(&folder).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(result),
        Err(error) => return Err(disk_error("list", &folder)(error)),
    };
    let mut mirrors = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(disk_error("list", &folder))? {
        if entry.path().extension().is_some_and(|extension| extension == "git") {
            mirrors.push(entry.path());
        }
    }
    mirrors.sort();
    for mirror in mirrors {
        let Some(_lock) = try_lock_file(&mirror.with_extension("lock"))? else {
            result.in_use += 1;
            continue;
        };
        let command = git.bare(&mirror).time_limit(MAINTENANCE_LIMIT);
        match command.run(["gc", "--quiet", PRUNE]).await {
            Ok(_) => result.done += 1,
            Err(error) => result.failed.push((mirror, error.to_string())),
        }
    }
    Ok(result)
}
