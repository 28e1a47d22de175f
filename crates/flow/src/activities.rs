//! Activity interface between the task workflow and its workers.
//!
//! Temporal may run an activity more than once, so every activity is idempotent and every request
//! carries what another attempt needs. Serialised names are part of recorded workflow histories:
//! rename the Rust item, and keep the recorded name with `#[serde(rename)]`.

use serde::{Deserialize, Serialize};
use tamma_core::cost::Usage;
use tamma_core::ids::{PolicyVersion, ProjectId, Reason, TaskId};
use tamma_core::rules::Rules;
use tamma_core::run_result::RunResult;
use tamma_core::task::Task;
use tamma_core::task_loop::{Job, JobKind, Outcome, StepRecord};
use temporalio_common::ActivityDefinition;
use temporalio_common::data_converters::{
    CommonAttributes, GenericPayloadConverter as _, PayloadConverter, SerializationContext,
    SerializationContextData,
};
use temporalio_common::protos::temporal::api::failure::v1::Failure;
use temporalio_common::protos::temporal::api::failure::v1::failure::FailureInfo;
use temporalio_workflow::ActivityExecutionError;

/// Request to run one job of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Sequence number of the job within its task. A result with another number is stale.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Job to run, with its arguments.
    pub job: Job,
    /// Added to the attempt number of the activity. A request that moved up in its queue is a new
    /// activity, whose attempts start again at 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub earlier_attempts: u32,
    /// Steps to save before the job starts.
    #[serde(flatten)]
    pub pending: PendingSteps,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Steps of one task that may not be in the database yet. Saving them twice has no effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingSteps {
    /// Task ID.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Policy version of the rules that the task runs under.
    pub policy: PolicyVersion,
    /// Task and rules as submitted; `None` once they are known to be stored.
    #[serde(rename = "arrival", default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<Box<TaskSubmission>>,
    /// Steps, oldest first.
    pub steps: Vec<StepRecord>,
}

/// Task and rules as submitted, saved once before the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSubmission {
    /// Task as its author wrote it.
    pub task: Task,
    /// Rules that the task runs under.
    pub rules: Rules,
}

/// Result of a job: returned to the workflow, and stored so that another attempt returns it too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "one value per job; boxing would save nothing")]
pub enum JobResult {
    /// Job ended; `outcome` says whether it succeeded.
    #[serde(rename = "ended")]
    Finished {
        /// Outcome of the job.
        outcome: Outcome,
        /// Usage; `None` without model calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Description of failures, for the next run and for people. It is stored only: see
        /// [`JobResult::without_report`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<String>,
        /// Claims of the agent about its run, for the next run and for people. Stored only, like
        /// the report.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claims: Option<RunResult>,
    },
    /// Job not ready; the workflow requests it again after this delay.
    #[serde(rename = "later")]
    RetryAfter {
        /// Delay, in seconds.
        seconds: u32,
    },
}

impl JobResult {
    /// Returns the result of a job without model calls.
    pub fn finished(outcome: Outcome) -> Self {
        Self::Finished { outcome, usage: None, report: None, claims: None }
    }

    /// Sets the usage of a finished job.
    #[must_use]
    pub fn with_usage(mut self, used: Option<Usage>) -> Self {
        if let Self::Finished { usage, .. } = &mut self {
            *usage = used;
        }
        self
    }

    /// Sets the report of a finished job.
    #[must_use]
    pub fn with_report(mut self, text: Option<String>) -> Self {
        if let Self::Finished { report, .. } = &mut self {
            *report = text;
        }
        self
    }

    /// Sets the claims of the agent of a finished job.
    #[must_use]
    pub fn with_claims(mut self, result: Option<RunResult>) -> Self {
        if let Self::Finished { claims, .. } = &mut self {
            *claims = result;
        }
        self
    }

    /// Removes the report and the claims, so that they stay out of the workflow's history.
    #[must_use]
    pub fn without_report(self) -> Self {
        self.with_report(None).with_claims(None)
    }

    /// Returns the claims of the agent of a finished job.
    pub fn claims(&self) -> Option<&RunResult> {
        match self {
            Self::Finished { claims, .. } => claims.as_ref(),
            Self::RetryAfter { .. } => None,
        }
    }

    /// Returns the report of a finished job.
    pub fn report(&self) -> Option<&str> {
        match self {
            Self::Finished { report, .. } => report.as_deref(),
            Self::RetryAfter { .. } => None,
        }
    }
}

/// Type of a failure that a retry cannot fix.
pub const NON_RETRYABLE: &str = "Final";

/// Type of the failure of a workflow whose history is not the one in the database. The database is
/// right: the workflow ends, and another one continues from there.
pub const DIVERGED: &str = "Diverged";

/// Type of the failure of a job that is not tried again, because its workers died.
pub const LOST_WORKERS: &str = "LostWorkers";

/// Passes the table of job activities to the macro `$with`.
///
/// Each row has the kind of the job, the constant in [`activities::names`](crate::activities::names)
/// and the name that recorded histories contain, which never changes.
#[macro_export]
macro_rules! job_activities {
    ($with:ident) => {
        $with! {
            Admit ADMIT "admit",
            Prepare PREPARE "prepare",
            Plan PLAN "plan",
            Check CHECK "check",
            Implement IMPLEMENT "implement",
            Test TEST "test",
            Review REVIEW "review",
            Brief BRIEF "brief",
            Convene CONVENE "convene",
            AwaitDelivery AWAIT_DELIVERY "await_turn",
            Deliver DELIVER "deliver",
            PullRequest PULL_REQUEST "pull_request",
            Learn LEARN "learn",
            SaveWork SAVE_WORK "land",
        }
    };
}

macro_rules! define_names {
    ($($kind:ident $constant:ident $name:literal,)*) => {
        /// Activity names. Recorded histories contain them, so they never change.
        pub mod names {
            /// Name of [`RecordActivity`](super::RecordActivity).
            pub const RECORD: &str = "record";
            $(
                #[doc = concat!("Name of the activity for `JobKind::", stringify!($kind), "`.")]
                pub const $constant: &str = $name;
            )*
        }

        impl ActivityDefinition for JobActivity {
            type Input = JobRequest;
            type Output = JobResult;

            fn name(&self) -> &str {
                match self.0 {
                    $(JobKind::$kind => names::$constant,)*
                }
            }
        }
    };
}

/// Activity that runs jobs of one kind.
#[derive(Debug, Clone, Copy)]
pub struct JobActivity(pub JobKind);

job_activities!(define_names);

/// Activity that saves pending steps when no job carries them.
#[derive(Debug, Clone, Copy)]
pub struct RecordActivity;

impl ActivityDefinition for RecordActivity {
    type Input = PendingSteps;
    type Output = ();

    fn name(&self) -> &str {
        names::RECORD
    }
}

/// Returns `true` if the worker found another history in the database.
pub(crate) fn is_divergence(error: &ActivityExecutionError) -> bool {
    has_type(error, DIVERGED)
}

/// Returns `true` if too many workers died while they ran the activity.
pub(crate) fn has_lost_workers(error: &ActivityExecutionError) -> bool {
    has_type(error, LOST_WORKERS)
}

fn has_type(error: &ActivityExecutionError, name: &str) -> bool {
    let mut next = error.failure();
    while let Some(failure) = next {
        if let Some(FailureInfo::ApplicationFailureInfo(info)) = &failure.failure_info
            && info.r#type == name
        {
            return true;
        }
        next = failure.cause.as_deref();
    }
    false
}

/// Returns the worker's own error message, without Temporal's wrapping, cut to the length of a
/// reason.
pub(crate) fn root_message(error: &ActivityExecutionError) -> String {
    let Some(mut failure) = error.failure() else { return error.to_string() };
    while let Some(cause) = &failure.cause {
        failure = cause;
    }
    let message = failure_message(failure);
    let text = if message.is_empty() { error.to_string() } else { message };
    text.chars().take(Reason::MAX).collect()
}

/// Returns the message of a failure whose payloads are open. If payloads are sealed, the message is one
/// of them.
pub fn failure_message(failure: &Failure) -> String {
    let converter = PayloadConverter::default();
    let context = SerializationContext::new(&SerializationContextData::None, &converter);
    let attributes = failure.encoded_attributes.clone();
    let attributes = attributes
        .and_then(|payload| converter.from_payload::<CommonAttributes>(&context, payload).ok());
    attributes.map_or_else(|| failure.message.clone(), |attributes| attributes.message)
}

#[cfg(test)]
mod tests {
    use temporalio_common::data_converters::{DefaultFailureConverter, FailureConverter as _};
    use temporalio_common::error::{ApplicationFailure, OutgoingActivityError, OutgoingError};

    use super::*;

    #[test]
    fn the_message_of_a_failure_is_found_where_it_is() {
        for in_payload in [false, true] {
            let error = ApplicationFailure::new("the disk is full");
            let error = OutgoingActivityError::Application(Box::new(error));
            let failure = DefaultFailureConverter::new(in_payload).to_failure(
                OutgoingError::Activity(error),
                &PayloadConverter::default(),
                &SerializationContextData::None,
            );
            assert_eq!(failure.encoded_attributes.is_some(), in_payload);
            assert_eq!(failure_message(&failure), "the disk is full");
        }
    }
}
