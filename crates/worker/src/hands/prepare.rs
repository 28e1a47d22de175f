//! Pins what a task works from: the newest commit of its base branch, and the rules.

use tamma_core::approval::Pin;
use tamma_core::task_loop::Outcome;
use tamma_engine::mirror;

use super::{Activities, Told, Work};
use crate::error::Error;

impl Activities {
    pub(super) async fn prepare(&self, work: &Work) -> Result<Told, Error> {
        let project = self.store.project(work.call.errand.diary.project).await?;
        let branch = work.rules.delivery.base.as_deref();
        let base = mirror::newest(&self.git, &project.repository, branch).await?;
        Ok(Outcome::Prepared(Pin { base, policy: work.call.errand.diary.policy }).into())
    }
}
