//! Alert messages: dispatched once, and delivered to each receiver once.
//!
//! The step that sends an alert puts its message into the outbox. Dispatching removes it from the
//! outbox and creates one delivery per receiver in a single statement, so it happens once.
//!
//! A server claims deliveries for a limited time; the claims of a crashed server expire. Messages
//! that it sent without recording them are sent again with the same ID and text, so that receivers
//! can deduplicate them.

use serde::Serialize;
use sqlx::types::Uuid;
use strum::{Display, EnumString};
use tamma_core::cause::AlertCause;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{AlertKind, AlertSeverity, Timestamp};

use crate::connection::Store;
use crate::encoding::{json, read, read_number, read_word};
use crate::error::{CorruptData, Error, Result};
use crate::steps::to_i64;

/// Alert message that is not dispatched yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMessage {
    /// ID of the alert.
    pub alert: i64,
    /// Number of the message within its alert: 0 is the first message, the others are reminders.
    pub reminder: u32,
    /// Project of its task.
    pub project: ProjectId,
    /// Severity of the alert.
    pub severity: AlertSeverity,
    /// `true` if the alert asks a question.
    pub needs_decision: bool,
}

/// Delivery to create for one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewDelivery {
    /// ID that is stable across attempts.
    pub id: Uuid,
    /// Receiver, as the alert dispatcher names it.
    pub receiver: String,
    /// `true` if it waits for the digest.
    pub digest: bool,
    /// Earliest time to send it.
    pub due_at: Timestamp,
}

/// Deliveries that a server has claimed together.
#[derive(Debug, Default)]
pub struct ClaimedBatch {
    /// Deliveries to send.
    pub deliveries: Vec<ClaimedDelivery>,
    /// Why the others cannot be read.
    pub unreadable: Vec<Error>,
}

/// Delivery that a server has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    /// ID that is stable across attempts.
    pub id: Uuid,
    /// Receiver, as the alert dispatcher names it.
    pub receiver: String,
    /// `true` if it goes out in a digest.
    pub digest: bool,
    /// ID of the first delivery of the batch that it was last sent in; `None` before that.
    pub batch: Option<Uuid>,
    /// Number of the attempt that starts now, from 1.
    pub attempt: u32,
    /// Time of the dispatch.
    pub created_at: Timestamp,
    /// Number of the message within its alert; 0 is the first.
    pub reminder: u32,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Severity of the alert.
    pub severity: AlertSeverity,
    /// Cause of the alert.
    pub cause: AlertCause,
    /// Names of the possible answers to its question.
    pub answers: Vec<String>,
    /// Task that the alert is about, or pipeline as a task.
    pub task: TaskId,
    /// `true` if the alert is about a pipeline.
    pub is_pipeline: bool,
    /// Title of the task, or story of the pipeline.
    pub title: String,
    /// Project of the task.
    pub project: ProjectId,
    /// `true` if the message is obsolete: the question was answered, or acknowledged before a
    /// reminder.
    pub is_settled: bool,
}

/// Final outcome of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryEnd {
    /// Receiver accepted it.
    Delivered,
    /// Retries ran out.
    GivenUp,
    /// Message became obsolete before it was sent.
    Settled,
    /// Receiver is no longer configured.
    NoReceiver,
}

/// Delivery with its current status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// ID that is stable across attempts.
    pub id: Uuid,
    /// Task that the alert is about.
    pub task: TaskId,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Cause of the alert.
    pub cause: AlertCause,
    /// Number of the message within its alert; 0 is the first.
    pub reminder: u32,
    /// Receiver, as the alert dispatcher names it.
    pub receiver: String,
    /// `true` if it goes out in a digest.
    pub digest: bool,
    /// Time of the next attempt.
    pub due_at: Timestamp,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Final outcome and its time; `None` while it is pending.
    pub ended: Option<(DeliveryEnd, Timestamp)>,
    /// Error of the latest failed attempt.
    pub error: Option<String>,
}

/// One attempt of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// Number of the attempt, from 1. A missing number belongs to a server that died during the
    /// attempt.
    pub number: u32,
    /// End of the attempt.
    pub at: Timestamp,
    /// Error; `None` if it succeeded.
    pub error: Option<String>,
}

impl Store {
    /// Returns messages that are not dispatched yet, oldest first.
    pub async fn outbox(&self, limit: u32) -> Result<Vec<OutboxMessage>> {
        let rows = sqlx::query!(
            "SELECT id, reminder, project, severity, question IS NOT NULL AS \"asks!\"
             FROM outbox JOIN alerts ON alerts.id = outbox.alert
             ORDER BY alert, reminder LIMIT $1",
            i64::from(limit)
        )
        .fetch_all(&self.steps)
        .await?;
        let what = "alert";
        rows.into_iter()
            .map(|row| {
                let alert = || -> Result<_, CorruptData> {
                    Ok(OutboxMessage {
                        alert: row.id,
                        reminder: read_number(what, row.reminder.into())?,
                        project: ProjectId(row.project),
                        severity: read_word(what, row.severity)?,
                        needs_decision: row.asks,
                    })
                };
                alert().map_err(|damage| damage.with_key(row.id.to_string()).into())
            })
            .collect()
    }

    /// Dispatches a message to receivers. Returns `false` if it was dispatched before.
    ///
    /// A receiver with a pending message of the same alert gets no second one. If the pending one
    /// is due later than this one, it is moved forward.
    pub async fn dispatch(
        &self,
        message: &OutboxMessage,
        deliveries: &[NewDelivery],
    ) -> Result<bool> {
        let dispatched = sqlx::query_scalar!(
            "WITH dispatched AS (
                DELETE FROM outbox WHERE alert = $1 AND reminder = $2 RETURNING alert AS id
             ),
             wanted AS (
                SELECT dispatched.id AS alert, d.id, d.receiver, d.digest, d.due_at
                FROM dispatched, jsonb_to_recordset($3) AS d (
                    id uuid, receiver text, digest boolean, due_at timestamptz
                )
             ),
             hurried AS (
                UPDATE deliveries SET due_at = wanted.due_at FROM wanted
                WHERE deliveries.alert = wanted.alert AND deliveries.receiver = wanted.receiver
                    AND deliveries.ended_at IS NULL AND deliveries.attempts = 0
                    AND deliveries.due_at > wanted.due_at
             ),
             handed AS (
                INSERT INTO deliveries (id, alert, reminder, receiver, digest, due_at)
                SELECT id, alert, $2, receiver, digest, due_at FROM wanted
                WHERE NOT EXISTS (
                    SELECT FROM deliveries AS waiting
                    WHERE waiting.alert = wanted.alert AND waiting.receiver = wanted.receiver
                        AND waiting.ended_at IS NULL
                )
                ON CONFLICT (alert, reminder, receiver) DO NOTHING
             )
             SELECT count(*) AS \"count!\" FROM dispatched",
            message.alert,
            i32::try_from(message.reminder).unwrap_or(i32::MAX),
            json(&deliveries),
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(dispatched > 0)
    }

    /// Claims due deliveries for `seconds`, longest overdue first. Nobody else gets them during
    /// that time.
    ///
    /// Deliveries of one batch are claimed together. Deliveries to the terminal are included only
    /// if `terminal` is set. Unreadable ones do not delay the others: during an upgrade, a newer
    /// worker can raise alerts that an older server does not know. They are claimed again later.
    pub async fn claim_deliveries(
        &self,
        seconds: u32,
        limit: u32,
        terminal: bool,
    ) -> Result<ClaimedBatch> {
        let rows = sqlx::query!(
            "WITH due AS (
                SELECT id FROM deliveries
                WHERE ended_at IS NULL AND due_at <= now()
                    AND (claimed_until IS NULL OR claimed_until <= now())
                    AND (parcel IS NULL OR parcel = id)
                    AND ($3 OR receiver <> 'terminal')
                ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
             ),
             taken AS (
                SELECT id FROM due
                UNION
                SELECT tied.id FROM deliveries AS tied JOIN due ON due.id = tied.parcel
                WHERE tied.ended_at IS NULL
             ),
             claimed AS (
                UPDATE deliveries SET
                    attempts = attempts + 1,
                    claimed_until = now() + make_interval(secs => $1)
                FROM taken WHERE deliveries.id = taken.id
                RETURNING deliveries.*
             )
             SELECT
                claimed.id, receiver, digest, parcel, attempts, claimed.created_at, reminder, kind,
                severity, cause, answers, alerts.task, alerts.project,
                coalesce(
                    (SELECT title FROM tasks WHERE tasks.id = alerts.task),
                    (SELECT story_id FROM pipelines WHERE pipelines.id = alerts.task),
                    ''
                ) AS \"title!\",
                EXISTS (SELECT FROM pipelines WHERE pipelines.id = alerts.task)
                    AS \"is_pipeline!\",
                settled_at IS NOT NULL OR (reminder > 0 AND acknowledged_at IS NOT NULL)
                    AS \"settled!\"
             FROM claimed
             JOIN alerts ON alerts.id = claimed.alert
             ORDER BY claimed.created_at, claimed.id",
            f64::from(seconds),
            i64::from(limit),
            terminal,
        )
        .fetch_all(&self.steps)
        .await?;
        let what = "delivery";
        let mut batch = ClaimedBatch::default();
        for row in rows {
            let id = row.id.to_string();
            let claimed = || -> Result<_, CorruptData> {
                Ok(ClaimedDelivery {
                    id: row.id,
                    receiver: row.receiver,
                    digest: row.digest,
                    batch: row.parcel,
                    attempt: read_number(what, row.attempts.into())?,
                    created_at: row.created_at,
                    reminder: read_number(what, row.reminder.into())?,
                    kind: read_word(what, row.kind)?,
                    severity: read_word(what, row.severity)?,
                    cause: read(what, row.cause)?,
                    answers: row.answers,
                    task: TaskId(row.task),
                    is_pipeline: row.is_pipeline,
                    title: row.title,
                    project: ProjectId(row.project),
                    is_settled: row.settled,
                })
            };
            match claimed() {
                Ok(delivery) => batch.deliveries.push(delivery),
                Err(damage) => batch.unreadable.push(damage.with_key(id).into()),
            }
        }
        Ok(batch)
    }

    /// Groups deliveries into one batch, identified by the ID of the first.
    pub async fn batch_deliveries(&self, batch: Uuid, ids: &[Uuid]) -> Result<()> {
        sqlx::query!("UPDATE deliveries SET parcel = $1 WHERE id = ANY($2)", batch, ids)
            .execute(&self.steps)
            .await?;
        Ok(())
    }

    /// Returns claimed deliveries that were not attempted. They become due at `again_at`, or at
    /// once.
    pub async fn release_deliveries(
        &self,
        ids: &[Uuid],
        again_at: Option<Timestamp>,
    ) -> Result<()> {
        sqlx::query!(
            "UPDATE deliveries SET
                attempts = attempts - 1, claimed_until = NULL, due_at = coalesce($2, due_at)
             WHERE id = ANY($1) AND ended_at IS NULL",
            ids,
            again_at,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Records the final outcome of deliveries that were sent together. An alert that asks nothing is
    /// settled when its last delivery ends, if a receiver got it.
    pub async fn end_deliveries(&self, ids: &[Uuid], end: DeliveryEnd) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            "WITH ended AS (
                UPDATE deliveries SET
                    ended_at = clock_timestamp(), outcome = $2, claimed_until = NULL,
                    error = CASE WHEN $2 = 'delivered' THEN NULL ELSE error END
                WHERE id = ANY($1) AND ended_at IS NULL
                RETURNING id, attempts
             )
             INSERT INTO delivery_attempts (delivery, number)
             SELECT id, attempts FROM ended WHERE $2 = 'delivered'
             ON CONFLICT DO NOTHING",
            ids,
            end.to_string(),
        )
        .execute(&self.steps)
        .await?;
        // Not in the statement above, which would not see that another server has just ended a
        // delivery of the same alert.
        sqlx::query!(
            "UPDATE alerts SET settled_at = clock_timestamp()
             WHERE question IS NULL AND settled_at IS NULL
                AND id IN (SELECT alert FROM deliveries WHERE id = ANY($1))
                AND EXISTS (
                    SELECT FROM deliveries AS sent
                    WHERE sent.alert = alerts.id AND sent.outcome = 'delivered'
                )
                AND NOT EXISTS (
                    SELECT FROM deliveries AS pending
                    WHERE pending.alert = alerts.id AND pending.ended_at IS NULL
                )",
            ids,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Records a failed attempt and the time of the next one.
    pub async fn reschedule_deliveries(
        &self,
        ids: &[Uuid],
        error: &str,
        again_at: Timestamp,
    ) -> Result<()> {
        sqlx::query!(
            "WITH failed AS (
                UPDATE deliveries SET due_at = $3, error = $2, claimed_until = NULL
                WHERE id = ANY($1) AND ended_at IS NULL
                RETURNING id, attempts
             )
             INSERT INTO delivery_attempts (delivery, number, error)
             SELECT id, attempts, $2 FROM failed
             ON CONFLICT DO NOTHING",
            ids,
            error.replace('\0', ""),
            again_at,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the time at which the next pending delivery is due. Deliveries to the terminal count
    /// only if `terminal` is set.
    pub async fn next_delivery_at(&self, terminal: bool) -> Result<Option<Timestamp>> {
        let at = sqlx::query_scalar!(
            "SELECT min(greatest(due_at, coalesce(claimed_until, due_at)))
             FROM deliveries WHERE ended_at IS NULL AND ($1 OR receiver <> 'terminal')",
            terminal,
        );
        Ok(at.fetch_one(&self.steps).await?)
    }

    /// Returns deliveries of one task or of all tasks, newest first.
    pub async fn deliveries(&self, task: Option<TaskId>, limit: u32) -> Result<Vec<Delivery>> {
        let rows = sqlx::query!(
            "SELECT
                deliveries.id, alerts.task, kind, cause, reminder, receiver, digest, due_at, attempts,
                outcome, ended_at, error
             FROM deliveries JOIN alerts ON alerts.id = deliveries.alert
             WHERE ($1::uuid IS NULL OR alerts.task = $1)
                AND ($3::bool OR alerts.project = ANY($4::uuid []))
             ORDER BY deliveries.created_at DESC, deliveries.id LIMIT $2",
            task.map(|task| task.0),
            to_i64(limit.into()),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let what = "delivery";
        rows.into_iter()
            .map(|row| {
                let id = row.id.to_string();
                let odd = |_| CorruptData {
                    what,
                    key: String::new(),
                    reason: "unknown outcome".to_owned(),
                };
                let delivery = || -> Result<_, CorruptData> {
                    let outcome = row.outcome.map(|text| text.parse::<DeliveryEnd>()).transpose();
                    Ok(Delivery {
                        id: row.id,
                        task: TaskId(row.task),
                        kind: read_word(what, row.kind)?,
                        cause: read(what, row.cause)?,
                        reminder: read_number(what, row.reminder.into())?,
                        receiver: row.receiver,
                        digest: row.digest,
                        due_at: row.due_at,
                        attempts: read_number(what, row.attempts.into())?,
                        ended: outcome.map_err(odd)?.zip(row.ended_at),
                        error: row.error,
                    })
                };
                delivery().map_err(|damage| damage.with_key(id).into())
            })
            .collect()
    }

    /// Returns all attempts of a delivery, in order.
    pub async fn delivery_attempts(&self, id: Uuid) -> Result<Vec<DeliveryAttempt>> {
        let rows = sqlx::query!(
            "SELECT number, at, error FROM delivery_attempts WHERE delivery = $1 ORDER BY number",
            id
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let number = read_number("attempt", row.number.into());
                let number =
                    number.map_err(|damage: CorruptData| damage.with_key(id.to_string()))?;
                Ok(DeliveryAttempt { number, at: row.at, error: row.error })
            })
            .collect()
    }
}
