#![doc = include_str!("../README.md")]

mod alerts;
mod changes;
mod checks;
mod connection;
mod conversations;
mod decisions;
mod deliveries;
mod embeddings;
mod encoding;
mod error;
mod history;
mod iterations;
mod job_results;
mod knowledge;
mod knowledge_cache;
mod knowledge_effect;
mod leases;
mod lessons;
mod lines;
mod listener;
mod model_calls;
mod objects;
mod people;
mod pipelines;
mod plans;
mod projects;
mod runs;
mod sessions;
mod statistics;
mod steps;
mod task_cards;
mod tasks;
mod texts;
mod usage;
mod workers;

pub use alerts::SentAlert;
pub use changes::{TaskChange, TaskChanges};
pub use checks::CommitCheck;
pub use connection::{
    Store, create_database, drop_database, list_databases, rename_database, schema_digest,
};
pub use conversations::ConversationRecord;
pub use decisions::{PlanDecision, PlanVerdict};
pub use deliveries::{
    ClaimedDelivery, Delivery, DeliveryAttempt, DeliveryEnd, NewDelivery, OutboxMessage,
};
pub use embeddings::EntryEmbedding;
pub use error::{Conflict, CorruptData, Error, Result};
pub use history::RecordedEntry;
pub use iterations::{IterationOutcome, IterationRecord};
pub use knowledge::{
    KnowledgeAction, KnowledgeChange, KnowledgeFilter, MatchRole, MatchedTask, PlanMatch,
    StoredEntry,
};
pub use knowledge_cache::KnowledgeCache;
pub use knowledge_effect::{EntryEffect, TaskTally};
pub use leases::LeaseResource as Lease;
pub use lessons::{ProposedLesson, RecurringFault};
pub use lines::{
    InvalidLinePosition, LineChange, LineChanges, LineFilter, LineKind, LinePosition, NewLine,
    RunLine,
};
pub use model_calls::{ModelCall, ModelCallTotals};
pub use objects::{ObjectStorage, transcript_key};
pub use people::{PersonToken, Revocations};
pub use pipelines::{PipelineFilter, PipelineWrite, StoredPhase, StoryPipeline};
pub use projects::RegisteredProject;
pub use runs::{EndedRun, InvalidRunNumber, NewRun, RunEnd, RunNumber, RunRecord, RunUpdate};
pub use sessions::SessionRecord;
pub use statistics::{ActiveRun, AgentUsage, DailySpend, SpendItem};
pub use steps::WriteOutcome;
pub use task_cards::{ListPosition, ListedTask, TaskBoard, TaskCard, TaskFilter, TaskPage};
pub use tasks::TaskDetail;
pub use texts::parse_text_reference;
pub use usage::UsageTotal;
pub use workers::Worker;
