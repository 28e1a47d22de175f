//! Slots of one worker for agents with read-only access, in the order of
//! [`run_queue`](tamma_core::run_queue).

use std::sync::{Arc, Mutex, PoisonError};

use tamma_core::run_queue::{WaitingRun, runs_ahead};
use tamma_core::task_loop::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::error::Error;

/// Slots with a queue. Clones share them.
#[derive(Clone)]
pub(crate) struct SlotQueue {
    state: Arc<Mutex<QueueState>>,
    changed: Arc<Notify>,
}

struct QueueState {
    free: usize,
    waiting: Vec<WaitingRun>,
}

/// Slot in use. Dropping it frees the slot.
pub(crate) struct UsedSlot {
    queue: SlotQueue,
}

/// Place of a run in the queue. Dropping it gives the place up.
struct QueuePlace<'a> {
    queue: &'a SlotQueue,
    holder: String,
}

impl SlotQueue {
    /// Creates a queue for at least one slot.
    pub(crate) fn new(slots: usize) -> Self {
        let state = QueueState { free: slots.max(1), waiting: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    /// Waits until a slot is free and no other run comes first.
    pub(crate) async fn acquire(
        &self,
        run: WaitingRun,
        stop: &CancellationToken,
    ) -> Result<UsedSlot, Error> {
        let place = QueuePlace { queue: self, holder: run.holder.clone() };
        self.with_state(|state| state.waiting.push(run.clone()));
        loop {
            // Registered before the check, so that no change is missed.
            let changed = self.changed.notified();
            if self.with_state(|state| state.take(&run, now())) {
                drop(place);
                return Ok(UsedSlot { queue: self.clone() });
            }
            tokio::select! {
                () = changed => {}
                () = stop.cancelled() => return Err(Error::Stopped),
            }
        }
    }

    fn with_state<T>(&self, change: impl FnOnce(&mut QueueState) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl QueueState {
    /// Takes a slot for a run if it is its turn.
    fn take(&mut self, run: &WaitingRun, now: Timestamp) -> bool {
        let is_turn = runs_ahead(run, &self.waiting, now) < self.free;
        if is_turn {
            self.free -= 1;
        }
        is_turn
    }
}

impl Drop for UsedSlot {
    fn drop(&mut self) {
        self.queue.with_state(|state| state.free += 1);
        self.queue.changed.notify_waiters();
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.queue.with_state(|state| state.waiting.retain(|it| it.holder != self.holder));
        self.queue.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::task::Priority;
    use tokio::sync::mpsc;

    use super::*;

    fn run(holder: &str, priority: Priority) -> WaitingRun {
        WaitingRun { holder: holder.to_owned(), priority, since: now() }
    }

    #[tokio::test]
    async fn free_slots_go_to_the_most_urgent_run() {
        let (queue, stop) = (SlotQueue::new(1), CancellationToken::new());
        let slot = queue.acquire(run("first", Priority::Low), &stop).await.expect("a free slot");
        let (sender, mut order) = mpsc::unbounded_channel();
        for priority in [Priority::Low, Priority::Critical, Priority::Medium] {
            let (queue, stop, sender) = (queue.clone(), stop.clone(), sender.clone());
            tokio::spawn(async move {
                let run = run(&priority.to_string(), priority);
                let slot = queue.acquire(run, &stop).await.expect("a free slot");
                sender.send(priority).expect("a receiver");
                drop(slot);
            });
        }
        while queue.with_state(|state| state.waiting.len()) < 3 {
            tokio::task::yield_now().await;
        }
        drop(slot);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.extend(order.recv().await);
        }
        assert_eq!(seen, [Priority::Critical, Priority::Medium, Priority::Low]);
        assert_eq!(queue.with_state(|state| (state.free, state.waiting.len())), (1, 0));
    }

    #[tokio::test]
    async fn a_stopped_run_gives_up_its_place() {
        let (queue, stop) = (SlotQueue::new(1), CancellationToken::new());
        let slot = queue.acquire(run("first", Priority::Low), &stop).await.expect("a free slot");
        let stopped = CancellationToken::new();
        stopped.cancel();
        let result = queue.acquire(run("stopped", Priority::Critical), &stopped).await;
        assert!(matches!(result, Err(Error::Stopped)));
        drop(slot);
        queue.acquire(run("next", Priority::Low), &stop).await.expect("a free slot");
    }
}
