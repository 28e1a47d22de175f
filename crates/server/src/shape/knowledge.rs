//! What the team knows, as it goes over the wire.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::cost::Usd;
use tamma_core::knowledge::{Entry, Kind, MatchReason, Severity, Status};
use tamma_core::learning::Effect;
use tamma_core::plan::{Action, Plan};
use tamma_core::task::TaskType;
use tamma_store::{Deed, Followed, MatchRole, Tally};
use utoipa::ToSchema;
use uuid::Uuid;

/// An entry of the knowledge base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Knowledge {
    /// `id`, `kind`, `text`, `scope`, `globs`, `task_types`, `keywords`, `actions`, `pattern`,
    /// `severity`, `owner`, `evidence`, `status` and `expires_at`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub entry: Entry,
    /// Digits by which people call it.
    pub short: String,
    /// Its newest change: who changes it names the one that they have seen.
    pub revision: u64,
    /// What to look at twice before it is approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hazards: Vec<String>,
    /// When it came in.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
    /// How it came to be what it is, where one entry was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<KnowledgeChange>,
    /// What it did to tasks, where one entry or offers were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<KnowledgeEffect>,
    /// Why it could be retired, in words, where one entry or offers were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<String>,
}

/// What an entry did to tasks since it counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeEffect {
    /// Since when it counts.
    pub since: Option<DateTime<Utc>>,
    /// How many tasks ended since then where it holds.
    pub tasks: u32,
    /// How many tasks it matched, ended or not.
    pub matched: u32,
    /// How many of those it stopped until a person decided.
    pub stopped: u32,
    /// When it last matched one.
    pub last_matched_at: Option<DateTime<Utc>>,
    /// How the tasks went whose agents were told.
    pub with: KnowledgeTally,
    /// How the others went.
    pub without: KnowledgeTally,
    /// What it did, as data.
    #[schema(value_type = Object)]
    pub verdict: Effect,
    /// What it did, in words.
    pub in_words: String,
}

/// How some tasks went that came as far as a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeTally {
    /// How many there were.
    pub tasks: u32,
    /// How many of them passed at once.
    pub first_pass: u32,
    /// How many iterations they had together.
    pub iterations: u64,
    /// What they cost together, in US dollars.
    #[schema(value_type = String)]
    pub cost_usd: Usd,
}

impl From<Followed> for KnowledgeEffect {
    fn from(it: Followed) -> Self {
        Self {
            since: it.since,
            tasks: it.tasks,
            matched: it.matched,
            stopped: it.stopped,
            last_matched_at: it.last_matched,
            with: it.with.into(),
            without: it.without.into(),
            verdict: it.effect(),
            in_words: it.effect().to_string(),
        }
    }
}

impl From<Tally> for KnowledgeTally {
    fn from(Tally { outcomes, iterations, cost }: Tally) -> Self {
        let (tasks, first_pass) = (outcomes.tasks, outcomes.first_pass);
        Self { tasks, first_pass, iterations, cost_usd: cost }
    }
}

/// Some entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeList {
    /// The entries.
    pub entries: Vec<Knowledge>,
}

/// One change of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeChange {
    /// When.
    pub at: DateTime<Utc>,
    /// Who; nobody, where a task proposed it.
    pub by: Option<String>,
    /// What was done.
    #[schema(value_type = String)]
    pub deed: Deed,
    /// Why.
    pub reason: Option<String>,
}

/// An entry to be added. It is pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKnowledge {
    /// Its identity, made by the client, so that a repeated request adds it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// recommendation, prohibition, convention or learning.
    #[schema(value_type = String)]
    pub kind: Kind,
    /// What it says.
    pub text: String,
    /// The id or the name of its project. It can be left out where there is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Whether it holds in every project.
    #[serde(default)]
    pub organisation: bool,
    /// The paths it is about, as globs from the root.
    #[serde(default)]
    pub globs: Vec<String>,
    /// The kinds of task it is about.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub task_types: Vec<TaskType>,
    /// The words it is about.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// What is planned to happen to files under its globs.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub actions: Vec<Action>,
    /// The code it is about, as a regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// low, medium, high or critical.
    #[serde(default = "medium")]
    #[schema(value_type = String)]
    pub severity: Severity,
    /// Who answers questions about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What it is based on.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// When it stops counting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it was read from a file.
    #[serde(default)]
    pub imported: bool,
}

fn medium() -> Severity {
    Severity::Medium
}

/// A decision about an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeDecision {
    /// approved, rejected, retired, or pending for what was turned down or retired.
    #[schema(value_type = String)]
    pub status: Status,
    /// The change that the person has seen.
    pub revision: u64,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Approves it although there is something to look at twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub despite: bool,
}

/// Another wording of an entry. It is pending again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeEdit {
    /// The change that the person has seen.
    pub revision: u64,
    /// The entry as it is to be.
    #[schema(value_type = Object)]
    pub entry: Entry,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Entries of a file, as they were exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeImport {
    /// The entries. One that is there and says the same is left alone.
    #[schema(value_type = Vec<Object>)]
    pub entries: Vec<Entry>,
    /// The id or the name of the project that entries of a project are taken into. Without it each must
    /// be of one that is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Takes approved entries as they are although there is something to look at twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub despite: bool,
    /// Changes nothing, and tells what would come of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What came of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeImported {
    /// How many are new.
    pub added: u32,
    /// How many say something else now.
    pub changed: u32,
    /// How many were there already.
    pub same: u32,
    /// What was done to each that is not as it was before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A plan to be held against what the team knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeQuestion {
    /// The id or the name of the project. It can be left out where there is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The title of the task.
    #[serde(default)]
    pub title: String,
    /// What its author has to say.
    #[serde(default)]
    pub description: String,
    /// What kind of work it is.
    #[serde(default = "super::feature")]
    #[schema(value_type = String)]
    pub r#type: TaskType,
    /// The plan.
    #[schema(value_type = Object)]
    pub plan: Plan,
    /// An entry to be tried as if it were approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Uuid>,
}

/// What the team knows about a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeAnswer {
    /// Whether the plan may go on without a person's override.
    pub can_proceed: bool,
    /// Everything that matched: blockers first, the most relevant first.
    pub matches: Vec<KnowledgeMatch>,
}

/// An entry that matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeMatch {
    /// blocker, warning, recommendation, convention or learning.
    #[schema(value_type = String)]
    pub role: MatchRole,
    /// Which entry.
    pub id: Uuid,
    /// Digits by which people call it.
    pub short: String,
    /// What it says.
    pub text: String,
    /// How relevant it is, 0 to 100.
    pub relevance: u8,
    /// Why it matched, in words.
    pub because: Vec<String>,
    /// Why it matched, as data.
    #[schema(value_type = Vec<Object>)]
    pub reasons: Vec<MatchReason>,
    /// Where it comes from.
    pub evidence: Vec<String>,
    /// Who answers questions about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// low, medium, high or critical.
    #[schema(value_type = String)]
    pub severity: Severity,
    /// Whether the agents that carry out the plan are told.
    #[serde(default)]
    pub shown: bool,
}
