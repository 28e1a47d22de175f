//! Attempts at a job that ended with their worker.
//!
//! Errors are retried for as long as they last, because a database or a network comes back. A job
//! that kills its worker, for example by using all memory, would kill one worker after another. So
//! these workers are counted, in the heartbeats that Temporal passes to the next attempt.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Number of lost processes after which a job fails. Then a person decides.
const MAX_LOST_PROCESSES: u32 = 5;

/// Number of attempts in a row without an end after which a job fails, although the processes may live. A
/// job can keep its worker from sending heartbeats, and would start again and again.
const MAX_LOST_ATTEMPTS: u32 = 50;

/// Heartbeat of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttemptHeartbeat {
    /// Process that makes the attempt.
    process: String,
    /// Other processes that made earlier attempts and did not end them, so they probably died.
    lost: Vec<String>,
    /// Attempts without an end right before this one.
    unfinished: u32,
    /// The attempt returned an error, so its worker is fine.
    has_ended: bool,
}

impl AttemptHeartbeat {
    /// Returns the first heartbeat of an attempt by a process, after the last one of the attempt before.
    ///
    /// Heartbeats also fail to arrive while Temporal or the network is down. So a process counts once, and
    /// not at all while it makes the attempt itself.
    pub(super) fn first(attempt: u32, previous: Option<Self>, process: &str) -> Self {
        let (mut lost, mut unfinished) = (Vec::new(), 0);
        // Without a heartbeat, no work was started, or the first attempt was lost at once.
        if let Some(previous) = previous.filter(|_| attempt > 1) {
            lost = previous.lost;
            if !previous.has_ended {
                unfinished = previous.unfinished + 1;
                if !lost.contains(&previous.process) {
                    lost.push(previous.process);
                }
            }
            lost.retain(|it| it != process);
        }
        Self { process: process.to_owned(), lost, unfinished, has_ended: false }
    }

    /// Returns the last heartbeat of an attempt that returns an error.
    pub(super) fn ended(self) -> Self {
        Self { has_ended: true, ..self }
    }

    /// Returns the reason why the job must not be tried again, if there is one.
    pub(super) fn too_many_lost(&self) -> Option<Error> {
        too_many_lost(u32::try_from(self.lost.len()).unwrap_or(u32::MAX), self.unfinished)
    }
}

/// Returns the reason why a job must not be tried again after a number of lost processes, and of attempts in
/// a row without an end.
pub(crate) fn too_many_lost(processes: u32, attempts: u32) -> Option<Error> {
    if processes >= MAX_LOST_PROCESSES {
        Some(Error::LostWorkers(processes))
    } else if attempts >= MAX_LOST_ATTEMPTS {
        Some(Error::LostAttempts(attempts))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attempts_that_ended_with_their_worker_count() {
        let next = |attempt: u32, previous, process: u32| {
            AttemptHeartbeat::first(attempt, previous, &format!("process {process}"))
        };
        let mut heartbeat = next(1, None, 1);
        for attempt in 2..100 {
            heartbeat = next(attempt, Some(heartbeat.ended()), attempt);
        }
        assert!(heartbeat.too_many_lost().is_none(), "errors are retried");
        for attempt in 100..104 {
            heartbeat = next(attempt, Some(heartbeat), attempt);
            assert!(heartbeat.too_many_lost().is_none());
        }
        let heartbeat = next(104, Some(heartbeat), 104);
        assert!(matches!(heartbeat.too_many_lost(), Some(Error::LostWorkers(5))));
        assert!(next(1, Some(heartbeat), 105).too_many_lost().is_none());
        assert_eq!(next(2, None, 1), next(1, None, 1), "lost before its first heartbeat");
    }

    #[test]
    fn lost_heartbeats_are_not_the_death_of_workers() {
        let mut heartbeat = AttemptHeartbeat::first(1, None, "one");
        for attempt in 2..=50 {
            let process = ["one", "two", "three"][attempt as usize % 3];
            heartbeat = AttemptHeartbeat::first(attempt, Some(heartbeat), process);
            assert!(heartbeat.too_many_lost().is_none(), "{heartbeat:?}");
        }
        assert_eq!(heartbeat.lost.len(), 2);
    }

    #[test]
    fn a_job_that_silences_a_living_worker_is_not_tried_without_end() {
        let (mut heartbeat, mut attempts) = (AttemptHeartbeat::first(1, None, "one"), 1);
        while heartbeat.too_many_lost().is_none() {
            attempts += 1;
            heartbeat = AttemptHeartbeat::first(attempts, Some(heartbeat), "one");
        }
        assert_eq!(attempts, 51, "the fifty before it had no end");
        assert!(matches!(heartbeat.too_many_lost(), Some(Error::LostAttempts(50))));
        let ended = AttemptHeartbeat::first(51, Some(heartbeat.ended()), "one");
        assert!(ended.too_many_lost().is_none(), "an error is an end");
    }
}
