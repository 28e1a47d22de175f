//! Permission requests of the agent, and the responses to them.

use std::path::PathBuf;

use agent_client_protocol::v1::schema::{
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SelectedPermissionOutcome,
};
use serde_json::Value;

use super::session_tracker::merge_tool_call;
use crate::agent_tools::{self, AgentQuestion};
use crate::permission::{PermissionDecision, PermissionEffect, PermissionKind, PermissionRequest};

/// Parses a request. Agents use different fields, and may have sent some of them in earlier
/// updates.
pub(super) fn parse_request(
    request: &RequestPermissionRequest,
    earlier: Value,
) -> PermissionRequest {
    let mut call = earlier;
    merge_tool_call(&mut call, &serde_json::to_value(&request.tool_call).unwrap_or_default());
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
        Value::Array(parts) => {
            Some(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    });
    let kind = match call["kind"].as_str().unwrap_or_default() {
        _ if command.is_some() => PermissionKind::Command,
        "execute" => PermissionKind::Command,
        "edit" | "delete" | "move" => PermissionKind::Write,
        "read" | "search" | "think" => PermissionKind::Read,
        _ => PermissionKind::Other,
    };
    // Some agents put the command only in the title.
    let command = command.or_else(|| {
        (kind == PermissionKind::Command && paths.is_empty() && !title.is_empty())
            .then(|| title.clone())
    });
    PermissionRequest { kind, title, paths, command }
}

fn path(value: &Value) -> Option<PathBuf> {
    value["path"].as_str().map(PathBuf::from)
}

/// Returns `true` if a request is only for one of our own tools.
///
/// Some agents ask about every MCP tool. The request must contain no command and no file, so that
/// nothing else is allowed under a tool's name.
pub(super) fn is_own_tool(request: &RequestPermissionRequest, earlier: &Value) -> bool {
    let mut call = earlier.clone();
    merge_tool_call(&mut call, &serde_json::to_value(&request.tool_call).unwrap_or_default());
    let input = &call["rawInput"];
    let about_mcp = call["_meta"]["is_mcp_tool_approval"] == true
        || request.meta.as_ref().is_some_and(|meta| meta.contains_key("is_mcp_tool_approval"));
    let harmless = matches!(call["kind"].as_str(), None | Some("other")) || about_mcp;
    let names = ["title", "name"].map(|name| call[name].as_str().unwrap_or_default());
    let server = input["server"].as_str().or_else(|| input["server_name"].as_str());
    let ours = |name: &str| {
        let tool = agent_tools::TOOL_NAMES.iter().any(|tool| name.contains(tool));
        tool && (name.contains(agent_tools::SERVER_NAME)
            || server == Some(agent_tools::SERVER_NAME))
    };
    let files = ["locations", "content"].iter().any(|name| {
        let list = call[*name].as_array().into_iter().flatten();
        list.into_iter().any(|one| one["path"].is_string())
    });
    let commands = ["command", "cmd", "file_path", "filePath", "path"];
    harmless
        && !files
        && commands.iter().all(|name| input[*name].is_null())
        && names.iter().any(|name| ours(name))
}

/// Decision for our own tools, which are always allowed.
pub(super) fn allow_own_tool() -> PermissionDecision {
    PermissionDecision {
        effect: PermissionEffect::Allow,
        reason: "it is one of Tamma's tools".to_owned(),
    }
}

/// Builds the question to a person who decides the request.
pub(super) fn approval_question(
    request: &PermissionRequest,
    decision: &PermissionDecision,
) -> AgentQuestion {
    let action = match (&request.command, request.paths.as_slice()) {
        (Some(command), _) => format!("run `{command}`"),
        (None, []) => format!("do \"{}\"", request.title),
        (None, paths) => {
            let paths: Vec<_> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
            format!("{} {}", request.kind, paths.join(", "))
        }
    };
    AgentQuestion {
        question: format!("Allow the agent to {action}? Reason: {}.", decision.reason),
        choices: vec!["yes".to_owned(), "no".to_owned()],
        default: Some("no".to_owned()),
        permission: Some(request.clone()),
    }
}

/// Selects the response by the kind of an option, because agents choose their names and order.
///
/// "Always" is never selected, because its scope differs between agents.
pub(super) fn response_for(
    request: &RequestPermissionRequest,
    effect: PermissionEffect,
) -> RequestPermissionOutcome {
    let kind = match effect {
        PermissionEffect::Allow => PermissionOptionKind::AllowOnce,
        PermissionEffect::Deny => PermissionOptionKind::RejectOnce,
        PermissionEffect::Ask => return RequestPermissionOutcome::Cancelled,
    };
    match request.options.iter().find(|option| option.kind == kind) {
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
    fn request_is_parsed_from_any_known_field() {
        let earlier = json!({ "kind": "edit", "locations": [{ "path": "/w/a" }] });
        let parsed =
            parse_request(&request(&json!({ "toolCallId": "1", "title": "Edit" })), earlier);
        assert_eq!(
            (parsed.kind, parsed.paths),
            (PermissionKind::Write, vec![PathBuf::from("/w/a")])
        );
        let call = json!({ "toolCallId": "1", "rawInput": { "command": ["git", "push"] } });
        let parsed = parse_request(&request(&call), Value::Null);
        assert_eq!(
            (parsed.kind, parsed.command.as_deref()),
            (PermissionKind::Command, Some("git push"))
        );
        let call =
            json!({ "toolCallId": "1", "kind": "edit", "rawInput": { "changes": { "b": 1 } } });
        assert_eq!(parse_request(&request(&call), Value::Null).paths, [PathBuf::from("b")]);
        let call = json!({ "toolCallId": "1", "kind": "execute", "title": "git push" });
        assert_eq!(
            parse_request(&request(&call), Value::Null).command.as_deref(),
            Some("git push")
        );
    }

    #[test]
    fn only_requests_for_own_tools_are_allowed_as_such() {
        let ours = |call: Value| is_own_tool(&request(&call), &Value::Null);
        let title = "submit_plan (tamma MCP Server)";
        assert!(ours(json!({ "toolCallId": "1", "kind": "other", "title": title })));
        assert!(ours(json!({ "toolCallId": "1", "title": "mcp__tamma__ask_human" })));
        assert!(!ours(json!({ "toolCallId": "1", "title": "mcp__other__ask_human" })));
        assert!(!ours(json!({ "toolCallId": "1", "kind": "execute", "title": title })));
        let input = json!({ "command": "rm -rf /" });
        assert!(!ours(json!({ "toolCallId": "1", "title": title, "rawInput": input })));
        let locations = json!([{ "path": "/w/a" }]);
        assert!(!ours(json!({ "toolCallId": "1", "title": title, "locations": locations })));
    }
}
