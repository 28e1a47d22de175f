//! Minimal clients for MCP tools and models, as far as a scripted agent needs them.

use agent_client_protocol::v1::schema::McpServer;
use anyhow::Context as _;
use serde_json::{Value, json};

/// Calls a tool of the session's first MCP server and returns its text.
pub(super) async fn call_tool(
    servers: &[McpServer],
    name: &str,
    args: &Value,
) -> anyhow::Result<String> {
    let server = servers
        .iter()
        .find_map(|server| match server {
            McpServer::Http(server) => Some(server),
            _ => None,
        })
        .context("the session has no MCP server")?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let send = async |message: Value| -> anyhow::Result<Value> {
        let mut request = client
            .post(&server.url)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-06-18")
            .json(&message);
        for header in &server.headers {
            request = request.header(&header.name, &header.value);
        }
        let response = request.send().await?.error_for_status()?;
        let text = response.text().await?;
        // A slow response is an event stream with one event.
        let event = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
        Ok(serde_json::from_str(event.unwrap_or(&text)).unwrap_or_default())
    };
    let info = json!({ "name": "scripted-agent", "version": env!("CARGO_PKG_VERSION") });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })).await?;
    send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
    let call = json!({ "name": name, "arguments": args });
    let response =
        send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call })).await?;
    if let Some(error) = response.get("error") {
        anyhow::bail!("{error}");
    }
    let parts = response["result"]["content"].as_array().cloned().unwrap_or_default();
    Ok(parts.iter().filter_map(|part| part["text"].as_str()).collect())
}

/// Calls the model that the environment names and returns the HTTP status.
pub(super) async fn call_model() -> anyhow::Result<u16> {
    let (url, token) = (std::env::var(super::URL_VARIABLE)?, std::env::var(super::TOKEN_VARIABLE)?);
    let client = reqwest::Client::builder().no_proxy().build()?;
    let tool = json!({ "type": "function", "function": { "name": "bash", "parameters": {} } });
    let prompt = json!([{ "role": "user", "content": "Do it." }]);
    let body = json!({ "model": "scripted", "messages": prompt, "tools": [tool] });
    let request = client.post(format!("{url}/v1/chat/completions")).bearer_auth(token).json(&body);
    let response = request.send().await?;
    let status = response.status().as_u16();
    // Read to the end, or the response would not be counted.
    response.bytes().await?;
    Ok(status)
}
