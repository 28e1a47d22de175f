//! What a review looks for beside the gates, and who judges.

use std::collections::BTreeMap;
use std::fmt;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use super::is_glob;
use crate::issue::{Category, Severity};
use crate::tier::Tier;

/// What a review looks for beside the gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct ReviewRules {
    /// Files that hold tests, as globs from the root. Where a change edits or removes one that was
    /// there before, its old version must still pass, but for what the plan names under
    /// `test_changes`.
    #[garde(inner(custom(is_glob)))]
    pub tests: Vec<String>,
    /// Files that decide how gates run, as globs from the root. One that the plan does not name fails
    /// the review, as does one that a gate's command names.
    #[garde(inner(custom(is_glob)))]
    pub guarded: Vec<String>,
    /// Whether added lines are searched for secrets of well-known forms.
    #[garde(skip)]
    pub secrets: bool,
    /// What added lines must not have in them, by name.
    #[garde(dive)]
    pub patterns: BTreeMap<String, PatternRules>,
}

impl ReviewRules {
    /// Whether a file holds tests.
    pub fn holds_tests(&self, path: &str) -> bool {
        // The rules were validated when they were loaded, so every glob is one.
        let globs = self.tests.iter().filter_map(|glob| globset::Glob::new(glob).ok());
        globs.map(|glob| glob.compile_matcher()).any(|glob| glob.is_match(path))
    }
}

impl Default for ReviewRules {
    fn default() -> Self {
        let texts = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
        Self {
            tests: texts(&[
                "**/__tests__/**",
                "**/spec/**",
                "**/test/**",
                "**/tests/**",
                "**/*.{spec,test}.{cjs,cts,js,jsx,mjs,mts,ts,tsx}",
                "**/*_test.{go,py,rs}",
                "**/test_*.py",
            ]),
            guarded: texts(&[
                "**/.config/nextest.toml",
                "**/.eslintrc*",
                "**/.gitleaks.toml",
                "**/.semgrepignore",
                "**/biome.json*",
                "**/clippy.toml",
                "**/conftest.py",
                "**/eslint.config.*",
                "**/jest.config.*",
                "**/mypy.ini",
                "**/package.json",
                "**/pyproject.toml",
                "**/pytest.ini",
                "**/ruff.toml",
                "**/rustfmt.toml",
                "**/setup.cfg",
                "**/tox.ini",
                "**/tsconfig*.json",
                "**/vitest.config.*",
                ".cargo/config.toml",
                "Makefile",
                "justfile",
            ]),
            secrets: true,
            patterns: BTreeMap::new(),
        }
    }
}

/// Something that added lines must not have in them: a regular expression, or a rule of ast-grep for a
/// language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct PatternRules {
    /// A regular expression for a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 10_000), custom(is_regex)))]
    pub regex: Option<String>,
    /// A rule of ast-grep: a pattern such as `eval($CODE)`, or the YAML of its key `rule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 10_000)))]
    pub code: Option<String>,
    /// The language of `code`, such as `rust`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 100)))]
    pub language: Option<String>,
    /// The files it is about, as globs from the root; none are all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[garde(inner(custom(is_glob)))]
    pub paths: Vec<String>,
    /// What is wrong with it, for whoever has written it.
    #[garde(length(min = 1, max = 1_000))]
    pub message: String,
    /// How bad it is. Errors and worse fail the review.
    #[serde(default = "an_error")]
    #[garde(skip)]
    pub severity: Severity,
    /// What it is about.
    #[serde(default = "code")]
    #[garde(skip)]
    pub category: Category,
}

/// The languages that a pattern may be in.
const LANGUAGES: [&str; 7] = ["go", "java", "javascript", "python", "rust", "tsx", "typescript"];

impl PatternRules {
    /// What is wrong with it as a whole: which key, and why.
    pub(super) fn flaw(&self) -> Option<(Option<&'static str>, String)> {
        let known = || LANGUAGES.join("`, `");
        match (&self.regex, &self.code, &self.language) {
            (Some(_), Some(_), _) => {
                Some((None, "it has both `regex` and `code`: keep one of them".to_owned()))
            }
            (None, None, _) => {
                Some((None, "it has neither `regex` nor `code`: add one of them".to_owned()))
            }
            (None, Some(_), None) => {
                Some((None, format!("`code` needs a `language`: one of `{}`", known())))
            }
            (_, _, Some(language)) if !LANGUAGES.contains(&language.as_str()) => {
                Some((Some("language"), format!("this must be one of `{}`", known())))
            }
            _ => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn is_regex(text: &str, (): &()) -> garde::Result {
    regex::Regex::new(text).map(drop).map_err(|error| {
        // The last line says what it is; those before it draw where.
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        garde::Error::new(format!("this is no regular expression: {reason}"))
    })
}

fn an_error() -> Severity {
    Severity::Error
}

fn code() -> Category {
    Category::Code
}

/// How far a validator must be from the one whose work it judges.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
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
pub enum Apart {
    /// It may be the same.
    #[default]
    Never,
    /// Another model, where a tier has one.
    Model,
    /// A model of another provider, where a tier has one.
    Provider,
}

/// Who is asked about a task that is stuck.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Council {
    /// Who studies it, each for themselves.
    #[garde(length(min = 1, max = 5), dive)]
    pub members: Vec<Seat>,
    /// Who reads what they found, and writes the root cause, the fix and the dissent.
    #[garde(dive)]
    pub chair: Seat,
}

impl Default for Council {
    fn default() -> Self {
        let seat = |tier| Seat { tier, agent: None, model: None };
        Self { members: vec![seat(Tier::Moderate), seat(Tier::TOP)], chair: seat(Tier::TOP) }
    }
}

/// Who sits in a council: the agent and the model of a tier, or others in their place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Seat {
    /// The tier. What it costs is reserved as for a run of this tier.
    #[garde(skip)]
    pub tier: Tier,
    /// Another agent than the tier's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 100)))]
    pub agent: Option<String>,
    /// Another model than the tier's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 200)))]
    pub model: Option<String>,
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} tier", self.tier)?;
        if let Some(agent) = &self.agent {
            write!(f, ", {agent}")?;
        }
        self.model.as_ref().map_or(Ok(()), |model| write!(f, ", {model}"))
    }
}
