//! Check of the files that a phase changed.
//!
//! It is the check that a task's change gets before its review. There is no second attempt here, so
//! refused files are restored before anything is committed. Checkpoints keep what was there.

use std::collections::BTreeSet;

use tamma_core::issue::Issue;
use tamma_core::pipeline::signal::{PhaseSignal, SignalSource};
use tamma_engine::worktree::Worktree;

use super::story_files::StoryFiles;
use super::{PhaseContext, PhaseEnd, PhaseEndKind};
use crate::change_check::CommittedChange;
use crate::checkpoints::save_checkpoint;
use crate::error::Error;
use crate::services::Services;

/// Maximum number of problems in a reason.
const MAX_LISTED: usize = 5;

/// Problems with the files of a phase.
struct RefusedChange {
    reason: String,
    /// Files that must not be committed. A problem may be in none.
    files: BTreeSet<String>,
}

/// Fails a phase whose files must not be committed.
pub(super) async fn check(
    services: &Services,
    ctx: &PhaseContext,
    worktree: &Worktree,
    files: &StoryFiles,
    end: PhaseEnd,
) -> Result<PhaseEnd, Error> {
    if matches!(end.kind, PhaseEndKind::NotBefore(_)) {
        return Ok(end);
    }
    let Some(refused) = find_refused(services, ctx, worktree, files).await? else {
        return Ok(end);
    };
    let reason = match &end.kind {
        PhaseEndKind::Crashed(reason)
        | PhaseEndKind::Signal(PhaseSignal::Failed(reason) | PhaseSignal::Blocked(reason), _) => {
            format!("{reason}; {}", refused.reason)
        }
        PhaseEndKind::TimedOut => format!("timed out; {}", refused.reason),
        PhaseEndKind::Signal(PhaseSignal::Success | PhaseSignal::Unclear(_), _)
        | PhaseEndKind::Split(_)
        | PhaseEndKind::NotBefore(_) => refused.reason,
    };
    let kind = PhaseEndKind::Signal(PhaseSignal::failed(&reason), SignalSource::Structured);
    Ok(PhaseEnd { kind, ..end })
}

/// Restores files that must not be committed.
pub(super) async fn discard_refused(
    services: &Services,
    ctx: &PhaseContext,
    worktree: &Worktree,
    files: &StoryFiles,
) -> Result<(), Error> {
    let Some(refused) = find_refused(services, ctx, worktree, files).await? else { return Ok(()) };
    if refused.files.is_empty() {
        return Ok(());
    }
    save_checkpoint(worktree, &ctx.job.stop).await?;
    worktree.restore(&refused.files).await?;
    let (pipeline, phase, reason) = (ctx.request.pipeline, ctx.request.phase, refused.reason);
    tracing::warn!(%pipeline, phase, reason, "restored files that a phase must not change");
    match find_refused(services, ctx, worktree, files).await? {
        Some(left) if !left.files.is_empty() => {
            Err(Error::Internal(format!("files could not be restored: {}", left.reason)))
        }
        _ => Ok(()),
    }
}

/// Compares the worktree with the commit of the branch, as the next commit would.
async fn find_refused(
    services: &Services,
    ctx: &PhaseContext,
    worktree: &Worktree,
    files: &StoryFiles,
) -> Result<Option<RefusedChange>, Error> {
    let (head, commit) = (worktree.head().await?, worktree.snapshot_commit().await?);
    if commit == head {
        return Ok(None);
    }
    let change = CommittedChange::load(&ctx.job, worktree, head, commit).await?;
    let is_own = |issue: &Issue| issue.file.as_ref().is_some_and(|file| files.is_own_file(file));
    let mut issues = change.find_issues(services).await?;
    issues.retain(|issue| issue.is_blocking() && !is_own(issue));
    if issues.is_empty() {
        return Ok(None);
    }
    let mut refused: BTreeSet<String> =
        issues.iter().filter_map(|issue| issue.file.clone()).collect();
    if change.is_diff_truncated() {
        let touched = change.touched.keys().filter(|path| !files.is_own_file(path));
        refused.extend(touched.cloned());
    }
    Ok(Some(RefusedChange { reason: describe(&issues), files: refused }))
}

fn describe(issues: &[Issue]) -> String {
    let text = |issue: &Issue| match &issue.file {
        Some(file) => format!("`{file}`: {}", issue.message),
        None => issue.message.clone(),
    };
    let mut listed: Vec<_> = issues.iter().take(MAX_LISTED).map(text).collect();
    let more = issues.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    listed.join("; ")
}
