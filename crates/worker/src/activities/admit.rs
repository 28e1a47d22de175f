//! `admit` activity: waits until the dependencies of a task are completed.

use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use super::{Activities, JobContext};
use crate::error::Error;

/// Polling interval, in seconds. The soft timeout of `pending` alerts people.
const RETRY_SECONDS: u32 = 10;

impl Activities {
    pub(super) async fn admit(&self, work: &JobContext) -> Result<JobResult, Error> {
        let others = &work.task.depends_on;
        if !others.is_empty() && self.store.count_incomplete(others).await? > 0 {
            return Ok(JobResult::RetryAfter { seconds: RETRY_SECONDS });
        }
        Ok(JobResult::finished(Outcome::Admitted))
    }
}
