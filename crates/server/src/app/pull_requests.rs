//! Pull requests of tasks, and the forges that they are in.

use tamma_connect::forge::SettingsError;
use tamma_core::forge::PullRequestFacts;
use tamma_core::ids::TaskId;
use tamma_core::pull_request::{PullRequestState, QueueResult};
use tamma_core::task_loop::TaskLoop;
use tamma_flow::{ForgeSignal, TaskWorkflow, workflow_id};
use tamma_store::{
    PullRequestFilter, QueueEntry, QueueEntryFilter, QueueEntryState, StoredPullRequest,
    StoredStatus,
};
use temporalio_client::WorkflowSignalOptions;
use temporalio_client::errors::WorkflowInteractionError;

use super::{App, Error, TEMPORAL_TIMEOUT};
use crate::dto::{ForgeStatus, PullRequestView};

/// Most entries of one task in merge queues that are read.
const MAX_QUEUE_ENTRIES: u32 = 20;

impl App {
    /// Lists pull requests, newest first.
    pub(crate) async fn list_pull_requests(
        &self,
        filter: &PullRequestFilter,
        limit: u32,
    ) -> Result<Vec<PullRequestView>, Error> {
        let mut views = Vec::new();
        for stored in self.store.pull_requests(filter, limit).await? {
            // Only an open one has a stage.
            let state = match stored.status {
                StoredStatus::Open => self.pull_request_state(stored.task).await?,
                StoredStatus::Merged | StoredStatus::Closed => None,
            };
            views.push(pull_request_view(stored, state.as_ref()));
        }
        Ok(views)
    }

    /// Returns the pull request of a task, if it has one.
    pub(crate) async fn task_pull_request(
        &self,
        task: TaskId,
        state: Option<&PullRequestState>,
    ) -> Result<Option<PullRequestView>, Error> {
        let stored = self.store.pull_request(task).await?;
        Ok(stored.map(|stored| pull_request_view(stored, state)))
    }

    /// Returns the memory of a task about its pull request. A task that cannot be read has none.
    async fn pull_request_state(&self, task: TaskId) -> Result<Option<PullRequestState>, Error> {
        match self.store.task(task).await {
            Ok(stored) => {
                Ok(stored.task_loop.ok().and_then(|it| it.pull_request).map(|state| *state))
            }
            Err(tamma_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists the forges of the installation, with the repositories that the caller can read.
    pub(crate) async fn list_forges(&self) -> Result<Vec<ForgeStatus>, Error> {
        let unreadable = |error: SettingsError| Error::Unavailable {
            what: "the settings of the forges",
            source: Box::new(error),
        };
        let mut forges: Vec<ForgeStatus> = Vec::new();
        for settings in self.forges.all().map_err(unreadable)? {
            forges.push(ForgeStatus {
                name: settings.name,
                kind: settings.kind.to_string(),
                url: settings.url,
                webhooks: settings.webhook_secret.is_some(),
                quota_percent: None,
                blocked_until: None,
                polled_at: None,
                repositories: Vec::new(),
            });
        }
        if forges.is_empty() {
            return Ok(forges);
        }
        for project in self.store.projects().await? {
            // A file that cannot be used must not hide the other forges.
            let found = self.forges.for_repository(&project.repository).ok().flatten();
            let Some((client, repository)) = found else { continue };
            let Some(forge) = forges.iter_mut().find(|it| it.name == client.name()) else {
                continue;
            };
            let cursor = self.store.forge_cursor(&forge.name, &repository).await?;
            let percent = cursor.quota_left.map(percent);
            forge.quota_percent = match (forge.quota_percent, percent) {
                (Some(known), Some(other)) => Some(known.min(other)),
                (known, other) => known.or(other),
            };
            forge.blocked_until = forge.blocked_until.max(cursor.blocked_until);
            forge.polled_at = forge.polled_at.max(cursor.polled_at);
            if !forge.repositories.contains(&repository) {
                forge.repositories.push(repository);
            }
        }
        Ok(forges)
    }

    /// Sends the newest facts about a pull request to the workflow of its task, and records that it
    /// has received them. A server that dies in between sends them again.
    pub(crate) async fn deliver_facts(
        &self,
        task: TaskId,
        facts: &PullRequestFacts,
        hash: &str,
    ) -> Result<(), Error> {
        let task_loop = self.task_loop(task).await?;
        // The merge queue may have told its result to a workflow that was lost.
        let result = self.missed_queue_result(&task_loop).await?.map(ForgeSignal::QueueSettled);
        let observed = ForgeSignal::Observed(Box::new(facts.clone()));
        for signal in result.into_iter().chain([observed]) {
            // The workflow of an ended task is closed. One that was lost gets the facts after the
            // reconciler has replaced it.
            if !self.signal_task(task, signal).await? && !task_loop.state.is_terminal() {
                return Ok(());
            }
        }
        Ok(self.store.set_delivered(task, hash).await?)
    }

    /// Sends news to the workflow of a task. Returns `false` if there is none.
    async fn signal_task(&self, task: TaskId, signal: ForgeSignal) -> Result<bool, Error> {
        let client = self.workflow_client(task.0).await?;
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let options = WorkflowSignalOptions::builder().build();
        let sent = handle.signal(TaskWorkflow::observe_forge, signal, options);
        match tokio::time::timeout(TEMPORAL_TIMEOUT, sent).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(WorkflowInteractionError::NotFound(_))) => Ok(false),
            Ok(Err(error)) => Err(Error::temporal(error)),
            Err(late) => Err(Error::temporal(late)),
        }
    }

    /// Returns the result of the merge queue for a task that still waits for it.
    async fn missed_queue_result(
        &self,
        task_loop: &TaskLoop,
    ) -> Result<Option<QueueResult>, Error> {
        let queued = task_loop.pull_request.as_ref().and_then(|it| it.queued);
        let Some(head) = queued.filter(|_| !task_loop.state.is_terminal()) else {
            return Ok(None);
        };
        let task = Some(task_loop.task);
        let filter = QueueEntryFilter { task, ..QueueEntryFilter::default() };
        let entries = self.store.merge_queue_entries(&filter, MAX_QUEUE_ENTRIES).await?;
        Ok(entries.into_iter().find(|it| it.head == head).and_then(queue_result))
    }
}

/// Returns the result of an entry that has ended.
fn queue_result(entry: QueueEntry) -> Option<QueueResult> {
    let head = entry.head;
    match entry.state {
        QueueEntryState::Waiting | QueueEntryState::Testing => None,
        QueueEntryState::Landed => {
            entry.landed_commit.map(|commit| QueueResult::Landed { head, commit })
        }
        QueueEntryState::Returned => entry.log.map(|log| QueueResult::Returned { head, log }),
        QueueEntryState::Left => Some(QueueResult::Left { head }),
    }
}

fn pull_request_view(
    stored: StoredPullRequest,
    state: Option<&PullRequestState>,
) -> PullRequestView {
    let is_open = stored.status == StoredStatus::Open;
    // The task may remember another one, which it has not opened yet.
    let state = state.filter(|state| state.number == stored.number);
    let stage = state.map(|state| state.stage).filter(|_| is_open);
    PullRequestView::new(stored, stage, state.map_or(0, |state| state.rounds))
}

/// Converts a part from 0 to 1 to whole percent.
fn percent(part: f64) -> u8 {
    (0..=100).rev().find(|percent| f64::from(*percent) <= part * 100.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_rounded_down_to_percent() {
        assert_eq!(percent(0.399), 39);
        assert_eq!(percent(1.0), 100);
        assert_eq!(percent(7.0), 100);
        assert_eq!(percent(f64::NAN), 0);
    }
}
