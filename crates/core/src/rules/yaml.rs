//! YAML file as a tree in which every key and value has its location.
//!
//! Parsed with `serde-saphyr` into the most general form, because typed deserialisation stops at
//! the first error and all of them must be reported. Only errors that leave no tree end the parsing
//! here.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, Spanned, UserMessageFormatter};

use super::problem::{ConfigFault, ConfigProblem, SourceLocation, ValueOrigin};

/// Value with its location.
#[derive(Debug, Clone)]
pub(super) struct YamlNode {
    pub(super) location: SourceLocation,
    pub(super) value: YamlValue,
}

/// YAML value.
#[derive(Debug, Clone)]
pub(super) enum YamlValue {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    /// Pairs in file order. A key can occur more than once.
    Map(Vec<(YamlKey, YamlNode)>),
}

/// Key with its location.
#[derive(Debug, Clone)]
pub(super) struct YamlKey {
    pub(super) location: SourceLocation,
    pub(super) name: String,
}

/// Parses a file.
pub(super) fn parse(text: &str) -> Result<YamlNode, Box<ConfigProblem>> {
    let options = serde_saphyr::options! {
        // In YAML 1.2, only `true` and `false` are booleans; `yes` and `no` are strings.
        strict_booleans: true,
        // Keep duplicate keys here, so that they are reported with the other problems.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<YamlNode>(text, options).map_err(|error| {
        let location = error.location().map(source_location);
        let line = location.and_then(|at| text.lines().nth(at.line - 1)).unwrap_or_default();
        // In flow style, braces have a meaning of their own.
        let help = (line.contains("${") && line.contains(['[', ','])).then(|| {
            "inside `[...]` or `{...}`, put a variable in quotes: `\"${NAME}\"`".to_owned()
        });
        Box::new(ConfigProblem {
            origin: location.map_or(ValueOrigin::Default, ValueOrigin::File),
            fault: ConfigFault::Syntax { reason: error_reason(&error), help },
        })
    })
}

fn error_reason(error: &Error) -> String {
    if let Error::MultipleDocuments { .. } = error {
        return "a second document starts here; the file can have only one".to_owned();
    }
    let text = error.render_with_formatter(&UserMessageFormatter);
    // The location is reported separately.
    text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]).trim().to_owned()
}

fn source_location(at: Location) -> SourceLocation {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    SourceLocation {
        line: number(at.line()).max(1),
        column: number(at.column()).max(1),
        width: number(at.span().len()),
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<YamlValue>::deserialize(deserializer)?;
        Ok(Self { location: source_location(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = YamlNode::deserialize(deserializer)?;
        let name = match node.value {
            YamlValue::Null => "null".to_owned(),
            YamlValue::Bool(value) => value.to_string(),
            YamlValue::Integer(value) => value.to_string(),
            YamlValue::Float(value) => value.to_string(),
            YamlValue::Text(value) => value,
            YamlValue::List(_) | YamlValue::Map(_) => {
                return Err(D::Error::custom("a key must be a string, not a list or a section"));
            }
        };
        Ok(Self { location: node.location, name })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct YamlValueVisitor;
        impl<'de> Visitor<'de> for YamlValueVisitor {
            type Value = YamlValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_unit<E>(self) -> Result<YamlValue, E> {
                Ok(YamlValue::Null)
            }
            fn visit_none<E>(self) -> Result<YamlValue, E> {
                Ok(YamlValue::Null)
            }
            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<YamlValue, D::Error> {
                YamlValue::deserialize(inner)
            }
            fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
                Ok(YamlValue::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
                Ok(YamlValue::Integer(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
                Ok(YamlValue::Integer(value.into()))
            }
            fn visit_i128<E>(self, value: i128) -> Result<YamlValue, E> {
                Ok(YamlValue::Integer(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
                Ok(YamlValue::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
                Ok(YamlValue::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(YamlValue::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<YamlValue, A::Error> {
                let mut map = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    map.push(pair);
                }
                Ok(YamlValue::Map(map))
            }
        }
        deserializer.deserialize_any(YamlValueVisitor)
    }
}
