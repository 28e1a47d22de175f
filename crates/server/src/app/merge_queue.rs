//! Merge queues: list, pause and resume.
//!
//! The workflow is the source of truth; the list shows what it saved last.

use std::collections::BTreeMap;

use tamma_core::access::Permission;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::merge_queue::{EntryKey, MergeQueue, QueueAddress, QueueBuild};
use tamma_flow::merge_queue::{MergeQueueWorkflow, QueueAction, QueueActionRequest};
use tamma_flow::merge_queue_workflow_id;
use tamma_store::{MergeQueueId, QueueEntry, QueueEntryFilter, StoredMergeQueue};
use temporalio_client::WorkflowExecuteUpdateOptions;
use temporalio_client::errors::WorkflowUpdateError;

use super::{App, Error, Principal, TEMPORAL_TIMEOUT};
use crate::audit;
use crate::clock;
use crate::dto::{MergeQueueActionBody, MergeQueueView, QueueBuildView, QueueEntryView};
use crate::temporal_namespace::client_in;

/// Maximum number of entries that are shown for each queue.
const MAX_ENTRIES: u32 = 100;

/// Longest reason for a pause, in characters.
const MAX_REASON: usize = 500;

impl App {
    /// Returns the merge queues of the readable projects.
    pub(crate) async fn merge_queues(&self) -> Result<Vec<MergeQueueView>, Error> {
        let mut views = Vec::new();
        for stored in self.store.merge_queues().await? {
            views.push(self.merge_queue_view(stored).await?);
        }
        Ok(views)
    }

    /// Returns the merge queues that need a person, longest wait first.
    pub(crate) async fn waiting_merge_queues(
        &self,
        project: Option<ProjectId>,
    ) -> Result<Vec<MergeQueueView>, Error> {
        let mut views = Vec::new();
        for stored in self.store.merge_queues().await? {
            let is_wanted = project.is_none_or(|it| it == stored.project);
            if is_wanted && read_state(&stored).question().is_some() {
                views.push(self.merge_queue_view(stored).await?);
            }
        }
        views.sort_by_key(|it| it.updated_at);
        Ok(views)
    }

    /// Pauses a merge queue, or resumes it if `pause` is `false`.
    pub(crate) async fn act_on_merge_queue(
        &self,
        by: &Principal,
        body: MergeQueueActionBody,
        pause: bool,
    ) -> Result<MergeQueueView, Error> {
        let MergeQueueActionBody { forge, repository, branch, reason } = body;
        // Forges do not tell repositories apart by case.
        let id = MergeQueueId { forge, repository: repository.to_lowercase(), branch };
        let missing = || {
            let name = format!("{}/{}/{}", id.forge, id.repository, id.branch);
            Error::invalid(
                format!("Merge queue `{name}` not found."),
                "A queue exists once a change was added to it.",
            )
        };
        let stored = self.store.merge_queue(&id).await?.ok_or_else(missing)?;
        let action = if pause { "pause" } else { "resume" };
        audit::note_action(action, format!("{}/{}/{}", id.forge, id.repository, id.branch));
        by.authorize(Permission::Decide, stored.project)?;
        let reason = reason.filter(|it| !it.trim().is_empty());
        let reason = reason.unwrap_or_else(|| format!("paused by {}", by.name));
        if reason.chars().count() > MAX_REASON {
            let hint = format!("Use at most {MAX_REASON} characters.");
            return Err(Error::invalid("The reason is too long.", hint));
        }
        let action = if pause { QueueAction::Pause { reason } } else { QueueAction::Resume };
        let request = QueueActionRequest { at: clock::now(), by: by.name.clone(), action };
        let queue = address(&stored);
        let client = client_in(&self.temporal, stored.namespace.as_deref());
        let handle =
            client.get_workflow_handle::<MergeQueueWorkflow>(merge_queue_workflow_id(&queue));
        let key = clock::new_id().to_string();
        let options = WorkflowExecuteUpdateOptions::builder().update_id(key).build();
        let update = handle.execute_update(MergeQueueWorkflow::act, request, options);
        match tokio::time::timeout(TEMPORAL_TIMEOUT, update).await {
            Ok(Ok(())) => {}
            Ok(Err(WorkflowUpdateError::Failed(failure))) => {
                return Err(self.refused_update(*failure).await);
            }
            Ok(Err(WorkflowUpdateError::NotFound(_))) => {
                return Err(Error::Refused(format!("the merge queue of {queue} is not running")));
            }
            Ok(Err(error @ WorkflowUpdateError::PayloadConversion(_))) => {
                return Err(Error::Internal(error.into()));
            }
            Ok(Err(error)) => {
                return Err(Error::temporal(error));
            }
            Err(_) => return Err(Error::WorkflowTimeout),
        }
        let stored = self.store.merge_queue(&id).await?.ok_or_else(missing)?;
        self.merge_queue_view(stored).await
    }

    async fn merge_queue_view(&self, stored: StoredMergeQueue) -> Result<MergeQueueView, Error> {
        let filter =
            QueueEntryFilter { queue: Some(stored.id.clone()), ..QueueEntryFilter::default() };
        let entries = self.store.merge_queue_entries(&filter, MAX_ENTRIES).await?;
        let mut titles = BTreeMap::new();
        for entry in &entries {
            if let Ok(task) = self.store.task(entry.task).await {
                titles.insert(entry.task, task.task.title);
            }
        }
        Ok(queue_view(stored, entries, &titles))
    }
}

fn address(stored: &StoredMergeQueue) -> QueueAddress {
    let MergeQueueId { forge, repository, branch } = stored.id.clone();
    QueueAddress::new(stored.project, forge, &repository, branch)
}

/// Returns the state of a queue. One of another version shows its entries only.
fn read_state(stored: &StoredMergeQueue) -> MergeQueue {
    serde_json::from_value(stored.state.clone()).unwrap_or_default()
}

fn queue_view(
    stored: StoredMergeQueue,
    mut entries: Vec<QueueEntry>,
    titles: &BTreeMap<TaskId, String>,
) -> MergeQueueView {
    let state = read_state(&stored);
    let order: Vec<_> = state.ordered(clock::now()).into_iter().map(|it| it.key).collect();
    let place = |it: &QueueEntry| {
        let key = EntryKey { task: it.task, head: it.head };
        order.iter().position(|other| *other == key).unwrap_or(order.len())
    };
    // Stable, so entries that have ended stay in their order.
    entries.sort_by_key(|it| if it.settled_at.is_none() { place(it) } else { usize::MAX });
    let MergeQueueId { forge, repository, branch } = stored.id;
    MergeQueueView {
        project: stored.project.0,
        forge,
        repository,
        branch,
        paused: stored.paused,
        paused_by: state.pause.as_ref().and_then(|it| it.by.as_ref()).map(ToString::to_string),
        question: state.question(),
        incident: state.pause.as_ref().is_some_and(|it| it.is_incident),
        build: state.build.as_ref().map(build_view),
        entries: entries.into_iter().map(|entry| entry_view(entry, titles)).collect(),
        landed: state.totals.landed,
        returned: state.totals.returned,
        gate_runs: state.totals.gate_runs,
        flaky: u64::try_from(state.flaky.len()).unwrap_or(u64::MAX),
        updated_at: stored.updated_at,
    }
}

fn build_view(build: &QueueBuild) -> QueueBuildView {
    QueueBuildView {
        number: build.number,
        phase: build.phase.to_string(),
        commit: build.commit.as_ref().map(|it| it.tested.to_string()),
        entries: u64::try_from(build.entries.len()).unwrap_or(u64::MAX),
        started_at: build.started_at,
    }
}

fn entry_view(entry: QueueEntry, titles: &BTreeMap<TaskId, String>) -> QueueEntryView {
    QueueEntryView {
        task: entry.task.0,
        title: titles.get(&entry.task).cloned(),
        head: entry.head.to_string(),
        priority: entry.priority.to_string(),
        state: entry.state.to_string(),
        reason: entry.reason,
        landed_commit: entry.landed_commit.map(|it| it.to_string()),
        queued_at: entry.queued_at,
        settled_at: entry.settled_at,
    }
}
