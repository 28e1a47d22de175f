//! Reservations of money for runs, shared by all workers.
//!
//! A run reserves the most that it can spend, in one transaction against the budgets of its task, its
//! project and the day. When it ends, the reservation is settled: from then on it counts as the real
//! spend of the job, until the workflow has recorded the job's usage. A run renews its reservation.
//! One that was not renewed in time has lost its worker, and the next run of the project settles it.
//!
//! The decision is made here, and the database checks that the sums behind it are still true. For a
//! first attempt without shared budgets they are zero, so it needs one round trip.

use chrono::NaiveTime;
use serde::Deserialize;
use serde_json::Value;
use tamma_core::budget::{BudgetUse, RunGrant, Spend, SpendLimit, grant_run};
use tamma_core::cost::Usd;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read, read_word, word};
use crate::error::Result;
use crate::runs::{RunNumber, RunRecord, decode_run};
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
    /// Provider of the run's model.
    pub provider: String,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedBudgets {
    /// Decision. Money is reserved only if it is granted.
    pub grant: RunGrant,
    /// Use of the task's allowance.
    pub task: BudgetUse,
    /// Use of the project's budget, if it has one.
    pub project: Option<BudgetUse>,
    /// Use of the day's budget, if it has one.
    pub day: Option<BudgetUse>,
    /// End of the block on the provider. Nothing is reserved while it is blocked.
    pub blocked_until: Option<Timestamp>,
    /// Latest run of the task, if any.
    pub latest_run: Option<RunRecord>,
}

/// Sums that a decision is based on.
#[derive(Debug, Default, Deserialize)]
struct BudgetSums {
    /// Spend of earlier attempts at the job.
    earlier_usd: Usd,
    earlier_tokens: u64,
    /// Reservations of other jobs of the task.
    task_usd: Usd,
    task_tokens: u64,
    project: Option<SharedSums>,
    day: Option<SharedSums>,
}

/// Sums over the other jobs of a project.
#[derive(Debug, Deserialize)]
struct SharedSums {
    spent: Usd,
    reserved: Usd,
}

/// Decision about a run, with the use of its budgets.
struct BudgetDecision {
    grant: RunGrant,
    task: BudgetUse,
    project: Option<BudgetUse>,
    day: Option<BudgetUse>,
}

impl BudgetDecision {
    fn new(request: &ReservationRequest, sums: &BudgetSums) -> Self {
        let task = sums.task(request.allowance);
        let project = sums.shared(request.project_usd, sums.project.as_ref());
        let day = sums.shared(request.day_usd, sums.day.as_ref());
        let budgets: Vec<_> = [Some(task), project, day].into_iter().flatten().collect();
        Self { grant: grant_run(&budgets, request.estimate), task, project, day }
    }

    /// Returns the limit to reserve; `None` if the run cannot start.
    fn limit(&self) -> Option<SpendLimit> {
        match self.grant {
            RunGrant::Granted(limit) => Some(limit),
            RunGrant::Waiting | RunGrant::Exhausted => None,
        }
    }
}

impl BudgetSums {
    /// Returns the use of the task's allowance, which already excludes the spend of its ended jobs.
    fn task(&self, allowance: SpendLimit) -> BudgetUse {
        let spend = |usd, tokens| Spend { usd, tokens, estimated: false };
        BudgetUse {
            limit: allowance,
            spent: spend(self.earlier_usd, self.earlier_tokens),
            reserved: spend(self.task_usd, self.task_tokens),
        }
    }

    /// Returns the use of a shared budget, if there is one.
    fn shared(&self, usd: Option<Usd>, sums: Option<&SharedSums>) -> Option<BudgetUse> {
        let sums = sums.filter(|_| usd.is_some())?;
        let spend = |usd| Spend { usd, ..Spend::default() };
        Some(BudgetUse {
            limit: SpendLimit { usd, tokens: None },
            spent: spend(sums.spent + self.earlier_usd),
            reserved: spend(sums.reserved),
        })
    }
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
        let midnight = at.date_naive().and_time(NaiveTime::MIN).and_utc();
        // Without an answer, nothing is assumed to be spent or reserved.
        let mut known: Option<Value> = None;
        let mut decision = BudgetDecision::new(request, &BudgetSums::default());
        loop {
            let limit = decision.limit();
            let row = sqlx::query!(
                r#"SELECT
                    is_reserved AS "is_reserved!", budget_use AS "budget_use!", blocked_until, latest
                   FROM reserve_run(
                    $1, $2, $3, $4, $5, $6::text::numeric, $7, $8, $9, $10, $11, $12, $13,
                    $14::text::numeric, $15, $16
                   )"#,
                request.task.0,
                i64::from(request.run.job_number),
                i64::from(request.run.attempt),
                request.project.0,
                request.provider,
                word(&request.estimate),
                request.is_metered,
                at,
                until,
                midnight,
                request.project_usd.is_some(),
                request.day_usd.is_some(),
                limit.is_some(),
                limit.and_then(|limit| limit.usd).as_ref().map(word),
                limit.and_then(|limit| limit.tokens).map(to_i64),
                known.clone(),
            )
            .fetch_one(&self.steps)
            .await?;
            if !row.is_reserved {
                decision = BudgetDecision::new(request, &read("budget", row.budget_use.clone())?);
            }
            // If other runs have changed the sums meanwhile, it is asked again with the new ones.
            let is_final = decision.limit().is_none() || row.blocked_until.is_some();
            if row.is_reserved || is_final {
                let BudgetDecision { grant, task, project, day } = decision;
                let latest_run = row.latest.map(|run| decode_run(request.task, run)).transpose()?;
                let blocked_until = row.blocked_until;
                return Ok(ReservedBudgets {
                    grant,
                    task,
                    project,
                    day,
                    blocked_until,
                    latest_run,
                });
            }
            known = Some(row.budget_use);
        }
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
