//! Heartbeats of long activities.

mod lost_attempts;

use std::future::Future;
use std::time::Duration;

use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tokio_util::sync::CancellationToken;

use self::lost_attempts::AttemptHeartbeat;
pub(crate) use self::lost_attempts::MAX_LOST_ATTEMPTS;
use crate::error::Error;

/// Heartbeat interval of long activities.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Runs an activity with heartbeats, and stops it on cancellation. `work` gets the number of the
/// attempt. After too many attempts whose worker died, it is not started.
pub(crate) async fn with_heartbeats<T, F: Future<Output = Result<T, Error>> + Send>(
    ctx: ActivityContext,
    work: impl FnOnce(u32, CancellationToken) -> F,
) -> Result<T, ActivityError> {
    let (attempt, stop) = (ctx.info().attempt, CancellationToken::new());
    // Heartbeats of another version are not counted.
    let previous = ctx.heartbeat_details().deserialize().unwrap_or_default();
    let heartbeat = AttemptHeartbeat::first(attempt, previous);
    if let Some(lost) = heartbeat.too_many_lost() {
        return Err(Error::LostWorkers(lost).into_activity_error());
    }
    // Recorded before the work starts, so that its end can be told from that of the worker.
    ctx.record_heartbeat(heartbeat).await?;
    // Boxed, because the future of an activity with agents is large.
    let mut work = Box::pin(work(attempt, stop.clone()));
    let mut interval = tokio::time::interval(HEARTBEAT_INTERVAL);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            result = &mut work => {
                if result.is_err() {
                    ctx.record_heartbeat(heartbeat.ended()).await?;
                }
                return result.map_err(Error::into_activity_error);
            }
            _ = interval.tick() => ctx.record_heartbeat(heartbeat).await?,
            () = ctx.cancelled(), if !is_stopping => {
                is_stopping = true;
                stop.cancel();
            }
        }
    }
}
