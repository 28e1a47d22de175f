//! `prepare` activity: pins the newest commit of the base branch and the rules.

use tamma_core::approval::Pin;
use tamma_core::task_loop::Outcome;
use tamma_flow::activities::JobResult;

use crate::error::Error;
use crate::job_context::JobContext;
use crate::services::Services;

pub(super) async fn prepare(services: &Services, ctx: &JobContext) -> Result<JobResult, Error> {
    let base = services.repositories.newest_base(ctx).await?;
    let pin = Pin { base, policy: ctx.request.pending.policy };
    Ok(JobResult::finished(Outcome::Prepared(pin)))
}
