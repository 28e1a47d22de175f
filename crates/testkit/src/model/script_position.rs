//! Position of a conversation in the script.
//!
//! A tool call of step 3 of the first case has the ID `call_c1s3_0`, and a text without calls ends
//! in `[c1s3]`. Steps outside a case have `c0`. Agents send both back unchanged.
//!
//! Markers of other cases do not count. Nor do markers in prompts, because prompts often quote the
//! output of another agent.

use serde_json::Value;

/// Returns the marker of a step from its case and number.
pub(super) fn step_marker(case: Option<usize>, step: usize) -> String {
    format!("c{}s{step}", case.map_or(0, |case| case + 1))
}

/// Returns the next step to play in a case.
pub(super) fn next_step(request: &Value, case: Option<usize>) -> usize {
    let mut last = None;
    let prefix = format!("c{}s", case.map_or(0, |case| case + 1));
    find_last_step(request, false, &prefix, &mut last);
    last.map_or(0, |step| step + 1)
}

/// Returns the text of a conversation without its tool definitions.
pub(super) fn conversation_text(request: &Value) -> String {
    let mut text = String::new();
    collect(request, &mut text);
    text
}

fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(words) => {
            text.push_str(words);
            text.push('\n');
        }
        Value::Array(all) => all.iter().for_each(|value| collect(value, text)),
        Value::Object(all) => all
            .iter()
            .filter(|(key, _)| *key != "tools")
            .for_each(|(_, value)| collect(value, text)),
        _ => {}
    }
}

/// Searches a value for markers; `own` is `true` inside the model's own output.
fn find_last_step(value: &Value, own: bool, prefix: &str, last: &mut Option<usize>) {
    match value {
        Value::String(text) => {
            let id = ["call_", "toolu_"].iter().find_map(|kind| text.strip_prefix(kind));
            let marks = text.split('[').skip(1).filter(|_| own);
            let newest =
                id.into_iter().chain(marks).filter_map(|rest| parse_step(rest, prefix)).max();
            *last = (*last).max(newest);
        }
        Value::Array(all) => all.iter().for_each(|value| find_last_step(value, own, prefix, last)),
        Value::Object(all) => {
            let own =
                own || all.get("role").is_some_and(|role| role == "assistant" || role == "model");
            all.values().for_each(|value| find_last_step(value, own, prefix, last));
        }
        _ => {}
    }
}

fn parse_step(text: &str, prefix: &str) -> Option<usize> {
    let (number, _) = text.strip_prefix(prefix)?.split_once(['_', ']'])?;
    number.parse().ok()
}
