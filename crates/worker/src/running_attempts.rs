//! Attempts at jobs that run on this worker.
//!
//! If heartbeats do not arrive in time, Temporal starts another attempt, which can be on the same worker
//! while the earlier one still runs. The later one stops it and waits for its end. Otherwise it would kill
//! the processes of the earlier one, which would take this for a failure of its agent and save that as the
//! result of the job.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tamma_engine::process::RunId;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Time for which a later attempt waits for the end of earlier ones.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Attempts that run on this worker. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningAttempts(Arc<Mutex<Vec<Arc<Attempt>>>>);

#[derive(Debug)]
struct Attempt {
    run: RunId,
    /// Cancelled when the attempt must stop.
    stop: CancellationToken,
    /// Cancelled when the attempt has ended.
    ended: CancellationToken,
    /// A later attempt has started without waiting any longer.
    is_abandoned: AtomicBool,
}

/// Registration of an attempt. Dropping it marks the end of the attempt.
#[derive(Debug)]
pub(crate) struct RunningAttempt {
    attempts: RunningAttempts,
    attempt: Arc<Attempt>,
}

impl RunningAttempts {
    /// Registers an attempt, stops the earlier ones at this job and at earlier jobs of its task, and waits
    /// until they have ended. A task has one job at a time, so nobody waits for their results.
    ///
    /// Fails while a later attempt runs: Temporal's message about this one was late. If numbers have
    /// started again because the workflow was reset, the later attempt ends with its next heartbeat.
    pub(crate) async fn begin(
        &self,
        run: RunId,
        stop: &CancellationToken,
    ) -> Result<RunningAttempt, Error> {
        self.begin_within(MAX_WAIT, run, stop).await
    }

    async fn begin_within(
        &self,
        limit: Duration,
        run: RunId,
        stop: &CancellationToken,
    ) -> Result<RunningAttempt, Error> {
        let ended = CancellationToken::new();
        let is_abandoned = AtomicBool::new(false);
        let attempt = Arc::new(Attempt { run, stop: stop.clone(), ended, is_abandoned });
        let earlier = self.register(&attempt)?;
        let running = RunningAttempt { attempts: self.clone(), attempt };
        for earlier in &earlier {
            tracing::info!(%run, earlier = %earlier.run, "stopping an earlier attempt");
            earlier.stop.cancel();
        }
        tokio::select! {
            _ = join_all(earlier.iter().map(|it| it.ended.cancelled())) => {}
            () = tokio::time::sleep(limit) => {
                tracing::warn!(%run, "an earlier attempt has not stopped; continuing without its end");
                for earlier in &earlier {
                    earlier.is_abandoned.store(true, Ordering::SeqCst);
                }
            }
            () = stop.cancelled() => return Err(Error::Stopped),
        }
        Ok(running)
    }

    /// Registers an attempt and returns the earlier ones of its task. One with the same number is earlier
    /// too: numbers start again when a workflow requests a job another time.
    fn register(&self, attempt: &Arc<Attempt>) -> Result<Vec<Arc<Attempt>>, Error> {
        let order = |run: RunId| (run.job_number, run.generation);
        let run = attempt.run;
        let mut attempts = self.lock();
        let others: Vec<_> =
            attempts.iter().filter(|it| it.run.task == run.task).cloned().collect();
        if let Some(later) = others.iter().find(|it| order(it.run) > order(run)) {
            return Err(Error::Outdated { run, by: later.run });
        }
        attempts.push(attempt.clone());
        Ok(others)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Attempt>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningAttempt {
    /// Fails if a later attempt has started beside this one, whose result must not count then.
    pub(crate) fn check_not_abandoned(&self) -> Result<(), Error> {
        if self.attempt.is_abandoned.load(Ordering::SeqCst) { Err(Error::Stopped) } else { Ok(()) }
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        self.attempts.lock().retain(|it| !Arc::ptr_eq(it, &self.attempt));
        self.attempt.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::ids::TaskId;

    use super::*;

    fn run(job_number: u32, generation: u32) -> RunId {
        RunId { task: TaskId(uuid::Uuid::nil()), job_number, generation }
    }

    #[tokio::test]
    async fn an_attempt_starts_when_the_earlier_ones_have_ended() {
        for earlier in [run(3, 9), run(4, 1), run(4, 2)] {
            let attempts = RunningAttempts::default();
            let (stop, later_stop) = (CancellationToken::new(), CancellationToken::new());
            let first = attempts.begin(earlier, &stop).await.expect("begun");
            let later = attempts.begin(run(4, 2), &later_stop);
            let end = async {
                stop.cancelled().await;
                drop(first);
            };
            let (later, ()) = tokio::join!(later, end);
            assert!(!later_stop.is_cancelled(), "{earlier}");
            drop(later);
            assert!(attempts.lock().is_empty());
        }
    }

    #[tokio::test]
    async fn an_attempt_that_does_not_stop_has_no_result() {
        let attempts = RunningAttempts::default();
        let first = attempts.begin(run(4, 1), &CancellationToken::new()).await.expect("begun");
        first.check_not_abandoned().expect("nobody waits for its end");
        let (limit, stop) = (Duration::from_millis(10), CancellationToken::new());
        let second = attempts.begin_within(limit, run(4, 2), &stop).await.expect("begun");
        assert!(matches!(first.check_not_abandoned(), Err(Error::Stopped)));
        second.check_not_abandoned().expect("the later attempt counts");
    }

    #[tokio::test]
    async fn later_attempts_and_other_tasks_are_left_alone() {
        let attempts = RunningAttempts::default();
        let stop = CancellationToken::new();
        let _later = attempts.begin(run(4, 2), &stop).await.expect("begun");
        for outdated in [run(4, 1), run(3, 9)] {
            let refused = attempts.begin(outdated, &CancellationToken::new()).await;
            assert!(matches!(refused, Err(Error::Outdated { .. })), "{refused:?}");
        }
        let other = RunId { task: TaskId(uuid::Uuid::max()), ..run(1, 1) };
        let _other = attempts.begin(other, &stop).await.expect("begun");
        assert!(!stop.is_cancelled());
        assert_eq!(attempts.lock().len(), 2);
    }

    #[tokio::test]
    async fn an_attempt_that_is_stopped_does_not_wait() {
        let attempts = RunningAttempts::default();
        let stop = CancellationToken::new();
        let _first = attempts.begin(run(4, 1), &CancellationToken::new()).await.expect("begun");
        stop.cancel();
        let refused = attempts.begin(run(4, 2), &stop).await;
        assert!(matches!(refused, Err(Error::Stopped)));
        assert_eq!(attempts.lock().len(), 1);
    }
}
