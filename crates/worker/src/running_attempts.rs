//! Attempts at jobs that run on this worker.
//!
//! If heartbeats do not arrive in time, Temporal starts another attempt, which can be on the same worker
//! while the earlier one still runs. The later one stops it and waits for its end. Otherwise it would kill
//! the processes of the earlier one, which would take this for a failure of its agent and save that as the
//! result of the job.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tamma_engine::process::RunId;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Time for which a later attempt waits for the end of earlier ones. The end of a run saves its record and
/// uploads its transcript, which takes up to a minute and a half.
const MAX_WAIT: Duration = Duration::from_mins(2);

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
    /// Cancelled when a later attempt has started without waiting any longer.
    abandoned: CancellationToken,
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
    /// Fails while a later attempt runs that is not abandoned: Temporal's message about this one was late. If
    /// numbers have started again because the workflow was reset, the later attempt ends with its next
    /// heartbeat.
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
        let (ended, abandoned) = (CancellationToken::new(), CancellationToken::new());
        let attempt = Arc::new(Attempt { run, stop: stop.clone(), ended, abandoned });
        let earlier = self.register(&attempt)?;
        let running = RunningAttempt { attempts: self.clone(), attempt };
        for earlier in &earlier {
            tracing::info!(%run, earlier = %earlier.run, "stopping an earlier attempt");
            earlier.stop.cancel();
        }
        // One attempt has waited for an abandoned one already.
        let awaited = earlier.iter().filter(|it| !it.abandoned.is_cancelled());
        tokio::select! {
            _ = join_all(awaited.map(|it| it.ended.cancelled())) => {}
            () = tokio::time::sleep(limit) => {
                tracing::warn!(%run, "an earlier attempt has not stopped; continuing without its end");
                for earlier in &earlier {
                    earlier.abandoned.cancel();
                }
            }
            () = stop.cancelled() => return Err(Error::Stopped),
        }
        Ok(running)
    }

    /// Registers an attempt and returns the earlier ones of its task. One with the same number is earlier
    /// too: numbers start again when a workflow requests a job another time.
    fn register(&self, attempt: &Arc<Attempt>) -> Result<Vec<Arc<Attempt>>, Error> {
        let run = attempt.run;
        let mut attempts = self.lock();
        let others: Vec<_> =
            attempts.iter().filter(|it| it.run.task == run.task).cloned().collect();
        let is_current = |it: &&Arc<Attempt>| it.run > run && !it.abandoned.is_cancelled();
        if let Some(later) = others.iter().find(is_current) {
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
    /// Returns a token that is cancelled when a later attempt has started beside this one, whose effects and
    /// result must not count then.
    pub(crate) fn abandoned(&self) -> CancellationToken {
        self.attempt.abandoned.clone()
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
    use std::cell::Cell;

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
            let has_ended = Cell::new(false);
            let later = async {
                let later = attempts.begin(run(4, 2), &later_stop).await.expect("begun");
                assert!(has_ended.get(), "{earlier} still runs");
                later
            };
            let end = async {
                stop.cancelled().await;
                has_ended.set(true);
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
        assert!(!first.abandoned().is_cancelled(), "nobody waits for its end");
        let (limit, stop) = (Duration::from_millis(10), CancellationToken::new());
        let second = attempts.begin_within(limit, run(4, 2), &stop).await.expect("begun");
        assert!(first.abandoned().is_cancelled());
        assert!(!second.abandoned().is_cancelled(), "the later attempt counts");
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
    async fn an_abandoned_attempt_refuses_no_request() {
        let attempts = RunningAttempts::default();
        let _hanging =
            attempts.begin(run(4, 100_001), &CancellationToken::new()).await.expect("begun");
        let (limit, stop) = (Duration::from_millis(10), CancellationToken::new());
        let deferred = attempts.begin_within(limit, run(4, 100_002), &stop).await.expect("begun");
        drop(deferred);
        // Numbers start again when the workflow requests the job another time.
        attempts.begin_within(limit, run(4, 1), &stop).await.expect("begun");
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
