//! Typed identifiers, content hashes and short references.
//!
//! All of them are small and cheap to copy, because task states consist of them. A task state
//! refers to plans, reports and transcripts and never contains them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::format::is_hidden_character;

/// Error of parsing an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Hash or commit that is not hexadecimal, or has the wrong number of digits.
    #[error("`{text}` is not {expected} hexadecimal digits")]
    NotHex {
        /// Input, truncated.
        text: String,
        /// Expected number of digits.
        expected: &'static str,
    },
    /// Name or reference that is empty or too long.
    #[error("expected 1 to {max} characters, got {found}")]
    Length {
        /// Maximum number of characters.
        max: usize,
        /// Number of characters found.
        found: usize,
    },
}

/// Number of digits in a short ID.
const SHORT_ID_LENGTH: usize = 8;

/// Returns the last digits of an ID. The first digits encode the time, so they are less distinct.
pub fn short_id(id: Uuid) -> String {
    let digits = id.simple().to_string();
    digits[digits.len() - SHORT_ID_LENGTH..].to_owned()
}

/// Start of a reference to a version of the task's own plan.
const PLAN_PREFIX: &str = "plan:";

/// Names that no account can have, in any case.
const RESERVED_NAMES: [&str; 1] = ["everybody"];

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id! {
    /// ID of a task.
    TaskId
}
uuid_id! {
    /// ID of a registered repository.
    ProjectId
}
uuid_id! {
    /// ID of an organisation, which owns projects.
    OrganisationId
}
uuid_id! {
    /// ID of a story's pipeline. It is unique among task IDs too, because runs of agents are stored
    /// under either.
    PipelineId
}

impl OrganisationId {
    /// Organisation of all projects that nobody has given to another one.
    pub const DEFAULT: Self = Self(Uuid::from_u128(1));
}

impl TaskId {
    /// Returns the ID of a task that starts at a time, from random bits.
    pub fn from_parts(at: crate::time::Timestamp, random: u128) -> Self {
        let millis = u64::try_from(at.timestamp_millis()).unwrap_or_default();
        let random = random.to_be_bytes();
        let bytes: [u8; 10] = std::array::from_fn(|index| random[index]);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }
}

impl PipelineId {
    /// Returns the task ID under which the pipeline's agents run.
    pub fn as_task(self) -> TaskId {
        TaskId(self.0)
    }
}
uuid_id! {
    /// ID of a knowledge entry.
    KnowledgeId
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(out)
}

fn truncate(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Serialises a type through its `Display` and `FromStr`, so that JSON shows the same text as the
/// UI.
macro_rules! as_text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name([u8; 32]);

        impl $name {
            /// Returns the SHA-256 of some bytes.
            pub fn of(bytes: &[u8]) -> Self {
                Self(Sha256::digest(bytes).into())
            }

            /// Returns the first 12 digits, for display.
            pub fn short(&self) -> String {
                self.to_string().chars().take(12).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.short())
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                parse_hex(text)
                    .map(Self)
                    .ok_or_else(|| Error::NotHex { text: truncate(text), expected: "64" })
            }
        }

        as_text!($name);
    };
}

hash_id! {
    /// Hash of a plan's content. Plans with the same hash have the same content.
    PlanHash
}
hash_id! {
    /// Hash of the rules that a task is pinned to.
    PolicyVersion
}
hash_id! {
    /// Hash of other content that is only compared, such as a diff or a set of failing tests.
    Digest
}

/// Commit of the project's repository, by its SHA-1 or SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CommitId {
    /// 40 digits, as in nearly every repository.
    Sha1([u8; 20]),
    /// 64 digits, in git's SHA-256 object format.
    Sha256([u8; 32]),
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha1(bytes) => write_hex(f, bytes),
            Self::Sha256(bytes) => write_hex(f, bytes),
        }
    }
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitId({self})")
    }
}

impl FromStr for CommitId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        parse_hex(text)
            .map(Self::Sha1)
            .or_else(|| parse_hex(text).map(Self::Sha256))
            .ok_or_else(|| Error::NotHex { text: truncate(text), expected: "40 or 64" })
    }
}

as_text!(CommitId);

macro_rules! short_text {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Maximum number of characters.
            pub const MAX: usize = $max;

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                let found = text.chars().count();
                if (1..=Self::MAX).contains(&found) {
                    Ok(Self(text.into()))
                } else {
                    Err(Error::Length { max: Self::MAX, found })
                }
            }
        }

        as_text!($name);
    };
}

short_text! {
    /// Name of a person, an agent or a provider.
    Name, 100
}

impl Name {
    /// Parses the name of a new account: one that does not look like another name, and means no group
    /// of people. Stored names can be older than this rule.
    pub fn parse_account(text: &str) -> Option<Self> {
        let text = text.trim();
        // Variation selectors change no letter, and pages show several spaces as one.
        let is_confusing = |letter: char| {
            is_hidden_character(letter)
                || matches!(letter, '\u{2800}' | '\u{fe00}'..='\u{fe0f}')
                || (letter.is_whitespace() && letter != ' ')
        };
        let is_reserved = RESERVED_NAMES.iter().any(|name| text.eq_ignore_ascii_case(name));
        if is_reserved || text.contains(is_confusing) || text.contains("  ") {
            return None;
        }
        text.parse().ok()
    }
}

short_text! {
    /// Reference to stored content, such as a report, a failure brief or a transcript. Readers
    /// fetch the content when they need it.
    Reference, 200
}
impl Reference {
    /// Returns a reference to a version of the task's own plan.
    pub fn of_plan(version: u32) -> Self {
        Self(format!("{PLAN_PREFIX}{version}").into())
    }

    /// Returns the version of the task's own plan that it refers to, if it does.
    pub fn plan_version(&self) -> Option<u32> {
        self.as_str().strip_prefix(PLAN_PREFIX)?.parse().ok()
    }
}

short_text! {
    /// Reason in a person's own words. Longer texts are stored and referred to.
    Reason, 1000
}
