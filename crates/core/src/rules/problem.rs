//! What can be wrong with a configuration, and how it is said.
//!
//! Somebody reads these at the moment when nothing works. So each says what is wrong, where, and
//! what would be right; and all of them are reported at once, so that a file is mended in one go.
//! What came out of a variable is never repeated: it may be a secret.

use std::fmt;

use serde::Serialize;
use strum::IntoStaticStr;

/// A range of characters on one line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// How many characters it spans. A section has none: it is pointed at, not underlined.
    #[serde(skip)]
    pub width: usize,
}

/// Where a value came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum Origin {
    /// It is built in.
    #[default]
    Default,
    /// It stands in the file.
    File(Place),
    /// It was set in the environment.
    Variable {
        /// The variable's name.
        name: String,
    },
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct Problem {
    /// What is wrong.
    pub fault: Fault,
    /// Where it is.
    pub origin: Origin,
}

impl Problem {
    /// The place in the file, if it is there that something is wrong.
    pub fn place(&self) -> Option<Place> {
        match &self.origin {
            Origin::File(place) => Some(*place),
            Origin::Default | Origin::Variable { .. } => None,
        }
    }

    /// The variable in which something is wrong.
    pub fn variable(&self) -> Option<&str> {
        match &self.origin {
            Origin::Variable { name } => Some(name),
            Origin::Default | Origin::File(_) => None,
        }
    }
}

/// What is wrong, with the facts of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Fault {
    /// The text is not YAML, so nothing else can be told.
    #[error("this is not valid YAML: {reason}")]
    Syntax {
        /// What the parser stumbled over.
        reason: String,
        /// What probably mends it.
        help: Option<String>,
    },
    /// A key stands twice in one section.
    #[error("the key `{key}` is already given in line {first_line}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it stood first.
        first_line: usize,
    },
    /// A key that means nothing here.
    #[error("there is no key `{key}` in {section}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The section it is in.
        section: String,
        /// The keys that section has.
        known: Vec<String>,
    },
    /// A key that has to be there.
    #[error("`{path}` lacks the key `{key}`")]
    MissingKey {
        /// Where it should be.
        path: String,
        /// The key.
        key: String,
        /// What its value should be.
        expected: String,
    },
    /// A value of another kind than the key asks for.
    #[error("`{path}` must be {expected}, not {found}")]
    WrongType {
        /// The key.
        path: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
        /// What to do, where there is more to say than that.
        help: Option<String>,
    },
    /// A value of the right kind that is too small, too large, too short or too long.
    #[error("`{path}` cannot be {found}")]
    OutOfRange {
        /// The key.
        path: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A word that is none of the choices.
    #[error("`{path}` cannot be {found}")]
    UnknownChoice {
        /// The key.
        path: String,
        /// What it is, as shown to people.
        found: String,
        /// The choice that was probably meant.
        meant: Option<String>,
        /// All choices.
        choices: Vec<String>,
    },
    /// A name that another part of the file should have, and has not.
    #[error("`{path}` names {found}, which is not in `{section}`")]
    UnknownName {
        /// The key.
        path: String,
        /// The section that should have it.
        section: String,
        /// The name, as shown to people.
        found: String,
        /// The name that was probably meant.
        meant: Option<String>,
        /// The names there are.
        known: Vec<String>,
    },
    /// A variable that the file names and nobody has set.
    #[error("the variable `{name}` is not set")]
    UndefinedVariable {
        /// Its name.
        name: String,
    },
    /// A `${` that is not followed by a name and `}`.
    #[error("`${{` is not followed by the name of a variable and `}}`")]
    BrokenVariable,
    /// A variable in the environment that looks like one of ours and is not.
    #[error("there is no variable `{name}`")]
    UnknownVariable {
        /// Its name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A value that a rule of its own forbids, such as a glob that is none.
    #[error("`{path}` is refused: {reason}")]
    Refused {
        /// The key.
        path: String,
        /// Why.
        reason: String,
    },
}

impl Fault {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        self.into()
    }

    /// What would be right.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::DuplicateKey { .. } => "keep one of the two".to_owned(),
            Self::UnknownKey { key, known, .. } => suggest(key, known),
            Self::UnknownVariable { name, known } => suggest(name, known),
            Self::MissingKey { key, expected, .. } => format!("add `{key}`: {expected}"),
            Self::Syntax { help, .. } | Self::WrongType { help, .. } => return help.clone(),
            Self::OutOfRange { expected, .. } => format!("write {expected}"),
            Self::UnknownChoice { meant: Some(meant), choices, .. } => {
                format!("did you mean `{meant}`? The choices are {}", quoted(choices))
            }
            Self::UnknownChoice { choices, .. } => format!("the choices are {}", quoted(choices)),
            Self::UnknownName { meant: Some(meant), section, .. } => {
                format!("did you mean `{meant}`? Or add it to `{section}`")
            }
            Self::UnknownName { section, known, .. } if known.is_empty() => {
                format!("add it to `{section}`, which has none yet")
            }
            Self::UnknownName { section, known, .. } => {
                format!("add it to `{section}`, or name one of {}", quoted(known))
            }
            Self::UndefinedVariable { name } => {
                format!("set {name}, or give a fallback: `${{{name}:-...}}`")
            }
            Self::BrokenVariable => {
                "write `${NAME}` or `${NAME:-fallback}`; for a plain `${` write `$${`".to_owned()
            }
            Self::Refused { .. } => return None,
        })
    }
}

/// Everything that is wrong, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub(super) Vec<Problem>);

impl Problems {
    /// All of them; there is at least one.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            match &problem.origin {
                Origin::File(at) => write!(f, "{separator}{}:{}: {problem}", at.line, at.column)?,
                Origin::Variable { name } => write!(f, "{separator}{name}: {problem}")?,
                Origin::Default => write!(f, "{separator}{problem}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The known word that a misspelt one is closest to, if any is close.
pub(super) fn closest<'a>(word: &str, known: &'a [String]) -> Option<&'a String> {
    let word = word.to_lowercase().replace('-', "_");
    // A third of the letters may be wrong: enough for a slip or an inverted pair, too little to
    // turn one word into another.
    let allowed = (word.chars().count() / 3).max(1);
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn suggest(word: &str, known: &[String]) -> String {
    match closest(word, known) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are {}", quoted(known)),
    }
}

/// Words in code quotes, with commas between them.
pub(super) fn quoted<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
