//! Gates: commands that check a change, by name.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoEnumIterator as _};

use super::{Rules, is_default, is_glob};
use crate::gate::GateKind;
use crate::level::RiskLevel;

/// Command that checks a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct GateRules {
    /// Command line, run by `sh -c` in the worktree. Exit code 0 passes.
    #[garde(length(min = 1, max = 10_000))]
    pub command: String,
    /// Type of check.
    #[serde(default = "default_gate_kind")]
    #[garde(skip)]
    pub kind: GateKind,
    /// Time limit, in seconds.
    #[serde(default = "default_gate_timeout")]
    #[garde(range(min = 1, max = 86_400))]
    pub timeout_seconds: u32,
    /// Format of the report that the command writes to the file in `$REPORT`. With a report,
    /// failures are compared one by one; a missing report fails the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub report: Option<ReportFormat>,
    /// Run no other gate at the same time. Build gates run first and always alone.
    #[serde(default, skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub alone: bool,
    /// Allow network access, for example to install dependencies. Gates run code of the change,
    /// so the default is no network.
    #[serde(default, skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub network: bool,
    /// Globs of files, from the root. The gate runs only if the change touches one of them.
    /// Empty: it runs for every change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[garde(inner(custom(is_glob)))]
    pub paths: Vec<String>,
}

impl GateRules {
    /// Returns true if the gate runs for a change that touches these files.
    pub fn applies_to<'a>(&self, touched: impl IntoIterator<Item = &'a str>) -> bool {
        // Globs were validated when the rules were loaded.
        let globs = self.paths.iter().filter_map(|glob| globset::Glob::new(glob).ok());
        let globs: Vec<_> = globs.map(|glob| glob.compile_matcher()).collect();
        self.paths.is_empty()
            || touched.into_iter().any(|path| globs.iter().any(|glob| glob.is_match(path)))
    }
}

/// Format of a gate's report.
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
pub enum ReportFormat {
    /// Test results as JUnit XML.
    Junit,
    /// Findings as SARIF.
    Sarif,
}

fn default_gate_kind() -> GateKind {
    GateKind::Command
}

fn default_gate_timeout() -> u32 {
    1_800
}

impl Rules {
    /// Returns the gates that run at a risk level, by name.
    ///
    /// A gate that no level names always runs. A gate that a level names runs at that level and
    /// above.
    pub fn gates_at(&self, level: RiskLevel) -> impl Iterator<Item = (&str, &GateRules)> {
        let from = |name: &String| {
            RiskLevel::iter().find(|level| self.ceremony.get(*level).gates.contains(name))
        };
        self.gates
            .iter()
            .filter(move |(name, _)| from(name).is_none_or(|from| from <= level))
            .map(|(name, gate)| (name.as_str(), gate))
    }
}
