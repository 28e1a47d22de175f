//! Actions on tasks and their results.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};
use tamma_core::budget;
use tamma_core::cost::Usd;
use tamma_core::plan::PlanAdjustment;
use tamma_core::review::patch::LineSide;
use tamma_core::task::Priority;
use tamma_core::task_loop::State;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::problem::Problem;

/// Comment on one line of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LineComment {
    /// Path relative to the repository root.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// `old` if the number counts in the file before the change, as for removed lines; default `new`.
    #[serde(default, skip_serializing_if = "is_new_side")]
    #[schema(value_type = String, example = "new")]
    pub side: LineSide,
    /// Text of the comment.
    pub text: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_new_side(side: &LineSide) -> bool {
    *side == LineSide::New
}

/// Change of a task that has a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReviewedChange {
    /// Commit hash.
    pub commit: String,
    /// `true` if the change passed review.
    pub passed: bool,
    /// Patch; lines that look like secrets are hidden.
    pub patch: String,
    /// `true` if the change is too large and the end of the patch is missing.
    #[serde(default)]
    pub is_truncated: bool,
}

/// Action on a task: an object with one key, the name of the action.
///
/// `plan` and `commit` name the version that the person has read: its hash, or at least the first
/// eight digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, Display, IntoStaticStr)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[strum(serialize_all = "snake_case")]
pub enum TaskAction {
    /// Approve a plan.
    Approve {
        /// Hash of the plan that the person read.
        plan: String,
        /// Optional reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Reject a plan.
    Reject {
        /// Hash of the plan that the person read.
        plan: String,
        /// Reason.
        reason: String,
    },
    /// Ask the planner to revise a plan.
    AskChanges {
        /// Hash of the plan that the person read.
        plan: String,
        /// Requested changes.
        changes: String,
    },
    /// Override the prohibitions that block a plan.
    Override {
        /// Hash of the plan that the person read.
        plan: String,
        /// Reason.
        reason: String,
    },
    /// Accept a change.
    Accept {
        /// Commit that the person reviewed.
        commit: String,
        /// Optional reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Request changes to a commit.
    Rework {
        /// Commit that the person reviewed.
        commit: String,
        /// Requested changes.
        #[serde(default)]
        comments: String,
        /// Comments on lines of the change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lines: Vec<LineComment>,
    },
    /// Pause the task.
    Pause {},
    /// Resume the task.
    Resume {},
    /// Cancel the task.
    Cancel {
        /// Reason.
        reason: String,
    },
    /// Change the request and replan.
    Modify {
        /// New request.
        note: String,
    },
    /// Retry failed work, or skip the wait.
    Retry {
        /// Additional budget.
        #[serde(default)]
        grant: BudgetGrant,
    },
    /// Answer: continue.
    Continue {
        /// Additional budget.
        #[serde(default)]
        grant: BudgetGrant,
    },
    /// Answer: reply to the agent's question.
    Reply {
        /// Reply for the agent.
        text: String,
    },
    /// Answer: return to an earlier state.
    RollBack {
        /// Target state.
        #[schema(value_type = String, example = "planning")]
        to: State,
        /// Reason.
        reason: String,
    },
    /// Answer: skip the failed step.
    Skip {
        /// Reason.
        reason: String,
    },
    /// Convene the council: to find the cause of failures, or to review the plan.
    Convene {
        /// Question to the council.
        question: String,
    },
    /// Answer: close the task as failed.
    Abandon {
        /// Reason.
        reason: String,
    },
    /// Mark the question as seen and stop its reminders.
    Acknowledge {},
    /// Edit fields of a plan. The edited plan is checked and needs approval; no planner runs.
    AdjustPlan {
        /// Hash of the plan that the person read.
        plan: String,
        /// Edited fields: `field`, `new_value`, and optionally `original_value` and `reason`.
        #[schema(value_type = Vec<Object>)]
        adjustments: Vec<PlanAdjustment>,
        /// Reason.
        reason: String,
    },
    /// Edit the title, the priority or the labels. Nothing is replanned.
    Edit {
        /// New title. Possible until the task has a plan.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// New priority: `low`, `medium`, `high` or `critical`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, example = "high")]
        priority: Option<Priority>,
        /// New labels, which replace the current ones: at most 20, each of 1 to 50 characters without a
        /// comma.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        labels: Option<Vec<String>>,
        /// Labels to add.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        add_labels: Vec<String>,
        /// Labels to remove.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remove_labels: Vec<String>,
    },
    /// Rate a closed task. A later rating by the same person replaces it.
    Rate {
        /// 1 (bad) to 5 (good).
        stars: u8,
        /// Optional comment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Action on several tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// Task IDs, 1 to 100.
    pub tasks: Vec<Uuid>,
    /// `pause`, `resume`, `cancel`, or `edit` without a title.
    pub action: TaskAction,
}

/// Results of an action on several tasks, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkResponse {
    /// Result of each task.
    pub results: Vec<BulkResult>,
}

/// Result of an action on one of several tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// Task ID.
    pub task: Uuid,
    /// Status of the task; omitted if the action was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    /// Reason for the refusal; omitted if the action was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Additional budget of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetGrant {
    /// Additional runs.
    pub iterations: u16,
    /// Additional US dollars.
    #[schema(value_type = String, example = "5.00")]
    pub usd: Usd,
    /// Additional tokens.
    pub tokens: u64,
}

impl From<BudgetGrant> for budget::Grant {
    fn from(grant: BudgetGrant) -> Self {
        Self { iterations: grant.iterations, usd: grant.usd, tokens: grant.tokens }
    }
}

/// Status of a task after an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskStatus {
    /// State of the task.
    #[schema(value_type = String)]
    pub state: State,
    /// `true` while the task is paused.
    pub paused: bool,
    /// Number of steps of the state machine.
    pub step: u64,
    /// Hash of the current plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Name of the person.
    pub by: String,
}
