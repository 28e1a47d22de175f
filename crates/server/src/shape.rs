//! Everything that goes over the wire, as it is written in JSON.
//!
//! Moments are in RFC 3339 and UTC, money is a text with a decimal number of US dollars, and names
//! of states, phases and answers are spelt as in the log.

mod action;
mod alert;
mod card;
mod chat;
mod knowledge;
mod person;
mod run;
mod task;

pub use action::{Action, Change, Grant, LineComment, Standing};
pub use alert::{Deliveries, Delivery, Receipt, Receipts, TestAlerts};
pub(crate) use card::listed;
pub use card::{Card, Damaged, Page, Spend, short};
pub use chat::{ChatReference, Mention, Proposed, ReadBy, Reply, Said};
pub use knowledge::{
    Knowledge, KnowledgeAnswer, KnowledgeChange, KnowledgeDecision, KnowledgeEdit, KnowledgeEffect,
    KnowledgeImport, KnowledgeImported, KnowledgeList, KnowledgeMatch, KnowledgeQuestion,
    KnowledgeTally, NewKnowledge,
};
pub use person::{NewPerson, Person, Persons, Revocation, Welcome};
pub use run::{Present, Run, RunLine, RunLines, RunUsage, Runs};
pub use task::{
    Alert, Approval, Decision, Ending, Iteration, PlanVersion, Question, RiskFactor, RiskReport,
    TaskReport, Whole,
};

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::log;
use tamma_core::task::{Priority, TaskType};
use utoipa::ToSchema;
use uuid::Uuid;

/// A task to be added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// Its identity, a UUID of version 7 made by the client, so that a repeated request is the same
    /// task. The server makes one if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The id or the name of its project. It can be left out where there is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// One line, of at most 200 characters.
    pub title: String,
    /// As much as the author has to say.
    #[serde(default)]
    pub description: String,
    /// What kind of work it is: feature, bugfix, refactor, test, docs or chore.
    #[serde(default = "feature")]
    #[schema(value_type = String, example = "feature")]
    pub r#type: TaskType,
    /// How urgent it is: low, medium, high or critical.
    #[serde(default)]
    #[schema(value_type = String, example = "medium")]
    pub priority: Priority,
    /// What must be true at the end, each judged on its own.
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
    /// Words to find it by.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Tasks that must be completed first.
    #[serde(default)]
    pub depends_on: Vec<Uuid>,
    /// The agent its author would choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_agent: Option<String>,
    /// The issue it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_url: Option<String>,
    /// Whatever else the author's tools want to keep with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// A plan that it brings with it, which is reviewed before it is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub plan: Option<serde_json::Value>,
}

fn feature() -> TaskType {
    TaskType::Feature
}

/// A task that is there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Added {
    /// Whether it was added by this request, or had been before.
    pub new: bool,
    /// The task.
    pub task: Card,
}

/// One line of a task's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// What happened: `sequence`, `at`, `name`, `from`, `to`, `on`, `actor`, `reason`, `data`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub entry: log::Entry,
    /// When it was written down, by the database's clock.
    pub recorded_at: DateTime<Utc>,
}

/// Part of a task's log, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The entries.
    pub entries: Vec<Line>,
    /// What to pass as `after` for those that follow, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A registered repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Project {
    /// Its identity.
    pub id: Uuid,
    /// What people call it.
    pub name: String,
    /// Where its repository is: a path or an address.
    pub repository: String,
}

/// A repository to be registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProject {
    /// Its identity, if the client makes one. A project that is there gets the new name and place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// What people call it; no two have the same name.
    pub name: String,
    /// Where its repository is: a path or an address.
    pub repository: String,
}

/// Every registered repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Projects {
    /// The projects, by name.
    pub projects: Vec<Project>,
}

/// Whether what the server needs can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Whether everything can be reached.
    pub healthy: bool,
    /// Whether the database answers.
    pub store: bool,
    /// Whether the durable engine answers.
    pub temporal: bool,
}

/// How well it goes. A share is in percent; a figure that there is no case of is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// From when on the log was counted.
    pub since: DateTime<Utc>,
    /// `ended`, `completion_rate`, `retries_per_100_tasks`, `lesson_rate`,
    /// `approval_turnaround_ms`, `transition_latency_ms`, `rating_hundredths` and
    /// `cost_per_completed`.
    #[schema(value_type = Object)]
    pub figures: tamma_core::metrics::Metrics,
    /// The goals of the figures that have one.
    pub goals: Goals,
    /// How many tasks are in each state.
    pub by_state: BTreeMap<String, u64>,
    /// How many tasks wait for a person.
    pub waiting: u64,
}

/// What the figures are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Goals {
    /// More than so many percent of the tasks that end are completed.
    pub completion_rate_over: u64,
    /// Fewer than so many adjusted plans for every hundred tasks.
    pub retries_per_100_tasks_under: u64,
    /// More than so many percent of the tasks leave a lesson.
    pub lesson_rate_over: u64,
    /// An approval is answered in less than so many milliseconds.
    pub approval_turnaround_ms_under: u64,
    /// A transition is written down in less than so many milliseconds.
    pub transition_latency_ms_under: u64,
    /// People rate tasks with more than so many hundredths.
    pub rating_hundredths_over: u64,
}

impl Default for Goals {
    fn default() -> Self {
        Self {
            completion_rate_over: 85,
            retries_per_100_tasks_under: 150,
            lesson_rate_over: 90,
            approval_turnaround_ms_under: 5 * 60 * 1000,
            transition_latency_ms_under: 100,
            rating_hundredths_over: 400,
        }
    }
}
