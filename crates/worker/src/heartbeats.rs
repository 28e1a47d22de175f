//! Heartbeats of long activities.

mod lost_attempts;

use std::future::Future;
use std::time::Duration;

use tamma_engine::process::this_process;
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::lost_attempts::AttemptHeartbeat;
pub(crate) use self::lost_attempts::too_many_lost;
use crate::error::Error;

/// Shortest interval of heartbeats.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

/// Heartbeats within the time after which a worker without any counts as dead.
const HEARTBEATS_PER_TIMEOUT: u32 = 4;

/// Delay of the first heartbeat of a first attempt. Most jobs end before it, without the cost of one.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Runs an activity with heartbeats, and stops it on cancellation. `work` gets the number of the
/// attempt. If too many attempts were lost, it is not started.
pub(crate) async fn with_heartbeats<T, F: Future<Output = Result<T, Error>> + Send>(
    ctx: ActivityContext,
    work: impl FnOnce(u32, CancellationToken) -> F,
) -> Result<T, ActivityError> {
    let (attempt, stop) = (ctx.info().attempt, CancellationToken::new());
    // Heartbeats of another version are not counted.
    let previous = ctx.heartbeat_details().deserialize().unwrap_or_default();
    let heartbeat = AttemptHeartbeat::first(attempt, previous, this_process());
    if let Some(error) = heartbeat.too_many_lost() {
        return Err(error.into_activity_error());
    }
    let interval = heartbeat_interval(ctx.info().heartbeat_timeout);
    let mut first = interval;
    if attempt == 1 {
        first = first.min(FIRST_DELAY);
    } else {
        // Recorded before the work starts, so that its end can be told from that of the worker. A
        // first attempt is not counted if its worker dies before its first heartbeat.
        ctx.record_heartbeat(heartbeat.clone()).await?;
    }
    // Boxed, because the future of an activity with agents is large.
    let mut work = Box::pin(work(attempt, stop.clone()));
    let mut beats = tokio::time::interval_at(Instant::now() + first, interval);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            result = &mut work => {
                if result.is_err() {
                    ctx.record_heartbeat(heartbeat.ended()).await?;
                }
                return result.map_err(Error::into_activity_error);
            }
            _ = beats.tick() => ctx.record_heartbeat(heartbeat.clone()).await?,
            () = ctx.cancelled(), if !is_stopping => {
                is_stopping = true;
                stop.cancel();
            }
        }
    }
}

/// Returns the interval of heartbeats. Each one is a transaction in Temporal's database, even if the
/// agent only waits. Two may be lost. If the server does not send cancellations by itself, its answer
/// to a heartbeat cancels the activity.
fn heartbeat_interval(timeout: Option<Duration>) -> Duration {
    timeout.map_or(MIN_INTERVAL, |timeout| (timeout / HEARTBEATS_PER_TIMEOUT).max(MIN_INTERVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_can_miss_some_heartbeats() {
        let interval = |seconds| heartbeat_interval(Some(Duration::from_secs(seconds)));
        assert_eq!([3, 30, 60].map(interval), [750, 7_500, 15_000].map(Duration::from_millis));
        assert_eq!(heartbeat_interval(None), MIN_INTERVAL);
    }
}
