//! `tamma mcp`: Tamma for any agent that speaks the Model Context Protocol, on standard input and output.
//!
//! The server has it over HTTP; here each message is passed on to it, with the token and the name of the
//! person who has started the agent. So there is one implementation, and one place where rights are checked.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use tamma_server::PERSON;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::client::{self, Asker, Client, Target};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        // Whoever has a token of their own needs no name, and the server says when one is missing.
        let by = arguments.asker.name().ok();
        let by = by.map(|name| HeaderValue::from_bytes(name.as_bytes())).transpose();
        let by = by.context("your name has characters in it that cannot be sent")?;
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut out = tokio::io::stdout();
        while let Some(line) = lines.next_line().await? {
            if line.trim().is_empty() {
                continue;
            }
            let answer = match pass_on(&client, by.as_ref(), line.clone()).await {
                Ok(answer) => answer,
                Err(error) => refusal(&line, &error),
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

/// What a client is told when its message cannot be passed on, if it waits for an answer.
fn refusal(message: &str, error: &anyhow::Error) -> Option<String> {
    let message: Value = serde_json::from_str(message).ok()?;
    let id = message.get("id")?;
    let error = json!({ "code": -32000, "message": format!("{error:#}") });
    Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
}

/// What newer versions of the protocol say of a message in headers too, where it goes over HTTP.
fn repeated(message: &str) -> Vec<(&'static str, HeaderValue)> {
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

/// Passes a message on. Returns what is answered; nothing for what wants no answer.
async fn pass_on(
    client: &Client,
    by: Option<&HeaderValue>,
    message: String,
) -> Result<Option<String>> {
    let mut request = client.request_at(reqwest::Method::POST, "/mcp");
    if let Some(by) = by {
        request = request.header(PERSON, by.clone());
    }
    for (name, value) in repeated(&message) {
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
    let text = response.text().await.context("the server's answer broke off")?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_newer_versions_want_in_headers_is_repeated_there_and_older_ones_get_nothing() {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
        let params = json!({ "name": "add_task", "_meta": meta });
        let message = json!({ "id": 1, "method": "tools/call", "params": params }).to_string();
        let headers = repeated(&message);
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (*name, value.to_str().expect("text"))).collect();
        let wanted = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "add_task"),
        ];
        assert_eq!(headers, wanted);
        for old in [r#"{"method":"tools/list"}"#, r#"{"method":"x","params":[]}"#, "no JSON"] {
            assert!(repeated(old).is_empty(), "{old}");
        }
    }

    #[test]
    fn whoever_waits_for_an_answer_gets_one_and_nobody_else() {
        let error = anyhow::anyhow!("no server");
        let told = refusal(r#"{"id":7,"method":"tools/list"}"#, &error).expect("an answer");
        assert!(told.contains("\"id\":7") && told.contains("no server"), "{told}");
        assert!(refusal(r#"{"method":"notifications/initialized"}"#, &error).is_none());
    }
}
