//! Ends of entries: the database, the task's workflow and the pull request are told.

use tamma_connect::forge::{CommentTarget, Error as ForgeError};
use tamma_core::cause::AlertCause;
use tamma_core::ids::CommitId;
use tamma_core::merge_queue::{EntryKey, MergeEntry, QueueAddress, ReturnReason};
use tamma_core::pull_request::QueueResult;
use tamma_core::task_loop::AlertSeverity;
use tamma_flow::merge_queue::{SettleRequest, Settlement};
use tamma_flow::{ForgeSignal, TaskWorkflow, workflow_id};
use tamma_store::{Effect, EffectError, EffectKind, QueueSettlement};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{Client, WorkflowSignalOptions};

use super::MergeQueueActivities;
use crate::error::Error;
use crate::namespaces::client_in;

impl MergeQueueActivities {
    /// Tells the database, tasks and people what became of entries. Telling it again has no effect.
    pub async fn settle(&self, client: &Client, request: SettleRequest) -> Result<(), Error> {
        let SettleRequest { queue, settlements } = request;
        let mut failed = None;
        // Tasks come first, and the failure of one entry does not stop the others.
        for settlement in &settlements {
            let Err(error) = self.settle_one(client, settlement).await else { continue };
            if error.is_final() {
                self.record_failure(settlement, &error.to_string()).await;
            } else {
                failed = Some(error);
            }
        }
        for settlement in &settlements {
            match settlement {
                Settlement::Returned { entry, reason, .. } => {
                    // The task has the log, so nothing waits for the comment.
                    if let Err(error) = self.comment_on_return(&queue, entry, *reason).await {
                        let (task, error) = (entry.key.task, &error as &dyn std::error::Error);
                        tracing::warn!(%task, error, "failed to comment on a returned change");
                    }
                }
                Settlement::Alert { reason, waiting } => {
                    let count = waiting.len();
                    tracing::error!(%queue, reason, waiting = count, "merge queue needs a person");
                    // People reach the queue from the task that waits longest.
                    let first = waiting.first().map(|it| it.task);
                    let Some(task) = first else { continue };
                    let (cause, severity) = (AlertCause::MergeQueue, AlertSeverity::Critical);
                    let store = &self.services.store;
                    let sent = store.send_alert(task, queue.project, cause, severity).await;
                    if let Err(error) = sent.map_err(Error::from) {
                        let shown = &error as &dyn std::error::Error;
                        tracing::error!(%queue, error = shown, "failed to alert people");
                        if is_passing(&error) {
                            failed = Some(error);
                        }
                    }
                }
                Settlement::Landed { entry, commit } => {
                    if let Err(error) = self.mark_merged(&queue, entry, *commit).await {
                        // Another attempt marks it, unless it would be refused again.
                        let task = entry.key.task;
                        tracing::warn!(
                            %task, error = &error as &dyn std::error::Error,
                            "failed to mark a pull request as merged"
                        );
                        if is_passing(&error) {
                            failed = Some(error);
                        }
                    }
                }
                Settlement::Dropped { .. } => {}
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Ends one entry in the database, and tells its task.
    async fn settle_one(&self, client: &Client, settlement: &Settlement) -> Result<(), Error> {
        let store = &self.services.store;
        let Some(entry) = entry_of(settlement) else { return Ok(()) };
        let EntryKey { task, head } = entry.key;
        match settlement {
            Settlement::Landed { commit, .. } => {
                let commit = *commit;
                store.settle_queue_entry(task, head, &QueueSettlement::Landed(commit)).await?;
                self.tell_task(client, entry, QueueResult::Landed { head, commit }).await
            }
            Settlement::Returned { reason, log, .. } => {
                let settled = QueueSettlement::Returned {
                    reason: reason_text(*reason).to_owned(),
                    log: Some(log.clone()),
                };
                store.settle_queue_entry(task, head, &settled).await?;
                self.tell_task(client, entry, QueueResult::Returned { head, log: log.clone() })
                    .await
            }
            Settlement::Dropped { .. } => {
                let reason = "the change is no longer wanted as it was approved".to_owned();
                store.settle_queue_entry(task, head, &QueueSettlement::Left { reason }).await?;
                // The task decides again with the newest facts, which the poller sends once more.
                store.set_delivered(task, "").await?;
                self.tell_task(client, entry, QueueResult::Left { head }).await
            }
            Settlement::Alert { .. } => Ok(()),
        }
    }

    /// Tells the workflow of a task what became of its entry. Each stay in the queue has its own message.
    async fn tell_task(
        &self,
        client: &Client,
        entry: &MergeEntry,
        result: QueueResult,
    ) -> Result<(), Error> {
        let EntryKey { task, head } = entry.key;
        // The project may have been in another organisation when the task was started.
        let namespace = self.services.store.workflow_namespace(task.0).await?;
        let client = client_in(client, namespace.as_deref());
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let kind = match result {
            QueueResult::Landed { .. } => "landed",
            QueueResult::Returned { .. } => "returned",
            QueueResult::Left { .. } => "left",
        };
        let id = format!("queue-{kind}-{head}-{}", entry.queued_at.timestamp_millis());
        let options = WorkflowSignalOptions::builder().request_id(id).build();
        let signal = ForgeSignal::QueueSettled(result);
        match handle.signal(TaskWorkflow::observe_forge, signal, options).await {
            // The reconciler replaces a lost workflow, and the server sends the stored result to that one
            // with the next facts.
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
            Err(error) => Err(Error::Temporal(error.to_string())),
        }
    }

    /// Records on an entry that its task was not told, for people.
    async fn record_failure(&self, settlement: &Settlement, failure: &str) {
        let Some(EntryKey { task, head }) = entry_of(settlement).map(|it| it.key) else { return };
        tracing::error!(%task, %head, failure, "failed to tell a task what became of its entry");
        let note = format!("its task was not told: {failure}; restart the task's workflow");
        if let Err(error) = self.services.store.note_queue_entry(task, head, &note).await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(%task, %head, error, "failed to record a failure on its entry");
        }
    }

    /// Marks the pull request of a landed entry as merged, for forges that do not notice a push. If the
    /// forge refuses that, a comment tells what to do.
    async fn mark_merged(
        &self,
        queue: &QueueAddress,
        entry: &MergeEntry,
        commit: CommitId,
    ) -> Result<(), Error> {
        let store = &self.services.store;
        let Some(change) = store.pull_request(entry.key.task).await? else { return Ok(()) };
        let client = self.services.forges.client(&change.forge);
        let Ok(Some(forge)) = client else { return Ok(()) };
        match forge.mark_merged(&change.repository, change.number, commit).await {
            Err(ForgeError::Refused { reason, .. }) => {
                let task = entry.key.task;
                tracing::warn!(%task, reason, "the forge does not mark a pull request as merged");
                let body = format!(
                    "This change is on `{}` (commit {commit}), and Tamma cannot mark the pull request \
                     as merged. Allow manual merges in the settings of the repository, then mark it or \
                     close it.",
                    queue.branch.replace('`', "")
                );
                self.comment(queue, entry, "queue-landed", &body).await
            }
            marked => Ok(marked?),
        }
    }

    /// Writes one comment on the pull request of a returned entry. The log goes to the task only, since
    /// it can contain anything.
    async fn comment_on_return(
        &self,
        queue: &QueueAddress,
        entry: &MergeEntry,
        reason: ReturnReason,
    ) -> Result<(), Error> {
        let head = entry.key.head;
        let body = format!(
            "This change left the merge queue of `{}`: {} (commit {head}). It goes back to its task.",
            queue.branch.replace('`', ""),
            reason_text(reason)
        );
        self.comment(queue, entry, "queue-returned", &body).await
    }

    /// Writes one comment of a kind on the pull request of an entry.
    async fn comment(
        &self,
        queue: &QueueAddress,
        entry: &MergeEntry,
        name: &str,
        body: &str,
    ) -> Result<(), Error> {
        let store = &self.services.store;
        let EntryKey { task, head } = entry.key;
        let Some(change) = store.pull_request(task).await? else { return Ok(()) };
        let client = self.services.forges.client(&change.forge);
        let Ok(Some(forge)) = client else {
            tracing::warn!(%task, forge = change.forge, "no forge for a comment");
            return Ok(());
        };
        let generation: String = head.to_string().chars().take(12).collect();
        let key = format!("tamma/{task}/{generation}/{name}");
        let kind = EffectKind::Comment;
        let effect = Effect {
            key,
            kind,
            project: queue.project,
            task: Some(task),
            precondition: Some(head),
        };
        let target = CommentTarget::PullRequest(change.number);
        // The marker makes the comment replace itself, so there is nothing to look up.
        let find = || async { Ok::<Option<String>, ForgeError>(None) };
        let act = || forge.upsert_comment(&change.repository, &target, &effect.key, body);
        match store.perform(&effect, find, act).await {
            Ok(_) => Ok(()),
            Err(EffectError::Store(error)) => Err(error.into()),
            Err(error @ EffectError::InProgress { .. }) => {
                Err(Error::EffectInProgress(error.to_string()))
            }
            // Another attempt would be refused too.
            Err(EffectError::Failed(
                error @ (ForgeError::Forbidden { .. }
                | ForgeError::Refused { .. }
                | ForgeError::NotFound { .. }
                | ForgeError::Conflict { .. }),
            )) => {
                tracing::warn!(%task, %error, "failed to comment on a change of the queue");
                store.refuse_effect(&effect.key, &error.to_string()).await?;
                Ok(())
            }
            Err(EffectError::Failed(error)) => Err(error.into()),
        }
    }
}

/// Returns `true` for an error that passes by itself and that stops the whole queue anyway.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Store(_)
            | Error::Forge(ForgeError::Unreachable { .. } | ForgeError::RateLimited { .. })
    ) && !error.is_final()
}

/// Returns the entry that a settlement is about.
fn entry_of(settlement: &Settlement) -> Option<&MergeEntry> {
    match settlement {
        Settlement::Landed { entry, .. }
        | Settlement::Returned { entry, .. }
        | Settlement::Dropped { entry } => Some(entry),
        Settlement::Alert { .. } => None,
    }
}

fn reason_text(reason: ReturnReason) -> &'static str {
    match reason {
        ReturnReason::Conflict => "it conflicts with the branch",
        ReturnReason::Failed => "gates fail with it",
    }
}
