//! How a session begins: what the agent says of itself, and what it lets the other side choose.

use agent_client_protocol::JsonRpcRequest;
use agent_client_protocol::v1::schema::McpServer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Resume, Script};

/// The first message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "initialize", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hello {
    protocol_version: Value,
}

/// Asks for a new session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/new", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct New {
    pub(super) cwd: std::path::PathBuf,
    #[serde(default)]
    pub(super) mcp_servers: Vec<McpServer>,
}

/// Asks to go on with an earlier one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/resume", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct Again {
    pub(super) session_id: String,
    #[serde(flatten)]
    pub(super) new: New,
}

/// Asks to go on with an earlier one, and to be told all of it again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/load", response = Value)]
pub(super) struct Load {
    #[serde(flatten)]
    pub(super) again: Again,
}

/// Chooses a model or a mode by an option.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_config_option", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOption {
    pub(super) session_id: String,
    pub(super) config_id: String,
    pub(super) value: String,
}

/// Chooses a mode.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_mode", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetMode {
    pub(super) session_id: String,
    pub(super) mode_id: String,
}

/// Chooses a model, in the way that the protocol no longer has.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_model", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetModel {
    pub(super) session_id: String,
    pub(super) model_id: String,
}

/// What the agent says of itself.
pub(super) fn hello(hello: &Hello, script: Option<&Script>) -> Value {
    let resume = script.map_or(Resume::Never, |script| script.resume);
    let mut session = json!({});
    if resume == Resume::Resume {
        session["resume"] = json!({});
    }
    json!({
        "protocolVersion": hello.protocol_version,
        "agentInfo": { "name": "scripted-agent", "version": env!("CARGO_PKG_VERSION") },
        "agentCapabilities": {
            "loadSession": resume == Resume::Load,
            "mcpCapabilities": { "http": true },
            "sessionCapabilities": session,
        },
    })
}

/// What a session offers.
pub(super) fn offers(id: &str, script: Option<&Script>) -> Value {
    let mut answer = json!({ "sessionId": id });
    let Some(script) = script else {
        return answer;
    };
    if let Some(first) = script.modes.first() {
        let all: Vec<_> =
            script.modes.iter().map(|mode| json!({ "id": mode, "name": mode })).collect();
        answer["modes"] = json!({ "currentModeId": first, "availableModes": all });
    }
    if let Some(first) = script.models.first() {
        if script.old_fashioned {
            let all: Vec<_> = script
                .models
                .iter()
                .map(|model| json!({ "modelId": model, "name": model }))
                .collect();
            answer["models"] = json!({ "currentModelId": first, "availableModels": all });
        } else {
            let all: Vec<_> = script
                .models
                .iter()
                .map(|model| json!({ "value": model, "name": model }))
                .collect();
            answer["configOptions"] = json!([{
                "id": "model", "name": "Model", "category": "model", "type": "select",
                "currentValue": first, "options": all,
            }]);
        }
    }
    answer
}
