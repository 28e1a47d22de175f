//! What an agent asks for, and what it is answered.

use std::path::PathBuf;

use agent_client_protocol::v1::schema::{
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SelectedPermissionOutcome,
};
use serde_json::Value;

use super::heard::merge;
use crate::desk::{self, Question};
use crate::permission::{Ask, Kind, Ruling, Verdict};

/// What a request is about. Agents put it into different places, and may have said it before.
pub(super) fn ask(request: &RequestPermissionRequest, known: Value) -> Ask {
    let mut call = known;
    merge(&mut call, &serde_json::to_value(&request.tool_call).unwrap_or_default());
    let input = &call["rawInput"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut paths: Vec<PathBuf> = Vec::new();
    paths.extend(list(&call["locations"]).iter().filter_map(path));
    paths.extend(
        list(&call["content"]).iter().filter(|part| part["type"] == "diff").filter_map(path),
    );
    let named = ["file_path", "filePath", "filepath", "path"].iter().map(|name| &input[*name]);
    paths.extend(named.filter_map(Value::as_str).map(PathBuf::from));
    let changes = ["changes", "fileChanges"].iter().filter_map(|name| input[*name].as_object());
    paths.extend(changes.flat_map(|changes| changes.keys()).map(PathBuf::from));
    paths.sort();
    paths.dedup();
    let title = call["title"].as_str().unwrap_or_default().to_owned();
    let command = ["command", "cmd"].iter().find_map(|name| match &input[*name] {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => {
            Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    });
    let kind = match call["kind"].as_str().unwrap_or_default() {
        _ if command.is_some() => Kind::Command,
        "execute" => Kind::Command,
        "edit" | "delete" | "move" => Kind::Write,
        "read" | "search" | "think" => Kind::Read,
        _ => Kind::Other,
    };
    // Some agents say a command only in the title.
    let command = command.or_else(|| {
        (kind == Kind::Command && paths.is_empty() && !title.is_empty()).then(|| title.clone())
    });
    Ask { kind, title, paths, command }
}

fn path(value: &Value) -> Option<PathBuf> {
    value["path"].as_str().map(PathBuf::from)
}

/// Whether a request is for a tool of our own desk, and for nothing beside that.
///
/// Some agents ask about every tool of a server. What is asked must be no command and name no file,
/// so that nothing else can be let through under the name of such a tool.
pub(super) fn is_ours(request: &RequestPermissionRequest, known: &Value) -> bool {
    let mut call = known.clone();
    merge(&mut call, &serde_json::to_value(&request.tool_call).unwrap_or_default());
    let input = &call["rawInput"];
    let about_mcp = call["_meta"]["is_mcp_tool_approval"] == true
        || request.meta.as_ref().is_some_and(|meta| meta.contains_key("is_mcp_tool_approval"));
    let harmless = matches!(call["kind"].as_str(), None | Some("other")) || about_mcp;
    let words = ["title", "name"].map(|name| call[name].as_str().unwrap_or_default());
    let server = input["server"].as_str().or_else(|| input["server_name"].as_str());
    let ours = |word: &str| {
        let tool = desk::TOOLS.iter().any(|tool| word.contains(tool));
        tool && (word.contains(desk::NAME) || server == Some(desk::NAME))
    };
    let files = ["locations", "content"].iter().any(|name| {
        let list = call[*name].as_array().into_iter().flatten();
        list.into_iter().any(|one| one["path"].is_string())
    });
    let commands = ["command", "cmd", "file_path", "filePath", "path"];
    harmless
        && !files
        && commands.iter().all(|name| input[*name].is_null())
        && words.iter().any(|word| ours(word))
}

/// Our own tools are the agent's to use.
pub(super) fn ours() -> Ruling {
    Ruling { verdict: Verdict::Allow, reason: "it is a tool of ours".to_owned() }
}

/// What a person is asked, where a person decides.
pub(super) fn question(ask: &Ask, ruling: &Ruling) -> Question {
    let what = match (&ask.command, ask.paths.as_slice()) {
        (Some(command), _) => format!("run `{command}`"),
        (None, []) => format!("do \"{}\"", ask.title),
        (None, paths) => {
            let paths: Vec<_> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
            format!("{} {}", ask.kind, paths.join(", "))
        }
    };
    Question {
        question: format!("May the agent {what}? It is asked because {}.", ruling.reason),
        choices: vec!["yes".to_owned(), "no".to_owned()],
        default: Some("no".to_owned()),
    }
}

/// The answer, by the kind of the option: the agent names and orders them as it likes.
///
/// Never "always": what that covers is different in every agent.
pub(super) fn answer(
    request: &RequestPermissionRequest,
    verdict: Verdict,
) -> RequestPermissionOutcome {
    let wanted = match verdict {
        Verdict::Allow => PermissionOptionKind::AllowOnce,
        Verdict::Deny => PermissionOptionKind::RejectOnce,
        Verdict::Ask => return RequestPermissionOutcome::Cancelled,
    };
    match request.options.iter().find(|option| option.kind == wanted) {
        Some(option) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(
            option.option_id.clone(),
        )),
        None => RequestPermissionOutcome::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(call: &Value) -> RequestPermissionRequest {
        let request = json!({ "sessionId": "s", "toolCall": call, "options": [] });
        serde_json::from_value(request).expect("a request")
    }

    #[test]
    fn what_is_asked_is_found_wherever_the_agent_put_it() {
        let known = json!({ "kind": "edit", "locations": [{ "path": "/w/a" }] });
        let asked = ask(&request(&json!({ "toolCallId": "1", "title": "Edit" })), known);
        assert_eq!((asked.kind, asked.paths), (Kind::Write, vec![PathBuf::from("/w/a")]));
        let call = json!({ "toolCallId": "1", "rawInput": { "command": ["git", "push"] } });
        let asked = ask(&request(&call), Value::Null);
        assert_eq!((asked.kind, asked.command.as_deref()), (Kind::Command, Some("git push")));
        let call =
            json!({ "toolCallId": "1", "kind": "edit", "rawInput": { "changes": { "b": 1 } } });
        assert_eq!(ask(&request(&call), Value::Null).paths, [PathBuf::from("b")]);
        let call = json!({ "toolCallId": "1", "kind": "execute", "title": "git push" });
        assert_eq!(ask(&request(&call), Value::Null).command.as_deref(), Some("git push"));
    }

    #[test]
    fn only_a_tool_of_ours_is_ours() {
        let ours = |call: Value| is_ours(&request(&call), &Value::Null);
        let title = "submit_plan (tamma MCP Server)";
        assert!(ours(json!({ "toolCallId": "1", "kind": "other", "title": title })));
        assert!(ours(json!({ "toolCallId": "1", "title": "mcp__tamma__ask_human" })));
        assert!(!ours(json!({ "toolCallId": "1", "title": "mcp__other__ask_human" })));
        assert!(!ours(json!({ "toolCallId": "1", "kind": "execute", "title": title })));
        let input = json!({ "command": "rm -rf /" });
        assert!(!ours(json!({ "toolCallId": "1", "title": title, "rawInput": input })));
        let places = json!([{ "path": "/w/a" }]);
        assert!(!ours(json!({ "toolCallId": "1", "title": title, "locations": places })));
    }
}
