//! Slots of one worker for agents, in the order of [`run_queue`](tamma_core::run_queue). Projects take
//! turns.

use std::sync::{Arc, Mutex, PoisonError};

use tamma_core::ids::ProjectId;
use tamma_core::run_queue::{ProjectRun, runs_ahead_in_turn};
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
    slots: usize,
    /// Projects of the used slots.
    active: Vec<ProjectId>,
    waiting: Vec<ProjectRun>,
}

/// Slot in use. Dropping it frees the slot.
pub(crate) struct UsedSlot {
    queue: SlotQueue,
    project: ProjectId,
}

/// Place of a run in the queue. Dropping it gives the place up.
struct QueuePlace<'a> {
    queue: &'a SlotQueue,
    holder: String,
}

impl SlotQueue {
    /// Creates a queue for at least one slot.
    pub(crate) fn new(slots: usize) -> Self {
        let state = QueueState { slots: slots.max(1), active: Vec::new(), waiting: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    /// Waits until a slot is free and no other run comes first.
    pub(crate) async fn acquire(
        &self,
        run: ProjectRun,
        stop: &CancellationToken,
    ) -> Result<UsedSlot, Error> {
        let (project, holder) = (run.project, run.run.holder.clone());
        let place = QueuePlace { queue: self, holder };
        self.with_state(|state| state.waiting.push(run));
        loop {
            // Registered before the check, so that no change is missed.
            let changed = self.changed.notified();
            if self.with_state(|state| state.take(&place.holder, project, now())) {
                return Ok(UsedSlot { queue: self.clone(), project });
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
    fn take(&mut self, holder: &str, project: ProjectId, now: Timestamp) -> bool {
        let free = self.slots.saturating_sub(self.active.len());
        let is_turn =
            free > 0 && runs_ahead_in_turn(holder, &self.waiting, &self.active, now) < free;
        if is_turn {
            self.active.push(project);
            self.waiting.retain(|it| it.run.holder != holder);
        }
        is_turn
    }

    /// Frees a slot of a project.
    fn free(&mut self, project: ProjectId) {
        if let Some(index) = self.active.iter().position(|it| *it == project) {
            self.active.swap_remove(index);
        }
    }
}

impl Drop for UsedSlot {
    fn drop(&mut self) {
        self.queue.with_state(|state| state.free(self.project));
        self.queue.changed.notify_waiters();
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.queue.with_state(|state| state.waiting.retain(|it| it.run.holder != self.holder));
        self.queue.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::run_queue::WaitingRun;
    use tamma_core::task::Priority;
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use super::*;

    const PROJECT: ProjectId = ProjectId(Uuid::from_u128(1));
    const ANOTHER: ProjectId = ProjectId(Uuid::from_u128(2));

    fn run(holder: &str, priority: Priority) -> ProjectRun {
        let run = WaitingRun { holder: holder.to_owned(), priority, since: now() };
        ProjectRun { project: PROJECT, run }
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
        assert_eq!(queue.with_state(|state| (state.active.len(), state.waiting.len())), (0, 0));
    }

    #[tokio::test]
    async fn a_project_with_one_run_does_not_wait_for_all_runs_of_another() {
        let (queue, stop) = (SlotQueue::new(2), CancellationToken::new());
        let first = queue.acquire(run("first", Priority::Low), &stop).await.expect("a free slot");
        let second = queue.acquire(run("second", Priority::Low), &stop).await.expect("a free slot");
        let (sender, mut order) = mpsc::unbounded_channel();
        let mut waiting: Vec<_> =
            (0..5).map(|number| run(&format!("run-{number}"), Priority::Low)).collect();
        waiting.push(ProjectRun { project: ANOTHER, ..run("another", Priority::Low) });
        for run in waiting {
            let (queue, stop, sender) = (queue.clone(), stop.clone(), sender.clone());
            tokio::spawn(async move {
                let holder = run.run.holder.clone();
                let slot = queue.acquire(run, &stop).await.expect("a free slot");
                sender.send(holder).expect("a receiver");
                drop(slot);
            });
        }
        while queue.with_state(|state| state.waiting.len()) < 6 {
            tokio::task::yield_now().await;
        }
        drop(first);
        assert_eq!(order.recv().await.as_deref(), Some("another"));
        drop(second);
        for _ in 0..5 {
            order.recv().await.expect("the other runs");
        }
        assert_eq!(queue.with_state(|state| state.active.len()), 0);
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
