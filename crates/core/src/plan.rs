//! A plan: what is to be done, file by file, before anything is done.
//!
//! A plan is identified by the hash of its content. People approve that hash, and the machine runs
//! that hash and nothing else. The machine itself carries only the plan's [`Outline`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use crate::complexity::{self, Complexity, Signals};
use crate::cost::Usd;
use crate::ids::{PlanHash, Reference};
use crate::rules::{Rules, critical_files};

/// What is to be done, as the planner hands it in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What will be different, in a sentence or two.
    pub summary: String,
    /// How it will be done, and why that way.
    pub approach: String,
    /// Every file that will be touched.
    pub file_changes: Vec<FileChange>,
    /// How it will be shown to work.
    pub testing_strategy: String,
    /// What makes it hard.
    #[serde(default)]
    pub signals: Signals,
    /// Tokens the implementation is expected to use.
    #[serde(default)]
    pub estimated_tokens: Option<u64>,
    /// Dollars the implementation is expected to cost.
    #[serde(default)]
    pub estimated_cost_usd: Option<Usd>,
    /// What could go wrong.
    #[serde(default)]
    pub risks: Vec<String>,
    /// What it needs that is not there yet.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// Tests that are there and will be removed, skipped or expect something else, by the names that
    /// the tests' reports give them, or files of tests. All others must go on passing as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_changes: Vec<String>,
}

/// One file of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// Where it is, from the root of the repository, with forward slashes.
    pub path: String,
    /// What happens to it.
    pub action: Action,
    /// What will be different in it.
    pub description: String,
    /// How many lines that is, roughly.
    #[serde(default)]
    pub estimated_lines: u32,
}

/// What happens to a file.
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
pub enum Action {
    /// It is new.
    Create,
    /// It is there and changes.
    Modify,
    /// It goes.
    Delete,
}

/// Something that makes a plan unfit to be shown to anybody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A part that every plan has is empty.
    #[error("`{0}` is empty")]
    Empty(&'static str),
    /// A plan with no file changes.
    #[error("`file_changes` names no file: say which files will change")]
    NoFiles,
    /// A path that leaves the repository or is not a path in it.
    #[error(
        "`{0}` is not a path inside the repository: write it from the root, with `/`, without `..`"
    )]
    Path(String),
    /// A path that is there twice.
    #[error("`{0}` is there twice: describe each file once")]
    Twice(String),
}

impl Plan {
    /// The hash of the content.
    ///
    /// The fields are serialised in the order they are declared in, so the same content always has
    /// the same hash, on every machine. A field that is added later must not be written while it is
    /// empty, or every plan of the past would get another hash.
    pub fn hash(&self) -> PlanHash {
        // Serialising a plan cannot fail: it has no maps with odd keys and writes to memory. Should
        // it ever, the hash of nothing matches no approval, which is the safe side.
        PlanHash::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Everything that is wrong with the plan, so that the planner can mend it all at once.
    pub fn flaws(&self) -> Vec<Flaw> {
        let mut flaws = Vec::new();
        for (name, text) in [
            ("summary", &self.summary),
            ("approach", &self.approach),
            ("testing_strategy", &self.testing_strategy),
        ] {
            if text.trim().is_empty() {
                flaws.push(Flaw::Empty(name));
            }
        }
        if self.file_changes.is_empty() {
            flaws.push(Flaw::NoFiles);
        }
        for (index, change) in self.file_changes.iter().enumerate() {
            if !is_inside(&change.path) {
                flaws.push(Flaw::Path(change.path.clone()));
            } else if self.file_changes[..index].iter().any(|other| other.path == change.path) {
                flaws.push(Flaw::Twice(change.path.clone()));
            }
        }
        flaws
    }

    /// How hard it is, factor by factor. The files are counted, not believed.
    pub fn complexity(&self) -> Complexity {
        let files = u16::try_from(self.file_changes.len()).unwrap_or(u16::MAX);
        complexity::assess(&Signals { files, ..self.signals })
    }

    /// What the machine carries of the plan.
    pub fn outline(&self, version: u32, kept_at: Reference, rules: &Rules) -> Outline {
        let paths = self.file_changes.iter().map(|change| change.path.as_str());
        Outline {
            hash: self.hash(),
            version,
            kept_at,
            files: u16::try_from(self.file_changes.len()).unwrap_or(u16::MAX),
            critical_files: critical_files(paths, rules),
            complexity: self.complexity().score,
            estimated_cost: self.estimated_cost_usd,
        }
    }
}

fn is_inside(path: &str) -> bool {
    !path.trim().is_empty()
        && !path.contains('\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// What the machine knows of a plan: enough to judge its risk, and where to find the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// The hash of the content.
    pub hash: PlanHash,
    /// 1 for the first, one more with every change.
    pub version: u32,
    /// Where the content is kept.
    pub kept_at: Reference,
    /// How many files it touches.
    pub files: u16,
    /// How many of those the configuration calls critical.
    pub critical_files: u16,
    /// Its score, 0 to 14.
    pub complexity: u8,
    /// What the planner thinks it will cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cost: Option<Usd>,
}
