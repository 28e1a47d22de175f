//! The file as a tree in which every key and value knows its place.
//!
//! The parser is `serde-saphyr`'s. It is asked for the most general thing there is, because a
//! typed reading ends at the first mistake and we want to name them all. The only mistakes that
//! end the reading here are those after which no tree is left.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, Spanned, UserMessageFormatter};

use super::problem::{Fault, Origin, Place, Problem};

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// A value as YAML has it.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Pairs in the order of the file. A key may stand here more than once.
    Map(Vec<(Key, Node)>),
}

/// A key and its place.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) name: String,
}

/// Reads a file.
pub(super) fn read(text: &str) -> Result<Node, Box<Problem>> {
    let options = serde_saphyr::options! {
        // `yes` and `no` are words: YAML 1.2 knows only `true` and `false`.
        strict_booleans: true,
        // Keys given twice are reported with the other problems, so they have to come through.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| {
        let place = error.location().map(place);
        let line = place.and_then(|at| text.lines().nth(at.line - 1)).unwrap_or_default();
        // Braces mean something of their own inside of others.
        let help = (line.contains("${") && line.contains(['[', ','])).then(|| {
            "inside of `[...]` or `{...}` a variable has to be in quotes: `\"${NAME}\"`".to_owned()
        });
        Box::new(Problem {
            origin: place.map_or(Origin::Default, Origin::File),
            fault: Fault::Syntax { reason: reason(&error), help },
        })
    })
}

fn reason(error: &Error) -> String {
    if let Error::MultipleDocuments { .. } = error {
        return "a second document begins here, and the file may have only one".to_owned();
    }
    let text = error.render_with_formatter(&UserMessageFormatter);
    // The place is told beside the message.
    text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]).trim().to_owned()
}

fn place(at: Location) -> Place {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Place {
        line: number(at.line()).max(1),
        column: number(at.column()).max(1),
        width: number(at.span().len()),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { place: place(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        let name = match node.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(value) => value,
            Value::List(_) | Value::Map(_) => {
                return Err(D::Error::custom("a key must be a word, not a list or a section"));
            }
        };
        Ok(Self { place: node.place, name })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Anything;
        impl<'de> Visitor<'de> for Anything {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
                Value::deserialize(inner)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Integer(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Integer(value.into()))
            }
            fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
                Ok(Value::Integer(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
                let mut map = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    map.push(pair);
                }
                Ok(Value::Map(map))
            }
        }
        deserializer.deserialize_any(Anything)
    }
}
