//! Effects outside, such as pull requests and comments, each exactly once.
//!
//! Forges take no idempotency key, so [`Store::perform`] looks before and after it acts. The row of
//! an effect is written before the effect, and names it for ever. A process that dies in between
//! leaves a row that is `intended`; the next attempt looks the effect up before it acts.
//!
//! One attempt works on an effect at a time. It holds a lease of the row and renews it, so no
//! transaction is open during a request. The request of a process that died can still be on its way;
//! the next attempt waits until the lease has expired, which is longer than forges work on a request.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use strum::Display;
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use uuid::Uuid;

use crate::backoff::Backoff;
use crate::connection::Store;
use crate::error::{Error, Result};

/// Duration of a lease. GitHub ends a request after 10 s.
const LEASE: Duration = Duration::from_secs(15);

/// Interval between renewals of a lease.
const RENEWAL: Duration = Duration::from_secs(4);

/// Longest wait for another attempt at the same effect.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Delays between looks at the lease of another attempt.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Longest stored reason of a refusal, in characters.
const MAX_REFUSAL: usize = 2_000;

/// Effect outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Name of the effect for ever, such as `tamma/<task>/<generation>/open`. Another content or
    /// another attempt of the task is another key.
    pub key: String,
    /// Kind of the effect.
    pub kind: EffectKind,
    /// Project that it belongs to.
    pub project: ProjectId,
    /// Task that it belongs to, unless it is about several.
    pub task: Option<TaskId>,
    /// Commit that the effect depends on.
    pub precondition: Option<CommitId>,
}

/// Kind of an effect outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "snake_case")]
pub enum EffectKind {
    /// Pull request is opened.
    OpenPullRequest,
    /// Title, description or status of a pull request is changed.
    UpdatePullRequest,
    /// Verdict about a commit is published.
    PublishCheck,
    /// Comment is written or replaced.
    Comment,
    /// Failed check runs again.
    RerunCheck,
    /// Pull request is merged, or added to the forge's queue.
    Merge,
    /// Branch is advanced to a tested commit.
    AdvanceBranch,
}

/// Failure of an effect. `E` is the error of the caller's requests.
#[derive(Debug, thiserror::Error)]
pub enum EffectError<E> {
    /// Database failed. The effect may have happened; the next attempt looks it up.
    #[error(transparent)]
    Store(Error),
    /// Another attempt works on the same effect. Try again later.
    #[error("another attempt works on `{key}`; retry later")]
    InProgress {
        /// Key of the effect.
        key: String,
    },
    /// Request failed, and the effect was not found afterwards.
    #[error(transparent)]
    Failed(E),
}

impl<E> From<Error> for EffectError<E> {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Result of claiming an effect.
enum EffectClaim {
    /// Effect is done, with this remote ID.
    Done(String),
    /// Caller has the lease, as this holder.
    Held(Uuid),
    /// Another attempt has the lease.
    Busy,
}

impl Store {
    /// Performs an effect exactly once, and returns the ID that the other side gave it.
    ///
    /// `find` looks the effect up and returns its ID if it is there. `act` performs it. An effect that
    /// is recorded as done causes no call. Otherwise it is looked up first; if `act` fails, it is
    /// looked up once more, and the error counts only if it is not there. The next call with the same
    /// key tries again.
    ///
    /// Call [`refuse_effect`](Self::refuse_effect) if the error is final.
    pub async fn perform<E, F, Found, A, Acted>(
        &self,
        effect: &Effect,
        find: F,
        act: A,
    ) -> Result<String, EffectError<E>>
    where
        F: Fn() -> Found,
        Found: Future<Output = Result<Option<String>, E>>,
        A: FnOnce() -> Acted,
        Acted: Future<Output = Result<String, E>>,
    {
        let holder = match self.await_claim(effect).await? {
            EffectClaim::Done(remote_id) => return Ok(remote_id),
            EffectClaim::Held(holder) => holder,
            EffectClaim::Busy => return Err(EffectError::InProgress { key: effect.key.clone() }),
        };
        let key = effect.key.as_str();
        let found = match self.with_renewals(key, holder, find()).await {
            Ok(found) => found,
            Err(error) => {
                // Nothing was sent that has an effect. If this fails, the lease expires.
                let _ = self.release_effect(key, holder).await;
                return Err(EffectError::Failed(error));
            }
        };
        if let Some(remote_id) = found {
            return Ok(self.record_effect(key, &remote_id).await?);
        }
        // Somebody may have taken over a lease that was not renewed in time.
        if !self.renew_effect(key, holder).await? {
            return Err(EffectError::InProgress { key: key.to_owned() });
        }
        let error = match self.with_renewals(key, holder, act()).await {
            Ok(remote_id) => return Ok(self.record_effect(key, &remote_id).await?),
            Err(error) => error,
        };
        // The effect may have happened although its answer was lost, or may still happen. So the
        // lease is not released: the next attempt looks when it has expired.
        match self.with_renewals(key, holder, find()).await {
            Ok(Some(remote_id)) => Ok(self.record_effect(key, &remote_id).await?),
            Ok(None) | Err(_) => Err(EffectError::Failed(error)),
        }
    }

    /// Records that an effect is refused for good, with the reason. The next attempt at it starts
    /// anew, once the lease of this one has expired.
    pub async fn refuse_effect(&self, key: &str, reason: &str) -> Result<()> {
        let reason: String = reason.replace('\0', "").chars().take(MAX_REFUSAL).collect();
        sqlx::query!(
            "UPDATE outward_effect SET
                state = 'refused', refusal = $2, settled_at = clock_timestamp()
             WHERE key = $1 AND state = 'intended'",
            key,
            reason,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Claims an effect, and waits while another attempt works on it.
    async fn await_claim(&self, effect: &Effect) -> Result<EffectClaim> {
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        let waiting = async {
            loop {
                match self.claim_effect(effect).await {
                    Ok(EffectClaim::Busy) => tokio::time::sleep(backoff.next_delay()).await,
                    claimed => return claimed,
                }
            }
        };
        tokio::time::timeout(LONGEST_WAIT, waiting).await.unwrap_or(Ok(EffectClaim::Busy))
    }

    /// Writes the intent, or takes over the row of an attempt that has ended.
    async fn claim_effect(&self, effect: &Effect) -> Result<EffectClaim> {
        let claimed = sqlx::query_scalar!(
            "INSERT INTO outward_effect AS stored
                (key, kind, project, task, precondition_sha, state, holder, leased_until)
             VALUES (
                $1, $2, $3, $4, $5, 'intended', gen_random_uuid(),
                clock_timestamp() + make_interval(secs => $6)
             )
             ON CONFLICT (key) DO UPDATE SET
                state = 'intended', attempts = stored.attempts + 1, refusal = NULL,
                settled_at = NULL, precondition_sha = excluded.precondition_sha,
                holder = excluded.holder, leased_until = excluded.leased_until
             WHERE stored.state <> 'done'
                AND (stored.leased_until IS NULL OR stored.leased_until <= clock_timestamp())
             RETURNING holder AS \"holder!\"",
            effect.key,
            effect.kind.to_string(),
            effect.project.0,
            effect.task.map(|task| task.0),
            effect.precondition.map(|commit| commit.to_string()),
            LEASE.as_secs_f64(),
        )
        .fetch_optional(&self.steps)
        .await?;
        if let Some(holder) = claimed {
            return Ok(EffectClaim::Held(holder));
        }
        let remote_id = sqlx::query_scalar!(
            "SELECT remote_id AS \"remote_id!\" FROM outward_effect
             WHERE key = $1 AND state = 'done' AND remote_id IS NOT NULL",
            effect.key,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(remote_id.map_or(EffectClaim::Busy, EffectClaim::Done))
    }

    /// Waits for a request, and renews the lease meanwhile.
    async fn with_renewals<T>(
        &self,
        key: &str,
        holder: Uuid,
        request: impl Future<Output = T>,
    ) -> T {
        match select(pin!(request), pin!(self.keep_renewing(key, holder))).await {
            Either::Left((response, _)) => response,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn keep_renewing(&self, key: &str, holder: Uuid) -> Infallible {
        loop {
            tokio::time::sleep(RENEWAL).await;
            // The next renewal repairs a failure. Stopping would not stop the request.
            let _ = self.renew_effect(key, holder).await;
        }
    }

    /// Renews the lease. Returns `false` if somebody else has it.
    async fn renew_effect(&self, key: &str, holder: Uuid) -> Result<bool> {
        let renewed = sqlx::query!(
            "UPDATE outward_effect SET leased_until = clock_timestamp() + make_interval(secs => $3)
             WHERE key = $1 AND holder = $2 AND state <> 'done'",
            key,
            holder,
            LEASE.as_secs_f64(),
        )
        .execute(&self.steps)
        .await?;
        Ok(renewed.rows_affected() > 0)
    }

    async fn release_effect(&self, key: &str, holder: Uuid) -> Result<()> {
        sqlx::query!(
            "UPDATE outward_effect SET holder = NULL, leased_until = NULL
             WHERE key = $1 AND holder = $2 AND state <> 'done'",
            key,
            holder,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Records an effect as done. Returns the recorded ID, which is that of the first record.
    async fn record_effect(&self, key: &str, remote_id: &str) -> Result<String> {
        let recorded = sqlx::query_scalar!(
            "UPDATE outward_effect SET
                state = 'done',
                remote_id = CASE WHEN state = 'done' THEN remote_id ELSE $2 END,
                settled_at = CASE WHEN state = 'done' THEN settled_at ELSE clock_timestamp() END,
                refusal = NULL, holder = NULL, leased_until = NULL
             WHERE key = $1
             RETURNING remote_id AS \"remote_id!\"",
            key,
            remote_id.replace('\0', ""),
        )
        .fetch_optional(&self.steps)
        .await?;
        recorded.ok_or_else(|| Error::NotFound { what: "effect", key: key.to_owned() })
    }
}
