//! `tamma mcp`: MCP server on standard input and output.
//!
//! Forwards each message to the API server's MCP endpoint, with the token and the name of the person who
//! started the agent. One implementation checks the permissions.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use tamma_server::PERSON_HEADER;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::client::{self, Client, ClientArgs, IdentityArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        // A personal token needs no name, and the server reports a missing one.
        let by = arguments.identity.resolve_name().ok();
        let by = by.map(|name| HeaderValue::from_bytes(name.as_bytes())).transpose();
        let by = by.context("name contains characters that HTTP headers do not allow")?;
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut out = tokio::io::stdout();
        while let Some(line) = lines.next_line().await? {
            if line.trim().is_empty() {
                continue;
            }
            let answer = match forward(&client, by.as_ref(), line.clone()).await {
                Ok(answer) => answer,
                Err(error) => error_response(&line, &error),
            };
            if let Some(answer) = answer {
                out.write_all(answer.trim_end().as_bytes()).await?;
                out.write_all(b"\n").await?;
                out.flush().await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Error response for a message that could not be forwarded. Notifications get none.
fn error_response(message: &str, error: &anyhow::Error) -> Option<String> {
    let message: Value = serde_json::from_str(message).ok()?;
    let id = message.get("id")?;
    let error = json!({ "code": -32000, "message": format!("{error:#}") });
    Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
}

/// Headers that newer protocol versions require over HTTP, copied from the message.
fn protocol_headers(message: &str) -> Vec<(&'static str, HeaderValue)> {
    let message: Value = serde_json::from_str(message).unwrap_or_default();
    let params = &message["params"];
    let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
    if !version.is_string() {
        return Vec::new();
    }
    let name = if params["name"].is_string() { &params["name"] } else { &params["uri"] };
    [("mcp-protocol-version", version), ("mcp-method", &message["method"]), ("mcp-name", name)]
        .into_iter()
        .filter_map(|(header, value)| Some((header, HeaderValue::from_str(value.as_str()?).ok()?)))
        .collect()
}

/// Forwards a message and returns the response, or `None` for a notification.
async fn forward(
    client: &Client,
    by: Option<&HeaderValue>,
    message: String,
) -> Result<Option<String>> {
    let mut request = client.request_at(reqwest::Method::POST, "/mcp");
    if let Some(by) = by {
        request = request.header(PERSON_HEADER, by.clone());
    }
    for (name, value) in protocol_headers(&message) {
        request = request.header(name, value);
    }
    let request = request
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(message);
    let response = client.send(request).await?;
    if response.status() == StatusCode::ACCEPTED {
        return Ok(None);
    }
    let text = response.text().await.context("response is incomplete: the connection broke")?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_headers_are_added_for_newer_versions_only() {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
        let params = json!({ "name": "add_task", "_meta": meta });
        let message = json!({ "id": 1, "method": "tools/call", "params": params }).to_string();
        let headers = protocol_headers(&message);
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (*name, value.to_str().expect("text"))).collect();
        let expected = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "add_task"),
        ];
        assert_eq!(headers, expected);
        for old in [r#"{"method":"tools/list"}"#, r#"{"method":"x","params":[]}"#, "no JSON"] {
            assert!(protocol_headers(old).is_empty(), "{old}");
        }
    }

    #[test]
    fn requests_get_an_error_response_and_notifications_get_none() {
        let error = anyhow::anyhow!("no server");
        let response =
            error_response(r#"{"id":7,"method":"tools/list"}"#, &error).expect("an answer");
        assert!(response.contains("\"id\":7") && response.contains("no server"), "{response}");
        assert!(error_response(r#"{"method":"notifications/initialized"}"#, &error).is_none());
    }
}
