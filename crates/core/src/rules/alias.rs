//! Second place for one section: `task_loop` at the root of the file means
//! `scrum_master.task_loop`.
//!
//! Files that configure only the task loop put it at the root. Its keys are moved before the file
//! is checked, so that every other part of the program sees one place.

use serde_json::{Value, json};

use super::yaml::{YamlKey, YamlNode, YamlValue};

/// Section that can be at the root.
pub(super) const ALIAS: &str = "task_loop";
/// Section that contains it otherwise.
const PARENT: &str = "scrum_master";

/// Moves the section from the root to its parent. Keys in both places become duplicates, which the
/// check of the file reports.
pub(super) fn move_alias(root: &mut YamlNode) {
    let YamlValue::Map(pairs) = &mut root.value else { return };
    let moved: Vec<_> = pairs.extract_if(.., |(key, _)| key.name == ALIAS).collect();
    for (key, node) in moved {
        let index = pairs.iter().position(|(key, _)| key.name == PARENT).unwrap_or_else(|| {
            let parent = YamlKey { location: key.location, name: PARENT.to_owned() };
            let empty = YamlNode { location: node.location, value: YamlValue::Null };
            pairs.push((parent, empty));
            pairs.len() - 1
        });
        let parent = &mut pairs[index].1.value;
        if let YamlValue::Null = parent {
            *parent = YamlValue::Map(Vec::new());
        }
        // Anything else is reported as an invalid parent.
        if let YamlValue::Map(sections) = parent {
            add_section(sections, key, node);
        }
    }
}

fn add_section(sections: &mut Vec<(YamlKey, YamlNode)>, key: YamlKey, node: YamlNode) {
    let present = sections.iter_mut().find(|(present, _)| present.name == key.name);
    match (present.map(|(_, node)| &mut node.value), node) {
        (Some(YamlValue::Map(keys)), YamlNode { value: YamlValue::Map(more), .. }) => {
            keys.extend(more);
        }
        (_, node) => sections.push((key, node)),
    }
}

/// Adds the section to the root of the schema, for editors.
pub(super) fn add_to_schema(schema: &mut Value) {
    let section = schema.pointer(&format!("/$defs/ScrumMaster/properties/{ALIAS}/$ref")).cloned();
    if let (Some(reference), Some(keys)) = (section, schema["properties"].as_object_mut()) {
        let description = format!("Same as `{PARENT}.{ALIAS}`, for files that configure only it.");
        keys.insert(ALIAS.to_owned(), json!({ "$ref": reference, "description": description }));
    }
}
