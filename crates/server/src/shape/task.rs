//! One task with everything that is known of it.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::cause::Cause;
use tamma_core::cost::Usd;
use tamma_core::level::Level;
use tamma_core::plan::{Outline, Plan};
use tamma_core::report::Report;
use tamma_core::risk::{Risk, Weight};
use tamma_core::task_loop::{AlertKind, Answer, Severity};
use tamma_core::tier::Tier;
pub use tamma_store::Ending;
use tamma_store::Verdict;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Card, KnowledgeMatch, Present};

/// One task with everything that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Whole {
    /// How it stands.
    #[serde(flatten)]
    pub card: Card,
    /// What its author had to say.
    pub description: String,
    /// What must be true at the end.
    pub acceptance_criteria: Vec<String>,
    /// Words to find it by.
    pub labels: Vec<String>,
    /// Tasks that must be completed first.
    pub depends_on: Vec<Uuid>,
    /// The agent its author would choose.
    pub suggested_agent: Option<String>,
    /// The issue it comes from.
    pub issue_url: Option<String>,
    /// Whatever else its author's tools keep with it.
    pub metadata: BTreeMap<String, String>,
    /// The question that waits for a person.
    pub question: Option<Question>,
    /// How risky its plan is, and why.
    pub risk_report: Option<RiskReport>,
    /// The plan that waits or runs, in outline.
    pub plan: Option<PlanVersion>,
    /// What the team knows about that plan: what stands against it first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge: Vec<KnowledgeMatch>,
    /// Who has approved that plan so far.
    pub approvals: Vec<Approval>,
    /// Every decision about its plans.
    pub decisions: Vec<Decision>,
    /// Its runs, and what came of each.
    pub runs: Vec<Iteration>,
    /// The run that is under way, and what its agent does at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Present>,
    /// What people were told.
    pub alerts: Vec<Alert>,
    /// The commit that its work starts from.
    pub base: Option<String>,
    /// The commit that is under review or was delivered.
    pub commit: Option<String>,
    /// What of it cannot be read, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// What there is to tell of a task: each iteration with its gates, criteria and decision, each
/// council, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskReport {
    /// `task`, `title`, `state`, `iterations`, `councils`, `asked`, `tiers`, `costs`, `spend` and
    /// `lessons`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub report: Report,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Question {
    /// Its number.
    pub number: u32,
    /// Why it is asked, as data.
    #[schema(value_type = Object)]
    pub cause: Cause,
    /// Why it is asked, in words.
    pub in_words: String,
    /// What an agent asks, in its own words, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<String>,
    /// What it takes for the answer when nobody gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// When it was asked.
    pub asked_at: DateTime<Utc>,
    /// What may be answered.
    #[schema(value_type = Vec<String>)]
    pub answers: Vec<Answer>,
    /// Who has seen it.
    pub seen_by: Option<String>,
}

/// How risky a plan is, factor by factor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RiskReport {
    /// How risky it is.
    #[schema(value_type = String)]
    pub level: Level,
    /// The sum of the points.
    pub score: u8,
    /// Every factor that counted.
    pub factors: Vec<RiskFactor>,
    /// How many critical prohibitions the plan breaks.
    pub blockers: u16,
    /// How many warnings there are.
    pub warnings: u16,
}

/// What one factor did to the risk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RiskFactor {
    /// Which factor.
    pub factor: String,
    /// What it did, in words.
    pub effect: String,
}

/// A version of a plan: its outline, and where it was asked for the whole of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanVersion {
    /// The hash of its content. An approval names it.
    pub hash: String,
    /// 1 for the first, one more with every change.
    pub version: u32,
    /// How many files it touches.
    pub files: u16,
    /// How many of those are critical.
    pub critical_files: u16,
    /// How hard it is, 0 to 14.
    pub complexity: u8,
    /// What the planner thinks it will cost, in US dollars.
    #[schema(value_type = Option<String>)]
    pub estimated_cost: Option<Usd>,
    /// The whole plan, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Plan>,
}

/// One person's yes to the current plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    /// Who.
    pub by: String,
    /// When.
    pub at: DateTime<Utc>,
    /// The hash of the plan.
    pub plan: String,
}

/// One decision about a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// When.
    pub at: DateTime<Utc>,
    /// What: approve, reject, changes, override or auto.
    #[schema(value_type = String)]
    pub verdict: Verdict,
    /// Who; nobody, where the rules decided.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The hash of the plan.
    pub plan: Option<String>,
    /// How risky the plan was.
    #[schema(value_type = Option<String>)]
    pub risk: Option<Level>,
}

/// One run of an engine and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Iteration {
    /// Its number, from 1.
    pub number: u32,
    /// How strong an engine it had.
    #[schema(value_type = Option<String>)]
    pub tier: Option<Tier>,
    /// Which engine.
    pub engine: Option<String>,
    /// When the last run of it started.
    pub started_at: Option<DateTime<Utc>>,
    /// When it made its commit.
    pub finished_at: Option<DateTime<Utc>>,
    /// The commit it made.
    pub commit: Option<String>,
    /// What came of it; nothing while that is not known.
    #[schema(value_type = Option<String>)]
    pub ending: Option<Ending>,
    /// What it scored, if it was reviewed.
    pub score: Option<u8>,
}

/// Something people were told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// What kind of message it is.
    #[schema(value_type = String)]
    pub kind: AlertKind,
    /// How urgent it is.
    #[schema(value_type = String)]
    pub severity: Severity,
    /// Why it was sent, in words.
    pub in_words: String,
    /// When it was first sent.
    pub at: DateTime<Utc>,
    /// How often it was repeated.
    pub reminders: u32,
    /// Who has seen it.
    pub acknowledged_by: Option<String>,
    /// When its question was answered.
    pub settled_at: Option<DateTime<Utc>>,
}

impl PlanVersion {
    /// A plan as the machine knows it, with its content or without.
    pub(crate) fn new(outline: &Outline, content: Option<Plan>) -> Self {
        Self {
            hash: outline.hash.to_string(),
            version: outline.version,
            files: outline.files,
            critical_files: outline.critical_files,
            complexity: outline.complexity,
            estimated_cost: outline.estimated_cost,
            content,
        }
    }
}

impl RiskReport {
    pub(crate) fn new(risk: &Risk, blockers: u16, warnings: u16) -> Self {
        let effect = |weight: &Weight| match weight {
            Weight::Points(1) => "1 point".to_owned(),
            Weight::Points(points) => format!("{points} points"),
            Weight::AtLeast(level) => format!("at least {level}"),
        };
        let factors = risk.factors.iter().map(|(factor, weight)| RiskFactor {
            factor: factor.to_string(),
            effect: effect(weight),
        });
        Self {
            level: risk.level,
            score: risk.score,
            factors: factors.collect(),
            blockers,
            warnings,
        }
    }
}

impl From<tamma_store::Decision> for Decision {
    fn from(it: tamma_store::Decision) -> Self {
        let tamma_store::Decision { at, verdict, by, reason, plan, risk, .. } = it;
        Self { at, verdict, by, reason, plan, risk }
    }
}

impl From<tamma_store::Iteration> for Iteration {
    fn from(it: tamma_store::Iteration) -> Self {
        Self {
            number: it.number,
            tier: it.tier,
            engine: it.engine,
            started_at: it.started_at,
            finished_at: it.finished_at,
            commit: it.commit,
            ending: it.ending,
            score: it.score,
        }
    }
}

impl From<tamma_store::Sent> for Alert {
    fn from(it: tamma_store::Sent) -> Self {
        Self {
            kind: it.kind,
            severity: it.severity,
            in_words: it.cause.to_string(),
            at: it.at,
            reminders: it.reminders,
            acknowledged_by: it.acknowledged.map(|(by, _)| by),
            settled_at: it.settled_at,
        }
    }
}
