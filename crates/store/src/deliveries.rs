//! Messages to people: handed to the post once, and delivered to each receiver once.
//!
//! A message is put into the outbox with the step that sends it. Dispatching it takes it out and makes
//! a row for each receiver in one statement, so that nobody does it twice. Whoever delivers claims rows
//! for a while; one that dies gives them back by doing nothing. What it had sent and not written down
//! is then sent again, with the same id and the same words, by which a receiver can tell.

use serde::Serialize;
use sqlx::types::Uuid;
use strum::{Display, EnumString};
use tamma_core::cause::Cause;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{AlertKind, Answer, Severity, Timestamp};

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::record::signed;
use crate::spelling::{json, read, read_number, read_word};

/// A message of an alert that nobody was told yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undispatched {
    /// The alert.
    pub alert: i64,
    /// Which of its messages: the first is 0, then come reminders.
    pub reminder: u32,
    /// The project of its task.
    pub project: ProjectId,
    /// How urgent it is.
    pub severity: Severity,
    /// Whether it asks for a decision.
    pub asks: bool,
}

/// A message for one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewDelivery {
    /// Its identity.
    pub id: Uuid,
    /// Who gets it.
    pub receiver: String,
    /// Whether it waits for the digest.
    pub digest: bool,
    /// When it may go.
    pub due_at: Timestamp,
}

/// A message that somebody is about to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its identity.
    pub id: Uuid,
    /// Who gets it.
    pub receiver: String,
    /// Whether it goes out in a digest.
    pub digest: bool,
    /// The message it goes out in with others, if it went out before: the id of the first of them.
    pub parcel: Option<Uuid>,
    /// The attempt that begins, counted from 1.
    pub attempt: u32,
    /// When it was handed to the post.
    pub created_at: Timestamp,
    /// Which of the alert's messages it is.
    pub reminder: u32,
    /// What kind of alert it is.
    pub kind: AlertKind,
    /// How urgent it is.
    pub severity: Severity,
    /// Why it was sent.
    pub cause: Cause,
    /// What may be answered.
    pub answers: Vec<Answer>,
    /// The task.
    pub task: TaskId,
    /// Its title.
    pub title: String,
    /// Its project.
    pub project: ProjectId,
    /// Whether nobody needs to be told any more: it was answered, or seen before the reminder.
    pub is_settled: bool,
}

/// What came of a message to one receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryEnd {
    /// It arrived.
    Delivered,
    /// It was tried for too long.
    GivenUp,
    /// Nobody needed it any more.
    Settled,
    /// Its receiver is no longer in the configuration.
    NoReceiver,
}

/// A message to one receiver, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its identity.
    pub id: Uuid,
    /// The task.
    pub task: TaskId,
    /// What kind of alert it is.
    pub kind: AlertKind,
    /// Why it was sent.
    pub cause: Cause,
    /// Which of the alert's messages it is.
    pub reminder: u32,
    /// Who gets it.
    pub receiver: String,
    /// Whether it goes out in a digest.
    pub digest: bool,
    /// When it goes, or is tried again.
    pub due_at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// What came of it, and when.
    pub ended: Option<(DeliveryEnd, Timestamp)>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// One attempt to deliver a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Which one, counted from 1. One that is missing was begun by a server that did not live to say
    /// what came of it.
    pub number: u32,
    /// When it was over.
    pub at: Timestamp,
    /// Why it failed; nothing where it did not.
    pub error: Option<String>,
}

impl Store {
    /// Messages that were not handed to the post yet, the oldest first.
    pub async fn undispatched(&self, limit: u32) -> Result<Vec<Undispatched>> {
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
                let alert = || -> Result<_, Damage> {
                    Ok(Undispatched {
                        alert: row.id,
                        reminder: read_number(what, row.reminder.into())?,
                        project: ProjectId(row.project),
                        severity: read_word(what, row.severity)?,
                        asks: row.asks,
                    })
                };
                alert().map_err(|damage| damage.of(row.id.to_string()).into())
            })
            .collect()
    }

    /// Hands a message to the post, for some receivers. One that still waits for an earlier message
    /// of the same alert gets no second one; where the earlier one is held back and this one would
    /// not be, it goes now. Returns whether it was handed over by this call.
    pub async fn dispatch(
        &self,
        message: &Undispatched,
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

    /// Takes messages that are due, for so many seconds, the longest due first. Nobody else gets them
    /// meanwhile. Those that went out together are taken together. The terminal's are for whoever has
    /// one.
    pub async fn claim_deliveries(
        &self,
        seconds: u32,
        limit: u32,
        terminal: bool,
    ) -> Result<Vec<Claimed>> {
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
                severity, cause, answers, alerts.task, tasks.title, alerts.project,
                settled_at IS NOT NULL OR (reminder > 0 AND acknowledged_at IS NOT NULL)
                    AS \"settled!\"
             FROM claimed
             JOIN alerts ON alerts.id = claimed.alert
             JOIN tasks ON tasks.id = alerts.task
             ORDER BY claimed.created_at, claimed.id",
            f64::from(seconds),
            i64::from(limit),
            terminal,
        )
        .fetch_all(&self.steps)
        .await?;
        let what = "delivery";
        rows.into_iter()
            .map(|row| {
                let id = row.id.to_string();
                let answers = row.answers.into_iter().map(|answer| read_word(what, answer));
                let claimed = || -> Result<_, Damage> {
                    Ok(Claimed {
                        id: row.id,
                        receiver: row.receiver,
                        digest: row.digest,
                        parcel: row.parcel,
                        attempt: read_number(what, row.attempts.into())?,
                        created_at: row.created_at,
                        reminder: read_number(what, row.reminder.into())?,
                        kind: read_word(what, row.kind)?,
                        severity: read_word(what, row.severity)?,
                        cause: read(what, row.cause)?,
                        answers: answers.collect::<Result<_, Damage>>()?,
                        task: TaskId(row.task),
                        title: row.title,
                        project: ProjectId(row.project),
                        is_settled: row.settled,
                    })
                };
                claimed().map_err(|damage| damage.of(id).into())
            })
            .collect()
    }

    /// Ties some messages together that are about to go out in one, under the id of the first.
    pub async fn tie_deliveries(&self, parcel: Uuid, ids: &[Uuid]) -> Result<()> {
        sqlx::query!("UPDATE deliveries SET parcel = $1 WHERE id = ANY($2)", parcel, ids)
            .execute(&self.steps)
            .await?;
        Ok(())
    }

    /// Gives back messages that were taken and not tried; to be tried at a moment, or at once.
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

    /// Writes down what came of some messages that were delivered together.
    pub async fn end_deliveries(&self, ids: &[Uuid], end: DeliveryEnd) -> Result<()> {
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
        Ok(())
    }

    /// Writes down that an attempt failed, and when the next one is.
    pub async fn put_off_deliveries(
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

    /// When the next message is due, if one waits. The terminal's are for whoever has one.
    pub async fn next_delivery(&self, terminal: bool) -> Result<Option<Timestamp>> {
        let at = sqlx::query_scalar!(
            "SELECT min(greatest(due_at, coalesce(claimed_until, due_at)))
             FROM deliveries WHERE ended_at IS NULL AND ($1 OR receiver <> 'terminal')",
            terminal,
        );
        Ok(at.fetch_one(&self.steps).await?)
    }

    /// Messages, the newest first; of one task, or of all.
    pub async fn deliveries(&self, task: Option<TaskId>, limit: u32) -> Result<Vec<Delivery>> {
        let rows = sqlx::query!(
            "SELECT
                deliveries.id, alerts.task, kind, cause, reminder, receiver, digest, due_at, attempts,
                outcome, ended_at, error
             FROM deliveries JOIN alerts ON alerts.id = deliveries.alert
             WHERE $1::uuid IS NULL OR alerts.task = $1
             ORDER BY deliveries.created_at DESC, deliveries.id LIMIT $2",
            task.map(|task| task.0),
            signed(limit.into()),
        )
        .fetch_all(&self.lists)
        .await?;
        let what = "delivery";
        rows.into_iter()
            .map(|row| {
                let id = row.id.to_string();
                let odd = |_| Damage { what, key: String::new(), why: "an odd outcome".to_owned() };
                let delivery = || -> Result<_, Damage> {
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
                delivery().map_err(|damage| damage.of(id).into())
            })
            .collect()
    }

    /// Every attempt to deliver a message, in order.
    pub async fn delivery_attempts(&self, id: Uuid) -> Result<Vec<Attempt>> {
        let rows = sqlx::query!(
            "SELECT number, at, error FROM delivery_attempts WHERE delivery = $1 ORDER BY number",
            id
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let number = read_number("attempt", row.number.into());
                let number = number.map_err(|damage: Damage| damage.of(id.to_string()))?;
                Ok(Attempt { number, at: row.at, error: row.error })
            })
            .collect()
    }
}
