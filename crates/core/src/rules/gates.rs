//! Gates: the checks that a change has to pass, by name.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoEnumIterator as _};

use super::{Rules, is_default};
use crate::gate::Kind;
use crate::level::Level;

/// How a gate is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct GateRules {
    /// The command line, which `sh -c` runs in the worktree. It passes if it exits with 0.
    #[garde(length(min = 1, max = 10_000))]
    pub command: String,
    /// What it checks.
    #[serde(default = "any_command")]
    #[garde(skip)]
    pub kind: Kind,
    /// Seconds that it may take.
    #[serde(default = "half_an_hour")]
    #[garde(range(min = 1, max = 86_400))]
    pub timeout_seconds: u32,
    /// The form of the report that the command writes to the file that the variable `REPORT` names.
    /// With it, every failure is known by its name; a gate that writes none has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub report: Option<Report>,
    /// Whether it disturbs others, so that none runs beside it. Gates that build run before all others
    /// and are always alone.
    #[serde(default, skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub alone: bool,
    /// Whether it reaches the network, for what installs things. Code of the change runs in gates, so
    /// the others do not.
    #[serde(default, skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub network: bool,
}

/// The form of a report.
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
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Report {
    /// Test results as JUnit's XML.
    Junit,
    /// Findings as SARIF.
    Sarif,
}

fn any_command() -> Kind {
    Kind::Command
}

fn half_an_hour() -> u32 {
    1_800
}

impl Rules {
    /// The gates that run at a level of risk, by name.
    ///
    /// A gate that no level names always runs. One that a level names runs from that level on.
    pub fn gates_at(&self, level: Level) -> impl Iterator<Item = (&str, &GateRules)> {
        let from = |name: &String| {
            Level::iter().find(|level| self.ceremony.get(*level).gates.contains(name))
        };
        self.gates
            .iter()
            .filter(move |(name, _)| from(name).is_none_or(|from| from <= level))
            .map(|(name, gate)| (name.as_str(), gate))
    }
}
