#![doc = include_str!("../README.md")]

mod change;
mod context;
mod intent;
mod model;
mod order;
mod proposal;
mod reading;
mod refer;
mod request;
mod understand;
mod words;

pub use change::{Act, Change, CommandLine, Decision, NewTask};
pub use context::{Context, Lesson, Subject};
pub use intent::{Aspect, Intent, Period, Topic, Unclear, Which};
pub use model::{Nonsense, Question, answered, question};
pub use order::{VERBS, Verb};
pub use proposal::{Confirmed, Conversation, Heard, Proposal, Unconfirmed};
pub use understand::{Understood, understand};
