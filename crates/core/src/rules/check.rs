//! The walk of a file along the schema.
//!
//! It collects every problem and builds what is left of the file without them, so that the rest
//! can still be judged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::fit::{cut, found};
use super::problem::{Fault, Origin, Place, Problem};
use super::shape::{Kind, Shape};
use super::tree::{Key, Node, Value};
use super::variables::fill;

/// What is learned on the way.
pub(super) struct Walk<'a> {
    /// The whole schema.
    pub(super) root: &'a Json,
    pub(super) variables: &'a BTreeMap<String, String>,
    /// What the file is called when it has to be named as a whole.
    pub(super) file: &'a str,
    pub(super) problems: Vec<Problem>,
    /// Where each path was set, lists and sections included.
    pub(super) origins: BTreeMap<String, Origin>,
    /// Values that came out of variables.
    pub(super) hidden: BTreeMap<String, Hidden>,
    /// Variables that the file names.
    pub(super) named: BTreeSet<String>,
}

/// A value that is not shown, and what is shown instead.
pub(super) struct Hidden {
    pub(super) shown: String,
    value: String,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        root: &'a Json,
        variables: &'a BTreeMap<String, String>,
        file: &'a str,
    ) -> Self {
        Self {
            root,
            variables,
            file,
            problems: Vec::new(),
            origins: BTreeMap::new(),
            hidden: BTreeMap::new(),
            named: BTreeSet::new(),
        }
    }

    /// Walks a whole file.
    pub(super) fn file(&mut self, node: &Node) -> Option<Json> {
        let root = self.root;
        self.node(node, &Shape::of(root, root), "")
    }

    /// Notes that a value must not be shown.
    pub(super) fn hide(&mut self, path: String, shown: String, value: &str) {
        self.hidden.insert(path, Hidden { shown, value: value.to_owned() });
    }

    /// Takes what must not be shown out of a message that somebody else wrote.
    pub(super) fn redact(&self, message: &str) -> String {
        let mut hidden: Vec<&Hidden> = self.hidden.values().collect();
        // The longest first, lest a value that is part of another leaves the rest of it standing.
        hidden.sort_by_key(|one| std::cmp::Reverse(one.value.len()));
        hidden
            .iter()
            .filter(|one| !one.value.is_empty())
            .fold(message.to_owned(), |text, one| text.replace(&one.value, &one.shown))
    }

    fn problem(&mut self, place: Place, fault: Fault) {
        self.problems.push(Problem { fault, origin: Origin::File(place) });
    }

    fn node(&mut self, node: &Node, shape: &Shape<'a>, path: &str) -> Option<Json> {
        self.origins.insert(path.to_owned(), Origin::File(node.place));
        match (&shape.kind, &node.value) {
            // A section with everything in it commented out is an empty one.
            (Kind::Table { .. }, Value::Null) => None,
            (Kind::Section { required, .. }, Value::Null) => {
                self.missing(node.place, &[], required, shape, path);
                None
            }
            (Kind::Section { required, .. }, Value::Map(pairs)) => {
                let section = self.section(pairs, shape, path);
                self.missing(node.place, pairs, required, shape, path);
                // Without a key that it needs, the section cannot be judged any further.
                let complete = required.iter().all(|key| section.contains_key(*key));
                complete.then_some(Json::Object(section))
            }
            (Kind::Table { .. }, Value::Map(pairs)) => {
                Some(Json::Object(self.section(pairs, shape, path)))
            }
            (Kind::List { items }, Value::List(list)) => {
                let shape = Shape::of(self.root, items);
                let values: Vec<Option<Json>> = list
                    .iter()
                    .enumerate()
                    .map(|(index, item)| self.node(item, &shape, &format!("{path}[{index}]")))
                    .collect();
                // With one item gone the others would go by wrong numbers.
                values.into_iter().collect::<Option<Vec<Json>>>().map(Json::Array)
            }
            (_, Value::Text(text)) if text.contains("${") => self.text(text, node, shape, path),
            (_, value) => {
                let name = if path.is_empty() { self.file } else { path };
                match shape.fit(value, name, &found(value)) {
                    Ok(value) => Some(value),
                    Err(fault) => {
                        self.problem(node.place, fault);
                        None
                    }
                }
            }
        }
    }

    /// Tells which keys a section lacks.
    fn missing(
        &mut self,
        place: Place,
        pairs: &[(Key, Node)],
        required: &[&str],
        shape: &Shape<'a>,
        path: &str,
    ) {
        for key in required {
            if !pairs.iter().any(|(given, _)| given.name == *key) {
                let expected = shape.key(self.root, key).map(|of| of.expected());
                let fault = Fault::MissingKey {
                    path: path.to_owned(),
                    key: (*key).to_owned(),
                    expected: expected.unwrap_or_default(),
                };
                self.problem(place, fault);
            }
        }
    }

    fn section(
        &mut self,
        pairs: &[(Key, Node)],
        shape: &Shape<'a>,
        path: &str,
    ) -> Map<String, Json> {
        let mut first: BTreeMap<&str, Place> = BTreeMap::new();
        let mut section = Map::new();
        for (key, node) in pairs {
            if let Some(place) = first.get(key.name.as_str()) {
                let fault = Fault::DuplicateKey { key: cut(&key.name), first_line: place.line };
                self.problem(key.place, fault);
                continue;
            }
            first.insert(&key.name, key.place);
            match shape.key(self.root, &key.name) {
                Some(shape) => {
                    let path = join(path, &key.name);
                    section.extend(
                        self.node(node, &shape, &path).map(|value| (key.name.clone(), value)),
                    );
                }
                None => self.problem(
                    key.place,
                    Fault::UnknownKey {
                        key: cut(&key.name),
                        section: format!("`{}`", if path.is_empty() { self.file } else { path }),
                        known: match &shape.kind {
                            Kind::Section { keys, .. } => keys.keys().cloned().collect(),
                            _ => Vec::new(),
                        },
                    },
                ),
            }
        }
        section
    }

    /// A text that names variables.
    fn text(&mut self, text: &str, node: &Node, shape: &Shape<'a>, path: &str) -> Option<Json> {
        let named = &mut self.named;
        let filled = fill(text, self.variables, |name| {
            named.insert(name.to_owned());
        });
        let faults = match filled {
            Ok(filled) => {
                self.hide(path.to_owned(), text.to_owned(), &filled);
                match shape.fit_text(&filled, path, &format!("what `{}` holds", cut(text))) {
                    Ok(value) => return Some(value),
                    Err(fault) => vec![fault],
                }
            }
            Err(faults) => faults,
        };
        for fault in faults {
            self.problem(node.place, fault);
        }
        None
    }
}

/// The path of a key in a section.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
