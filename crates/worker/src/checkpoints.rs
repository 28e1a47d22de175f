//! Checkpoints of a worktree while an agent works in it.

use std::future::Future;
use std::time::Duration;

use tamma_core::rules::Rules;
use tamma_engine::worktree::{Checkpoint, CheckpointProgress, Worktree};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::retry::retry_while_disk_is_full;

/// Runs an agent and saves checkpoints at regular intervals, so that another worker can continue.
pub(crate) async fn with_checkpoints<T>(
    worktree: &Worktree,
    rules: &Rules,
    running: impl Future<Output = T>,
) -> T {
    let over = CancellationToken::new();
    let running = async {
        let result = running.await;
        over.cancel();
        result
    };
    // Half the configured interval, because a checkpoint takes time and misses later writes. So
    // no work older than the interval is lost.
    let pause = Duration::from_secs(u64::from(rules.engines.salvage_seconds)) / 2;
    // Concurrent with the run, and awaited to its end, so that no git lock remains.
    let (result, ()) = tokio::join!(running, checkpoint_periodically(worktree, pause, &over));
    result
}

async fn checkpoint_periodically(worktree: &Worktree, pause: Duration, over: &CancellationToken) {
    let mut interval = tokio::time::interval(pause);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval.tick().await;
    let mut progress = CheckpointProgress::default();
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = over.cancelled() => return,
        }
        match worktree.next_checkpoint(&mut progress).await {
            Ok(saved) => warn_if_not_pushed(worktree, saved.as_ref()),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(task = %worktree.task(), error, "failed to save checkpoint");
            }
        }
    }
}

/// Saves a checkpoint, and waits a while for space if the disk is full. A failed push is logged and retried
/// with the next checkpoint.
pub(crate) async fn save_checkpoint(
    worktree: &Worktree,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let saved = retry_while_disk_is_full(stop, || worktree.checkpoint()).await?;
    warn_if_not_pushed(worktree, Some(&saved));
    Ok(())
}

fn warn_if_not_pushed(worktree: &Worktree, saved: Option<&Checkpoint>) {
    if let Some(reason) = saved.and_then(|saved| saved.push_error.as_ref()) {
        tracing::warn!(task = %worktree.task(), reason, "failed to push checkpoint; work is on this worker only");
    }
}
