//! `land` activity: commits and pushes unfinished work before a person is asked.

use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;
use tamma_flow::activities::JobResult;

use crate::error::Error;
use crate::job_context::JobContext;
use crate::repositories::author;
use crate::services::Services;

pub(super) async fn save_work(services: &Services, ctx: &JobContext) -> Result<JobResult, Error> {
    let project = services.repositories.project(ctx).await?;
    services.stop_earlier_attempts(ctx).await?;
    let worktree = services.repositories.worktree(ctx, &project).await?;
    let message = format!("{}\n\nUnfinished: waiting for a person's decision.", ctx.task.title);
    let commit = worktree.commit_all(ctx.request.job_number, &message, &author()).await?;
    ctx.fault_point("committed")?;
    if ctx.task_loop.pull_request.is_some() {
        // Nobody has judged this commit, so it is not for the pull request. Hidden refs have it.
        return Ok(JobResult::finished(Outcome::WorkSaved));
    }
    let mirror = services.repositories.mirror(&project).await?;
    let branch = services.store.task_branch(ctx.task.id).await?;
    match delivery::push_task_branch(&mirror, (ctx.task.id, &branch), commit).await {
        // The work is committed in the mirror. A branch that the project rejects must not delay
        // the question.
        Ok(_) | Err(delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(JobResult::finished(Outcome::WorkSaved))
}
