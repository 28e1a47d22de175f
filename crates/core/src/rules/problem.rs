//! Configuration problems and their messages.
//!
//! Each message says what is wrong, where it is and how to fix it. All problems are reported at
//! once, so that a file can be fixed in one go. Values of variables are never repeated, because
//! they can be secret.

use std::fmt;

use serde::Serialize;
use strum::IntoStaticStr;

/// Range of characters on one line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceLocation {
    /// Line number, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Length in characters. 0 for a section, which is pointed at instead of underlined.
    #[serde(skip)]
    pub width: usize,
}

/// Origin of a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum ValueOrigin {
    /// Built-in default.
    #[default]
    Default,
    /// Configuration file.
    File(SourceLocation),
    /// Environment variable.
    Variable {
        /// Name of the variable.
        name: String,
    },
}

/// Configuration problem with its origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct ConfigProblem {
    /// Fault with its details.
    pub fault: ConfigFault,
    /// Origin of the faulty value.
    pub origin: ValueOrigin,
}

impl ConfigProblem {
    /// Returns the location in the file, or `None` if the problem is elsewhere.
    pub fn location(&self) -> Option<SourceLocation> {
        match &self.origin {
            ValueOrigin::File(location) => Some(*location),
            ValueOrigin::Default | ValueOrigin::Variable { .. } => None,
        }
    }

    /// Returns the environment variable that caused the problem, if any.
    pub fn variable(&self) -> Option<&str> {
        match &self.origin {
            ValueOrigin::Variable { name } => Some(name),
            ValueOrigin::Default | ValueOrigin::File(_) => None,
        }
    }
}

/// Kind of a configuration problem, with its details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ConfigFault {
    /// Text is not valid YAML; nothing else can be checked.
    #[error("invalid YAML: {reason}")]
    Syntax {
        /// Message of the parser.
        reason: String,
        /// Likely fix.
        help: Option<String>,
    },
    /// Key occurs twice in one section.
    #[error("duplicate key `{key}`: already set in line {first_line}")]
    DuplicateKey {
        /// Name of the key.
        key: String,
        /// Line of the first occurrence.
        first_line: usize,
    },
    /// Key is not defined in this section.
    #[error("unknown key `{key}` in {section}")]
    UnknownKey {
        /// Name of the key.
        key: String,
        /// Section that contains it.
        section: String,
        /// Valid keys of the section.
        known: Vec<String>,
    },
    /// Required key is missing.
    #[error("`{path}` is missing the key `{key}`")]
    MissingKey {
        /// Path of the section.
        path: String,
        /// Name of the key.
        key: String,
        /// Description of a valid value.
        expected: String,
    },
    /// Value has the wrong type.
    #[error("`{path}` must be {expected}, not {found}")]
    WrongType {
        /// Path of the key.
        path: String,
        /// Description of a valid value.
        expected: String,
        /// Description of the value.
        found: String,
        /// Likely fix.
        help: Option<String>,
    },
    /// Value is too small, too large, too short or too long.
    #[error("`{path}` cannot be {found}")]
    OutOfRange {
        /// Path of the key.
        path: String,
        /// Description of a valid value.
        expected: String,
        /// Description of the value.
        found: String,
    },
    /// Value is not one of the choices.
    #[error("`{path}` cannot be {found}")]
    UnknownChoice {
        /// Path of the key.
        path: String,
        /// Description of the value.
        found: String,
        /// Most similar choice, if one is similar enough.
        suggestion: Option<String>,
        /// All choices.
        choices: Vec<String>,
    },
    /// Reference to a name that another section does not define.
    #[error("`{path}` refers to {found}, which is not defined in `{section}`")]
    UnknownName {
        /// Path of the key.
        path: String,
        /// Section that should define the name.
        section: String,
        /// Description of the name.
        found: String,
        /// Most similar name, if one is similar enough.
        suggestion: Option<String>,
        /// Names that the section defines.
        known: Vec<String>,
    },
    /// File refers to a variable that is not set.
    #[error("environment variable `{name}` is not set")]
    UndefinedVariable {
        /// Name of the variable.
        name: String,
    },
    /// `${` is not followed by a name and `}`.
    #[error("invalid variable reference: `${{` must be followed by a name and `}}`")]
    BrokenVariable,
    /// Environment variable with our prefix that does not exist.
    #[error("unknown environment variable `{name}`")]
    UnknownVariable {
        /// Name of the variable.
        name: String,
        /// Names of all variables.
        known: Vec<String>,
    },
    /// Value fails a check of its own, such as an invalid glob.
    #[error("`{path}` is invalid: {reason}")]
    Refused {
        /// Path of the key.
        path: String,
        /// Reason, with the fix.
        reason: String,
    },
    /// Project asks for more than the operator of this machine allows.
    #[error("`{path}` is not allowed here: {reason}")]
    NotAllowed {
        /// Path of the key.
        path: String,
        /// Limit that it exceeds.
        reason: String,
        /// Way to do without, or the setting with which the operator allows it.
        help: String,
    },
}

impl ConfigFault {
    /// Returns a stable code for programs.
    pub fn code(&self) -> &'static str {
        self.into()
    }

    /// Returns the fix, if there is more to say than the message does.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::DuplicateKey { .. } => "remove one of them".to_owned(),
            Self::UnknownKey { key, known, .. } => suggest(key, known),
            Self::UnknownVariable { name, known } => suggest(name, known),
            Self::MissingKey { key, expected, .. } => format!("add `{key}`: {expected}"),
            Self::Syntax { help, .. } | Self::WrongType { help, .. } => return help.clone(),
            Self::OutOfRange { expected, .. } => format!("use {expected}"),
            Self::UnknownChoice { suggestion: Some(suggestion), choices, .. } => {
                format!("did you mean `{suggestion}`? Use one of {}", quote_list(choices))
            }
            Self::UnknownChoice { choices, .. } => format!("use one of {}", quote_list(choices)),
            Self::UnknownName { suggestion: Some(suggestion), section, .. } => {
                format!("did you mean `{suggestion}`? Otherwise, add it to `{section}`")
            }
            Self::UnknownName { section, known, .. } if known.is_empty() => {
                format!("add it to `{section}`, which is empty")
            }
            Self::UnknownName { section, known, .. } => {
                format!("add it to `{section}`, or use one of {}", quote_list(known))
            }
            Self::UndefinedVariable { name } => {
                format!("set {name}, or add a fallback: `${{{name}:-...}}`")
            }
            Self::BrokenVariable => {
                "write `${NAME}` or `${NAME:-fallback}`; for a literal `${`, write `$${`".to_owned()
            }
            Self::NotAllowed { help, .. } => help.clone(),
            Self::Refused { .. } => return None,
        })
    }
}

/// All problems of a configuration, in file order. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblems(pub(super) Vec<ConfigProblem>);

impl ConfigProblems {
    /// Returns the problems, or `None` if there are none.
    pub fn new(problems: Vec<ConfigProblem>) -> Option<Self> {
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// Iterates over the problems; there is at least one.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigProblem> {
        self.0.iter()
    }

    /// Number of problems.
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            match &problem.origin {
                ValueOrigin::File(at) => {
                    write!(f, "{separator}{}:{}: {problem}", at.line, at.column)?;
                }
                ValueOrigin::Variable { name } => write!(f, "{separator}{name}: {problem}")?,
                ValueOrigin::Default => write!(f, "{separator}{problem}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigProblems {}

/// Returns the known word that is most similar to a misspelt one, if any is similar enough.
pub(super) fn closest_match<'a>(word: &str, known: &'a [String]) -> Option<&'a String> {
    let word = word.to_lowercase().replace('-', "_");
    // Allow a third of the letters to differ: enough for a typo or a swapped pair, too few to
    // confuse two different words.
    let allowed = (word.chars().count() / 3).max(1);
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn suggest(word: &str, known: &[String]) -> String {
    match closest_match(word, known) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("use one of {}", quote_list(known)),
    }
}

/// Formats words in backticks, separated by commas.
pub(super) fn quote_list<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
