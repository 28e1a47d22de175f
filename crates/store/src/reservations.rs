//! Reservations of money for runs, shared by all workers.
//!
//! A run reserves the most that it can spend, in one transaction against the budgets of its task, its
//! project and the day. When it ends, the reservation is settled: from then on it counts as the real
//! spend of the job, until the workflow has recorded the job's usage. A run renews its reservation.
//! One that was not renewed in time has lost its worker, and the next run of the project settles it.

use chrono::NaiveTime;
use sqlx::{Postgres, Transaction};
use tamma_core::budget::{BudgetUse, RunGrant, Spend, SpendLimit, grant_run};
use tamma_core::cost::Usd;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_number, read_word, word};
use crate::error::Result;
use crate::runs::RunNumber;
use crate::steps::to_i64;

/// Run that wants to start, and its budgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRequest {
    /// Task or pipeline that the run belongs to.
    pub task: TaskId,
    /// Number of the run within it.
    pub run: RunNumber,
    /// Project of the task.
    pub project: ProjectId,
    /// Amount that the job can spend within its task.
    pub allowance: SpendLimit,
    /// Total budget of the project.
    pub project_usd: Option<Usd>,
    /// Budget of the project for one day, in UTC.
    pub day_usd: Option<Usd>,
    /// Estimated cost of the run. It is charged if its real cost is unknown.
    pub estimate: Usd,
    /// Set if the gateway counts all model calls of the run.
    pub is_metered: bool,
}

/// Budgets of a run, and the decision about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedBudgets {
    /// Decision. Money is reserved only if it is granted.
    pub grant: RunGrant,
    /// Use of the task's allowance.
    pub task: BudgetUse,
    /// Use of the project's budget, if it has one.
    pub project: Option<BudgetUse>,
    /// Use of the day's budget, if it has one.
    pub day: Option<BudgetUse>,
}

impl Store {
    /// Reserves money for a run until a time, if its budgets allow.
    ///
    /// An earlier attempt at the same job leaves only what it has not spent, and loses its
    /// reservation.
    pub async fn reserve_run(
        &self,
        request: &ReservationRequest,
        (at, until): (Timestamp, Timestamp),
    ) -> Result<ReservedBudgets> {
        let mut transaction = self.steps.begin().await?;
        // Serialise per project, so that two runs never get the same money.
        sqlx::query!(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
            format!("budget {}", request.project)
        )
        .execute(&mut *transaction)
        .await?;
        settle_lost_runs(&mut transaction, request.project, at).await?;
        let earlier = earlier_spend(&mut transaction, request).await?;
        let task = task_use(&mut transaction, request, earlier).await?;
        let midnight = at.date_naive().and_time(NaiveTime::MIN).and_utc();
        let mut shared = [None, None];
        let limits = [(request.project_usd, Timestamp::UNIX_EPOCH), (request.day_usd, midnight)];
        for (used, (usd, since)) in shared.iter_mut().zip(limits) {
            if usd.is_some() {
                let limit = SpendLimit { usd, tokens: None };
                let (spent, reserved) = shared_use(&mut transaction, request, since).await?;
                let spent = Spend { usd: spent + earlier.usd, ..Spend::default() };
                let reserved = Spend { usd: reserved, ..Spend::default() };
                *used = Some(BudgetUse { limit, spent, reserved });
            }
        }
        let [project, day] = shared;
        let budgets: Vec<_> = [Some(task), project, day].into_iter().flatten().collect();
        let grant = grant_run(&budgets, request.estimate);
        if let RunGrant::Granted(limit) = grant {
            insert_reservation(&mut transaction, request, limit, (at, until)).await?;
        }
        transaction.commit().await?;
        Ok(ReservedBudgets { grant, task, project, day })
    }

    /// Extends the reservation of a run, even if it has been settled because it was not renewed in
    /// time.
    pub async fn renew_reservation(
        &self,
        task: TaskId,
        run: RunNumber,
        until: Timestamp,
    ) -> Result<()> {
        sqlx::query!(
            "UPDATE run_reservations SET
                until = $4, settled_at = NULL, spent_usd = NULL, spent_tokens = NULL
             WHERE task = $1 AND ticket = $2 AND attempt = $3",
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
            until,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Settles the reservation of a run that has ended and whose model calls are recorded.
    pub async fn settle_reservation(
        &self,
        task: TaskId,
        run: RunNumber,
        at: Timestamp,
    ) -> Result<()> {
        sqlx::query!(
            "UPDATE run_reservations AS r SET
                settled_at = $4,
                (spent_usd, spent_tokens) = (
                    SELECT total_usd, total_tokens
                    FROM job_spend(r.task, r.ticket, r.estimate_usd, r.metered)
                )
             WHERE r.task = $1 AND r.ticket = $2 AND r.attempt = $3",
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
            at,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }
}

impl Store {
    /// Returns what runs of a project have spent since a time without having recorded usage, and what
    /// is reserved for runs at `at`.
    pub async fn reservations_since(
        &self,
        project: ProjectId,
        since: Timestamp,
        at: Timestamp,
    ) -> Result<(Usd, Usd)> {
        let row = sqlx::query!(
            r#"SELECT
                (
                    SELECT coalesce(sum(r.spent_usd), 0) FROM run_reservations AS r
                    WHERE r.project = $1 AND r.settled_at >= $2 AND NOT EXISTS (
                        SELECT FROM usage
                        WHERE usage.task = r.task AND usage.ticket = r.ticket
                            AND usage.cost_usd IS NOT NULL
                    )
                )::text AS "spent!",
                (
                    SELECT coalesce(sum(r.usd), 0) FROM run_reservations AS r
                    WHERE r.project = $1 AND r.settled_at IS NULL AND r.until > $3
                )::text AS "reserved!""#,
            project.0,
            since,
            at,
        )
        .fetch_one(&self.lists)
        .await?;
        Ok((read_word("spend", row.spent)?, read_word("spend", row.reserved)?))
    }
}

/// Settles the reservations of runs that have lost their worker, and removes those whose usage the
/// workflow has recorded.
async fn settle_lost_runs(
    transaction: &mut Transaction<'_, Postgres>,
    project: ProjectId,
    at: Timestamp,
) -> Result<()> {
    sqlx::query!(
        "UPDATE run_reservations AS r SET
            settled_at = $2,
            (spent_usd, spent_tokens) = (
                SELECT total_usd, total_tokens
                FROM job_spend(r.task, r.ticket, r.estimate_usd, r.metered)
            )
         WHERE r.project = $1 AND r.settled_at IS NULL AND r.until <= $2",
        project.0,
        at,
    )
    .execute(&mut **transaction)
    .await?;
    // An unknown cost is not zero, so its estimate stays here.
    sqlx::query!(
        "DELETE FROM run_reservations AS r
         WHERE r.project = $1 AND r.settled_at IS NOT NULL AND EXISTS (
            SELECT FROM usage
            WHERE usage.task = r.task AND usage.ticket = r.ticket AND usage.cost_usd IS NOT NULL
         )",
        project.0,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Returns what earlier attempts at the job have spent.
async fn earlier_spend(
    transaction: &mut Transaction<'_, Postgres>,
    request: &ReservationRequest,
) -> Result<Spend> {
    let row = sqlx::query!(
        r#"SELECT total_usd::text AS "usd!", total_tokens AS "tokens!"
           FROM job_spend($1, $2, $3::text::numeric, $4)"#,
        request.task.0,
        i64::from(request.run.job_number),
        word(&request.estimate),
        request.is_metered,
    )
    .fetch_one(&mut **transaction)
    .await?;
    let (usd, tokens) = (read_word("spend", row.usd)?, read_number("spend", row.tokens)?);
    Ok(Spend { usd, tokens, estimated: false })
}

/// Returns the use of the task's allowance, which already excludes the spend of its ended jobs.
async fn task_use(
    transaction: &mut Transaction<'_, Postgres>,
    request: &ReservationRequest,
    spent: Spend,
) -> Result<BudgetUse> {
    let row = sqlx::query!(
        r#"SELECT
            coalesce(sum(usd), 0)::text AS "usd!", coalesce(sum(tokens), 0)::bigint AS "tokens!"
           FROM run_reservations
           WHERE task = $1 AND ticket <> $2 AND settled_at IS NULL"#,
        request.task.0,
        i64::from(request.run.job_number),
    )
    .fetch_one(&mut **transaction)
    .await?;
    let (usd, tokens) = (read_word("spend", row.usd)?, read_number("spend", row.tokens)?);
    let reserved = Spend { usd, tokens, estimated: false };
    Ok(BudgetUse { limit: request.allowance, spent, reserved })
}

/// Returns what the other jobs of a project have spent since a time, and what is reserved for them.
async fn shared_use(
    transaction: &mut Transaction<'_, Postgres>,
    request: &ReservationRequest,
    since: Timestamp,
) -> Result<(Usd, Usd)> {
    let row = sqlx::query!(
        r#"SELECT
            (
                (
                    SELECT coalesce(sum(usage.cost_usd), 0) FROM usage
                    WHERE usage.project = $1 AND usage.at >= $2
                ) + (
                    SELECT coalesce(sum(r.spent_usd), 0) FROM run_reservations AS r
                    WHERE r.project = $1 AND r.settled_at >= $2
                        AND NOT (r.task = $3 AND r.ticket = $4)
                )
            )::text AS "spent!",
            (
                SELECT coalesce(sum(r.usd), 0) FROM run_reservations AS r
                WHERE r.project = $1 AND r.settled_at IS NULL
                    AND NOT (r.task = $3 AND r.ticket = $4)
            )::text AS "reserved!""#,
        request.project.0,
        since,
        request.task.0,
        i64::from(request.run.job_number),
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok((read_word("spend", row.spent)?, read_word("spend", row.reserved)?))
}

async fn insert_reservation(
    transaction: &mut Transaction<'_, Postgres>,
    request: &ReservationRequest,
    limit: SpendLimit,
    (at, until): (Timestamp, Timestamp),
) -> Result<()> {
    sqlx::query!(
        "INSERT INTO run_reservations
         (task, ticket, attempt, project, usd, tokens, estimate_usd, metered, reserved_at, until)
         VALUES ($1, $2, $3, $4, $5::text::numeric, $6, $7::text::numeric, $8, $9, $10)
         ON CONFLICT (task, ticket) DO UPDATE SET
            attempt = excluded.attempt, project = excluded.project, usd = excluded.usd,
            tokens = excluded.tokens, estimate_usd = excluded.estimate_usd,
            metered = excluded.metered, reserved_at = excluded.reserved_at,
            until = excluded.until, settled_at = NULL, spent_usd = NULL, spent_tokens = NULL",
        request.task.0,
        i64::from(request.run.job_number),
        i64::from(request.run.attempt),
        request.project.0,
        limit.usd.as_ref().map(word),
        limit.tokens.map(to_i64),
        word(&request.estimate),
        request.is_metered,
        at,
        until,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}
