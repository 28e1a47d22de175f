//! Review settings besides the gates: tests, guarded files, patterns, validator and council.

use std::collections::BTreeMap;
use std::fmt;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use super::{is_default, is_glob};
use crate::issue::{IssueCategory, IssueSeverity};
use crate::tier::Tier;

/// Checks of a review besides the gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct ReviewRules {
    /// Globs of test files, from the root. If a change edits or removes an existing test file, its
    /// old version must still pass, except for tests that the plan lists under `test_changes`.
    #[garde(inner(custom(is_glob)))]
    pub tests: Vec<String>,
    /// Globs of files that control the gates, from the root. A change to one that the plan does not
    /// name fails the review, and so does a change to a file that a gate's command names, or to a
    /// file that instructs agents, such as `AGENTS.md` or `.claude/**`.
    #[garde(inner(custom(is_glob)))]
    pub guarded: Vec<String>,
    /// Search added lines for secrets in well-known formats.
    #[garde(skip)]
    pub secrets: bool,
    /// Patterns that added lines must not match, by name.
    #[garde(dive)]
    pub patterns: BTreeMap<String, PatternRule>,
}

impl ReviewRules {
    /// Returns true if `path` matches one of the `tests` globs.
    pub fn holds_tests(&self, path: &str) -> bool {
        // Globs were validated when the rules were loaded.
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

/// Pattern that added lines must not match: a regular expression, or an ast-grep rule for a
/// language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct PatternRule {
    /// Regular expression, matched against each added line. Set either `regex` or `code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 10_000), custom(is_regex)))]
    pub regex: Option<String>,
    /// ast-grep rule: a pattern such as `eval($CODE)`, or YAML as in its `rule` key. Needs
    /// `language`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 10_000)))]
    pub code: Option<String>,
    /// Language of `code`, such as `rust`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 100)))]
    pub language: Option<String>,
    /// Globs of the files to check, from the root. Empty: all files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[garde(inner(custom(is_glob)))]
    pub paths: Vec<String>,
    /// Explanation for the author of the change.
    #[garde(length(min = 1, max = 1_000))]
    pub message: String,
    /// Severity of a match. `error` and above fail the review.
    #[serde(default = "default_severity")]
    #[garde(skip)]
    pub severity: IssueSeverity,
    /// Category of a match.
    #[serde(default = "default_category")]
    #[garde(skip)]
    pub category: IssueCategory,
}

/// Languages that `code` can be in.
const LANGUAGES: [&str; 7] = ["go", "java", "javascript", "python", "rust", "tsx", "typescript"];

impl PatternRule {
    /// Returns the key and reason if the keys of the pattern do not fit together.
    pub(super) fn validation_error(&self) -> Option<(Option<&'static str>, String)> {
        let languages = || LANGUAGES.join("`, `");
        match (&self.regex, &self.code, &self.language) {
            (Some(_), Some(_), _) => {
                Some((None, "both `regex` and `code` are set: remove one of them".to_owned()))
            }
            (None, None, _) => {
                Some((None, "neither `regex` nor `code` is set: add one of them".to_owned()))
            }
            (None, Some(_), None) => {
                Some((None, format!("`code` needs a `language`: one of `{}`", languages())))
            }
            (_, _, Some(language)) if !LANGUAGES.contains(&language.as_str()) => {
                Some((Some("language"), format!("must be one of `{}`", languages())))
            }
            _ => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_regex(text: &str, (): &()) -> garde::Result {
    regex::Regex::new(text).map(drop).map_err(|error| {
        // The last line of the error has the reason; the lines before it draw the position.
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        garde::Error::new(format!("not a valid regular expression: {reason}"))
    })
}

fn default_severity() -> IssueSeverity {
    IssueSeverity::Error
}

fn default_category() -> IssueCategory {
    IssueCategory::Code
}

/// Required independence of a validator from the implementing agent.
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
pub enum ValidatorIndependence {
    /// Not required; both can be the same.
    #[default]
    Never,
    /// Different model, if a tier has one.
    Model,
    /// Different provider, if a tier has one.
    Provider,
}

/// Council that analyses a stuck task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct CouncilRules {
    /// Members. Each analyses the task independently.
    #[garde(length(min = 1, max = 5), dive)]
    pub members: Vec<AgentSelection>,
    /// Member that reads all analyses and writes the root cause, the fix and the dissent.
    #[garde(dive)]
    pub chair: AgentSelection,
    /// Lets the council review a plan that comes with a task, before the planner completes it. The
    /// review counts as one of the councils of the task.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub reviews_submitted_plans: bool,
}

impl Default for CouncilRules {
    fn default() -> Self {
        let member = |tier| AgentSelection { tier, agent: None, model: None };
        Self {
            members: vec![member(Tier::Moderate), member(Tier::TOP)],
            chair: member(Tier::TOP),
            reviews_submitted_plans: false,
        }
    }
}

/// Agent of a run: a tier, optionally with a different agent or model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct AgentSelection {
    /// Tier. The cost of one of its runs is reserved.
    #[garde(skip)]
    pub tier: Tier,
    /// Agent to use instead of the tier's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 100)))]
    pub agent: Option<String>,
    /// Model to use instead of the tier's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[garde(inner(length(min = 1, max = 200)))]
    pub model: Option<String>,
}

impl fmt::Display for AgentSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} tier", self.tier)?;
        if let Some(agent) = &self.agent {
            write!(f, ", {agent}")?;
        }
        self.model.as_ref().map_or(Ok(()), |model| write!(f, ", {model}"))
    }
}
