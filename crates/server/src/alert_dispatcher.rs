//! Alert dispatcher: selects the receivers of each alert and delivers it, with retries.
//!
//! Dispatch runs once per alert: it selects receivers and due times. Delivery retries each receiver
//! for up to three days and records every attempt. Several servers can share a database; each
//! delivery is claimed by one of them.
//!
//! If a server is killed after a receiver accepted a message and before the database recorded it,
//! the message is sent again when the claim expires, with the same ID and content. Webhook receivers
//! can deduplicate by ID, mailboxes by `Message-ID`; Slack shows the message twice.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::StreamExt as _;
use futures_util::stream;
use tamma_connect::message::{self, AlertMessage, MessageItem, MessageSender, Receiver};
use tamma_core::access::Permission;
use tamma_core::alert::{self, AlertSchedule};
use tamma_core::ids::ProjectId;
use tamma_core::task_loop::AlertSeverity;
use tamma_store::{ClaimedDelivery, DeliveryEnd, NewDelivery, OutboxMessage, RegisteredProject};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, Error, Principal};
use crate::clock;
use crate::dto::{AlertTestResult, short_id};
use crate::live::AllTasksSubscriber;

/// Number of alerts or deliveries per query.
const BATCH_SIZE: u32 = 100;

/// Number of receivers served concurrently.
const MAX_CONCURRENT_RECEIVERS: usize = 8;

/// Duration of a claim on a delivery, in seconds.
const CLAIM_SECONDS: u32 = 120;

/// Time after a claim in which sends can start. The last send finishes before the claim expires, so
/// that no other server repeats it.
const SEND_WINDOW: Duration = Duration::from_mins(1);
const _: () =
    assert!(SEND_WINDOW.as_secs() + message::SEND_TIMEOUT.as_secs() < CLAIM_SECONDS as u64);

/// Maximum time between two polls, in case a notification is lost.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(15);

/// Shortest time between two polls. Tasks change many times a second under load, and each poll of each server
/// is three queries.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Channel to the terminal of this process.
pub type TerminalSender = mpsc::UnboundedSender<TerminalMessage>;

/// Message for the terminal.
pub type TerminalMessage = AlertMessage;

/// Dispatches and delivers alerts.
#[derive(Clone)]
pub(crate) struct AlertDispatcher {
    app: App,
    sender: MessageSender,
    terminal: Option<TerminalSender>,
    /// Prefix of links to tasks.
    base_url: String,
}

/// Deliveries that are sent to one receiver in one message.
struct DeliveryBatch {
    receiver: Receiver,
    message: AlertMessage,
    deliveries: Vec<ClaimedDelivery>,
}

impl AlertDispatcher {
    pub(crate) fn new(
        app: App,
        terminal: Option<TerminalSender>,
        base_url: String,
    ) -> Result<Self, message::Error> {
        let sender = MessageSender::new(&app.environment, &app.operator)?;
        Ok(Self { app, sender, terminal, base_url })
    }

    /// Dispatches and delivers alerts until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut changes = self.app.live.subscribe_all();
        loop {
            let polled = Instant::now();
            if let Err(error) = self.dispatch_and_deliver().await {
                tracing::warn!(%error, "alert delivery failed; retrying");
            }
            let wait = self.time_until_next().await;
            tokio::select! {
                () = stop.cancelled() => return,
                more = wait_for_poll(&mut changes, polled, wait) => if !more { return },
            }
        }
    }

    async fn time_until_next(&self) -> Duration {
        let next = self.app.store.next_delivery_at(self.terminal.is_some()).await.ok().flatten();
        let wait = next.and_then(|at| (at - clock::now()).to_std().ok());
        // A due delivery that is still open is claimed by another server.
        wait.unwrap_or(MAX_POLL_INTERVAL).clamp(Duration::from_millis(200), MAX_POLL_INTERVAL)
    }

    /// Dispatches new alerts and sends due deliveries.
    async fn dispatch_and_deliver(&self) -> Result<(), Error> {
        loop {
            let new = self.app.store.outbox(BATCH_SIZE).await?;
            for message in &new {
                self.dispatch(message).await?;
            }
            if new.len() < BATCH_SIZE as usize {
                break;
            }
        }
        loop {
            let until = Instant::now() + SEND_WINDOW;
            let terminal = self.terminal.is_some();
            let claimed =
                self.app.store.claim_deliveries(CLAIM_SECONDS, BATCH_SIZE, terminal).await?;
            for error in &claimed.unreadable {
                tracing::error!(%error, "alert not sent: a newer version of Tamma may have written it");
            }
            let count = claimed.deliveries.len() + claimed.unreadable.len();
            let all = count < BATCH_SIZE as usize;
            self.deliver(claimed.deliveries, until).await?;
            if all {
                return Ok(());
            }
        }
    }

    /// Selects the receivers of an alert and the due time for each.
    async fn dispatch(&self, message: &OutboxMessage) -> Result<(), Error> {
        let project = self.app.project_by_id(message.project).await?;
        let rules = match self.app.alert_rules(&project.repository).await {
            Ok(rules) => rules,
            // The alert is still visible in the UI.
            Err(error) => {
                tracing::warn!(project = project.name, %error, "alert not sent: invalid configuration");
                self.app.store.dispatch(message, &[]).await?;
                return Ok(());
            }
        };
        let schedule =
            alert::schedule(message.needs_decision, message.severity, clock::now(), &rules);
        let mut deliveries: BTreeMap<String, NewDelivery> = BTreeMap::new();
        for channel in rules.channels.iter().filter(|channel| channel.enabled) {
            match Receiver::from_channel(channel) {
                Ok(Receiver::Terminal) if self.terminal.is_none() => {}
                Ok(receiver) => {
                    let (id, receiver) = (clock::new_id(), receiver.key());
                    let digest = matches!(schedule, AlertSchedule::Digest(_));
                    let due_at = schedule.due_at();
                    // The terminal has no quiet hours and no digest.
                    let (digest, due_at) = match receiver.as_str() {
                        message::TERMINAL => (false, clock::now()),
                        _ => (digest, due_at),
                    };
                    let new = NewDelivery { id, receiver: receiver.clone(), digest, due_at };
                    deliveries.entry(receiver).or_insert(new);
                }
                Err(error) => {
                    tracing::warn!(project = project.name, %error, "alert channel skipped");
                }
            }
        }
        let deliveries: Vec<_> = deliveries.into_values().collect();
        self.app.store.dispatch(message, &deliveries).await?;
        Ok(())
    }

    async fn deliver(&self, claimed: Vec<ClaimedDelivery>, until: Instant) -> Result<(), Error> {
        let (settled, claimed): (Vec<_>, Vec<_>) =
            claimed.into_iter().partition(|delivery| delivery.is_settled);
        let settled: Vec<Uuid> = settled.iter().map(|delivery| delivery.id).collect();
        self.app.store.end_deliveries(&settled, DeliveryEnd::Settled).await?;
        let mut queues: BTreeMap<String, Vec<DeliveryBatch>> = BTreeMap::new();
        for batch in self.group_into_batches(claimed).await? {
            queues.entry(batch.receiver.key()).or_default().push(batch);
        }
        let queues = queues.into_values().map(|queue| self.send_all(queue, until));
        let sent: Vec<_> =
            stream::iter(queues).buffer_unordered(MAX_CONCURRENT_RECEIVERS).collect().await;
        sent.into_iter().collect()
    }

    /// Groups deliveries into messages: one per decision, and one digest per receiver.
    async fn group_into_batches(
        &self,
        claimed: Vec<ClaimedDelivery>,
    ) -> Result<Vec<DeliveryBatch>, Error> {
        let mut batches: Vec<DeliveryBatch> = Vec::new();
        // Keyed by receiver, and by the message of an earlier attempt.
        let mut digests: BTreeMap<(String, Option<Uuid>), usize> = BTreeMap::new();
        let mut projects: BTreeMap<ProjectId, (String, BTreeMap<String, Receiver>)> =
            BTreeMap::new();
        let mut without_receiver = Vec::new();
        for delivery in claimed {
            let (name, receivers) = match projects.entry(delivery.project) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let project = self.app.project_by_id(delivery.project).await?;
                    let receivers = self.receivers(&project.repository).await;
                    entry.insert((project.name, receivers))
                }
            };
            let Some(receiver) = receivers.get(&delivery.receiver).cloned() else {
                without_receiver.push(delivery.id);
                continue;
            };
            let item = self.message_item(&delivery, name.clone());
            if delivery.digest {
                let next = batches.len();
                let at =
                    *digests.entry((delivery.receiver.clone(), delivery.batch)).or_insert(next);
                if let Some(batch) = batches.get_mut(at) {
                    batch.message.severity = batch.message.severity.max(delivery.severity);
                    batch.message.items.push(item);
                    batch.message.subject =
                        format!("Digest: {} updates", batch.message.items.len());
                    batch.deliveries.push(delivery);
                    continue;
                }
            }
            let message = AlertMessage {
                id: delivery.batch.unwrap_or(delivery.id),
                at: delivery.created_at,
                severity: delivery.severity,
                subject: subject_line(&delivery),
                items: vec![item],
            };
            batches.push(DeliveryBatch { receiver, message, deliveries: vec![delivery] });
        }
        self.app.store.end_deliveries(&without_receiver, DeliveryEnd::NoReceiver).await?;
        // A retry must have the same ID and items, even if more deliveries are due by then.
        for DeliveryBatch { message, deliveries, .. } in &batches {
            if deliveries.len() > 1 && deliveries.iter().any(|delivery| delivery.batch.is_none()) {
                self.app.store.batch_deliveries(message.id, &delivery_ids(deliveries)).await?;
            }
        }
        Ok(batches)
    }

    /// Sends the messages of one receiver in sequence. If the receiver is unreachable, the remaining
    /// messages wait too, because a timeout for each would delay other receivers.
    async fn send_all(&self, mut queue: Vec<DeliveryBatch>, until: Instant) -> Result<(), Error> {
        let store = &self.app.store;
        // Messages that failed before go last, so that they do not block the others.
        queue.sort_by_key(|batch| batch.deliveries.iter().map(|delivery| delivery.attempt).max());
        let max_attempt = queue
            .last()
            .into_iter()
            .flat_map(|last| &last.deliveries)
            .map(|delivery| delivery.attempt)
            .max();
        let mut queue = queue.into_iter();
        while let Some(batch) = queue.next() {
            if Instant::now() >= until {
                let rest: Vec<_> = delivery_ids(&batch.deliveries)
                    .into_iter()
                    .chain(remaining_ids(queue))
                    .collect();
                return Ok(store.release_deliveries(&rest, None).await?);
            }
            let ids = delivery_ids(&batch.deliveries);
            let (to, attempt) = (
                batch.receiver.label(),
                batch.deliveries.first().map_or(1, |delivery| delivery.attempt),
            );
            let sent = match &batch.receiver {
                Receiver::Terminal => self.send_to_terminal(batch.message),
                to => self.sender.send(to, &batch.message).await,
            };
            let Err(error) = sent else {
                store.end_deliveries(&ids, DeliveryEnd::Delivered).await?;
                continue;
            };
            tracing::warn!(to, %error, attempt, "alert delivery failed");
            let unreachable = matches!(error, message::Error::Unreachable(_));
            let counted_attempt =
                if unreachable { max_attempt.unwrap_or(attempt) } else { attempt };
            let pause =
                alert::retry_delay(counted_attempt).unwrap_or_else(|| TimeDelta::minutes(30));
            let again_at = clock::now() + pause;
            let ended = match error {
                message::Error::Gone(_) => Some(error.to_string()),
                _ if alert::retry_delay(attempt).is_none() => {
                    Some(format!("{error}; gave up after {attempt} attempts in 3 days"))
                }
                _ => None,
            };
            let reason = ended.clone().unwrap_or_else(|| error.to_string());
            store.reschedule_deliveries(&ids, &reason, again_at).await?;
            if ended.is_some() {
                store.end_deliveries(&ids, DeliveryEnd::GivenUp).await?;
            }
            if unreachable {
                let rest: Vec<_> = remaining_ids(queue).collect();
                return Ok(store.release_deliveries(&rest, Some(again_at)).await?);
            }
        }
        Ok(())
    }

    fn send_to_terminal(&self, message: AlertMessage) -> Result<(), message::Error> {
        let no_terminal = || message::Error::Gone("this server has no terminal".to_owned());
        let terminal = self.terminal.as_ref().ok_or_else(no_terminal)?;
        terminal.send(message).map_err(|_| no_terminal())
    }

    /// Returns the receivers of a project by key.
    async fn receivers(&self, repository: &str) -> BTreeMap<String, Receiver> {
        let rules = self.app.alert_rules(repository).await.unwrap_or_default();
        let channels = rules.channels.iter().filter(|channel| channel.enabled);
        channels
            .filter_map(|channel| Receiver::from_channel(channel).ok())
            .map(|receiver| (receiver.key(), receiver))
            .collect()
    }

    fn message_item(&self, delivery: &ClaimedDelivery, project: String) -> MessageItem {
        MessageItem {
            kind: delivery.kind.to_string(),
            task: delivery.task.0,
            title: delivery.title.clone(),
            project,
            reason: delivery.cause.to_string(),
            answers: delivery.answers.clone(),
            link: {
                let list = if delivery.is_pipeline { "pipelines" } else { "tasks" };
                format!("{}/{list}/{}", self.base_url, delivery.task.0)
            },
            reminder: delivery.reminder,
        }
    }

    /// Sends a test message to every channel of a project and returns the results.
    pub(crate) async fn send_test_alerts(
        &self,
        project: &RegisteredProject,
        by: &Principal,
    ) -> Result<Vec<AlertTestResult>, Error> {
        by.authorize(Permission::Work, project.id)?;
        let rules = self.app.alert_rules(&project.repository).await?;
        let message = |id| AlertMessage {
            id,
            at: clock::now(),
            severity: AlertSeverity::Info,
            subject: format!("Test alert from {}", project.name),
            items: vec![MessageItem {
                kind: "test".to_owned(),
                task: id,
                title: "Test alert".to_owned(),
                project: project.name.clone(),
                reason: "someone is testing this channel".to_owned(),
                answers: Vec::new(),
                link: format!("{}/", self.base_url),
                reminder: 0,
            }],
        };
        let sends = rules.channels.iter().map(|channel| {
            let message = message(clock::new_id());
            async move {
                if !channel.enabled {
                    return AlertTestResult::new(
                        channel.r#type.to_string(),
                        Some("the channel is disabled".to_owned()),
                    );
                }
                let to = match Receiver::from_channel(channel) {
                    Ok(to) => to,
                    Err(error) => {
                        return AlertTestResult::new(
                            channel.r#type.to_string(),
                            Some(error.to_string()),
                        );
                    }
                };
                let sent = match &to {
                    Receiver::Terminal => self.send_to_terminal(message),
                    to => self.sender.send(to, &message).await,
                };
                AlertTestResult::new(to.label(), sent.err().map(|error| error.to_string()))
            }
        });
        Ok(futures_util::future::join_all(sends).await)
    }
}

/// Waits until the next poll: for some time, or until a task changes, but not too soon after the last poll.
/// Returns `false` once the server stops.
async fn wait_for_poll(changes: &mut AllTasksSubscriber, polled: Instant, wait: Duration) -> bool {
    let more = tokio::select! {
        () = tokio::time::sleep(wait) => true,
        more = changes.wait_for_change() => more,
    };
    tokio::time::sleep_until(polled + MIN_POLL_INTERVAL).await;
    // The next poll finds everything that has changed until now.
    changes.skip_pending();
    more
}

fn delivery_ids(deliveries: &[ClaimedDelivery]) -> Vec<Uuid> {
    deliveries.iter().map(|delivery| delivery.id).collect()
}

fn remaining_ids(queue: impl Iterator<Item = DeliveryBatch>) -> impl Iterator<Item = Uuid> {
    queue.flat_map(|batch| delivery_ids(&batch.deliveries))
}

/// Formats the subject line of a single alert.
fn subject_line(delivery: &ClaimedDelivery) -> String {
    let reminder = if delivery.reminder > 0 { "Reminder: " } else { "" };
    let request = if delivery.answers.is_empty() { "" } else { "Decision needed: " };
    format!("{reminder}{request}{} [{}]", delivery.title, short_id(delivery.task.0))
}

#[cfg(test)]
mod tests {
    use tamma_core::ids::TaskId;
    use tamma_store::TaskChange;

    use super::*;
    use crate::live::LiveUpdates;

    #[tokio::test]
    async fn many_changes_a_second_are_four_polls_a_second() {
        let live = LiveUpdates::new();
        let mut changes = live.subscribe_all();
        let started = Instant::now();
        for sequence in 1..=5 {
            for _ in 0..2 {
                live.change_for_test(TaskChange { task: TaskId(Uuid::nil()), sequence });
            }
            assert!(wait_for_poll(&mut changes, Instant::now(), MAX_POLL_INTERVAL).await);
        }
        let took = started.elapsed();
        assert!((5 * MIN_POLL_INTERVAL..MAX_POLL_INTERVAL).contains(&took), "{took:?}");
        // The second change of each pair brings no poll of its own.
        let quiet = wait_for_poll(&mut changes, Instant::now(), MAX_POLL_INTERVAL);
        assert!(tokio::time::timeout(2 * MIN_POLL_INTERVAL, quiet).await.is_err());
    }
}
