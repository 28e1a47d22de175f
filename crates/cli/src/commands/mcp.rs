//! `tamma mcp`: MCP server on standard input and output.
//!
//! Forwards each message to the API server's MCP endpoint, with the token and the name of the person who
//! started the agent. One implementation checks the permissions. Messages are forwarded at the same time,
//! so that a slow call delays no other, and each is answered when its answer is there.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use tamma_server::PERSON_HEADER;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::client::{self, Client, ClientArgs, IdentityArgs};

/// Maximum number of messages that are forwarded at the same time. Further ones wait.
const MAX_IN_FLIGHT: usize = 32;

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
        let answer = |message| answer(&client, by.as_ref(), message);
        proxy(BufReader::new(tokio::io::stdin()), tokio::io::stdout(), answer).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Answers the messages of an input, one per line, until it ends and all are answered.
async fn proxy<F: Future<Output = Option<String>>>(
    input: impl AsyncBufRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    answer: impl Fn(String) -> F,
) -> Result<()> {
    let mut lines = input.lines();
    let (mut in_flight, mut is_open) = (FuturesUnordered::new(), true);
    loop {
        tokio::select! {
            line = lines.next_line(), if is_open && in_flight.len() < MAX_IN_FLIGHT => match line? {
                Some(line) if line.trim().is_empty() => {}
                Some(line) => in_flight.push(answer(line)),
                None => is_open = false,
            },
            Some(answer) = in_flight.next(), if !in_flight.is_empty() => {
                if let Some(answer) = answer {
                    output.write_all(answer.trim_end().as_bytes()).await?;
                    output.write_all(b"\n").await?;
                    output.flush().await?;
                }
            }
            else => return Ok(()),
        }
    }
}

/// Returns the answer to a message: the server's, or an error response. Notifications have none.
async fn answer(client: &Client, by: Option<&HeaderValue>, message: String) -> Option<String> {
    match forward(client, by, message.clone()).await {
        Ok(answer) => answer,
        Err(error) => error_response(&message, &error),
    }
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

    /// Answers `slow` after `release`, and everything else at once.
    async fn echo(message: String, release: &tokio::sync::Notify) -> Option<String> {
        if message == "slow" {
            release.notified().await;
        }
        (message != "notification").then_some(message)
    }

    #[tokio::test]
    async fn a_ping_is_answered_while_a_slow_call_runs() {
        let (mut client, server) = tokio::io::duplex(1024);
        let (input, output) = tokio::io::split(server);
        let release = tokio::sync::Notify::new();
        let proxy = proxy(BufReader::new(input), output, |message| echo(message, &release));
        let talk = async {
            client.write_all(b"slow\nnotification\n\nping\n").await.expect("sent");
            let mut answers = BufReader::new(client).lines();
            let first = answers.next_line().await.expect("read");
            assert_eq!(first.as_deref(), Some("ping"));
            release.notify_one();
            let second = answers.next_line().await.expect("read");
            assert_eq!(second.as_deref(), Some("slow"));
        };
        tokio::pin!(proxy);
        tokio::select! {
            ended = &mut proxy => panic!("ended early: {ended:?}"),
            () = talk => {}
        }
    }

    #[tokio::test]
    async fn messages_above_the_limit_wait_and_all_are_answered_at_the_end() {
        let release = tokio::sync::Notify::new();
        let input = "slow\n".repeat(MAX_IN_FLIGHT) + "ping\n";
        let mut output = Vec::new();
        {
            let proxy = proxy(input.as_bytes(), &mut output, |message| echo(message, &release));
            tokio::pin!(proxy);
            let brief = std::time::Duration::from_millis(50);
            assert!(tokio::time::timeout(brief, &mut proxy).await.is_err(), "all calls are slow");
            release.notify_waiters();
            proxy.await.expect("ended");
        }
        let text = String::from_utf8(output).expect("text");
        assert_eq!(text.matches("slow\n").count(), MAX_IN_FLIGHT);
        assert!(text.contains("ping\n"), "{text}");
    }

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
