//! What can happen to a task.
//!
//! Events are kept for as long as the task's history is, and read back by newer programs: a field
//! may be added with a default, a variant may be added, and nothing is ever renamed or removed
//! without a new [`Format`].

use serde::{Deserialize, Serialize};
use strum::Display;

use super::{State, Timestamp};
use crate::actor::Actor;
use crate::approval::{Binding, Pin};
use crate::budget::Grant;
use crate::cost::Usage;
use crate::failure::Failure;
use crate::ids::{CommitId, Name, ProjectId, Reason, Reference, TaskId};
use crate::plan::Outline;
use crate::review::{Fingerprint, Gates, Summary};
use crate::task::Priority;
use crate::version::{Edition, Format};

/// How a task comes in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The task.
    pub task: TaskId,
    /// Its project.
    pub project: ProjectId,
    /// Its priority.
    pub priority: Priority,
    /// When it came.
    pub at: Timestamp,
    /// Who brought it.
    pub by: Actor,
    /// The plan it brought with it, if it did. That plan is reviewed before it is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Reference>,
    /// The behaviour it is started with. It comes from outside, because a history that is played
    /// again begins here.
    #[serde(default, skip_serializing_if = "Edition::is_first")]
    pub edition: Edition,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The version of this form.
    #[serde(default)]
    pub format: Format,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// An engine took a run up.
    Started {
        /// The ticket of the run.
        ticket: u32,
        /// Which engine.
        engine: Name,
    },
    /// A job ended.
    Done {
        /// The ticket of the job.
        ticket: u32,
        /// What it used, if it used a model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// How it ended.
        outcome: Outcome,
    },
    /// Time passed.
    Tick,
    /// The base commit or the rules changed under the task.
    Repinned(Pin),
    /// A person asked for something.
    Asked(Action),
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// There is room, and nothing to wait for.
    Admitted,
    /// Base and rules are pinned, the baseline is taken.
    Prepared(Pin),
    /// There is a valid plan.
    Planned(Outline),
    /// The plan has flaws, described there.
    PlanInvalid(Reference),
    /// The knowledge check is done.
    Checked {
        /// Critical prohibitions the plan breaks.
        blockers: u16,
        /// Warnings.
        warnings: u16,
    },
    /// The engine says it is done, with this commit.
    RunFinished(CommitId),
    /// The gates have run.
    Tested(Gates),
    /// The review is done.
    Reviewed {
        /// What it came to.
        summary: Summary,
        /// What the failure looks like, if it is one.
        #[serde(default)]
        fingerprint: Fingerprint,
    },
    /// The brief for the next run is there.
    Briefed(Reference),
    /// What a member of the council thinks is there.
    Opined(Reference),
    /// The council's root cause, fix and dissent are there.
    Concluded(Reference),
    /// It is this task's turn to be delivered.
    TurnCame,
    /// The change is delivered as this commit.
    Delivered(CommitId),
    /// A hook failed, or the change conflicts; the text is there.
    DeliveryRejected(Reference),
    /// So many lessons were written down.
    Learned(u16),
    /// The work so far is committed, pushed and reported.
    Landed,
    /// The agent has a question for a person, and has stopped.
    Asked {
        /// What it asks.
        question: Reference,
        /// What is taken for the answer when nobody gives one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<Reference>,
    },
    /// The job was stopped, as it was told to.
    Interrupted,
    /// The job itself failed.
    Failed(Failure),
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// Let this plan run.
    Approve {
        /// What they saw.
        binding: Binding,
        /// Why, if they say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
    /// Do not let this plan run.
    Reject {
        /// What they saw.
        binding: Binding,
        /// Why.
        reason: Reason,
    },
    /// Change this plan, field by field.
    AskChanges {
        /// What they saw.
        binding: Binding,
        /// The changes.
        changes: Reference,
    },
    /// Lift the prohibition for this plan. Whether their role allows it was checked before.
    Override {
        /// What they saw.
        binding: Binding,
        /// Why.
        reason: Reason,
    },
    /// Take this change.
    Accept {
        /// The commit they reviewed.
        commit: CommitId,
        /// Why, if they say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
    /// Send this change back.
    Rework {
        /// The commit they reviewed.
        commit: CommitId,
        /// Their comments.
        comments: Reference,
    },
    /// Stop for now.
    Pause,
    /// Go on from where it was.
    Resume,
    /// End it.
    Cancel {
        /// Why.
        reason: Reason,
    },
    /// Change what is wanted.
    Modify {
        /// What is wanted now.
        note: Reference,
    },
    /// Do not wait any longer; or, as an answer, try what failed again, with its counters cleared.
    Retry {
        /// What it may use beyond its limits.
        #[serde(default)]
        grant: Grant,
    },
    /// As an answer: go on.
    Continue {
        /// What it may use beyond its limits.
        #[serde(default)]
        grant: Grant,
    },
    /// As an answer: what the agent wanted to know.
    Reply {
        /// The reply.
        reply: Reference,
    },
    /// As an answer: go back to an earlier state.
    RollBack {
        /// Where to.
        to: State,
        /// Why.
        reason: Reason,
    },
    /// As an answer: take the failed step as done.
    Skip {
        /// Why.
        reason: Reason,
    },
    /// As an answer: give it up.
    Abandon {
        /// Why.
        reason: Reason,
    },
    /// I have seen it; stop reminding.
    Acknowledge,
}
