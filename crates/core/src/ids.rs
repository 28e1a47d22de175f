//! The names of things: typed identifiers, content hashes and short references.
//!
//! All of them are small and cheap to copy, because the machine's state is made of them: it holds
//! references to plans, reports and transcripts, never their contents.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// What can be wrong with the text of an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A hash or a commit is not hexadecimal, or has the wrong number of digits.
    #[error("`{text}` is not {expected} hexadecimal digits")]
    NotHex {
        /// What was given, cut to a readable length.
        text: String,
        /// How many digits there should be.
        expected: &'static str,
    },
    /// A name or reference is empty or too long.
    #[error("a name has 1 to {max} characters; this one has {found}")]
    Length {
        /// The longest that is taken.
        max: usize,
        /// How many characters were given.
        found: usize,
    },
}

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
    /// A task.
    TaskId
}
uuid_id! {
    /// A registered repository.
    ProjectId
}
uuid_id! {
    /// An entry of the knowledge base.
    KnowledgeId
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn read_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
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

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Serialises through the `Display` and `FromStr` of a type, so that JSON shows what people see.
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
            /// The SHA-256 of some bytes.
            pub fn of(bytes: &[u8]) -> Self {
                Self(Sha256::digest(bytes).into())
            }

            /// The first twelve digits, for people.
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
                read_hex(text)
                    .map(Self)
                    .ok_or_else(|| Error::NotHex { text: shortened(text), expected: "64" })
            }
        }

        as_text!($name);
    };
}

hash_id! {
    /// The hash of a plan's content: two plans with the same hash say the same thing.
    PlanHash
}
hash_id! {
    /// The hash of the rules and policies a task is pinned to.
    PolicyVersion
}
hash_id! {
    /// The hash of anything else that is compared but not read: a diff, a set of failing tests.
    Digest
}

/// A commit of the project's repository, by its SHA-1 or SHA-256 name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CommitId {
    /// Forty digits: nearly every repository.
    Sha1([u8; 20]),
    /// Sixty-four digits: a repository in git's newer object format.
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
        read_hex(text)
            .map(Self::Sha1)
            .or_else(|| read_hex(text).map(Self::Sha256))
            .ok_or_else(|| Error::NotHex { text: shortened(text), expected: "40 or 64" })
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
            /// The longest text that is taken.
            pub const MAX: usize = $max;

            /// The text.
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
    /// The name of a person, an engine or a provider.
    Name, 100
}
short_text! {
    /// Where something big is kept: a report, a brief, a transcript. The machine carries the
    /// reference; whoever needs the content fetches it.
    Reference, 200
}
short_text! {
    /// Why somebody did something, in their own words. Longer texts are kept elsewhere and
    /// referred to.
    Reason, 1000
}
