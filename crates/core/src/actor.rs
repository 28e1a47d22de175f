//! Authors of events.

use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// Author of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Person, authenticated before the event was created.
    Person(Name),
    /// Tamma itself.
    Tamma,
    /// Council of models.
    Council,
}
