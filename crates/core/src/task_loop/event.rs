//! Inputs of the state machine.
//!
//! Events are kept as long as the task's history and read by newer versions. Fields can be added
//! with a default, and variants can be added. Renaming or removing anything needs a new
//! [`FormatVersion`].

use serde::{Deserialize, Serialize};
use strum::Display;

use super::{AnswerKind, State, Timestamp};
use crate::actor::{Actor, Authentication};
use crate::approval::{ApprovalScope, Pin};
use crate::budget::Grant;
use crate::cost::Usage;
use crate::failure::JobFailure;
use crate::forge::PullRequestFacts;
use crate::ids::{CommitId, Name, ProjectId, Reason, Reference, TaskId};
use crate::plan::PlanSummary;
use crate::pull_request::{OpenedPullRequest, PullRequestOutcome, QueueResult};
use crate::reconciliation::Recovery;
use crate::review::{Fingerprint, GateCounts, ReviewSummary};
use crate::task::{Priority, TaskEdit};
use crate::version::{Edition, FormatVersion};

/// Task as it enters the state machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReceived {
    /// Task ID.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Priority of the task.
    pub priority: Priority,
    /// Time of submission.
    pub at: Timestamp,
    /// Author of the task.
    pub by: Actor,
    /// Authentication of the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authentication>,
    /// Plan submitted with the task. It is reviewed like any other plan.
    #[serde(rename = "plan", default, skip_serializing_if = "Option::is_none")]
    pub submitted_plan: Option<Reference>,
    /// Edition that the task starts with. The caller supplies it, because a replayed history begins
    /// here.
    #[serde(default, skip_serializing_if = "Edition::is_first")]
    pub edition: Edition,
}

/// Input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// Format version of the event.
    #[serde(default)]
    pub format: FormatVersion,
    /// Time of the event.
    pub at: Timestamp,
    /// Author of the event.
    pub by: Actor,
    /// Authentication of the author; `None` for Tamma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authentication>,
    /// Content of the event.
    #[serde(rename = "what")]
    pub kind: EventKind,
}

/// Content of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An agent started a run.
    #[serde(rename = "started")]
    RunStarted {
        /// Job number of the run.
        #[serde(rename = "ticket")]
        job_number: u32,
        /// Name of the agent.
        #[serde(rename = "engine")]
        agent: Name,
    },
    /// An agent asked a person, and its run waits for the answer.
    QuestionOpened {
        /// Job number of the run.
        #[serde(rename = "ticket")]
        job_number: u32,
        /// Stored text of the question.
        question: Reference,
        /// Answer to use if nobody answers in time.
        #[serde(rename = "default", default, skip_serializing_if = "Option::is_none")]
        default_answer: Option<Reference>,
    },
    /// A job finished.
    #[serde(rename = "done")]
    JobFinished {
        /// Job number of the finished job.
        #[serde(rename = "ticket")]
        job_number: u32,
        /// Usage of the job; `None` without model calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Outcome of the job.
        outcome: Outcome,
    },
    /// Time has passed.
    Tick,
    /// Base commit or rules have changed.
    #[serde(rename = "repinned")]
    PinChanged(Pin),
    /// A person requested an action.
    #[serde(rename = "asked")]
    ActionRequested(Action),
    /// The forge reports new facts about the task's pull request.
    PullRequestObserved(Box<PullRequestFacts>),
    /// The pull request left the merge queue.
    QueueSettled(QueueResult),
    /// The task's workflow was lost. No job of it runs any more.
    Reconciled(Recovery),
}

/// Outcome of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Capacity is available and no dependency is open.
    Admitted,
    /// Base commit and rules are pinned, and the baseline is measured.
    Prepared(Pin),
    /// A valid plan is stored.
    Planned(PlanSummary),
    /// The plan is invalid; the errors are stored under this reference.
    PlanInvalid(Reference),
    /// Knowledge check is complete.
    Checked {
        /// Critical prohibitions that the plan violates.
        blockers: u16,
        /// Other entries that the plan violates.
        warnings: u16,
    },
    /// The agent reports completion with this commit.
    RunFinished(CommitId),
    /// The agent says that the plan cannot work; its reasons are stored under this reference.
    PlanWrong(Reference),
    /// Gates have run.
    Tested(GateCounts),
    /// Review is complete.
    Reviewed {
        /// Summary of the verdict.
        summary: ReviewSummary,
        /// Fingerprint of the failure; empty if the review passed.
        #[serde(default)]
        fingerprint: Fingerprint,
    },
    /// A validator alone reports a critical security issue; its verdict is stored under this
    /// reference until another validator has judged the commit.
    CriticalUnconfirmed(Reference),
    /// Failure brief for the next run is stored.
    Briefed(Reference),
    /// Opinion of a council member is stored.
    #[serde(rename = "opined")]
    #[strum(serialize = "opined")]
    OpinionGiven(Reference),
    /// Conclusion of the council is stored: root cause, fix and dissent.
    #[serde(rename = "concluded")]
    #[strum(serialize = "concluded")]
    CouncilConcluded(Reference),
    /// The task holds the delivery lock.
    #[serde(rename = "turn_came")]
    #[strum(serialize = "turn_came")]
    DeliveryReady,
    /// The change was delivered as this commit.
    Delivered(CommitId),
    /// The change was pushed, and its pull request is open, new or updated.
    PullRequestOpened(OpenedPullRequest),
    /// A job about the pull request finished.
    PullRequest(PullRequestOutcome),
    /// A hook failed, or the change conflicts; the output is stored under this reference.
    DeliveryRejected(Reference),
    /// Number of lessons recorded.
    Learned(u16),
    /// Current work is committed, pushed and reported.
    #[serde(rename = "landed")]
    #[strum(serialize = "landed")]
    WorkSaved,
    /// The agent asked a person and has stopped.
    #[serde(rename = "asked")]
    #[strum(serialize = "asked")]
    QuestionAsked {
        /// Stored text of the question.
        question: Reference,
        /// Answer to use if nobody answers in time.
        #[serde(rename = "default", default, skip_serializing_if = "Option::is_none")]
        default_answer: Option<Reference>,
    },
    /// The job was stopped on request.
    Interrupted,
    /// The job itself failed.
    Failed(JobFailure),
}

/// Operation that a person requests on a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// Approve the plan.
    Approve {
        /// Scope that the person saw.
        #[serde(rename = "binding")]
        scope: ApprovalScope,
        /// Optional reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
    /// Reject the plan.
    Reject {
        /// Scope that the person saw.
        #[serde(rename = "binding")]
        scope: ApprovalScope,
        /// Reason for the history.
        reason: Reason,
    },
    /// Ask the planner for a new version of the plan.
    #[serde(rename = "ask_changes")]
    #[strum(serialize = "ask_changes")]
    RevisePlan {
        /// Scope that the person saw.
        #[serde(rename = "binding")]
        scope: ApprovalScope,
        /// Stored text of the changes.
        changes: Reference,
    },
    /// Override the prohibitions for this plan. The caller has checked the person's role.
    Override {
        /// Scope that the person saw.
        #[serde(rename = "binding")]
        scope: ApprovalScope,
        /// Reason for the history.
        reason: Reason,
    },
    /// Accept the change.
    Accept {
        /// Commit that the person reviewed.
        commit: CommitId,
        /// Optional reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
    /// Send the change back with comments.
    #[serde(rename = "rework")]
    #[strum(serialize = "rework")]
    RequestChanges {
        /// Commit that the person reviewed.
        commit: CommitId,
        /// Stored comments.
        comments: Reference,
    },
    /// Pause the task.
    Pause,
    /// Resume a paused task.
    Resume,
    /// Cancel the task.
    Cancel {
        /// Reason for the history.
        reason: Reason,
    },
    /// Edit the request and replan.
    #[serde(rename = "modify")]
    #[strum(serialize = "modify")]
    ChangeTask {
        /// Stored text of the new request.
        #[serde(rename = "note")]
        request: Reference,
    },
    /// Skip a wait. As an answer: retry the failed work with its counters reset.
    Retry {
        /// Extra runs, dollars or tokens.
        #[serde(default)]
        grant: Grant,
    },
    /// As an answer: continue.
    Continue {
        /// Extra runs, dollars or tokens.
        #[serde(default)]
        grant: Grant,
    },
    /// As an answer: reply to an agent's question.
    Reply {
        /// Stored text of the reply.
        reply: Reference,
    },
    /// As an answer: return to an earlier state.
    RollBack {
        /// State to return to.
        to: State,
        /// Reason for the history.
        reason: Reason,
    },
    /// As an answer: treat the failed step as done.
    Skip {
        /// Reason for the history.
        reason: Reason,
    },
    /// Ask the council for a root cause and a fix, or for a review of the plan.
    Convene {
        /// Stored question to the council.
        question: Reference,
    },
    /// As an answer: close the task as failed.
    Abandon {
        /// Reason for the history.
        reason: Reason,
    },
    /// Stop the reminders without answering.
    Acknowledge,
    /// Replace the plan with an edited version, which is checked like any other.
    AdjustPlan {
        /// Scope that the person saw.
        scope: ApprovalScope,
        /// Edited plan, stored by the caller.
        plan: Box<PlanSummary>,
        /// Stored list of the edited fields, with their old and new values.
        adjustments: Reference,
        /// Reason for the history.
        reason: Reason,
    },
    /// Edit the title, the priority or the labels. No job is affected.
    Edit(TaskEdit),
    /// Rate a closed task. A later rating by the same person replaces it.
    Rate {
        /// 1 (bad) to 5 (good).
        stars: u8,
        /// Optional comment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
}

impl Action {
    /// Returns the name of the action for people. [`Display`](std::fmt::Display) gives the
    /// serialised name.
    pub fn label(&self) -> &'static str {
        match AnswerKind::try_from(self) {
            Ok(answer) => answer.label(),
            Err(()) => match self {
                Self::Pause => "pause",
                Self::Resume => "resume",
                Self::AdjustPlan { .. } => "adjust the plan",
                Self::Edit(_) => "edit the task",
                Self::Rate { .. } => "rate",
                _ => "acknowledge",
            },
        }
    }
}
