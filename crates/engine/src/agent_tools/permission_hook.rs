//! Hook that agents call before a tool runs, so that the model receives the reason of a denial.
//!
//! The response to a permission request of the protocol has no reason. Agents with hooks therefore
//! send the call here first, in the format of Claude Code: `tool_name` and `tool_input`. Only
//! denials are answered. Everything else goes the usual way: the agent asks, or its own rules
//! decide.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::permission::{PermissionKind, PermissionRequest};

/// Tools that change files, by the names that agents give them.
const WRITE_TOOLS: [&str; 9] = [
    "edit",
    "multiedit",
    "write",
    "notebookedit",
    "write_file",
    "replace",
    "apply_patch",
    "patch",
    "create_file",
];

/// Tools that switch to a plan mode of the agent. Tamma plans in runs of their own.
const PLAN_MODE_TOOLS: [&str; 4] =
    ["enterplanmode", "exitplanmode", "enter_plan_mode", "exit_plan_mode"];

/// Call of a tool, as a hook reports it.
pub(super) enum HookCall {
    /// Call that the permissions decide.
    Judged(PermissionRequest),
    /// Switch to or from the agent's own plan mode.
    PlanMode(PermissionRequest),
    /// Call that needs no decision here.
    Other,
}

/// Parses the body of a hook.
pub(super) fn parse(body: &Value) -> HookCall {
    let name = ["tool_name", "tool"].iter().find_map(|key| body[*key].as_str()).unwrap_or_default();
    let input =
        ["tool_input", "args"].iter().map(|key| &body[*key]).find(|input| input.is_object());
    let input = input.unwrap_or(&Value::Null);
    let lower = name.to_lowercase();
    let request =
        |kind, paths, command| PermissionRequest { kind, title: name.to_owned(), paths, command };
    if PLAN_MODE_TOOLS.contains(&lower.as_str()) {
        return HookCall::PlanMode(request(PermissionKind::Other, Vec::new(), None));
    }
    if WRITE_TOOLS.contains(&lower.as_str()) {
        let paths = written_paths(input);
        if paths.is_empty() {
            return HookCall::Other;
        }
        return HookCall::Judged(request(PermissionKind::Write, paths, None));
    }
    // Tools of MCP servers can have an argument of this name too.
    if name.contains("mcp") {
        return HookCall::Other;
    }
    match input["command"].as_str() {
        Some(command) => {
            let command = Some(command.to_owned());
            HookCall::Judged(request(PermissionKind::Command, Vec::new(), command))
        }
        None => HookCall::Other,
    }
}

/// Returns the files that a call writes.
fn written_paths(input: &Value) -> Vec<PathBuf> {
    let named = ["file_path", "filePath", "notebook_path", "path"];
    let named = named.iter().filter_map(|key| input[*key].as_str()).map(PathBuf::from);
    let patch = ["patchText", "patch", "input"].iter().find_map(|key| input[*key].as_str());
    let marks = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    let in_patch = patch.unwrap_or_default().lines().filter_map(|line| {
        marks.iter().find_map(|mark| line.strip_prefix(mark)).map(|path| PathBuf::from(path.trim()))
    });
    named.chain(in_patch).collect()
}

/// Builds the response of a hook: a denial with its text, or nothing.
pub(super) fn response(denial: Option<String>) -> Value {
    match denial {
        Some(text) => json!({
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": text,
            }
        }),
        None => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(body: &Value) -> Option<(PermissionKind, Vec<PathBuf>, Option<String>)> {
        match parse(body) {
            HookCall::Judged(PermissionRequest { kind, paths, command, .. }) => {
                Some((kind, paths, command))
            }
            HookCall::PlanMode(_) | HookCall::Other => None,
        }
    }

    #[test]
    fn calls_of_each_agent_are_understood() {
        let bash = json!({ "tool_name": "Bash", "tool_input": { "command": "git push" } });
        let command = Some("git push".to_owned());
        assert_eq!(judged(&bash), Some((PermissionKind::Command, Vec::new(), command.clone())));
        let bash = json!({ "tool": "bash", "args": { "command": "git push" } });
        assert_eq!(judged(&bash), Some((PermissionKind::Command, Vec::new(), command)));
        let edit = json!({ "tool_name": "Edit", "tool_input": { "file_path": "/w/a" } });
        assert_eq!(judged(&edit), Some((PermissionKind::Write, vec!["/w/a".into()], None)));
        let patch = "*** Begin Patch\n*** Update File: a.rs\n@@\n*** Move to: b.rs\n";
        let patch = json!({ "tool": "apply_patch", "args": { "patchText": patch } });
        let paths = vec!["a.rs".into(), "b.rs".into()];
        assert_eq!(judged(&patch), Some((PermissionKind::Write, paths, None)));
        let plan = json!({ "tool_name": "ExitPlanMode", "tool_input": { "plan": "…" } });
        assert!(matches!(parse(&plan), HookCall::PlanMode(_)));
        for other in [
            json!({ "tool_name": "Read", "tool_input": { "file_path": "/w/a" } }),
            json!({ "tool_name": "mcp__tamma__get_task", "tool_input": { "command": "x" } }),
            json!({ "tool_name": "Write", "tool_input": {} }),
            json!("nonsense"),
        ] {
            assert!(matches!(parse(&other), HookCall::Other), "{other}");
        }
    }
}
