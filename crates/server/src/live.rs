//! Changes as they happen, for everybody who watches.
//!
//! The database is listened to once for the whole process, and what it tells is passed on to every
//! watcher. A watcher that is too slow is told that it has missed something, and reads the log
//! again from where it was; the log is the truth, and a change only says that it has grown.

use tamma_core::ids::TaskId;
use tamma_store::{Change, Changes, LineChange, LineChanges};
use tokio::sync::broadcast::{self, error::RecvError};

/// How many changes a watcher may be behind before it reads the log again.
const BEHIND: usize = 1024;

/// Where changes are told.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    log: broadcast::Sender<Change>,
    lines: broadcast::Sender<LineChange>,
}

/// Somebody who waits for the log of one task to grow.
#[derive(Debug)]
pub(crate) struct Watcher {
    task: TaskId,
    changes: broadcast::Receiver<Change>,
}

/// Somebody who waits for any log to grow.
#[derive(Debug)]
pub(crate) struct AnyWatcher(broadcast::Receiver<Change>);

/// What somebody hears who watches every log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard {
    /// A log has grown.
    Change(Change),
    /// They were too slow, and some changes are gone: everything is to be read anew.
    Missed,
}

/// Somebody who waits for the runs of one task to say or do something.
#[derive(Debug)]
pub(crate) struct LineWatcher {
    task: TaskId,
    changes: broadcast::Receiver<LineChange>,
}

impl Live {
    /// Nobody watches yet.
    pub(crate) fn new() -> Self {
        Self { log: broadcast::Sender::new(BEHIND), lines: broadcast::Sender::new(BEHIND) }
    }

    /// Passes on what the database tells, until it refuses to.
    pub(crate) async fn pass_on(
        &self,
        mut changes: Changes,
        mut lines: LineChanges,
    ) -> tamma_store::Error {
        let log = async {
            loop {
                match changes.next().await {
                    // Nobody may be watching, which is no fault.
                    Ok(change) => drop(self.log.send(change)),
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

    /// Watches a task from now on.
    pub(crate) fn watch(&self, task: TaskId) -> Watcher {
        Watcher { task, changes: self.log.subscribe() }
    }

    /// Watches every task from now on.
    pub(crate) fn watch_all(&self) -> AnyWatcher {
        AnyWatcher(self.log.subscribe())
    }

    /// Watches what the runs of a task say from now on.
    pub(crate) fn watch_lines(&self, task: TaskId) -> LineWatcher {
        LineWatcher { task, changes: self.lines.subscribe() }
    }
}

impl AnyWatcher {
    /// Waits until some log may have grown. Returns whether one ever will: not, once the server
    /// stops.
    pub(crate) async fn changed(&mut self) -> bool {
        !matches!(self.0.recv().await, Err(RecvError::Closed))
    }

    /// The next log that has grown; nothing once the server stops.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        match self.0.recv().await {
            Ok(change) => Some(Heard::Change(change)),
            Err(RecvError::Lagged(_)) => Some(Heard::Missed),
            Err(RecvError::Closed) => None,
        }
    }

    /// Passes over what is known by now: whoever reads everything anew need not hear of it.
    pub(crate) fn skip(&mut self) {
        self.0 = self.0.resubscribe();
    }
}

impl Watcher {
    /// Waits until the log may have entries after a number. Returns whether there will ever be
    /// any: not, once the server stops.
    pub(crate) async fn grown_beyond(&mut self, sequence: u64) -> bool {
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

impl LineWatcher {
    /// Waits until there may be new lines. Returns whether there will ever be any: not, once the
    /// server stops.
    pub(crate) async fn grown(&mut self) -> bool {
        loop {
            match self.changes.recv().await {
                Ok(LineChange::Grown(task)) if task != self.task => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            }
        }
    }
}
