#![doc = include_str!("../README.md")]

mod access;
mod access_tokens;
mod accounts;
mod aftercare;
mod alerts;
mod audit;
mod audit_log;
mod backoff;
mod changes;
mod checks;
mod connection;
mod conversations;
mod credentials;
mod decisions;
mod deliveries;
mod effects;
mod embeddings;
mod encoding;
mod error;
mod history;
mod identities;
mod inline_jobs;
mod installation_metrics;
mod intake;
mod iterations;
mod job_facts;
mod job_results;
mod knowledge;
mod knowledge_cache;
mod knowledge_effect;
mod leases;
mod lessons;
mod line_comments;
mod lines;
mod listener;
mod maintenance;
mod merge_queue;
mod metrics;
mod model_calls;
mod namespaces;
mod objects;
mod organisations;
mod people;
mod pipelines;
mod plans;
mod projects;
mod pull_requests;
mod read_filter;
mod reconciliation;
mod reservations;
mod retention;
mod row_security;
mod runs;
mod saved_views;
mod schema;
mod search_query;
mod servers;
mod sessions;
mod statistics;
mod steps;
mod task_cards;
mod tasks;
mod texts;
mod usage;
mod webhooks;
mod workers;

pub use access::{AccessChange, AccessSource, ProjectRoles};
pub use access_tokens::{AccessToken, NewAccessToken};
pub use accounts::{Account, AccountKind};
pub use aftercare::{AftercareFinding, WatchedMerge};
pub use alerts::SentAlert;
pub use audit::{BrokenEntry, ChainFault, HistoryAudit};
pub use audit_log::{AuditLogPage, PendingAudit, PendingAuditId};
pub use backoff::Backoff;
pub use changes::{TaskChange, TaskChanges};
pub use checks::CommitCheck;
pub use connection::{Store, create_database, drop_database, list_databases, rename_database};
pub use conversations::ConversationRecord;
pub use credentials::{Credential, SessionRecord};
pub use decisions::{PlanDecision, PlanVerdict};
pub use deliveries::{
    ClaimedBatch, ClaimedDelivery, Delivery, DeliveryAttempt, DeliveryEnd, NewDelivery,
    OutboxMessage,
};
pub use effects::{Effect, EffectError, EffectKind};
pub use embeddings::EntryEmbedding;
pub use error::{Conflict, CorruptData, Error, Result};
pub use history::RecordedEntry;
pub use identities::{
    CheckedLogin, EndedLogin, Identity, LoginCheck, NewLogin, NewSignInFlow, WaitingDevice,
};
pub use inline_jobs::UnendedStarts;
pub use installation_metrics::InstallationMetrics;
pub use intake::{ForgeCursor, IssueTask};
pub use iterations::{IterationOutcome, IterationRecord};
pub use job_facts::{JobFacts, StoredJob};
pub use knowledge::{
    KnowledgeAction, KnowledgeChange, KnowledgeFilter, MatchRole, MatchedTask, PlanMatch,
    StoredEntry,
};
pub use knowledge_cache::KnowledgeCache;
pub use knowledge_effect::{EntryEffect, TaskTally};
pub use leases::LeaseResource as Lease;
pub use lessons::{ProposedLesson, RecurringFault};
pub use line_comments::{CommentDraft, StoredComment};
pub use lines::{
    InvalidLinePosition, LineChange, LineChanges, LineFilter, LineKind, LinePosition, NewLine,
    RunLine,
};
pub use maintenance::Maintenance;
pub use merge_queue::{
    MergeQueueId, NewQueueEntry, QueueEntry, QueueEntryFilter, QueueEntryState, QueueSettlement,
    StoredMergeQueue,
};
pub use model_calls::{EarlierUsage, ModelCall};
pub use objects::{ObjectStorage, transcript_key};
pub use organisations::{Organisation, OrganisationChange};
pub use people::{PersonToken, Revocations};
pub use pipelines::{PipelineFilter, PipelineWrite, StoredPhase, StoryPipeline};
pub use projects::RegisteredProject;
pub use pull_requests::{
    ForgeHints, NewPullRequest, PullRequestFilter, StoredPullRequest, StoredStatus,
};
pub use reconciliation::{OpenTask, ReconcileMarks};
pub use reservations::{ReservationRequest, ReservedBudgets};
pub use retention::{RemovedRows, RetentionCutoffs};
pub use runs::{
    EndedRun, InvalidRunNumber, NewRun, RunEnd, RunNumber, RunRecord, RunUpdate, RunningCall,
};
pub use saved_views::SavedView;
pub use schema::{SchemaStatus, UpgradeFinish, schema_digest};
pub use sessions::{NewSession, OpenSession, SessionKind, SessionProof};
pub use statistics::{ActiveRun, AgentUsage, DailySpend, SpendItem};
pub use steps::WriteOutcome;
pub use task_cards::{
    ListPosition, ListedTask, TaskBoard, TaskCard, TaskFilter, TaskOrder, TaskPage,
};
pub use tasks::TaskDetail;
pub use texts::{NewText, parse_text_reference};
pub use usage::UsageTotal;
pub use workers::Worker;
