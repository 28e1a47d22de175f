//! `land` activity: commits and pushes unfinished work before a person is asked.

use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;
use tamma_flow::activities::JobResult;

use super::implement::author;
use super::{Activities, JobContext};
use crate::error::Error;

impl Activities {
    pub(super) async fn save_work(&self, work: &JobContext) -> Result<JobResult, Error> {
        let site = self.project_context(work).await?;
        self.processes.take_over(work.run_id(), self.config.timeouts.stop).await?;
        let worktree = self.worktree(work, &site).await?;
        let message =
            format!("{}\n\nUnfinished: waiting for a person's decision.", work.task.title);
        let commit = worktree.commit_all(work.request.job_number, &message, &author()).await?;
        self.fault_point("committed")?;
        let mirror = self.mirror(&site).await?;
        match delivery::push_task_branch(&mirror, work.task.id, commit).await {
            // The work is committed in the mirror. A branch that the project rejects must not delay
            // the question.
            Ok(_) | Err(delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(JobResult::finished(Outcome::WorkSaved))
    }
}
