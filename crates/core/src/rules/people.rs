//! Roles of people that a repository proposes, by name.
//!
//! The file grants nothing by itself. An operator imports it: when the repository is registered, or
//! with `tamma access import`.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::PersonRole;

/// Roles of people, imported when an operator registers the repository or runs `tamma access
/// import`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct PeopleRules {
    /// Role of everyone who has a token and is not listed in `named`.
    #[garde(skip)]
    pub everybody: Option<PersonRole>,
    /// Roles by name.
    #[garde(skip)]
    pub named: BTreeMap<String, PersonRole>,
}
