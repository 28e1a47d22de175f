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
use tamma_flow::pipeline::PipelineWorkflow;
use tamma_flow::{pipeline_workflow_id, search_attributes, workflow_id};
use tamma_store::{Lease, OpenTask, PipelineFilter, ReconcileMarks};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecution, WorkflowExecutionStatus,
    WorkflowIdConflictPolicy, WorkflowIdReusePolicy, WorkflowListOptions, WorkflowStartOptions,
};
use temporalio_common::data_converters::RawValue;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, ComparedSteps, Comparison, Error};
use crate::clock;

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
        let (at, rounds) = (clock::now(), self.interval * 3);
        let until = at + TimeDelta::from_std(rounds).unwrap_or(TimeDelta::minutes(3));
        let key = (Lease::Reconciler, "tasks");
        Ok(self.app.store.acquire_lease(key, &run, 1, (at, until)).await?)
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
        suspects.extend(self.closed_tasks(marks.watermark - OVERLAP).await?);
        if is_restored {
            suspects.extend(self.running_tasks().await?);
        }
        self.sweep(is_restored, &mut suspects).await?;
        let failures = self.compare(suspects).await;
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
        (task, self.app.compare_task(task, self.differed.get(&task).copied()).await)
    }

    /// Returns the tasks whose workflow was closed early since a time.
    async fn closed_tasks(&self, since: Timestamp) -> Result<Vec<TaskId>, Error> {
        let since = since.to_rfc3339_opts(SecondsFormat::Millis, true);
        self.list_tasks(format!(
            "WorkflowType = 'task' AND ExecutionStatus IN \
             ('Terminated', 'TimedOut', 'Failed', 'Canceled') AND CloseTime > '{since}'"
        ))
        .await
    }

    async fn running_tasks(&self) -> Result<Vec<TaskId>, Error> {
        self.list_tasks("WorkflowType = 'task' AND ExecutionStatus = 'Running'".to_owned()).await
    }

    async fn list_tasks(&self, query: String) -> Result<Vec<TaskId>, Error> {
        let listed = self.list(query).await?;
        Ok(listed.iter().filter_map(|workflow| task_of(workflow.id())).collect())
    }

    async fn list(&self, query: String) -> Result<Vec<WorkflowExecution>, Error> {
        let listed = self.app.temporal.list_workflows(query, WorkflowListOptions::default());
        listed.try_collect().await.map_err(unavailable)
    }

    /// Adds the open tasks that are not among the running workflows, or differ from them.
    async fn sweep(&self, all: bool, suspects: &mut BTreeSet<TaskId>) -> Result<(), Error> {
        for state in State::iter().filter(|state| !state.is_terminal()) {
            let mut after = None;
            loop {
                let open = self.app.store.open_tasks(state, after, PAGE_SIZE).await?;
                after = open.last().map(|task| task.id);
                if all {
                    suspects.extend(open.iter().map(|task| task.id));
                } else if !open.is_empty() {
                    self.compare_with_list(&open, suspects).await?;
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
    ) -> Result<(), Error> {
        let ids: Vec<_> = open.iter().map(|task| format!("'{}'", workflow_id(task.id))).collect();
        let ids = ids.join(", ");
        let query = format!("ExecutionStatus = 'Running' AND WorkflowId IN ({ids})");
        let listed = self.list(query).await?;
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
            if let Some(loss) = self.pipeline_loss(story.id).await? {
                self.app.stop_lost_pipeline(&story, &loss).await?;
            }
        }
        Ok(())
    }

    /// Returns how the workflow of a pipeline was lost; `None` if it is open.
    async fn pipeline_loss(&self, id: PipelineId) -> Result<Option<String>, Error> {
        use WorkflowExecutionStatus as Status;
        let handle =
            self.app.temporal.get_workflow_handle::<PipelineWorkflow>(pipeline_workflow_id(id));
        match handle.describe(WorkflowDescribeOptions::default()).await {
            Err(WorkflowInteractionError::NotFound(_)) => Ok(Some("is missing".to_owned())),
            Err(error) => Err(unavailable(error)),
            Ok(described) => Ok(match described.status() {
                Status::Terminated => Some("was terminated".to_owned()),
                Status::TimedOut => Some("timed out".to_owned()),
                Status::Failed => Some("failed".to_owned()),
                Status::Canceled => Some("was cancelled".to_owned()),
                Status::Completed => Some("has ended before".to_owned()),
                _ => None,
            }),
        }
    }

    /// Returns the run ID of the marker.
    async fn current_marker(&self, id: &str) -> Result<Option<String>, Error> {
        let handle = self.app.temporal.get_workflow_handle::<UntypedWorkflow>(id);
        match handle.describe(WorkflowDescribeOptions::default()).await {
            Ok(described) => Ok(Some(described.run_id().to_owned())),
            Err(WorkflowInteractionError::NotFound(_)) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Replaces the marker, and returns its run ID.
    async fn new_marker(&self, id: &str) -> Result<String, Error> {
        let options = WorkflowStartOptions::new(MARKER.to_owned(), id.to_owned())
            .id_conflict_policy(WorkflowIdConflictPolicy::TerminateExisting)
            .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
            .build();
        let marker = UntypedWorkflow::new(MARKER);
        let started = self.app.temporal.start_workflow(marker, RawValue::empty(), options).await;
        let handle = started.map_err(unavailable)?;
        Ok(handle.run_id().unwrap_or_default().to_owned())
    }
}

fn task_of(workflow: &str) -> Option<TaskId> {
    workflow.strip_prefix("task-")?.parse::<Uuid>().ok().map(TaskId)
}

fn unavailable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Unavailable { what: "Temporal", source: error.into() }
}
