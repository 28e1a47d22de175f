//! Disk space: removes workspaces of ended tasks before a run, if the rules set a limit.

use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::task_loop::{Outcome, State};
use tamma_engine::workspaces::{WorkspaceKind, Workspaces};
use tamma_flow::activities::JobResult;

use super::Activities;
use crate::error::Error;
use crate::project_context::ProjectContext;

impl Activities {
    /// Frees disk space for a run. Returns a failure if there is not enough.
    pub(super) async fn free_disk_space(
        &self,
        site: &ProjectContext,
    ) -> Result<Option<JobResult>, Error> {
        let Some(gigabytes) = site.rules.engines.disk_gb else { return Ok(None) };
        let most = u64::from(gigabytes) * 1_000_000_000;
        let workspaces = Workspaces::new(self.git.clone(), &self.config.data_dir);
        let mut taken = workspaces.total_bytes().await;
        if taken <= most {
            return Ok(None);
        }
        let mut listed = workspaces.list().await?;
        listed.sort_by_key(|it| it.changed);
        for it in listed.iter().filter(|it| it.kind != WorkspaceKind::Mirror) {
            let Some(task) = it.task else { continue };
            let Ok(machine) = self.store.task(task).await?.task_loop else { continue };
            if !machine.state.is_terminal() {
                continue;
            }
            match workspaces.remove(it, machine.state == State::Completed).await? {
                None => taken = taken.saturating_sub(it.bytes),
                Some(why) => tracing::warn!(%task, why, "workspace of an ended task kept"),
            }
            if taken <= most {
                return Ok(None);
            }
        }
        let reason = format!(
            "disk limit of this worker reached: workspaces of open tasks, or work that cannot be \
             pushed, use {} MB of {} MB (`engines.disk_gb`); `tamma workspace list` shows them",
            taken / 1_000_000,
            most / 1_000_000
        );
        let reason = reason.parse().map_err(|_| Error::Internal("invalid reason".to_owned()))?;
        let failure = JobFailure { kind: FailureKind::Unavailable, reason };
        Ok(Some(JobResult::finished(Outcome::Failed(failure))))
    }
}
