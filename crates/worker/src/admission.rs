//! Admission of runs, in a pool of workers that share projects and providers.
//!
//! If the rules or the operator limit them, a run holds one lease of its project and one of its provider. The
//! leases are in the store. They are renewed during the run, released at its end, and expire if the
//! worker dies.

use std::time::Duration;

use tamma_core::operator::OperatorConfig;
use tamma_core::run_queue::WaitingRun;
use tamma_core::task_loop::Timestamp;
use tamma_store::{Backoff, Lease, Store};
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::error::Error;
use crate::job_context::JobContext;

/// Lease duration.
const LEASE_DURATION: Duration = Duration::from_secs(30);

/// Renewal interval.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);

/// First and maximum delay between attempts to acquire the leases.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Decision about starting a run.
pub(crate) enum Admission {
    /// Run can start while it holds this lease.
    Granted(RunLease),
    /// Provider is blocked.
    ProviderBlocked {
        /// End of the block.
        until: Timestamp,
    },
}

/// Leases of a run. Dropping it releases them.
pub(crate) struct RunLease {
    /// Store, holder and renewal task; `None` if nothing sets a limit.
    lease: Option<(Store, String, CancellationToken)>,
}

/// Waits until a run can start: its provider is not blocked and all leases are acquired.
/// Returns at once if the provider is blocked. Without limits there is nothing to wait for; the
/// reservation of the run's budget checks the provider, too.
pub(crate) async fn admit_run(
    store: &Store,
    ctx: &JobContext,
    provider: &str,
    operator: &OperatorConfig,
) -> Result<Admission, Error> {
    let limits = &ctx.rules.engines;
    let project = ctx.project().to_string();
    let mut leases = Vec::new();
    if let Some(limit) = limits.agent_limit(operator) {
        leases.push(((Lease::Project, project.as_str()), u32::from(limit)));
    }
    if let Some(limit) = limits.per_provider.get(provider) {
        leases.push(((Lease::Provider, provider), u32::from(limit.get())));
    }
    if leases.is_empty() {
        return Ok(Admission::Granted(RunLease { lease: None }));
    }
    // Each attempt has a unique run ID. The wait counts from the task's last change of state, so a
    // restart does not lose the place.
    let holder = ctx.run_id().to_string();
    let (priority, since) = (ctx.task.priority, ctx.task_loop.since);
    let run = WaitingRun { holder: holder.clone(), priority, since };
    let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
    loop {
        if let Some(until) = store.blocked_until(provider, now()).await? {
            store.release_leases(&holder).await?;
            return Ok(Admission::ProviderBlocked { until });
        }
        if acquire_leases(store, &leases, &run).await? {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = ctx.stop.cancelled() => {
                store.release_leases(&holder).await?;
                return Err(Error::Stopped);
            }
        }
    }
    let over = CancellationToken::new();
    tokio::spawn(renew_until_done(store.clone(), holder.clone(), over.clone()));
    Ok(Admission::Granted(RunLease { lease: Some((store.clone(), holder, over)) }))
}

/// Acquires all leases or none, so that no run blocks others while it waits. It waits in the queue
/// of the first resource that has no free slot, and only there.
async fn acquire_leases(
    store: &Store,
    leases: &[((Lease, &str), u32)],
    run: &WaitingRun,
) -> Result<bool, Error> {
    for (index, (key, limit)) in leases.iter().enumerate() {
        if !store.acquire_lease(*key, run, *limit, LEASE_DURATION).await? {
            for (key, _) in &leases[..index] {
                store.release_lease(*key, &run.holder).await?;
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Renews the leases of a run until it ends.
async fn renew_until_done(store: Store, holder: String, over: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEW_INTERVAL) => {}
            () = over.cancelled() => return,
        }
        if let Err(error) = store.renew_leases(&holder, LEASE_DURATION).await {
            tracing::warn!(%error, "failed to renew run lease; retrying");
        }
    }
}

impl Drop for RunLease {
    fn drop(&mut self) {
        let Some((store, holder, over)) = self.lease.take() else { return };
        over.cancel();
        // Without a runtime, the leases expire by themselves.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.release_leases(&holder).await {
                    tracing::warn!(%error, "failed to release run lease; it will expire");
                }
            });
        }
    }
}
