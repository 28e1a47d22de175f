//! The machine: one task's way from `pending` to its end.
//!
//! [`begin`] makes the machine of a new task, and [`step()`] takes it one [`Event`] further. Both are
//! pure: time and identity come in with the event, and what is to be done comes out as
//! [`Command`]s. Whoever runs the machine (a durable workflow, a test) carries the commands out
//! and feeds their results back as events; retries of a single piece of work are that runner's
//! job, decisions about them are the machine's.
//!
//! The players:
//! - [`State`] is where a task is, and [`table`] every arrow between two states;
//! - [`TaskLoop`] is everything the machine remembers, small enough for millions of them;
//! - an [`Event`] is something that happened: work that ended, a person's action, time passing;
//! - a [`Command`] is something to be done; a `Start` carries a [`Job`] and a ticket, and only the
//!   result with that ticket counts;
//! - an [`Entry`](crate::log::Entry) is a line for the append-only log;
//! - a [`Refusal`] is the answer to an event that does not fit, and changes nothing.

mod command;
mod event;
mod memory;
mod next;
mod refusal;
mod right;
mod step;
pub mod table;

pub use command::{Alert, AlertKind, Command, Job, JobKind, Order, Severity, StopReason};
pub use event::{Action, Event, Outcome, Received, What};
pub use memory::{Clock, Pause, Question, Quota, TaskLoop, Work};
pub use next::{Answer, Next, answers};
pub use refusal::Refusal;
pub use step::{Step, begin, step};

pub use crate::state::{Phase, State, Trigger};
pub use crate::time::Timestamp;
