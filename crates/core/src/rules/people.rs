//! Roles of people, by name.
//!
//! Authentication happens before: by a personal token, or by the server's operator. This module
//! only maps names to roles.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::Name;

/// Roles of people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct PeopleRules {
    /// Role of everyone who is not listed in `named`.
    #[garde(skip)]
    pub everybody: PersonRole,
    /// Roles by name.
    #[garde(skip)]
    pub named: BTreeMap<String, PersonRole>,
}

impl Default for PeopleRules {
    fn default() -> Self {
        Self { everybody: PersonRole::Approver, named: BTreeMap::new() }
    }
}

/// Role of a person. Each role includes the ones before it.
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
pub enum PersonRole {
    /// Read only.
    Viewer,
    /// Add and control tasks, and answer agents' questions.
    Member,
    /// Decide on plans, changes, prohibitions, budgets and knowledge.
    Approver,
}

/// Permission that an action requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Permission {
    /// Add and control tasks.
    Work,
    /// Make decisions.
    Decide,
}

impl Permission {
    /// Returns the lowest role that has this permission.
    pub fn required_role(self) -> PersonRole {
        match self {
            Self::Work => PersonRole::Member,
            Self::Decide => PersonRole::Approver,
        }
    }
}

impl PeopleRules {
    /// Returns the role of a person.
    pub fn role(&self, name: &Name) -> PersonRole {
        self.named.get(name.as_str()).copied().unwrap_or(self.everybody)
    }

    /// Returns true if a person's role includes `right`.
    pub fn has_permission(&self, name: &Name, right: Permission) -> bool {
        self.role(name) >= right.required_role()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_people_have_the_default_role() {
        let name = |text: &str| text.parse::<Name>().expect("valid name");
        let named = BTreeMap::from([("Ada".to_owned(), PersonRole::Approver)]);
        let people = PeopleRules { everybody: PersonRole::Viewer, named };
        assert!(people.has_permission(&name("Ada"), Permission::Decide));
        assert!(!people.has_permission(&name("Mallory"), Permission::Work));
        assert!(PeopleRules::default().has_permission(&name("Mallory"), Permission::Decide));
    }
}
