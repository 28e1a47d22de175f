//! `deliver` activity: pushes a change as a branch to the project's repository.

use tamma_core::ids::CommitId;
use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;
use tamma_flow::activities::JobResult;

use super::{Activities, JobContext};
use crate::error::Error;

impl Activities {
    pub(super) async fn deliver(
        &self,
        work: &JobContext,
        commit: CommitId,
    ) -> Result<JobResult, Error> {
        let site = self.project_context(work).await?;
        let mirror = self.mirror(&site).await?;
        let delivered = delivery::push_task_branch(&mirror, work.task.id, commit).await;
        self.fault_point("handed over")?;
        match delivered {
            Ok(_) => Ok(JobResult::finished(Outcome::Delivered(commit))),
            Err(why @ (delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. })) => {
                Ok(JobResult::finished(Outcome::DeliveryRejected(
                    self.store.save_text(&why.to_string()).await?,
                )))
            }
            Err(error) => Err(error.into()),
        }
    }
}
