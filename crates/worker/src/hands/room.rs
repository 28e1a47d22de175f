//! Room on the disk: what ended tasks have left is removed before a run, where the rules limit it.

use tamma_core::failure::{Failure, FailureKind};
use tamma_core::task_loop::{Outcome, State};
use tamma_engine::workspaces::{Kind, Workspaces};

use super::{Activities, Told};
use crate::error::Error;
use crate::site::Site;

impl Activities {
    /// Sees to it that a run has room. Returns the answer for one that has not.
    pub(super) async fn room(&self, site: &Site) -> Result<Option<Told>, Error> {
        let Some(gigabytes) = site.rules.engines.disk_gb else { return Ok(None) };
        let most = u64::from(gigabytes) * 1_000_000_000;
        let workspaces = Workspaces::new(self.git.clone(), &self.config.data);
        let mut taken = workspaces.bytes().await;
        if taken <= most {
            return Ok(None);
        }
        let mut listed = workspaces.list().await?;
        listed.sort_by_key(|it| it.changed);
        for it in listed.iter().filter(|it| it.kind != Kind::Mirror) {
            let Some(task) = it.task else { continue };
            let Ok(machine) = self.store.task(task).await?.machine else { continue };
            if !machine.state.is_terminal() {
                continue;
            }
            match workspaces.remove(it, machine.state == State::Completed).await? {
                None => taken = taken.saturating_sub(it.bytes),
                Some(why) => tracing::warn!(%task, why, "what an ended task has left stays"),
            }
            if taken <= most {
                return Ok(None);
            }
        }
        let reason = format!(
            "the disk of this worker is full: {} MB of {} MB (`engines.disk_gb`) are taken by what \
             tasks need that have not ended, or by what cannot be pushed; `tamma workspace list` \
             shows it",
            taken / 1_000_000,
            most / 1_000_000
        );
        let reason = reason.parse().map_err(|_| Error::Odd("a reason".to_owned()))?;
        let failure = Failure { kind: FailureKind::Unavailable, reason };
        Ok(Some(Outcome::Failed(failure).into()))
    }
}
