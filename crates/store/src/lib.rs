#![doc = include_str!("../README.md")]

mod alerts;
mod answers;
mod cards;
mod changes;
mod checks;
mod connection;
mod decisions;
mod ear;
mod effect;
mod entries;
mod error;
mod iterations;
mod knowledge;
mod leases;
mod lessons;
mod library;
mod lines;
mod model_calls;
mod objects;
mod plans;
mod projects;
mod record;
mod runs;
mod spelling;
mod tasks;
mod texts;
mod usage;
mod vectors;

pub use alerts::Sent;
pub use cards::{Card, Filter, Listed, Page, Place};
pub use changes::{Change, Changes};
pub use checks::Check;
pub use connection::{Store, create_database, databases, drop_database, rename_database, schema};
pub use decisions::{Decision, Verdict};
pub use effect::{Followed, Tally};
pub use entries::Line;
pub use error::{Conflict, Damage, Error, Result};
pub use iterations::{Ending, Iteration};
pub use knowledge::{Deed, KnowledgeChange, KnowledgeFilter, Known, MatchRole, Matched};
pub use leases::Kind as Lease;
pub use lessons::{Proposed, Recurring};
pub use library::Library;
pub use lines::{
    LineChange, LineChanges, LineKind, LinePlace, NewLine, NoLinePlace, RunLine, Wanted,
};
pub use model_calls::{Calls, ModelCall};
pub use objects::{Objects, transcript_key};
pub use projects::Project;
pub use record::{Record, Written};
pub use runs::{EndedRun, NewRun, News, NoRunNumber, Run, RunEnd, RunNumber};
pub use tasks::Whole;
pub use usage::{Total, Used};
pub use vectors::KnowledgeVector;
