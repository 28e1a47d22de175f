//! The tools that an agent offers, and which of them does what the script says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Call;

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// The kind of each tool, by its name; a tool in a namespace has the namespace before a dot.
    tools: BTreeMap<String, String>,
    /// Names of tools that are only told in words, because the agent shows them when asked to.
    deferred: Vec<String>,
}

/// A call as the agent understands it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    /// The name of the tool.
    pub(super) name: String,
    /// What it is called with.
    pub(super) input: Input,
}

/// What a tool is called with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Input {
    /// An object, as for most tools.
    Args(Value),
    /// A text in a form of the tool's own.
    Text(String),
}

impl Input {
    /// As an object, for the protocols that know nothing else.
    pub(super) fn object(&self) -> Value {
        match self {
            Self::Args(args) => args.clone(),
            Self::Text(text) => json!({ "input": text }),
        }
    }
}

impl Offer {
    /// What a request offers, in any of the protocols.
    pub(super) fn of(request: &Value, words: &str) -> Self {
        let mut offer = Self::default();
        offer.add_all("", request.get("tools"));
        // Codex sends the tools of its newer models, and those that were searched for, among the input.
        for item in request.get("input").and_then(Value::as_array).into_iter().flatten() {
            offer.add_all("", item.get("tools"));
        }
        let names = words.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        offer.deferred =
            names.filter(|name| name.starts_with("mcp__")).map(str::to_owned).collect();
        offer
    }

    /// Whether there are no tools.
    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The names of the tools.
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

    /// What the agent has for a call.
    pub(super) fn resolve(&self, call: &Call) -> Resolved {
        match call {
            Call::Tool { name, args, server } => self.tool(name, args, server),
            Call::Write { path, content } => self.write(path, content),
            Call::Shell { cmd } => self.shell(cmd),
        }
    }

    fn tool(&self, name: &str, args: &Value, server: &str) -> Resolved {
        let ends = |offered: &&String| offered.strip_suffix(name).is_some_and(parts_end);
        let name = if self.has(name) {
            name.to_owned()
        } else if let Some(offered) = self.tools.keys().find(ends) {
            offered.clone()
        } else if let Some(deferred) = self.deferred.iter().find(ends) {
            // Claude shows it in words only, and takes the call all the same.
            deferred.clone()
        } else if self.has("functions.exec") {
            let script = format!("text(await tools.mcp__{server}__{name}({args}));");
            return Resolved { name: "functions.exec".to_owned(), input: Input::Text(script) };
        } else if self.has("tool_search") {
            // Codex shows it after a search, and takes the call all the same.
            format!("mcp__{server}.{name}")
        } else {
            name.to_owned()
        };
        let input = match (self.tools.get(&name).map(String::as_str), args) {
            (Some("custom"), Value::String(text)) => Input::Text(text.clone()),
            (Some("custom"), args) => Input::Text(args.to_string()),
            _ => Input::Args(args.clone()),
        };
        Resolved { name, input }
    }

    fn write(&self, path: &str, content: &str) -> Resolved {
        let patch = || {
            let lines: String = content.lines().flat_map(|line| ["+", line, "\n"]).collect();
            format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n")
        };
        if self.has("functions.exec") {
            return text(
                "functions.exec",
                format!("text(await tools.apply_patch({}));", json!(patch())),
            );
        }
        for (name, key) in
            [("Write", "file_path"), ("write_file", "file_path"), ("write", "filePath")]
        {
            if self.has(name) {
                return args(name, json!({ key: path, "content": content }));
            }
        }
        match self.tools.get("apply_patch").map(String::as_str) {
            Some("custom") => text("apply_patch", patch()),
            Some(_) => args("apply_patch", json!({ "input": patch(), "patchText": patch() })),
            None => self.shell(&format!("printf %s {} > {}", quoted(content), quoted(path))),
        }
    }

    fn shell(&self, cmd: &str) -> Resolved {
        if self.has("functions.exec") {
            let run = json!({ "cmd": cmd });
            let script = format!("const r = await tools.exec_command({run}); text(r.output);");
            return text("functions.exec", script);
        }
        for name in ["Bash", "bash", "run_shell_command"] {
            if self.has(name) {
                return args(name, json!({ "command": cmd, "description": "scripted" }));
            }
        }
        if self.has("exec_command") {
            args("exec_command", json!({ "cmd": cmd }))
        } else if self.has("shell_command") {
            args("shell_command", json!({ "command": cmd }))
        } else if self.has("shell") {
            args("shell", json!({ "command": ["bash", "-lc", cmd] }))
        } else {
            args("no_shell_is_offered", json!({ "cmd": cmd }))
        }
    }
}

/// Whether what stands before a name ends a part of it, so that `plan` is not found in `airplan`.
fn parts_end(before: &str) -> bool {
    before.is_empty() || before.ends_with(['_', '.', '-'])
}

fn args(name: &str, args: Value) -> Resolved {
    Resolved { name: name.to_owned(), input: Input::Args(args) }
}

fn text(name: &str, text: String) -> Resolved {
    Resolved { name: name.to_owned(), input: Input::Text(text) }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
