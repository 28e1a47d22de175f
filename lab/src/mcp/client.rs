//! Clients of the Model Context Protocol that others have written.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tamma_testkit::model::{ModelStep, Script, ScriptedCall, ScriptedModel};
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::stage::Stage;

/// How long a client may take for one thing.
const PATIENCE: Duration = Duration::from_mins(3);

/// A client.
#[derive(Debug)]
pub(crate) enum Client {
    /// The protocol's own inspector.
    Inspector(PathBuf, Way),
    /// Claude Code with a scripted model, and `tamma mcp` as one of its servers.
    Agent(PathBuf),
}

/// How a client reaches Tamma.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// Through `tamma mcp`, on standard input and output.
    Stdio,
    /// At the server itself.
    Http,
}

/// The versions of the protocol that the inspector can be held to.
const ERAS: [&str; 2] = ["legacy", "modern"];

/// What a tool said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl Said {
    /// What it said, where it went well.
    pub(crate) fn well(&self) -> Result<Value> {
        ensure!(!self.is_error, "it was refused: {}", self.text);
        serde_json::from_str(&self.text).with_context(|| format!("no JSON: {}", self.text))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inspector(_, Way::Stdio) => "the inspector, through `tamma mcp`",
            Self::Inspector(_, Way::Http) => "the inspector, at /mcp",
            Self::Agent(_) => "Claude Code with a scripted model, through `tamma mcp`",
        })
    }
}

impl Client {
    /// The names of the tools that it sees.
    pub(crate) async fn tools(&self, stage: &Stage, token: &str) -> Result<Vec<String>> {
        match self {
            Self::Inspector(program, way) => {
                let mut lists = Vec::new();
                for era in ERAS {
                    let more = ["--method", "tools/list", "--protocol-era", era];
                    let answer = inspect(stage, program, *way, token, &more).await?;
                    let tools = answer["tools"].as_array().context("no tools")?.iter();
                    let names = tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned));
                    lists.push(names.collect::<Vec<_>>());
                }
                ensure!(lists.windows(2).all(|two| two[0] == two[1]), "it is not {lists:?}");
                lists.pop().context("no list")
            }
            Self::Agent(folder) => {
                let model = ScriptedModel::start(Script::new([ModelStep::say("Done.")])).await?;
                converse(stage, folder, token, &model, "What can you do?").await?;
                // It tells its model the names first, and the rest when the model wants to know it.
                let told = serde_json::to_string(&model.requests().first().map(|it| &it.body))?;
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let names = told.split("mcp__tamma__").skip(1);
                let names = names.map(|rest| rest.split(|it| !is_name(it)).next().unwrap_or(rest));
                let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
                Ok(names.into_iter().map(str::to_owned).collect())
            }
        }
    }

    /// Calls a tool in somebody's name.
    pub(crate) async fn call(
        &self,
        stage: &Stage,
        token: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<Said> {
        match self {
            Self::Inspector(program, way) => {
                let given = arguments.to_string();
                let more =
                    ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &given];
                said(&inspect(stage, program, *way, token, &more).await?)
            }
            Self::Agent(folder) => {
                let call = ScriptedCall::tool(tool, arguments.clone());
                let script = Script::new([ModelStep::call(call), ModelStep::say("Done.")]);
                let model = ScriptedModel::start(script).await?;
                let ask = format!("Please use {tool} of Tamma.");
                converse(stage, folder, token, &model, &ask).await?;
                // What the tool said is what the agent tells its model.
                let requests = model.requests();
                let result = requests.iter().rev().find_map(|it| result(&it.body));
                result.with_context(|| format!("the agent has not called {tool}"))
            }
        }
    }
}

fn said(answer: &Value) -> Result<Said> {
    let text = answer["content"][0]["text"].as_str().context("it said nothing")?.to_owned();
    Ok(Said { text, is_error: answer["isError"] == true })
}

/// The result of the last tool that an agent has called, as it tells its model.
fn result(body: &Value) -> Option<Said> {
    let blocks = body["messages"].as_array()?.iter().rev();
    let mut blocks = blocks.filter_map(|message| message["content"].as_array()).flatten();
    let block = blocks.find(|block| block["type"] == "tool_result")?;
    let text = match &block["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => return None,
    };
    Some(Said { text, is_error: block["is_error"] == true })
}

/// How a client is told of Tamma: the form that all of them know.
fn servers(stage: &Stage, way: Way, token: &str) -> String {
    let server = match way {
        Way::Stdio => json!({
            "command": stage.tamma,
            "args": ["mcp", "--server", stage.url],
            "env": { "TAMMA_TOKEN": token },
        }),
        Way::Http => json!({
            "type": "streamable-http",
            "url": format!("{}/mcp", stage.url),
            "headers": { "Authorization": format!("Bearer {token}") },
        }),
    };
    json!({ "mcpServers": { "tamma": server } }).to_string()
}

/// Runs the inspector, and returns what it prints.
async fn inspect(
    stage: &Stage,
    program: &Path,
    way: Way,
    token: &str,
    more: &[&str],
) -> Result<Value> {
    let file = stage.folder.join("servers.json");
    std::fs::write(&file, servers(stage, way, token))?;
    let mut command = Command::new(program);
    command
        .args(["--cli", "--server", "tamma", "--format", "json", "--quiet", "--config"])
        .arg(&file)
        .args(more)
        .env("HOME", &stage.folder);
    let output = run(&mut command).await?;
    let mut answer: Value =
        serde_json::from_str(&output).with_context(|| format!("the inspector said: {output}"))?;
    Ok(answer["result"].take())
}

/// Lets the agent have one conversation.
async fn converse(
    stage: &Stage,
    folder: &Path,
    token: &str,
    model: &ScriptedModel,
    ask: &str,
) -> Result<()> {
    let home = stage.folder.join("home");
    std::fs::create_dir_all(&home)?;
    let mut command = Command::new(program(folder)?);
    command
        .args(["--print", ask, "--strict-mcp-config"])
        .args(["--mcp-config", &servers(stage, Way::Stdio, token)])
        .args(["--allowedTools", "mcp__tamma"])
        .current_dir(&home)
        .env("HOME", &home)
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    run(&mut command).await.map(drop)
}

/// The program of the agent itself, which lies in a package of the system's name.
fn program(folder: &Path) -> Result<PathBuf> {
    let packages = folder.join("node_modules/@anthropic-ai");
    for package in std::fs::read_dir(&packages)? {
        let program = package?.path().join("claude");
        if program.is_file() {
            return Ok(program);
        }
    }
    bail!("there is no program `claude` in `{}`", packages.display())
}

async fn run(command: &mut Command) -> Result<String> {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(PATIENCE, running).await.context("it does not end")??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() && said.trim().is_empty() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(said)
}
