//! Lands what there is: committed and handed over, so that nothing is lost while a person thinks.

use tamma_core::task_loop::Outcome;
use tamma_engine::delivery;

use super::implement::author;
use super::{Activities, Told, Work};
use crate::error::Error;

impl Activities {
    pub(super) async fn land(&self, work: &Work) -> Result<Told, Error> {
        let site = self.site(work).await?;
        self.records.take_over(work.run(), self.config.patience.stop).await?;
        let worktree = self.worktree(work, &site).await?;
        let message = format!("{}\n\nUnfinished: a person decides what follows.", work.task.title);
        let commit = worktree.commit_all(work.call.errand.ticket, &message, &author()).await?;
        self.pass("committed")?;
        let mirror = self.mirror(&site).await?;
        match delivery::branch_to_source(&mirror, work.task.id, commit).await {
            // The work is committed in our own copy; that the project does not take the branch is
            // for the person to see, and no reason to keep them waiting.
            Ok(_) | Err(delivery::Error::Conflict { .. } | delivery::Error::Rejected { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Outcome::Landed.into())
    }
}
