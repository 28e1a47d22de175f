//! Task with all its details.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::cause::AlertCause;
use tamma_core::cost::Usd;
use tamma_core::level::RiskLevel;
use tamma_core::plan::{Plan, PlanSummary};
use tamma_core::report::TaskReport;
use tamma_core::risk::{FactorEffect, Risk};
use tamma_core::task_loop::{AlertKind, AlertSeverity, AnswerKind, State};
use tamma_core::tier::Tier;
pub use tamma_store::IterationOutcome;
use tamma_store::PlanVerdict;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{AftercareView, CurrentRun, KnowledgeMatch, PullRequestView, TaskCard};

/// Task with all its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskDetail {
    /// Fields of the list entry.
    #[serde(flatten)]
    pub card: TaskCard,
    /// Task description.
    pub description: String,
    /// Acceptance criteria.
    pub acceptance_criteria: Vec<String>,
    /// Tasks that must be completed first.
    pub depends_on: Vec<Uuid>,
    /// Agent that implements the task; `null` for the tier's agent.
    pub suggested_agent: Option<String>,
    /// Issue that the task comes from.
    pub issue_url: Option<String>,
    /// Number of that issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_number: Option<u64>,
    /// Additional data of the client.
    pub metadata: BTreeMap<String, String>,
    /// Open question.
    pub question: Option<OpenQuestion>,
    /// Risk of the plan, with its factors.
    pub risk_report: Option<RiskReport>,
    /// Current plan, without its content.
    pub plan: Option<PlanVersion>,
    /// Knowledge entries that match the plan, blockers first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge: Vec<KnowledgeMatch>,
    /// Approvals of the current plan.
    pub approvals: Vec<PlanApproval>,
    /// All decisions about plans.
    pub decisions: Vec<PlanDecision>,
    /// Iterations and their results.
    #[serde(rename = "runs")]
    pub iterations: Vec<IterationSummary>,
    /// Current run.
    #[serde(rename = "run", default, skip_serializing_if = "Option::is_none")]
    pub current_run: Option<CurrentRun>,
    /// Alerts about the task.
    pub alerts: Vec<SentAlert>,
    /// Time spent in each state, in the order in which the task first entered them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StateTime>,
    /// Ratings of a closed task, 1 to 5, by person.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ratings: BTreeMap<String, u8>,
    /// Pull request of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestView>,
    /// What happened to the change after its merge, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aftercare: Vec<AftercareView>,
    /// Base commit.
    pub base: Option<String>,
    /// Commit that is under review or was delivered.
    pub commit: Option<String>,
    /// Branch that the change is delivered on. It does not exist before.
    pub branch: String,
    /// Error of the stored state; omitted if it can be read.
    #[serde(rename = "damage", default, skip_serializing_if = "Option::is_none")]
    pub read_error: Option<String>,
}

/// Time that a task has spent in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateTime {
    /// State of the task.
    #[schema(value_type = String)]
    pub state: State,
    /// Number of times that the task entered the state.
    pub visits: u32,
    /// Total time in seconds, up to now for the current state.
    pub seconds: u64,
}

impl StateTime {
    /// Adds up the time in each state. `entered` has the states in order, each with its time.
    pub(crate) fn sum(entered: &[(State, DateTime<Utc>)], now: DateTime<Utc>) -> Vec<Self> {
        let mut times: Vec<Self> = Vec::new();
        for (index, (state, from)) in entered.iter().enumerate() {
            // Nothing happens in a closed task.
            let until = match entered.get(index + 1) {
                Some((_, next)) => *next,
                None if state.is_terminal() => *from,
                None => now,
            };
            let seconds = u64::try_from((until - *from).num_seconds()).unwrap_or_default();
            match times.iter_mut().find(|it| it.state == *state) {
                Some(time) => {
                    time.visits += 1;
                    time.seconds += seconds;
                }
                None => times.push(Self { state: *state, visits: 1, seconds }),
            }
        }
        times
    }
}

/// Regular update about an open task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskUpdate {
    /// Time of the update.
    pub at: DateTime<Utc>,
    /// Status of the task.
    pub task: TaskCard,
    /// Run in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<CurrentRun>,
}

/// Report of a task: iterations with gates, criteria and decisions, councils and cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskReportResponse {
    /// `task`, `title`, `state`, `iterations`, `councils`, `asked`, `tiers`, `costs`, `spend` and
    /// `lessons`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub report: TaskReport,
}

/// Open question of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenQuestion {
    /// Question number.
    pub number: u32,
    /// Cause, as data.
    #[schema(value_type = Object)]
    pub cause: AlertCause,
    /// Cause, as text.
    #[serde(rename = "in_words")]
    pub cause_text: String,
    /// Question of the agent, in its own words.
    #[serde(rename = "asks", default, skip_serializing_if = "Option::is_none")]
    pub agent_question: Option<String>,
    /// Default if nobody answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Time of the question.
    pub asked_at: DateTime<Utc>,
    /// Possible answers.
    #[schema(value_type = Vec<String>)]
    pub answers: Vec<AnswerKind>,
    /// Person who marked it as seen.
    pub seen_by: Option<String>,
}

/// Risk of a plan, with its factors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RiskReport {
    /// Risk level.
    #[schema(value_type = String)]
    pub level: RiskLevel,
    /// Sum of the points.
    pub score: u8,
    /// Factors that affect the risk.
    pub factors: Vec<RiskFactor>,
    /// Number of critical prohibitions that the plan violates.
    pub blockers: u16,
    /// Number of warnings.
    pub warnings: u16,
}

/// Effect of one factor on the risk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RiskFactor {
    /// Name of the factor.
    pub factor: String,
    /// Effect, as text.
    pub effect: String,
}

/// Version of a plan, with its content only if requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanVersion {
    /// Hash of the content, which approvals name.
    pub hash: String,
    /// Version number, from 1.
    pub version: u32,
    /// Number of files that the plan changes.
    pub files: u16,
    /// Number of critical files among them.
    pub critical_files: u16,
    /// Complexity, 0 to 14.
    pub complexity: u8,
    /// Planner's cost estimate, in US dollars.
    #[schema(value_type = Option<String>)]
    pub estimated_cost: Option<Usd>,
    /// Content of the plan, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Plan>,
}

/// Approval of the current plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanApproval {
    /// Name of the approver.
    pub by: String,
    /// Time of the decision.
    pub at: DateTime<Utc>,
    /// Plan hash.
    pub plan: String,
}

/// Decision about a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanDecision {
    /// Time of the decision.
    pub at: DateTime<Utc>,
    /// Decision: approve, reject, changes, override or auto.
    #[schema(value_type = String)]
    pub verdict: PlanVerdict,
    /// Name of the person; `null` for automatic approvals.
    pub by: Option<String>,
    /// Reason.
    pub reason: Option<String>,
    /// Plan hash.
    pub plan: Option<String>,
    /// Risk of the plan at that time.
    #[schema(value_type = Option<String>)]
    pub risk: Option<RiskLevel>,
}

/// Iteration of a task and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IterationSummary {
    /// Iteration number, from 1.
    pub number: u32,
    /// Tier of the agent.
    #[schema(value_type = Option<String>)]
    pub tier: Option<Tier>,
    /// Agent name.
    #[serde(rename = "engine")]
    pub agent: Option<String>,
    /// Start of its latest run.
    pub started_at: Option<DateTime<Utc>>,
    /// Time of its commit.
    pub finished_at: Option<DateTime<Utc>>,
    /// Commit it produced.
    pub commit: Option<String>,
    /// Result; `null` while it is pending.
    #[schema(value_type = Option<String>)]
    pub ending: Option<IterationOutcome>,
    /// Review score; `null` before the review.
    pub score: Option<u8>,
}

/// Alert about a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SentAlert {
    /// Kind of alert.
    #[schema(value_type = String)]
    pub kind: AlertKind,
    /// Severity.
    #[schema(value_type = String)]
    pub severity: AlertSeverity,
    /// Cause, as text.
    #[serde(rename = "in_words")]
    pub cause_text: String,
    /// Time of the first message.
    pub at: DateTime<Utc>,
    /// Number of reminders.
    pub reminders: u32,
    /// Person who marked it as seen.
    pub acknowledged_by: Option<String>,
    /// Time of the answer to its question, or of its last delivery if it asks none.
    pub settled_at: Option<DateTime<Utc>>,
}

impl PlanVersion {
    /// Creates it from the summary in the task loop, with or without content.
    pub(crate) fn new(outline: &PlanSummary, content: Option<Plan>) -> Self {
        Self {
            hash: outline.hash.to_string(),
            version: outline.version,
            files: outline.file_count,
            critical_files: outline.critical_file_count,
            complexity: outline.complexity_score,
            estimated_cost: outline.estimated_cost,
            content,
        }
    }
}

impl RiskReport {
    pub(crate) fn new(risk: &Risk, blockers: u16, warnings: u16) -> Self {
        let effect = |weight: &FactorEffect| match weight {
            FactorEffect::Points(1) => "1 point".to_owned(),
            FactorEffect::Points(points) => format!("{points} points"),
            FactorEffect::AtLeast(level) => format!("at least {level}"),
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

impl From<tamma_store::PlanDecision> for PlanDecision {
    fn from(it: tamma_store::PlanDecision) -> Self {
        let tamma_store::PlanDecision { at, verdict, by, reason, plan, risk, .. } = it;
        Self { at, verdict, by, reason, plan, risk }
    }
}

impl From<tamma_store::IterationRecord> for IterationSummary {
    fn from(it: tamma_store::IterationRecord) -> Self {
        Self {
            number: it.number,
            tier: it.tier,
            agent: it.agent,
            started_at: it.started_at,
            finished_at: it.finished_at,
            commit: it.commit,
            ending: it.outcome,
            score: it.score,
        }
    }
}

impl From<tamma_store::SentAlert> for SentAlert {
    fn from(it: tamma_store::SentAlert) -> Self {
        Self {
            kind: it.kind,
            severity: it.severity,
            cause_text: it.cause.to_string(),
            at: it.at,
            reminders: it.reminders,
            acknowledged_by: it.acknowledged.map(|(by, _)| by),
            settled_at: it.settled_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_a_state_is_the_sum_of_its_visits() {
        let at =
            |second: i64| DateTime::from_timestamp(1_790_000_000 + second, 0).expect("timestamp");
        let entered = [
            (State::Pending, at(0)),
            (State::Planning, at(5)),
            (State::AwaitingApproval, at(35)),
            (State::Planning, at(135)),
        ];
        let time = |state, visits, seconds| StateTime { state, visits, seconds };
        assert_eq!(
            StateTime::sum(&entered, at(145)),
            [
                time(State::Pending, 1, 5),
                time(State::Planning, 2, 40),
                time(State::AwaitingApproval, 1, 100),
            ]
        );
        let closed = [(State::Pending, at(0)), (State::Cancelled, at(9))];
        assert_eq!(StateTime::sum(&closed, at(999))[1], time(State::Cancelled, 1, 0));
    }
}
