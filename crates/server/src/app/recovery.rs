//! Recovery of tasks whose workflow was lost, from the database alone.
//!
//! A new workflow starts from the stored state machine. Starting it is the only decisive act: the
//! workflow saves its first step itself, so a server that dies here loses nothing, and of two
//! servers that recover the same task one finds it started.

use futures_util::StreamExt as _;
use tamma_core::actor::Actor;
use tamma_core::ids::TaskId;
use tamma_core::reconciliation::{
    REPLACED, ReconcileDecision, Recovery, Resolution, WorkflowFinding, decide, requested_restart,
};
use tamma_core::task_loop::{EventKind, Refusal, StepRecord, TaskEvent, begin, step};
use tamma_core::version::FormatVersion;
use tamma_flow::{
    CarriedState, NAMESPACE, TaskStatus as WorkflowStatus, TaskWorkflow, WorkflowInput,
    WorkflowOrigin, failure_message, workflow_id,
};
use temporalio_client::errors::{WorkflowInteractionError, WorkflowQueryError};
use temporalio_client::{
    Client, HistoryEventFilterType, NamespacedClient as _, WorkflowExecutionStatus,
    WorkflowFetchHistoryOptions, WorkflowIdReusePolicy, WorkflowQueryOptions,
    WorkflowTerminateOptions,
};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;

use super::add_task::{StartedWorkflow, start_workflow};
use super::{App, Error, Principal, TEMPORAL_TIMEOUT};
use crate::clock;
use crate::dto::TaskStatus;
use crate::workflow_description::describe_workflow;

/// Steps of a stored task and of its workflow, when they were compared.
pub(crate) type ComparedSteps = (u64, u64);

/// Workflow of a task, as Temporal has it.
struct FoundWorkflow {
    finding: WorkflowFinding,
    /// Run ID; `None` if there is no workflow.
    run_id: Option<String>,
}

/// Result of a comparison.
#[derive(Debug)]
pub(crate) enum Comparison {
    /// Both sides agree, or nothing can be said.
    Agreed,
    /// Both sides are at different steps. If they stay there, the task is recovered.
    Differed(ComparedSteps),
    /// Task was recovered.
    Recovered,
}

impl App {
    /// Compares a task with its workflow, and recovers it if they disagree. `earlier` are the steps
    /// of the last comparison, if they differed.
    pub(crate) async fn compare_task(
        &self,
        task: TaskId,
        earlier: Option<ComparedSteps>,
    ) -> Result<Comparison, Error> {
        match self.store.task_position(task).await {
            Err(tamma_store::Error::NotFound { .. }) => self.adopt_task(task).await?,
            position => drop(position?),
        }
        let mut found = self.find_workflow(task).await?;
        // Read last: a workflow that has ended has saved everything before.
        let stored = self.store.task(task).await?;
        let machine = stored.task_loop.map_err(tamma_store::Error::from)?;
        let position = machine.position(stored.step);
        let mut compared = None;
        if let WorkflowFinding::Running { step: Some(step), confirmed } = &mut found.finding {
            compared = Some((stored.step, *step));
            *confirmed = compared == earlier;
        }
        match decide(&position, &found.finding) {
            ReconcileDecision::Leave => {
                if let (Some(run_id), Some(_)) = (&found.run_id, compared) {
                    self.store.save_workflow_run(task, run_id).await?;
                }
                Ok(Comparison::Agreed)
            }
            ReconcileDecision::LookAgain => {
                Ok(compared.map_or(Comparison::Agreed, Comparison::Differed))
            }
            ReconcileDecision::Recover(recovery) => {
                let recovered = self.recover_task(task, &found, &recovery, None).await?;
                Ok(recovered.map_or(Comparison::Agreed, |_| Comparison::Recovered))
            }
        }
    }

    /// Restarts an open task from the database, whatever its workflow does.
    pub(crate) async fn restart_task(
        &self,
        task: TaskId,
        by: &Principal,
    ) -> Result<TaskStatus, Error> {
        by.require_operator()?;
        let stored = self.store.task(task).await?;
        let machine = stored.task_loop.map_err(tamma_store::Error::from)?;
        if machine.state.is_terminal() {
            return Err(Error::Refused(Refusal::Ended(machine.state).to_string()));
        }
        let found = self.find_workflow(task).await?;
        let recovery = requested_restart(&machine.position(stored.step), by.as_str());
        let Some(record) = self.recover_task(task, &found, &recovery, Some(by)).await? else {
            return Err(Error::Refused("the task was closed meanwhile".to_owned()));
        };
        Ok(TaskStatus {
            state: record.next.state,
            paused: record.next.paused.is_some(),
            step: record.step,
            plan: record.next.plan.map(|plan| plan.hash.to_string()),
            by: by.to_string(),
        })
    }

    /// Applies a recovery to the stored task, for Tamma or an operator, and starts a new workflow from
    /// there. Returns `None` if the task was closed meanwhile.
    async fn recover_task(
        &self,
        task: TaskId,
        found: &FoundWorkflow,
        recovery: &Recovery,
        by: Option<&Principal>,
    ) -> Result<Option<StepRecord>, Error> {
        if matches!(found.finding, WorkflowFinding::Running { .. }) {
            self.terminate_workflow(task, found, &recovery.reason).await?;
        }
        let stored = self.store.task(task).await?;
        let machine = stored.task_loop.map_err(tamma_store::Error::from)?;
        if machine.state.is_terminal() && recovery.resolution != Resolution::Settle {
            return Ok(None);
        }
        let rules = self.task_rules(&machine).await?;
        let event = TaskEvent {
            format: FormatVersion,
            at: clock::now(),
            by: by.map_or(Actor::Tamma, |by| Actor::Person(by.name.clone())),
            auth: by.map(Principal::authentication),
            kind: EventKind::Reconciled(recovery.clone()),
        };
        let next = step(&machine, &event, &rules)
            .map_err(|refusal| Error::Refused(refusal.to_string()))?;
        let record = StepRecord::new(stored.step + 1, event.at, next);
        if recovery.resolution != Resolution::Settle {
            // Workers load the rules by their version.
            self.store.save_rules(&rules).await?;
            let origin =
                WorkflowOrigin::Continued(Box::new(CarriedState::from_step(record.clone())));
            let tuning = self.tuning_for(self.new_task_behaviour().await?);
            let input = WorkflowInput { rules: rules.clone(), tuning, origin };
            let reuse = match found.finding {
                // The database does not know the end that Temporal knows.
                WorkflowFinding::Completed(_) => WorkflowIdReusePolicy::AllowDuplicate,
                _ => WorkflowIdReusePolicy::AllowDuplicateFailedOnly,
            };
            // Where the lost one was.
            let client = self.workflow_client(task.0).await?;
            match start_workflow(&client, input, &record.next, reuse).await? {
                StartedWorkflow::New(run_id) => {
                    self.store.save_workflow_run(task, &run_id).await?;
                    // Facts that the old workflow took to its end are sent again.
                    self.store.set_delivered(task, "").await?;
                }
                // Another server recovers the task.
                StartedWorkflow::Existing => return Ok(Some(record)),
            }
        }
        match self.store.save_steps(std::slice::from_ref(&record), &rules).await {
            // The workflow was faster, or has failed already.
            Ok(_) | Err(tamma_store::Error::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
        tracing::warn!(
            %task, loss = %recovery.loss, resolution = %recovery.resolution,
            reason = recovery.reason, "task reconciled with Temporal"
        );
        Ok(Some(record))
    }

    /// Returns the workflow of a task, with its step if it is open.
    async fn find_workflow(&self, task: TaskId) -> Result<FoundWorkflow, Error> {
        use WorkflowExecutionStatus as Status;
        let client = self.workflow_client(task.0).await?;
        let Some(described) = describe_workflow(&client, workflow_id(task)).await? else {
            return Ok(FoundWorkflow { finding: WorkflowFinding::Missing, run_id: None });
        };
        let finding = match described.status {
            Status::Completed | Status::Failed | Status::Terminated => {
                self.closed_workflow(task).await?
            }
            Status::TimedOut => WorkflowFinding::TimedOut,
            Status::Canceled => WorkflowFinding::Cancelled,
            // The steps are being saved, or travel with an activity that saves them. Either finds out
            // itself if the database has others.
            _ if described.has_pending_work => {
                WorkflowFinding::Running { step: None, confirmed: false }
            }
            _ => {
                let step = self.workflow_step(task).await?;
                WorkflowFinding::Running { step, confirmed: false }
            }
        };
        Ok(FoundWorkflow { finding, run_id: Some(described.run_id) })
    }

    /// Asks an open workflow for its step. Returns `None` if no worker responds.
    async fn workflow_step(&self, task: TaskId) -> Result<Option<u64>, Error> {
        let client = self.workflow_client(task.0).await?;
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let options = WorkflowQueryOptions::default();
        let status = handle.query(TaskWorkflow::current_status, (), options);
        match tokio::time::timeout(TEMPORAL_TIMEOUT, status).await {
            Ok(Ok(status)) => Ok(Some(status.step)),
            Ok(Err(WorkflowQueryError::Rpc(_) | WorkflowQueryError::NotFound(_))) | Err(_) => {
                Ok(None)
            }
            Ok(Err(error)) => Err(Error::temporal(error)),
        }
    }

    /// Returns how a workflow was closed, from the last event of its history.
    async fn closed_workflow(&self, task: TaskId) -> Result<WorkflowFinding, Error> {
        let client = self.workflow_client(task.0).await?;
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let options = WorkflowFetchHistoryOptions::builder()
            .event_filter_type(HistoryEventFilterType::CloseEvent)
            .build();
        let mut history = handle.fetch_history(options);
        let event = match tokio::time::timeout(TEMPORAL_TIMEOUT, history.next()).await {
            Ok(Some(event)) => event.map_err(Error::temporal)?,
            Ok(None) => return Err(Error::temporal("the workflow has no close event")),
            Err(late) => return Err(Error::temporal(late)),
        };
        // A lost key must not keep the task from being recovered.
        let opened = self.open_payloads(event.clone()).await;
        Ok(close_finding(opened.unwrap_or_else(|error| {
            tracing::warn!(%task, %error, "cannot read why the workflow was closed");
            event
        })))
    }

    async fn terminate_workflow(
        &self,
        task: TaskId,
        found: &FoundWorkflow,
        reason: &str,
    ) -> Result<(), Error> {
        let client = self.workflow_client(task.0).await?;
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let options =
            WorkflowTerminateOptions::builder().reason(format!("{REPLACED}: {reason}")).build();
        tracing::warn!(%task, run_id = found.run_id, reason, "terminating workflow");
        match tokio::time::timeout(TEMPORAL_TIMEOUT, handle.terminate(options)).await {
            // It has ended by itself.
            Ok(Ok(()) | Err(WorkflowInteractionError::NotFound(_))) => Ok(()),
            Ok(Err(error)) => Err(Error::temporal(error)),
            Err(late) => Err(Error::temporal(late)),
        }
    }

    /// Returns the client for the workflow of a task that the database does not know.
    async fn find_client(&self, task: TaskId) -> Result<Client, Error> {
        for client in self.namespace_clients().await? {
            if describe_workflow(&client, workflow_id(task)).await?.is_some() {
                return Ok(client);
            }
        }
        Err(Error::NotFound { what: "task", key: task.to_string() })
    }

    /// Saves a task that the database has lost, as its workflow received it.
    async fn adopt_task(&self, task: TaskId) -> Result<(), Error> {
        let lost = || Error::NotFound { what: "task", key: task.to_string() };
        let client = self.find_client(task).await?;
        let WorkflowInput { rules, origin, .. } = self.workflow_input(&client, task).await?;
        let WorkflowOrigin::New { received, task: submitted } = origin else { return Err(lost()) };
        // Other installations can share the namespace of Temporal.
        self.store.project(received.project).await?;
        let namespace = client.namespace();
        if namespace != NAMESPACE {
            // A workflow of one organisation adds no task to another.
            let owner = self.store.project_namespace(received.project).await?;
            if owner.as_ref() != Some(&namespace) {
                return Err(lost());
            }
            self.store.save_workflow_namespace(task.0, &namespace).await?;
        }
        self.store.save_rules(&rules).await?;
        self.store.insert_task(&submitted, &begin(&received, &rules), &rules).await?;
        tracing::warn!(%task, "task restored from its workflow");
        Ok(())
    }
}

/// Converts the last event of a workflow.
fn close_finding(event: HistoryEvent) -> WorkflowFinding {
    match event.attributes {
        Some(Attributes::WorkflowExecutionTerminatedEventAttributes(it)) => {
            WorkflowFinding::Terminated { reason: it.reason, by: it.identity }
        }
        Some(Attributes::WorkflowExecutionFailedEventAttributes(it)) => {
            let mut reasons = Vec::new();
            let mut next = it.failure.as_ref();
            while let Some(failure) = next {
                reasons.push(failure_message(failure));
                next = failure.cause.as_deref();
            }
            WorkflowFinding::Failed { reason: reasons.join(": ") }
        }
        Some(Attributes::WorkflowExecutionTimedOutEventAttributes(_)) => WorkflowFinding::TimedOut,
        Some(Attributes::WorkflowExecutionCanceledEventAttributes(_)) => WorkflowFinding::Cancelled,
        Some(Attributes::WorkflowExecutionCompletedEventAttributes(it)) => {
            let payload = it.result.and_then(|result| result.payloads.into_iter().next());
            let status: Option<WorkflowStatus> =
                payload.and_then(|payload| serde_json::from_slice(&payload.data).ok());
            WorkflowFinding::Completed(status.map(|status| status.state))
        }
        _ => WorkflowFinding::Completed(None),
    }
}
