//! Session setup: capabilities of the agent, and the options that it offers.

use agent_client_protocol::JsonRpcRequest;
use agent_client_protocol::v1::schema::McpServer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ResumeSupport, Script};

/// `initialize` request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "initialize", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeRequest {
    protocol_version: Value,
}

/// Request for a new session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/new", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSession {
    pub(super) cwd: std::path::PathBuf,
    #[serde(default)]
    pub(super) mcp_servers: Vec<McpServer>,
}

/// Request to resume an earlier session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/resume", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResumeSession {
    pub(super) session_id: String,
    #[serde(flatten)]
    pub(super) new: NewSession,
}

/// Request to load an earlier session, including a replay of its conversation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/load", response = Value)]
pub(super) struct LoadSession {
    #[serde(flatten)]
    pub(super) resume: ResumeSession,
}

/// Request to select a model or a mode as an option.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_config_option", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOption {
    pub(super) session_id: String,
    pub(super) config_id: String,
    pub(super) value: String,
}

/// Request to select a mode.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_mode", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetMode {
    pub(super) session_id: String,
    pub(super) mode_id: String,
}

/// Request to select a model, in the form that the protocol has dropped.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_model", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetModel {
    pub(super) session_id: String,
    pub(super) model_id: String,
}

/// Returns the capabilities of the agent.
pub(super) fn initialize_response(hello: &InitializeRequest, script: Option<&Script>) -> Value {
    let resume = script.map_or(ResumeSupport::Never, |script| script.resume);
    let mut session = json!({});
    if resume == ResumeSupport::Resume {
        session["resume"] = json!({});
    }
    json!({
        "protocolVersion": hello.protocol_version,
        "agentInfo": { "name": "scripted-agent", "version": env!("CARGO_PKG_VERSION") },
        "agentCapabilities": {
            "loadSession": resume == ResumeSupport::Load,
            "mcpCapabilities": { "http": true },
            "sessionCapabilities": session,
        },
    })
}

/// Returns a session with its options.
pub(super) fn session_response(id: &str, script: Option<&Script>) -> Value {
    let mut response = json!({ "sessionId": id });
    let Some(script) = script else {
        return response;
    };
    if let Some(first) = script.modes.first() {
        let all: Vec<_> =
            script.modes.iter().map(|mode| json!({ "id": mode, "name": mode })).collect();
        response["modes"] = json!({ "currentModeId": first, "availableModes": all });
    }
    if let Some(first) = script.models.first() {
        if script.legacy_models {
            let all: Vec<_> = script
                .models
                .iter()
                .map(|model| json!({ "modelId": model, "name": model }))
                .collect();
            response["models"] = json!({ "currentModelId": first, "availableModels": all });
        } else {
            let all: Vec<_> = script
                .models
                .iter()
                .map(|model| json!({ "value": model, "name": model }))
                .collect();
            response["configOptions"] = json!([{
                "id": "model", "name": "Model", "category": "model", "type": "select",
                "currentValue": first, "options": all,
            }]);
        }
    }
    response
}
