//! Alerts: what people were told, and what became of it.

use tamma_core::cause::Cause;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{AlertKind, Answer, Severity, Timestamp};

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::spelling::{read, read_number, read_word};

/// Something people were told. Its reminders are part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The question it asks, if it asks one.
    pub question: Option<u32>,
    /// What kind of message it is.
    pub kind: AlertKind,
    /// How urgent it is.
    pub severity: Severity,
    /// Why it was sent.
    pub cause: Cause,
    /// What may be answered.
    pub answers: Vec<Answer>,
    /// When it was first sent.
    pub at: Timestamp,
    /// How often it was repeated.
    pub reminders: u32,
    /// Who has seen it, and when.
    pub acknowledged: Option<(String, Timestamp)>,
    /// When its question was answered.
    pub settled_at: Option<Timestamp>,
}

impl Store {
    /// What people were told of a task, in order.
    pub async fn alerts(&self, task: TaskId) -> Result<Vec<Sent>> {
        let rows = sqlx::query!(
            "SELECT
                question, kind, severity, cause, answers, at, reminders, acknowledged_by,
                acknowledged_at, settled_at
             FROM alerts WHERE task = $1 ORDER BY id",
            task.0
        )
        .fetch_all(&self.steps)
        .await?;
        let what = "alert";
        rows.into_iter()
            .map(|row| {
                let answers = row.answers.into_iter().map(|answer| read_word(what, answer));
                Ok(Sent {
                    question: row.question.map(|it| read_number(what, it.into())).transpose()?,
                    kind: read_word(what, row.kind)?,
                    severity: read_word(what, row.severity)?,
                    cause: read(what, row.cause)?,
                    answers: answers.collect::<Result<_, Damage>>()?,
                    at: row.at,
                    reminders: read_number(what, row.reminders.into())?,
                    acknowledged: row.acknowledged_by.zip(row.acknowledged_at),
                    settled_at: row.settled_at,
                })
            })
            .collect::<Result<_, Damage>>()
            .map_err(|damage| damage.of(task.to_string()).into())
    }
}
