//! `prepare` activity: pins the newest commit of the base branch and the rules.

use tamma_core::approval::Pin;
use tamma_core::task_loop::Outcome;
use tamma_engine::mirror;
use tamma_flow::activities::JobResult;

use super::{Activities, JobContext};
use crate::error::Error;

impl Activities {
    pub(super) async fn prepare(&self, work: &JobContext) -> Result<JobResult, Error> {
        let project = self.store.project(work.request.pending.project).await?;
        let branch = work.rules.delivery.base.as_deref();
        let base = mirror::newest_commit(&self.git, &project.repository, branch).await?;
        Ok(JobResult::finished(Outcome::Prepared(Pin {
            base,
            policy: work.request.pending.policy,
        })))
    }
}
