//! Parsers of foreign bytes, for the targets in `fuzz`. Compiled only by `just fuzz`.

use serde_json::Value;
use tamma_core::cost::Tokens;
use tamma_core::rules::ReportFormat;

use crate::agent::RunMode;
use crate::gateway::Dialect;
use crate::permission::PermissionRequest;
use crate::submission::{self, SubmissionFacts};
use crate::{agent, agent_tools, gate, gateway};

/// Parses a gate's report.
pub fn report(format: ReportFormat, text: &str) {
    gate::parse_report(format, text);
}

/// Reads a model's response in chunks of a size, and returns its tokens.
pub fn response(
    dialect: Dialect,
    content_type: &str,
    body: &[u8],
    chunk_size: usize,
) -> Option<Tokens> {
    gateway::read_response(dialect, content_type, body, chunk_size)
}

/// Parses an agent's last message, and the message as arguments of a tool.
pub fn submission(mode: RunMode, text: &str) {
    let facts = SubmissionFacts::default();
    drop(submission::parse_message(mode, text, &facts));
    if let Ok(value) = serde_json::from_str(text) {
        drop(submission::check(mode, value, &facts));
    }
}

/// Parses the body of a permission hook.
pub fn hook(body: &Value) -> Option<PermissionRequest> {
    agent_tools::parse_hook(body)
}

/// Parses a permission request of the Agent Client Protocol.
pub fn permission(body: Value, earlier: Value) -> Option<PermissionRequest> {
    agent::acp::parse_permission(body, earlier)
}
