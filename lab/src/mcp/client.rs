//! Third-party clients of the Model Context Protocol.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tamma_testkit::Cluster;
use tamma_testkit::model::{ModelStep, Script, ScriptedCall, ScriptedModel};
use tokio::process::Command;
use tokio::time::timeout;

/// Time limit of one client command.
const TIMEOUT: Duration = Duration::from_mins(3);

/// MCP client.
#[derive(Debug)]
pub(crate) enum McpClient {
    /// Official MCP inspector, at this path.
    Inspector(PathBuf, Transport),
    /// Claude Code with a scripted model and `tamma mcp` as a server.
    Agent(PathBuf),
}

/// Transport between a client and Tamma.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transport {
    /// `tamma mcp`, over standard input and output.
    Stdio,
    /// HTTP endpoint of the server.
    Http,
}

/// Protocol eras that the inspector supports.
const ERAS: [&str; 2] = ["legacy", "modern"];

/// Output of a tool call.
#[derive(Debug)]
pub(crate) struct ToolOutput {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl ToolOutput {
    /// Parses the output as JSON. Fails if the tool reported an error.
    pub(crate) fn into_json(self) -> Result<Value> {
        ensure!(!self.is_error, "the tool reported an error: {}", self.text);
        serde_json::from_str(&self.text)
            .with_context(|| format!("the tool output is not JSON: {}", self.text))
    }
}

impl fmt::Display for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inspector(_, Transport::Stdio) => "the inspector, through `tamma mcp`",
            Self::Inspector(_, Transport::Http) => "the inspector, at /mcp",
            Self::Agent(_) => "Claude Code with a scripted model, through `tamma mcp`",
        })
    }
}

impl McpClient {
    /// Returns the names of the tools that the client sees.
    pub(crate) async fn tools(&self, cluster: &Cluster, token: &str) -> Result<Vec<String>> {
        match self {
            Self::Inspector(program, transport) => {
                let mut lists = Vec::new();
                for era in ERAS {
                    let more = ["--method", "tools/list", "--protocol-era", era];
                    let answer = inspect(cluster, program, *transport, token, &more).await?;
                    let tools = answer["tools"].as_array().context("no tools")?.iter();
                    let names = tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned));
                    lists.push(names.collect::<Vec<_>>());
                }
                ensure!(
                    lists.windows(2).all(|two| two[0] == two[1]),
                    "the eras list different tools: {lists:?}"
                );
                lists.pop().context("no list of tools")
            }
            Self::Agent(folder) => {
                let model = ScriptedModel::start(Script::new([ModelStep::say("Done.")])).await?;
                converse(cluster, folder, token, &model, "What can you do?").await?;
                // The first request to the model has the names of all tools.
                let first = serde_json::to_string(&model.requests().first().map(|it| &it.body))?;
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let names = first.split("mcp__tamma__").skip(1);
                let names = names.map(|rest| rest.split(|it| !is_name(it)).next().unwrap_or(rest));
                let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
                Ok(names.into_iter().map(str::to_owned).collect())
            }
        }
    }

    /// Calls a tool with the token of a person.
    pub(crate) async fn call(
        &self,
        cluster: &Cluster,
        token: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<ToolOutput> {
        match self {
            Self::Inspector(program, transport) => {
                let json = arguments.to_string();
                let more =
                    ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &json];
                tool_output(&inspect(cluster, program, *transport, token, &more).await?)
            }
            Self::Agent(folder) => {
                let call = ScriptedCall::tool(tool, arguments.clone());
                let script = Script::new([ModelStep::call(call), ModelStep::say("Done.")]);
                let model = ScriptedModel::start(script).await?;
                let ask = format!("Please use {tool} of Tamma.");
                converse(cluster, folder, token, &model, &ask).await?;
                // The agent sends the output of the tool to its model.
                let requests = model.requests();
                let result = requests.iter().rev().find_map(|it| result(&it.body));
                result.with_context(|| format!("the agent did not call {tool}"))
            }
        }
    }
}

fn tool_output(answer: &Value) -> Result<ToolOutput> {
    let text = answer["content"][0]["text"]
        .as_str()
        .context("the tool call has no text output")?
        .to_owned();
    Ok(ToolOutput { text, is_error: answer["isError"] == true })
}

/// Returns the result of the last tool call in a request to the model.
fn result(body: &Value) -> Option<ToolOutput> {
    let blocks = body["messages"].as_array()?.iter().rev();
    let mut blocks = blocks.filter_map(|message| message["content"].as_array()).flatten();
    let block = blocks.find(|block| block["type"] == "tool_result")?;
    let text = match &block["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => return None,
    };
    Some(ToolOutput { text, is_error: block["is_error"] == true })
}

/// Returns the configuration of MCP servers, in the common format.
fn servers(cluster: &Cluster, transport: Transport, token: &str) -> String {
    let server = match transport {
        Transport::Stdio => json!({
            "command": cluster.cli.program,
            "args": ["mcp", "--server", cluster.url()],
            "env": { "TAMMA_TOKEN": token },
        }),
        Transport::Http => json!({
            "type": "streamable-http",
            "url": format!("{}/mcp", cluster.url()),
            "headers": { "Authorization": format!("Bearer {token}") },
        }),
    };
    json!({ "mcpServers": { "tamma": server } }).to_string()
}

/// Runs the inspector and returns its result.
async fn inspect(
    cluster: &Cluster,
    program: &Path,
    transport: Transport,
    token: &str,
    more: &[&str],
) -> Result<Value> {
    let file = cluster.folder().join("servers.json");
    std::fs::write(&file, servers(cluster, transport, token))?;
    let mut command = Command::new(program);
    command
        .args(["--cli", "--server", "tamma", "--format", "json", "--quiet", "--config"])
        .arg(&file)
        .args(more)
        .env("HOME", cluster.folder());
    let output = run(&mut command).await?;
    let mut answer: Value = serde_json::from_str(&output)
        .with_context(|| format!("cannot parse the inspector's output: {output}"))?;
    Ok(answer["result"].take())
}

/// Runs the agent with a single prompt.
async fn converse(
    cluster: &Cluster,
    folder: &Path,
    token: &str,
    model: &ScriptedModel,
    ask: &str,
) -> Result<()> {
    let home = cluster.folder().join("home");
    std::fs::create_dir_all(&home)?;
    let mut command = Command::new(program(folder)?);
    command
        .args(["--print", ask, "--strict-mcp-config"])
        .args(["--mcp-config", &servers(cluster, Transport::Stdio, token)])
        .args(["--allowedTools", "mcp__tamma"])
        .current_dir(&home)
        .env("HOME", &home)
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "unused-key")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    run(&mut command).await.map(drop)
}

/// Returns the path of the agent's binary, which is in a platform-specific package.
fn program(folder: &Path) -> Result<PathBuf> {
    let packages = folder.join("node_modules/@anthropic-ai");
    for package in std::fs::read_dir(&packages)? {
        let program = package?.path().join("claude");
        if program.is_file() {
            return Ok(program);
        }
    }
    bail!("no program `claude` in `{}`", packages.display())
}

async fn run(command: &mut Command) -> Result<String> {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(TIMEOUT, running).await.context("the client did not end in time")??;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() && stdout.trim().is_empty() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(stdout)
}
