//! Live updates for all subscribers of this process.
//!
//! One database listener forwards its notifications to every subscriber. A notification only says
//! that a history or log has grown. A subscriber that falls behind gets an event that says so, and
//! reads the history again from its last position.

use tamma_core::ids::TaskId;
use tamma_store::{LineChange, LineChanges, TaskChange, TaskChanges};
use tokio::sync::broadcast::{self, error::RecvError};

/// Number of changes that a subscriber can lag behind before it must read again.
const CHANNEL_CAPACITY: usize = 1024;

/// Broadcast channels for changes of history and of log lines.
#[derive(Debug, Clone)]
pub(crate) struct LiveUpdates {
    history: broadcast::Sender<TaskChange>,
    lines: broadcast::Sender<LineChange>,
}

/// Subscriber to the history of one task.
#[derive(Debug)]
pub(crate) struct TaskSubscriber {
    task: TaskId,
    changes: broadcast::Receiver<TaskChange>,
}

/// Subscriber to the history of all tasks.
#[derive(Debug)]
pub(crate) struct AllTasksSubscriber(broadcast::Receiver<TaskChange>);

/// Event for a subscriber to all tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LiveEvent {
    /// History of a task has grown.
    Change(TaskChange),
    /// Some changes were lost, because the subscriber lagged behind. Read everything again.
    Missed,
}

/// Subscriber to the log lines of one task.
#[derive(Debug)]
pub(crate) struct LineSubscriber {
    task: TaskId,
    changes: broadcast::Receiver<LineChange>,
}

impl LiveUpdates {
    /// Creates the channels, without subscribers.
    pub(crate) fn new() -> Self {
        Self {
            history: broadcast::Sender::new(CHANNEL_CAPACITY),
            lines: broadcast::Sender::new(CHANNEL_CAPACITY),
        }
    }

    /// Forwards database notifications to subscribers until the listener fails.
    pub(crate) async fn forward_changes(
        &self,
        mut changes: TaskChanges,
        mut lines: LineChanges,
    ) -> tamma_store::Error {
        let log = async {
            loop {
                match changes.next().await {
                    // Fails only without subscribers.
                    Ok(change) => drop(self.history.send(change)),
                    Err(error) => return error,
                }
            }
        };
        let lines = async {
            loop {
                match lines.next().await {
                    Ok(change) => drop(self.lines.send(change)),
                    Err(error) => return error,
                }
            }
        };
        tokio::select! {
            error = log => error,
            error = lines => error,
        }
    }

    /// Sends a change to subscribers, without a database.
    #[cfg(test)]
    pub(crate) fn change_for_test(&self, change: TaskChange) {
        drop(self.history.send(change));
    }

    /// Subscribes to the history of a task.
    pub(crate) fn subscribe(&self, task: TaskId) -> TaskSubscriber {
        TaskSubscriber { task, changes: self.history.subscribe() }
    }

    /// Subscribes to the history of all tasks.
    pub(crate) fn subscribe_all(&self) -> AllTasksSubscriber {
        AllTasksSubscriber(self.history.subscribe())
    }

    /// Subscribes to the log lines of a task.
    pub(crate) fn subscribe_lines(&self, task: TaskId) -> LineSubscriber {
        LineSubscriber { task, changes: self.lines.subscribe() }
    }
}

impl AllTasksSubscriber {
    /// Waits until the history of a task may have grown. Returns `false` once the server stops.
    pub(crate) async fn wait_for_change(&mut self) -> bool {
        !matches!(self.0.recv().await, Err(RecvError::Closed))
    }

    /// Returns the next event, or `None` once the server stops.
    pub(crate) async fn next(&mut self) -> Option<LiveEvent> {
        match self.0.recv().await {
            Ok(change) => Some(LiveEvent::Change(change)),
            Err(RecvError::Lagged(_)) => Some(LiveEvent::Missed),
            Err(RecvError::Closed) => None,
        }
    }

    /// Drops pending events, for a subscriber that is about to read everything again.
    pub(crate) fn skip_pending(&mut self) {
        self.0 = self.0.resubscribe();
    }
}

impl TaskSubscriber {
    /// Waits until there may be entries after a sequence number. Returns `false` once the server
    /// stops.
    pub(crate) async fn wait_for_entries_after(&mut self, sequence: u64) -> bool {
        loop {
            match self.changes.recv().await {
                Ok(change) if change.task == self.task && change.sequence > sequence => {
                    return true;
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            }
        }
    }
}

impl LineSubscriber {
    /// Waits until there may be new lines. Returns `false` once the server stops.
    pub(crate) async fn wait_for_lines(&mut self) -> bool {
        loop {
            match self.changes.recv().await {
                Ok(LineChange::Appended(task)) if task != self.task => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            }
        }
    }
}
