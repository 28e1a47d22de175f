//! Reconciler: compares the open tasks in the database with their workflows in Temporal.
//!
//! One server at a time does it. Each round looks at workflows that were closed since the last one,
//! then at all open tasks: a list of the running workflows is cheap, so only tasks that are not in
//! it, or differ from it, are compared one by one. A marker workflow with a new run ID in each round
//! shows whether one of the two sides was restored from a backup; then all tasks are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{SecondsFormat, TimeDelta};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use strum::IntoEnumIterator as _;
use tamma_core::ids::{PipelineId, TaskId};
use tamma_core::run_queue::WaitingRun;
use tamma_core::state::State;
use tamma_core::task::Priority;
use tamma_core::time::Timestamp;
use tamma_flow::{NAMESPACE, pipeline_workflow_id, search_attributes, workflow_id};
use tamma_store::{Lease, OpenTask, PipelineFilter, ReconcileMarks};
use temporalio_client::{
    Client, NamespacedClient as _, UntypedWorkflow, WorkflowExecution, WorkflowExecutionStatus,
    WorkflowIdConflictPolicy, WorkflowIdReusePolicy, WorkflowListOptions, WorkflowStartOptions,
};
use temporalio_common::data_converters::RawValue;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, ComparedSteps, Comparison, Error};
use crate::clock;
use crate::temporal_namespace::client_in;
use crate::workflow_description::describe_workflow;

/// Number of open tasks per query. Their workflow IDs go into one list request.
const PAGE_SIZE: u32 = 100;

/// Number of tasks that are compared at the same time.
const MAX_CONCURRENT: usize = 8;

/// Maximum number of open pipelines.
const MAX_PIPELINES: u32 = 1000;

/// Time for which closed workflows are looked at again, because lists of Temporal lag behind.
const OVERLAP: TimeDelta = TimeDelta::minutes(2);

/// Time after which the list of running workflows shows the state of a task.
const LIST_DELAY: TimeDelta = TimeDelta::seconds(10);

/// Type and task queue of the marker, and the start of its workflow ID. Nobody polls the queue.
const MARKER: &str = "tamma-marker";

/// Compares tasks with their workflows.
pub(crate) struct Reconciler {
    app: App,
    interval: Duration,
    /// Holder of the lease.
    holder: String,
    started_at: Timestamp,
    /// Tasks that differed from their workflow in the last round.
    differed: BTreeMap<TaskId, ComparedSteps>,
}

impl Reconciler {
    pub(crate) fn new(app: App, interval: Duration) -> Self {
        let holder = format!("reconciler {}", clock::new_id());
        Self { app, interval, holder, started_at: clock::now(), differed: BTreeMap::new() }
    }

    /// Runs until `stop` is cancelled.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        // Not at once: tasks that a restarted server finds have workers that start too.
        let first = tokio::time::Instant::now() + self.interval;
        let mut tick = tokio::time::interval_at(first, self.interval);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = tick.tick() => {}
            }
            let round = async { if self.has_lease().await? { self.round().await } else { Ok(()) } };
            tokio::select! {
                () = stop.cancelled() => break,
                ended = round => if let Err(error) = ended {
                    tracing::warn!(%error, "comparison with Temporal failed; retrying");
                }
            }
        }
        let _ = self.app.store.release_leases(&self.holder).await;
    }

    async fn has_lease(&self) -> Result<bool, Error> {
        let run = WaitingRun {
            holder: self.holder.clone(),
            priority: Priority::Medium,
            since: self.started_at,
        };
        let key = (Lease::Reconciler, "tasks");
        Ok(self.app.store.acquire_lease(key, &run, 1, self.interval * 3).await?)
    }

    /// Compares both sides once.
    async fn round(&mut self) -> Result<(), Error> {
        let at = clock::now();
        let marks = self.app.store.reconcile_marks(at).await?;
        let marker_id = format!("{MARKER}-{}", marks.installation);
        let marker = self.current_marker(&marker_id).await?;
        let is_restored = marks.marker != marker;
        if is_restored {
            tracing::warn!("the database or Temporal was restored; comparing all tasks");
        }
        let mut suspects: BTreeSet<TaskId> = self.differed.keys().copied().collect();
        let mut failures = 0;
        suspects.extend(self.closed_tasks(marks.watermark - OVERLAP, &mut failures).await?);
        if is_restored {
            suspects.extend(self.running_tasks(&mut failures).await?);
        }
        self.sweep(is_restored, &mut suspects, &mut failures).await?;
        failures += self.compare(suspects).await;
        self.reconcile_pipelines().await?;
        self.app.store.forget_closed_workflows().await?;
        // A task that could not be compared is found again in the next round.
        if failures > 0 {
            return Ok(());
        }
        // Saved after the round, so that a server that dies in it compares all tasks again.
        let marker = Some(self.new_marker(&marker_id).await?);
        let marks = ReconcileMarks { watermark: at, marker, ..marks };
        Ok(self.app.store.save_reconcile_marks(&marks).await?)
    }

    /// Compares tasks, and returns how many could not be compared.
    async fn compare(&mut self, suspects: BTreeSet<TaskId>) -> usize {
        let comparisons = suspects.into_iter().map(|task| self.compare_one(task));
        let compared: Vec<_> =
            stream::iter(comparisons).buffer_unordered(MAX_CONCURRENT).collect().await;
        let mut failures = 0;
        for (task, comparison) in compared {
            self.differed.remove(&task);
            match comparison {
                Ok(Comparison::Agreed | Comparison::Recovered) => {}
                Ok(Comparison::Differed(steps)) => drop(self.differed.insert(task, steps)),
                // Another version of Tamma, or another installation, has the task.
                Err(Error::NotFound { .. }) => {
                    tracing::debug!(%task, "workflow of an unknown task");
                }
                // A newer version of Tamma wrote it.
                Err(error @ Error::Corrupt { .. }) => {
                    tracing::error!(%task, %error, "task not compared with Temporal");
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%task, %error, "task not compared with Temporal");
                }
            }
        }
        failures
    }

    async fn compare_one(&self, task: TaskId) -> (TaskId, Result<Comparison, Error>) {
        let comparing = self.app.compare_task(task, self.differed.get(&task).copied());
        (task, Box::pin(comparing).await)
    }

    /// Returns the tasks whose workflow was closed early since a time.
    async fn closed_tasks(
        &self,
        since: Timestamp,
        failures: &mut usize,
    ) -> Result<Vec<TaskId>, Error> {
        let since = since.to_rfc3339_opts(SecondsFormat::Millis, true);
        let query = format!(
            "WorkflowType = 'task' AND ExecutionStatus IN \
             ('Terminated', 'TimedOut', 'Failed', 'Canceled') AND CloseTime > '{since}'"
        );
        self.list_tasks(&query, failures).await
    }

    async fn running_tasks(&self, failures: &mut usize) -> Result<Vec<TaskId>, Error> {
        let query = "WorkflowType = 'task' AND ExecutionStatus = 'Running'";
        self.list_tasks(query, failures).await
    }

    /// Lists tasks by their workflows in all namespaces.
    async fn list_tasks(&self, query: &str, failures: &mut usize) -> Result<Vec<TaskId>, Error> {
        let mut tasks = Vec::new();
        for client in self.app.namespace_clients().await? {
            let listed = list(&client, query, failures).await?.unwrap_or_default();
            tasks.extend(listed.iter().filter_map(|workflow| task_of(workflow.id())));
        }
        Ok(tasks)
    }

    /// Adds the open tasks that are not among the running workflows, or differ from them.
    async fn sweep(
        &self,
        all: bool,
        suspects: &mut BTreeSet<TaskId>,
        failures: &mut usize,
    ) -> Result<(), Error> {
        for state in State::iter().filter(|state| !state.is_terminal()) {
            let mut after = None;
            loop {
                let open = self.app.store.open_tasks(state, after, PAGE_SIZE).await?;
                after = open.last().map(|task| task.id);
                if all {
                    suspects.extend(open.iter().map(|task| task.id));
                } else if !open.is_empty() {
                    self.compare_with_list(&open, suspects, failures).await?;
                }
                if open.len() < PAGE_SIZE as usize {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn compare_with_list(
        &self,
        open: &[OpenTask],
        suspects: &mut BTreeSet<TaskId>,
        failures: &mut usize,
    ) -> Result<(), Error> {
        let mut by_namespace: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for task in open {
            by_namespace.entry(task.namespace.as_deref()).or_default().push(task);
        }
        for (namespace, open) in by_namespace {
            let client = client_in(&self.app.temporal, namespace);
            self.compare_in_namespace(&client, &open, suspects, failures).await?;
        }
        Ok(())
    }

    async fn compare_in_namespace(
        &self,
        client: &Client,
        open: &[&OpenTask],
        suspects: &mut BTreeSet<TaskId>,
        failures: &mut usize,
    ) -> Result<(), Error> {
        let ids: Vec<_> = open.iter().map(|task| format!("'{}'", workflow_id(task.id))).collect();
        let ids = ids.join(", ");
        let query = format!("ExecutionStatus = 'Running' AND WorkflowId IN ({ids})");
        let Some(listed) = list(client, &query, failures).await? else { return Ok(()) };
        let listed: BTreeMap<_, _> = listed.iter().map(|found| (found.id(), found)).collect();
        for task in open {
            let Some(found) = listed.get(workflow_id(task.id).as_str()) else {
                suspects.insert(task.id);
                continue;
            };
            let state = found.search_attributes().get(&search_attributes::STATE);
            let is_settled = task.updated_at < clock::now() - LIST_DELAY;
            let expected = search_attributes::published_state(task.state);
            let is_other = state.is_some_and(|state| {
                let state = state.parse().map(search_attributes::published_state);
                state != Ok(expected)
            });
            match &task.run_id {
                Some(run_id) if run_id != found.run_id() => drop(suspects.insert(task.id)),
                _ if is_settled && is_other => drop(suspects.insert(task.id)),
                Some(_) => {}
                None => self.app.store.save_workflow_run(task.id, found.run_id()).await?,
            }
        }
        Ok(())
    }

    /// Stops the runs of pipelines whose workflow was lost. A person resumes them.
    async fn reconcile_pipelines(&self) -> Result<(), Error> {
        let filter = PipelineFilter { live: true, ..PipelineFilter::default() };
        for story in self.app.store.pipelines(&filter, MAX_PIPELINES).await? {
            // A run that was requested just now has no workflow yet.
            if story.updated_at > clock::now() - LIST_DELAY {
                continue;
            }
            match self.pipeline_loss(story.id).await {
                Ok(Some(loss)) => self.app.stop_lost_pipeline(&story, &loss).await?,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(pipeline = %story.id, %error, "pipeline not compared with Temporal");
                }
            }
        }
        Ok(())
    }

    /// Returns how the workflow of a pipeline was lost; `None` if it is open.
    async fn pipeline_loss(&self, id: PipelineId) -> Result<Option<String>, Error> {
        use WorkflowExecutionStatus as Status;
        let client = self.app.workflow_client(id.0).await?;
        let described = describe_workflow(&client, pipeline_workflow_id(id)).await?;
        let loss = match described.map(|it| it.status) {
            None => "is missing",
            Some(Status::Terminated) => "was terminated",
            Some(Status::TimedOut) => "timed out",
            Some(Status::Failed) => "failed",
            Some(Status::Canceled) => "was cancelled",
            Some(Status::Completed) => "has ended before",
            Some(_) => return Ok(None),
        };
        Ok(Some(loss.to_owned()))
    }

    /// Returns the run ID of the marker.
    async fn current_marker(&self, id: &str) -> Result<Option<String>, Error> {
        let described = describe_workflow(&self.app.temporal, id.to_owned()).await?;
        Ok(described.map(|it| it.run_id))
    }

    /// Replaces the marker, and returns its run ID.
    async fn new_marker(&self, id: &str) -> Result<String, Error> {
        let options = WorkflowStartOptions::new(MARKER.to_owned(), id.to_owned())
            .id_conflict_policy(WorkflowIdConflictPolicy::TerminateExisting)
            .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
            .build();
        let marker = UntypedWorkflow::new(MARKER);
        let started = self.app.temporal.start_workflow(marker, RawValue::empty(), options).await;
        let handle = started.map_err(Error::temporal)?;
        Ok(handle.run_id().unwrap_or_default().to_owned())
    }
}

/// Lists workflows of a namespace. One of an organisation that cannot be used counts as a failure, and
/// the others are compared.
async fn list(
    client: &Client,
    query: &str,
    failures: &mut usize,
) -> Result<Option<Vec<WorkflowExecution>>, Error> {
    let listed = client.list_workflows(query, WorkflowListOptions::default());
    match listed.try_collect().await {
        Ok(listed) => Ok(Some(listed)),
        Err(error) if client.namespace() != NAMESPACE => {
            let namespace = client.namespace();
            tracing::warn!(namespace, %error, "failed to list the workflows of a namespace");
            *failures += 1;
            Ok(None)
        }
        Err(error) => Err(Error::temporal(error)),
    }
}

fn task_of(workflow: &str) -> Option<TaskId> {
    workflow.strip_prefix("task-")?.parse::<Uuid>().ok().map(TaskId)
}
