//! Hands a change over: as a branch in the project's own repository.

use tamma_core::ids::CommitId;
use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;

use super::{Activities, Told, Work};
use crate::error::Error;

impl Activities {
    pub(super) async fn deliver(&self, work: &Work, commit: CommitId) -> Result<Told, Error> {
        let site = self.site(work).await?;
        let mirror = self.mirror(&site).await?;
        let delivered = delivery::branch_to_source(&mirror, work.task.id, commit).await;
        self.pass("handed over")?;
        match delivered {
            Ok(_) => Ok(Outcome::Delivered(commit).into()),
            Err(why @ (delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. })) => {
                Ok(Outcome::DeliveryRejected(self.store.keep(&why.to_string()).await?).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}
