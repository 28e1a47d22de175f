//! Maintenance: no runs start until it ends.
//!
//! Workers notice it with their next heartbeat. Tasks stay where they are, and continue by themselves.

use super::{App, Error, Principal};
use crate::audit;
use crate::clock;
use crate::dto::{MaintenanceStatus, MaintenanceView, NewMaintenance};

/// Longest reason, in characters.
const MAX_REASON: usize = 500;

impl App {
    /// Returns the maintenance that is under way.
    pub(crate) async fn maintenance(&self) -> Result<MaintenanceStatus, Error> {
        let maintenance = self.store.maintenance().await?.map(|it| MaintenanceView {
            reason: it.reason,
            started_by: it.started_by,
            started_at: it.started_at,
        });
        Ok(MaintenanceStatus { maintenance })
    }

    /// Starts maintenance, or changes its reason.
    pub(crate) async fn start_maintenance(
        &self,
        by: &Principal,
        new: NewMaintenance,
    ) -> Result<MaintenanceStatus, Error> {
        by.require_operator()?;
        let reason = new.reason.trim();
        let length = reason.chars().count();
        if !(1..=MAX_REASON).contains(&length) || reason.contains(char::is_control) {
            let hint = format!("Use one line of 1 to {MAX_REASON} characters.");
            return Err(Error::invalid("The reason is no line, or too long.", hint));
        }
        audit::note_action("start_maintenance", reason);
        self.store.start_maintenance(reason, &by.name, clock::now()).await?;
        tracing::warn!(by = %by.name, reason, "maintenance started");
        self.maintenance().await
    }

    /// Ends maintenance.
    pub(crate) async fn end_maintenance(&self, by: &Principal) -> Result<MaintenanceStatus, Error> {
        by.require_operator()?;
        audit::note_action("end_maintenance", "installation");
        if self.store.end_maintenance().await? {
            tracing::warn!(by = %by.name, "maintenance ended");
        }
        self.maintenance().await
    }
}
