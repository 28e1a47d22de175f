//! Tools that an agent offers, and the choice of the one for a scripted call.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ScriptedCall;

/// Tools of a request.
#[derive(Debug, Default)]
pub(super) struct OfferedTools {
    /// Kind of each tool by name. A namespace comes first, separated by a dot.
    tools: BTreeMap<String, String>,
    /// Names of tools that are only mentioned in text, because the agent lists them on demand.
    deferred: Vec<String>,
}

/// Scripted call in the form that the agent understands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResolvedCall {
    /// Name of the tool.
    pub(super) name: String,
    /// Arguments of the call.
    pub(super) input: ToolInput,
}

/// Arguments of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ToolInput {
    /// JSON object, as for most tools.
    Args(Value),
    /// Text in a format of the tool.
    Text(String),
}

impl ToolInput {
    /// Returns the input as an object, for protocols without text input.
    pub(super) fn object(&self) -> Value {
        match self {
            Self::Args(args) => args.clone(),
            Self::Text(text) => json!({ "input": text }),
        }
    }
}

impl OfferedTools {
    /// Reads the offered tools of a request in any of the protocols.
    pub(super) fn from_request(request: &Value, conversation: &str) -> Self {
        let mut offer = Self::default();
        offer.add_all("", request.get("tools"));
        // Codex sends the tools of its newer models, and those found by a search, as part of the
        // input.
        for item in request.get("input").and_then(Value::as_array).into_iter().flatten() {
            offer.add_all("", item.get("tools"));
        }
        let names =
            conversation.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        offer.deferred =
            names.filter(|name| name.starts_with("mcp__")).map(str::to_owned).collect();
        offer
    }

    /// Returns `true` if no tools are offered.
    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns the names of the tools.
    pub(super) fn names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    fn add_all(&mut self, space: &str, tools: Option<&Value>) {
        for tool in tools.and_then(Value::as_array).into_iter().flatten() {
            self.add(space, tool);
        }
    }

    fn add(&mut self, space: &str, tool: &Value) {
        if let Some(tools) = tool.get("functionDeclarations") {
            return self.add_all(space, Some(tools));
        }
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let kind = text(tool.get("type")).unwrap_or_else(|| "function".to_owned());
        let name = text(tool.pointer("/function/name").or_else(|| tool.get("name")));
        if kind == "namespace" {
            return self.add_all(&format!("{}.", name.unwrap_or_default()), tool.get("tools"));
        }
        let name = name.unwrap_or_else(|| kind.clone());
        self.tools.insert(format!("{space}{name}"), kind);
    }

    fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Returns the agent's call for a scripted call.
    pub(super) fn resolve(&self, call: &ScriptedCall) -> ResolvedCall {
        match call {
            ScriptedCall::Tool { name, args, server } => self.tool(name, args, server),
            ScriptedCall::Write { path, content } => self.write(path, content),
            ScriptedCall::Shell { cmd } => self.shell(cmd),
        }
    }

    fn tool(&self, name: &str, args: &Value, server: &str) -> ResolvedCall {
        let ends = |offered: &&String| offered.strip_suffix(name).is_some_and(is_name_boundary);
        let name = if self.has(name) {
            name.to_owned()
        } else if let Some(offered) = self.tools.keys().find(ends) {
            offered.clone()
        } else if let Some(deferred) = self.deferred.iter().find(ends) {
            // Claude only mentions it in text, but accepts the call.
            deferred.clone()
        } else if self.has("functions.exec") {
            let script = format!("text(await tools.mcp__{server}__{name}({args}));");
            return ResolvedCall {
                name: "functions.exec".to_owned(),
                input: ToolInput::Text(script),
            };
        } else if self.has("tool_search") {
            // Codex lists it after a search, but accepts the call.
            format!("mcp__{server}.{name}")
        } else {
            name.to_owned()
        };
        let input = match (self.tools.get(&name).map(String::as_str), args) {
            (Some("custom"), Value::String(text)) => ToolInput::Text(text.clone()),
            (Some("custom"), args) => ToolInput::Text(args.to_string()),
            _ => ToolInput::Args(args.clone()),
        };
        ResolvedCall { name, input }
    }

    fn write(&self, path: &str, content: &str) -> ResolvedCall {
        let patch = || {
            let lines: String = content.lines().flat_map(|line| ["+", line, "\n"]).collect();
            format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n")
        };
        if self.has("functions.exec") {
            return text_call(
                "functions.exec",
                format!("text(await tools.apply_patch({}));", json!(patch())),
            );
        }
        for (name, key) in
            [("Write", "file_path"), ("write_file", "file_path"), ("write", "filePath")]
        {
            if self.has(name) {
                return args_call(name, json!({ key: path, "content": content }));
            }
        }
        match self.tools.get("apply_patch").map(String::as_str) {
            Some("custom") => text_call("apply_patch", patch()),
            Some(_) => args_call("apply_patch", json!({ "input": patch(), "patchText": patch() })),
            None => {
                self.shell(&format!("printf %s {} > {}", shell_quote(content), shell_quote(path)))
            }
        }
    }

    fn shell(&self, cmd: &str) -> ResolvedCall {
        if self.has("functions.exec") {
            let run = json!({ "cmd": cmd });
            let script = format!("const r = await tools.exec_command({run}); text(r.output);");
            return text_call("functions.exec", script);
        }
        for name in ["Bash", "bash", "run_shell_command"] {
            if self.has(name) {
                return args_call(name, json!({ "command": cmd, "description": "scripted" }));
            }
        }
        if self.has("exec_command") {
            // Otherwise Codex returns after ten seconds, while the command still runs.
            args_call("exec_command", json!({ "cmd": cmd, "yield_time_ms": 30_000 }))
        } else if self.has("shell_command") {
            args_call("shell_command", json!({ "command": cmd }))
        } else if self.has("shell") {
            args_call("shell", json!({ "command": ["bash", "-lc", cmd] }))
        } else {
            args_call("no_shell_is_offered", json!({ "cmd": cmd }))
        }
    }
}

/// Returns `true` if a name can start here, so that `plan` is not found in `airplan`.
fn is_name_boundary(before: &str) -> bool {
    before.is_empty() || before.ends_with(['_', '.', '-'])
}

fn args_call(name: &str, args: Value) -> ResolvedCall {
    ResolvedCall { name: name.to_owned(), input: ToolInput::Args(args) }
}

fn text_call(name: &str, text: String) -> ResolvedCall {
    ResolvedCall { name: name.to_owned(), input: ToolInput::Text(text) }
}

fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
