//! Maintenance of the installation, as this worker knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tamma_core::task_loop::Job;

/// Delay after which a job is requested again that would start an agent during maintenance. Short enough
/// that the workflow does not double it.
pub(crate) const RETRY_SECONDS: u32 = 30;

/// Switch that is on during maintenance. The worker sets it with each heartbeat. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MaintenanceSwitch(Arc<AtomicBool>);

impl MaintenanceSwitch {
    /// Sets it, and logs changes.
    pub(crate) fn set(&self, is_on: bool) {
        if self.0.swap(is_on, Ordering::Relaxed) != is_on {
            let state = if is_on { "on" } else { "off" };
            tracing::info!(state, "maintenance changed");
        }
    }

    /// Returns `true` if no agent may start.
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns `true` if a job has to wait for the end of maintenance.
    pub(crate) fn defers(&self, job: &Job) -> bool {
        self.is_on() && starts_agent(job)
    }
}

/// Returns `true` for a job that starts an agent. Others finish what agents have begun.
fn starts_agent(job: &Job) -> bool {
    match job {
        Job::Plan { .. } | Job::Implement(_) | Job::Review { .. } | Job::Convene { .. } => true,
        Job::Learn { use_model, .. } => *use_model,
        Job::Admit
        | Job::Prepare
        | Job::Check { .. }
        | Job::Test { .. }
        | Job::Brief { .. }
        | Job::AwaitDelivery
        | Job::Deliver { .. }
        | Job::PullRequest(_)
        | Job::SaveWork => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintenance_defers_only_jobs_that_start_agents() {
        let switch = MaintenanceSwitch::default();
        let plan = Job::Plan { version: 1, from: None, note: None };
        assert!(!switch.defers(&plan));
        switch.clone().set(true);
        assert!(switch.defers(&plan) && switch.is_on());
        assert!(!switch.defers(&Job::Admit) && !switch.defers(&Job::SaveWork));
        switch.set(false);
        assert!(!switch.defers(&plan));
    }
}
