//! Client for the tools of a session, as far as a scripted agent needs one.

use agent_client_protocol::v1::schema::McpServer;
use serde_json::{Value, json};

/// Version of the Model Context Protocol.
const PROTOCOL_VERSION: &str = "2025-06-18";

/// Failure of a call, as the agent reports it.
pub(super) type ToolError = String;

/// Tools of a session.
pub(super) struct ToolClient {
    http: reqwest::Client,
    url: String,
    headers: Vec<(String, String)>,
}

impl ToolClient {
    /// Connects to the first HTTP server of a session.
    pub(super) async fn connect(servers: &[McpServer]) -> Result<Self, ToolError> {
        let server = servers.iter().find_map(|server| match server {
            McpServer::Http(server) => Some(server),
            _ => None,
        });
        let server = server.ok_or("the session has no MCP server")?;
        let headers = server.headers.iter();
        let headers = headers.map(|it| (it.name.clone(), it.value.clone())).collect();
        // Proxy variables are meant for the internet, not for the tools.
        let http = reqwest::Client::builder().no_proxy().build().map_err(|it| it.to_string())?;
        let client = Self { http, url: server.url.clone(), headers };
        let info = json!({ "name": "tamma-eval", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": info,
        });
        client
            .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }))
            .await?;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(client)
    }

    /// Returns the tools, with their input schemas.
    pub(super) async fn list(&self) -> Result<Vec<(String, Value)>, ToolError> {
        let result = self
            .send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }))
            .await?;
        let tools = result["result"]["tools"].as_array().cloned().unwrap_or_default();
        let named = tools.into_iter().filter_map(|tool| {
            Some((tool["name"].as_str()?.to_owned(), tool["inputSchema"].clone()))
        });
        Ok(named.collect())
    }

    /// Calls a tool and returns its text.
    pub(super) async fn call(&self, name: &str, arguments: &Value) -> Result<String, ToolError> {
        let call = json!({ "name": name, "arguments": arguments });
        let result = self
            .send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call }))
            .await?;
        if let Some(error) = result.get("error") {
            return Err(error.to_string());
        }
        let parts = result["result"]["content"].as_array().cloned().unwrap_or_default();
        Ok(parts.iter().filter_map(|part| part["text"].as_str()).collect())
    }

    async fn send(&self, message: &Value) -> Result<Value, ToolError> {
        let mut request = self
            .http
            .post(&self.url)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", PROTOCOL_VERSION)
            .json(message);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let failed = |error: reqwest::Error| format!("cannot call the tools: {error}");
        let response = request.send().await.map_err(failed)?;
        let text = response.error_for_status().map_err(failed)?.text().await.map_err(failed)?;
        // A slow response can be an event stream with one event.
        let event = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
        Ok(serde_json::from_str(event.unwrap_or(&text)).unwrap_or_default())
    }
}
