//! `deliver` activity: pushes a change as a branch to the project's repository.

use tamma_core::ids::CommitId;
use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;

use super::{Activities, JobContext, StoredJobResult};
use crate::error::Error;

impl Activities {
    pub(super) async fn deliver(
        &self,
        work: &JobContext,
        commit: CommitId,
    ) -> Result<StoredJobResult, Error> {
        let site = self.project_context(work).await?;
        let mirror = self.mirror(&site).await?;
        let delivered = delivery::push_task_branch(&mirror, work.task.id, commit).await;
        self.fault_point("handed over")?;
        match delivered {
            Ok(_) => Ok(Outcome::Delivered(commit).into()),
            Err(why @ (delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. })) => {
                Ok(Outcome::DeliveryRejected(self.store.save_text(&why.to_string()).await?).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}
