//! People: what each of them may do, by name.
//!
//! Whose name it is, is found out before: by a token that is theirs alone, or because whoever runs the
//! server says so. What is here is only what a name may do.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::Name;

/// What people may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct People {
    /// What those may do who are not named.
    #[garde(skip)]
    pub everybody: Standing,
    /// What those may do who are, by name.
    #[garde(skip)]
    pub named: BTreeMap<String, Standing>,
}

impl Default for People {
    fn default() -> Self {
        Self { everybody: Standing::Approver, named: BTreeMap::new() }
    }
}

/// What somebody may do. Each may do what those before it may.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Standing {
    /// Look.
    Viewer,
    /// Add tasks, steer them, and answer what agents ask.
    Member,
    /// Decide: about plans, changes, prohibitions, budgets and knowledge.
    Approver,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
#[strum(serialize_all = "snake_case")]
pub enum Right {
    /// To add and steer tasks.
    Work,
    /// To decide.
    Decide,
}

impl Right {
    /// The standing that it takes.
    pub fn takes(self) -> Standing {
        match self {
            Self::Work => Standing::Member,
            Self::Decide => Standing::Approver,
        }
    }
}

impl People {
    /// What somebody may do.
    pub fn standing(&self, name: &Name) -> Standing {
        self.named.get(name.as_str()).copied().unwrap_or(self.everybody)
    }

    /// Whether somebody may do something.
    pub fn may(&self, name: &Name, right: Right) -> bool {
        self.standing(name) >= right.takes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_named_may_what_everybody_may() {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let named = BTreeMap::from([("Ada".to_owned(), Standing::Approver)]);
        let people = People { everybody: Standing::Viewer, named };
        assert!(people.may(&name("Ada"), Right::Decide));
        assert!(!people.may(&name("Mallory"), Right::Work));
        assert!(People::default().may(&name("Mallory"), Right::Decide));
    }
}
