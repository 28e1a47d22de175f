//! `prepare` activity: pins the newest commit of the base branch and the rules.

use tamma_core::approval::Pin;
use tamma_core::task_loop::Outcome;
use tamma_engine::mirror;

use super::{Activities, JobContext, StoredJobResult};
use crate::error::Error;

impl Activities {
    pub(super) async fn prepare(&self, work: &JobContext) -> Result<StoredJobResult, Error> {
        let project = self.store.project(work.job_attempt.request.pending.project).await?;
        let branch = work.rules.delivery.base.as_deref();
        let base = mirror::newest_commit(&self.git, &project.repository, branch).await?;
        Ok(Outcome::Prepared(Pin { base, policy: work.job_attempt.request.pending.policy }).into())
    }
}
