//! Alerts that were sent to people, and their answers.

use std::collections::BTreeMap;

use tamma_core::cause::AlertCause;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{AlertKind, AlertSeverity, AnswerKind, Timestamp};

use crate::connection::Store;
use crate::encoding::{json, read, read_number, read_word, word};
use crate::error::{CorruptData, Result};

/// Alert that was sent, including its reminders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentAlert {
    /// Number of the question that it asks; `None` if it asks none.
    pub question: Option<u32>,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Severity of the alert.
    pub severity: AlertSeverity,
    /// Cause of the alert.
    pub cause: AlertCause,
    /// Possible answers to the question.
    pub answers: Vec<AnswerKind>,
    /// Time of the first message.
    pub at: Timestamp,
    /// Number of reminders so far.
    pub reminders: u32,
    /// Person who acknowledged it, and the time.
    pub acknowledged: Option<(String, Timestamp)>,
    /// Time at which its question was answered, or at which its last delivery ended if it asks none.
    pub settled_at: Option<Timestamp>,
}

impl Store {
    /// Sends an alert that asks nothing about a task. The same one again within ten minutes has no
    /// effect, so an attempt can be repeated.
    pub async fn send_alert(
        &self,
        task: TaskId,
        project: ProjectId,
        cause: AlertCause,
        severity: AlertSeverity,
    ) -> Result<()> {
        sqlx::query!(
            "WITH alerted AS (
                INSERT INTO alerts (task, project, kind, severity, cause, answers, at)
                SELECT
                    $1::uuid, $2::uuid, $3::text, $4::text, $5::jsonb, '{}'::text [],
                    clock_timestamp()
                WHERE NOT EXISTS (
                    SELECT FROM alerts
                    WHERE task = $1::uuid AND question IS NULL AND cause = $5::jsonb
                        AND at > clock_timestamp() - interval '10 minutes'
                )
                RETURNING id
             )
             INSERT INTO outbox (alert, reminder) SELECT id, 0 FROM alerted",
            task.0,
            project.0,
            word(&AlertKind::from(cause)),
            word(&severity),
            json(&cause),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the alerts of a task, in order.
    pub async fn alerts(&self, task: TaskId) -> Result<Vec<SentAlert>> {
        let rows = sqlx::query!(
            "SELECT
                question, kind, severity, cause, answers, at, reminders, acknowledged_by,
                acknowledged_at, settled_at
             FROM alerts WHERE task = $1 ORDER BY id",
            task.0
        )
        .fetch_all(&self.reads)
        .await?;
        let what = "alert";
        rows.into_iter()
            .map(|row| {
                let answers = row.answers.into_iter().map(|answer| read_word(what, answer));
                Ok(SentAlert {
                    question: row.question.map(|it| read_number(what, it.into())).transpose()?,
                    kind: read_word(what, row.kind)?,
                    severity: read_word(what, row.severity)?,
                    cause: read(what, row.cause)?,
                    answers: answers.collect::<Result<_, CorruptData>>()?,
                    at: row.at,
                    reminders: read_number(what, row.reminders.into())?,
                    acknowledged: row.acknowledged_by.zip(row.acknowledged_at),
                    settled_at: row.settled_at,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Returns the severity of the newest alert of each task. Tasks without alerts are missing.
    pub async fn newest_severities(
        &self,
        tasks: &[TaskId],
    ) -> Result<BTreeMap<TaskId, AlertSeverity>> {
        let ids: Vec<_> = tasks.iter().map(|task| task.0).collect();
        let rows = sqlx::query!(
            "SELECT DISTINCT ON (task) task, severity FROM alerts
             WHERE task = ANY($1::uuid []) ORDER BY task, id DESC",
            &ids
        )
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter()
            .map(|row| Ok((TaskId(row.task), read_word("alert", row.severity)?)))
            .collect::<Result<_, CorruptData>>()
            .map_err(Into::into)
    }
}
