//! `admit` activity: waits until the dependencies of a task are completed.

use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use crate::error::Error;
use crate::job_context::JobContext;
use crate::services::Services;

/// First interval of asking again, in seconds. The workflow doubles it, up to a day: the worker that
/// completes another task wakes those that wait for it. The soft timeout of `pending` alerts people.
const RETRY_SECONDS: u32 = 300;

pub(super) async fn admit(services: &Services, ctx: &JobContext) -> Result<JobResult, Error> {
    let others = &ctx.task.depends_on;
    if !others.is_empty() && services.store.count_incomplete(others).await? > 0 {
        return Ok(JobResult::RetryAfter { seconds: RETRY_SECONDS });
    }
    Ok(JobResult::finished(Outcome::Admitted))
}
