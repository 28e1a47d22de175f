//! Where a conversation stands in the script.
//!
//! A tool call of step 3 of the first case has the id `call_c1s3_0`, and a text without calls ends in
//! `[c1s3]`; what is of no case has `c0`. Agents send both back unchanged. Marks of other cases do not
//! count, nor do those that a person or a prompt quotes: what one agent has said is often a part of
//! what the next one is asked.

use serde_json::Value;

/// The mark of a step: its case, if it is of one, and its number.
pub(super) fn mark(case: Option<usize>, step: usize) -> String {
    format!("c{}s{step}", case.map_or(0, |case| case + 1))
}

/// Which step of a case is to be played next.
pub(super) fn next(request: &Value, case: Option<usize>) -> usize {
    let mut last = None;
    let prefix = format!("c{}s", case.map_or(0, |case| case + 1));
    look(request, false, &prefix, &mut last);
    last.map_or(0, |step| step + 1)
}

/// Everything that a conversation says, without the tools that it offers.
pub(super) fn words(request: &Value) -> String {
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

/// Looks through a value; `own` is whether the model itself has said it.
fn look(value: &Value, own: bool, prefix: &str, last: &mut Option<usize>) {
    match value {
        Value::String(text) => {
            let id = ["call_", "toolu_"].iter().find_map(|kind| text.strip_prefix(kind));
            let marks = text.split('[').skip(1).filter(|_| own);
            let found = id.into_iter().chain(marks).filter_map(|rest| number(rest, prefix)).max();
            *last = (*last).max(found);
        }
        Value::Array(all) => all.iter().for_each(|value| look(value, own, prefix, last)),
        Value::Object(all) => {
            let own =
                own || all.get("role").is_some_and(|role| role == "assistant" || role == "model");
            all.values().for_each(|value| look(value, own, prefix, last));
        }
        _ => {}
    }
}

fn number(text: &str, prefix: &str) -> Option<usize> {
    let (number, _) = text.strip_prefix(prefix)?.split_once(['_', ']'])?;
    number.parse().ok()
}
