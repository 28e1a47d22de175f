//! Pollers of a worker's task queues, for its readiness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tamma_flow::{AGENT_TASK_QUEUE, TASK_QUEUE};
use tokio::time::Instant;

/// Time that a Temporal worker gets to fail after its start, such as for a missing namespace.
const START_TIME: Duration = Duration::from_secs(5);

/// Time that it must run after a failure. Longer than one attempt of a worker that cannot start.
const RECOVERY_TIME: Duration = Duration::from_secs(30);

/// Pollers of all task queues of a worker. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PollerStatus(Arc<Mutex<BTreeMap<&'static str, QueuePollers>>>);

#[derive(Debug, Clone, Copy, Default)]
struct QueuePollers {
    has_failed: bool,
    /// Time from which they count; `None` while they do not run.
    counts_from: Option<Instant>,
}

impl PollerStatus {
    /// Returns `true` if the pollers of all task queues run, and not only since a moment.
    pub fn is_polling(&self) -> bool {
        self.is_polling_at(Instant::now())
    }

    fn is_polling_at(&self, now: Instant) -> bool {
        let queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        [TASK_QUEUE, AGENT_TASK_QUEUE].iter().all(|queue| {
            let counts_from = queues.get(queue).and_then(|pollers| pollers.counts_from);
            counts_from.is_some_and(|from| from <= now)
        })
    }

    /// Notes that the Temporal worker of a queue starts.
    pub(crate) fn start(&self, queue: &'static str, now: Instant) {
        self.change(queue, |pollers| {
            let delay = if pollers.has_failed { RECOVERY_TIME } else { START_TIME };
            pollers.counts_from = Some(now + delay);
        });
    }

    /// Notes that it has ended.
    pub(crate) fn end(&self, queue: &'static str, has_failed: bool) {
        self.change(queue, |pollers| *pollers = QueuePollers { has_failed, counts_from: None });
    }

    fn change(&self, queue: &'static str, change: impl FnOnce(&mut QueuePollers)) {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(queues.entry(queue).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_in_a_restart_loop_is_not_ready() {
        let status = PollerStatus::default();
        let mut now = Instant::now();
        assert!(!status.is_polling_at(now), "it has not started");
        status.start(TASK_QUEUE, now);
        status.start(AGENT_TASK_QUEUE, now);
        assert!(!status.is_polling_at(now), "it may fail at once");
        now += START_TIME;
        assert!(status.is_polling_at(now));
        for _ in 0..3 {
            status.end(AGENT_TASK_QUEUE, true);
            assert!(!status.is_polling_at(now), "each queue needs its pollers");
            status.clone().start(AGENT_TASK_QUEUE, now);
            now += RECOVERY_TIME / 2;
            assert!(!status.is_polling_at(now));
        }
        now += RECOVERY_TIME / 2;
        assert!(status.is_polling_at(now), "it has recovered");
    }
}
