//! Maintenance of the installation.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Status of maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MaintenanceStatus {
    /// Maintenance that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<MaintenanceView>,
}

/// Maintenance that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MaintenanceView {
    /// Reason, for people.
    pub reason: String,
    /// Person who started it.
    pub started_by: String,
    /// Start.
    pub started_at: DateTime<Utc>,
}

/// Request to start maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMaintenance {
    /// Reason, shown on every page.
    pub reason: String,
}
