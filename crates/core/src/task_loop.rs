//! State machine of a task, from `pending` to its end.
//!
//! [`begin`] creates the state of a new task, and [`step()`] applies one [`TaskEvent`] to it. Both
//! are pure: time and identity arrive with the event, and effects are returned as [`Command`]s. The
//! caller (a Temporal workflow, or a test) executes the commands and feeds their results back as
//! events. It also retries single activities; every decision about a task is made here.
//!
//! Main types:
//! - [`State`]: position of a task; [`table`] lists every transition between two states.
//! - [`TaskLoop`]: complete state of one task, small enough for millions of tasks.
//! - [`TaskEvent`]: input, such as a finished job, a person's action or passed time.
//! - [`Command`]: requested effect. `StartJob` carries a [`Job`] and a job number; only the result
//!   with that number counts.
//! - [`HistoryEntry`](crate::history::HistoryEntry): entry of the append-only history.
//! - [`Refusal`]: typed error for an event that does not fit. The state does not change.

mod command;
mod event;
mod next_step;
mod permission;
mod refusal;
mod snapshot;
mod step;
mod step_record;
pub mod table;

pub use command::{
    Alert, AlertKind, AlertSeverity, Command, Job, JobKind, Placement, RunSpec, StopReason,
};
pub use event::{Action, EventKind, Outcome, TaskEvent, TaskReceived};
pub use next_step::{AnswerKind, NextStep, allowed_answers};
pub use refusal::Refusal;
pub use snapshot::{
    ActiveJob, CouncilCall, OpenQuestion, Pause, ProviderQuota, StateClock, TaskLoop,
};
pub use step::{Step, begin, step};
pub use step_record::{JobUsage, StepRecord};

pub use crate::state::{Phase, State, Trigger};
pub use crate::time::Timestamp;
