//! Knowledge entries, changes, imports and checks.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::cost::Usd;
use tamma_core::knowledge::{EntryKind, EntrySeverity, EntryStatus, KnowledgeEntry, MatchReason};
use tamma_core::learning::LessonEffect;
use tamma_core::plan::{FileAction, Plan};
use tamma_core::task::TaskType;
use tamma_store::{EntryEffect, KnowledgeAction, MatchRole, TaskTally};
use utoipa::ToSchema;
use uuid::Uuid;

/// Entry of the knowledge base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeEntryDetail {
    /// Fields of the entry: `id`, `kind`, `text`, `scope`, `globs`, `task_types`, `keywords`,
    /// `actions`, `pattern`, `severity`, `owner`, `evidence`, `status` and `expires_at`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub entry: KnowledgeEntry,
    /// Last eight characters of the ID.
    pub short: String,
    /// Current revision. Changes must name it.
    pub revision: u64,
    /// Content warnings to check before approval.
    #[serde(rename = "hazards", default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
    /// Changes, oldest first; only in the response for a single entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<KnowledgeChange>,
    /// Effect on tasks; only for a single entry or with `offers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<KnowledgeEffect>,
    /// Reasons to retire it; only for a single entry or with `offers`.
    #[serde(rename = "offers", default, skip_serializing_if = "Vec::is_empty")]
    pub retirement_suggestions: Vec<String>,
}

/// Effect of an entry on tasks since its approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeEffect {
    /// Time since which the entry is in effect.
    pub since: Option<DateTime<Utc>>,
    /// Number of tasks in its scope closed since then.
    pub tasks: u32,
    /// Number of tasks it matched, open or closed.
    pub matched: u32,
    /// Number of those that it blocked until a person decided.
    pub stopped: u32,
    /// Time of the last match.
    pub last_matched_at: Option<DateTime<Utc>>,
    /// Results of tasks whose agents saw the entry.
    pub with: KnowledgeTaskStats,
    /// Results of the other tasks.
    pub without: KnowledgeTaskStats,
    /// Effect, as data.
    #[schema(value_type = Object)]
    pub verdict: LessonEffect,
    /// Effect, as text.
    #[serde(rename = "in_words")]
    pub verdict_text: String,
}

/// Results of a group of reviewed tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeTaskStats {
    /// Number of tasks.
    pub tasks: u32,
    /// Number of tasks that passed their first review.
    pub first_pass: u32,
    /// Total number of iterations.
    pub iterations: u64,
    /// Total cost, in US dollars.
    #[schema(value_type = String)]
    pub cost_usd: Usd,
}

impl From<EntryEffect> for KnowledgeEffect {
    fn from(it: EntryEffect) -> Self {
        Self {
            since: it.since,
            tasks: it.tasks,
            matched: it.matched,
            stopped: it.stopped,
            last_matched_at: it.last_matched,
            with: it.with_entry.into(),
            without: it.without_entry.into(),
            verdict: it.effect(),
            verdict_text: it.effect().to_string(),
        }
    }
}

impl From<TaskTally> for KnowledgeTaskStats {
    fn from(TaskTally { outcomes, iterations, cost }: TaskTally) -> Self {
        let (tasks, first_pass) = (outcomes.tasks, outcomes.first_pass);
        Self { tasks, first_pass, iterations, cost_usd: cost }
    }
}

/// List of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeList {
    /// Entries of the list.
    pub entries: Vec<KnowledgeEntryDetail>,
}

/// Change of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeChange {
    /// Time of the change.
    pub at: DateTime<Utc>,
    /// Name of the person; `null` if a task proposed the entry.
    pub by: Option<String>,
    /// Kind of change.
    #[schema(value_type = String)]
    #[serde(rename = "deed")]
    pub action: KnowledgeAction,
    /// Reason.
    pub reason: Option<String>,
}

/// Entry to add. It is pending until approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKnowledgeEntry {
    /// Entry ID; a repeated request with the same ID adds the entry once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Kind: recommendation, prohibition, convention or learning.
    #[schema(value_type = String)]
    pub kind: EntryKind,
    /// Text of the entry.
    pub text: String,
    /// Project ID or name; optional if only one project is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// `true` if it applies to all projects.
    #[serde(default)]
    pub organisation: bool,
    /// Paths it applies to, as globs relative to the repository root.
    #[serde(default)]
    pub globs: Vec<String>,
    /// Task types it applies to.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub task_types: Vec<TaskType>,
    /// Keywords it applies to.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Planned file actions it applies to.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub actions: Vec<FileAction>,
    /// Regular expression for the code it applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Severity: low, medium, high or critical.
    #[serde(default = "medium")]
    #[schema(value_type = String)]
    pub severity: EntrySeverity,
    /// Person to ask about the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Evidence, such as tasks, commits or URLs.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// Expiry time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// `true` if it was imported from a file.
    #[serde(default)]
    pub imported: bool,
}

fn medium() -> EntrySeverity {
    EntrySeverity::Medium
}

/// Decision about an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeDecision {
    /// New status: approved, rejected or retired; pending reopens a rejected or retired entry.
    #[schema(value_type = String)]
    pub status: EntryStatus,
    /// Revision that the person read.
    pub revision: u64,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Approve the entry despite its warnings.
    #[serde(rename = "despite", default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_warnings: bool,
}

/// Edit of an entry. It becomes pending again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeEdit {
    /// Revision that the person read.
    pub revision: u64,
    /// Complete new content of the entry.
    #[schema(value_type = Object)]
    pub entry: KnowledgeEntry,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Exported entries to import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeImportRequest {
    /// Entries to import; identical ones are skipped.
    #[schema(value_type = Vec<Object>)]
    pub entries: Vec<KnowledgeEntry>,
    /// Target project of project entries, by ID or name. Without it, the project of each entry must
    /// be registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Keep entries approved despite their warnings.
    #[serde(rename = "despite", default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_warnings: bool,
    /// Report the result without changing anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeImportResult {
    /// Number of new entries.
    pub added: u32,
    /// Number of changed entries.
    pub changed: u32,
    /// Number of unchanged entries.
    #[serde(rename = "same")]
    pub unchanged: u32,
    /// Notes on changed entries and on entries that need approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Request to check a plan against the knowledge base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeCheckRequest {
    /// Project ID or name; optional if only one project is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Task title.
    #[serde(default)]
    pub title: String,
    /// Task description.
    #[serde(default)]
    pub description: String,
    /// Task type.
    #[serde(default = "super::feature")]
    #[schema(value_type = String)]
    pub r#type: TaskType,
    /// Plan to check.
    #[schema(value_type = Object)]
    pub plan: Plan,
    /// ID of an entry to treat as approved.
    #[serde(rename = "with", default, skip_serializing_if = "Option::is_none")]
    pub assume_approved: Option<Uuid>,
}

/// Result of a knowledge check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeCheckResult {
    /// `true` if the plan can proceed without an override.
    pub can_proceed: bool,
    /// Matches, blockers first, then by relevance.
    pub matches: Vec<KnowledgeMatch>,
}

/// Entry that matches a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeMatch {
    /// Role: blocker, warning, recommendation, convention or learning.
    #[schema(value_type = String)]
    pub role: MatchRole,
    /// Entry ID.
    pub id: Uuid,
    /// Last eight characters of the ID.
    pub short: String,
    /// Text of the entry.
    pub text: String,
    /// Relevance, 0 to 100.
    pub relevance: u8,
    /// Reasons for the match, as text.
    #[serde(rename = "because")]
    pub reason_texts: Vec<String>,
    /// Reasons for the match, as data.
    #[schema(value_type = Vec<Object>)]
    pub reasons: Vec<MatchReason>,
    /// Evidence of the entry.
    pub evidence: Vec<String>,
    /// Person to ask about the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Severity: low, medium, high or critical.
    #[schema(value_type = String)]
    pub severity: EntrySeverity,
    /// `true` if the agents that implement the plan see the entry.
    #[serde(rename = "shown", default)]
    pub shown_to_agents: bool,
}
