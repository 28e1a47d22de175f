//! `deliver` activity: pushes a change as a branch to the project's repository.

use tamma_core::ids::CommitId;
use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;
use tamma_flow::activities::JobResult;

use crate::error::Error;
use crate::job_context::JobContext;
use crate::services::Services;

pub(super) async fn deliver(
    services: &Services,
    ctx: &JobContext,
    commit: CommitId,
) -> Result<JobResult, Error> {
    let project = services.repositories.project(ctx).await?;
    let mirror = services.repositories.mirror(&project).await?;
    let delivered = delivery::push_task_branch(&mirror, ctx.task.id, commit).await;
    ctx.fault_point("handed over")?;
    match delivered {
        Ok(_) => Ok(JobResult::finished(Outcome::Delivered(commit))),
        Err(error @ (delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. })) => {
            Ok(JobResult::finished(Outcome::DeliveryRejected(
                services.store.save_text(&error.to_string()).await?,
            )))
        }
        Err(error) => Err(error.into()),
    }
}
