//! Who did something.

use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A person, authenticated before the event was made.
    Person(Name),
    /// Tamma itself.
    Tamma,
    /// The council.
    Council,
}
