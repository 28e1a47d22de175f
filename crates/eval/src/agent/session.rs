//! Agent side of the protocol.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, ContentChunk, Cost, McpServer, PromptRequest, PromptResponse,
    SessionId, SessionNotification, SessionUpdate, StopReason, UsageUpdate,
};
use agent_client_protocol::{Agent, ByteStreams, Client, Error as ProtocolError, JsonRpcRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use super::submissions;
use super::tool_client::{ToolClient, ToolError};
use super::{AgentScript, ScriptChoice, ScriptedRole};
use crate::Error;
use crate::task_set::ExpectedOutcome;

/// `initialize` request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "initialize", response = Value)]
#[serde(rename_all = "camelCase")]
struct AgentInitialize {
    protocol_version: Value,
}

/// Request for a new session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/new", response = Value)]
#[serde(rename_all = "camelCase")]
struct SessionRequest {
    cwd: PathBuf,
    #[serde(default)]
    mcp_servers: Vec<McpServer>,
}

struct AgentShared {
    role: ScriptedRole,
    script: ScriptChoice,
    /// Working directory and MCP servers of each session.
    sessions: Mutex<BTreeMap<String, SessionRequest>>,
    cancelled: watch::Sender<u64>,
}

impl AgentShared {
    /// Stores a session and returns its ID.
    fn begin_session(&self, request: SessionRequest) -> String {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("eval-{}", sessions.len());
        sessions.insert(id.clone(), request);
        id
    }

    fn session(&self, id: &SessionId) -> Option<SessionRequest> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&*id.0).cloned()
    }
}

/// Serves a scripted agent on standard input and output until the client closes them. `script` gets the
/// prompt of each turn.
pub async fn serve(
    role: ScriptedRole,
    script: impl Fn(&str) -> AgentScript + Send + Sync + 'static,
) -> Result<(), Error> {
    let script: ScriptChoice = Box::new(script);
    let transport =
        ByteStreams::new(tokio::io::stdout().compat_write(), tokio::io::stdin().compat());
    let sessions = Mutex::default();
    let shared = Arc::new(AgentShared { role, script, sessions, cancelled: watch::channel(0).0 });
    let [creates, cancels, prompts] = [(); 3].map(|()| shared.clone());
    Agent
        .v1()
        .name("tamma-eval")
        .on_receive_request(
            async move |request: AgentInitialize, responder, _cx| {
                responder.respond(json!({
                    "protocolVersion": request.protocol_version,
                    "agentInfo": { "name": "tamma-eval", "version": env!("CARGO_PKG_VERSION") },
                    "agentCapabilities": {
                        "loadSession": false,
                        "mcpCapabilities": { "http": true },
                        "sessionCapabilities": {},
                    },
                }))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SessionRequest, responder, _cx| {
                responder.respond(json!({ "sessionId": creates.begin_session(request) }))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |_: CancelNotification, _cx| {
                cancels.cancelled.send_modify(|count| *count += 1);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let (shared, client) = (prompts.clone(), cx.clone());
                cx.spawn(async move {
                    let mut cancelled = shared.cancelled.subscribe();
                    cancelled.mark_unchanged();
                    let result = tokio::select! {
                        result = run_turn(&shared, &client, request) => result,
                        _ = cancelled.changed() => Ok(PromptResponse::new(StopReason::Cancelled)),
                    };
                    responder.respond_with_result(result)
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(transport)
        .await
        .map_err(|error| Error::Connection(format!("{error:?}")))
}

async fn run_turn(
    shared: &AgentShared,
    client: &ConnectionTo<Client>,
    request: PromptRequest,
) -> Result<PromptResponse, ProtocolError> {
    let id = request.session_id;
    let session = shared.session(&id).ok_or_else(ProtocolError::invalid_params)?;
    let prompt: String = request
        .prompt
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    let said = match shared.role {
        ScriptedRole::Idle => "I do nothing.".to_owned(),
        ScriptedRole::Oracle | ScriptedRole::StandIn => {
            act(shared, &session, &prompt).await.unwrap_or_else(|error| error)
        }
        ScriptedRole::Demo => {
            // A script costs nothing, which is not the same as an unknown cost.
            let free = UsageUpdate::new(0, 0).cost(Cost::new(0.0, "USD"));
            let update = SessionUpdate::UsageUpdate(free);
            client.send_notification(SessionNotification::new(id.clone(), update))?;
            match act(shared, &session, &prompt).await {
                Ok(_) => "I follow a script, and this part of it is done.".to_owned(),
                Err(error) => error,
            }
        }
    };
    let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(said.into()));
    client.send_notification(SessionNotification::new(id, update))?;
    Ok(PromptResponse::new(StopReason::EndTurn))
}

/// Does what the run is for, by the tools that it offers, and returns what to say about it.
async fn act(
    shared: &AgentShared,
    session: &SessionRequest,
    prompt: &str,
) -> Result<String, ToolError> {
    let AgentShared { role, script, .. } = shared;
    let script = &script(prompt);
    let tools = ToolClient::connect(&session.mcp_servers).await?;
    let offered = tools.list().await?;
    let schema = |name: &str| offered.iter().find(|(tool, _)| tool == name).map(|(_, it)| it);
    if let Some(schema) = schema("submit_verdict") {
        return tools.call("submit_verdict", &submissions::verdict(script, *role, schema)).await;
    }
    if schema("submit_lessons").is_some() {
        return tools.call("submit_lessons", &json!({ "lessons": [] })).await;
    }
    if schema("submit_opinion").is_some() || schema("submit_conclusion").is_some() {
        return Ok("I have no opinion.".to_owned());
    }
    if *role == ScriptedRole::Oracle && needs_answer(script, prompt) {
        let question = json!({ "question": script.notes.says.clone().unwrap_or_default() });
        let reply = tools.call("ask_human", &question).await?;
        // The answer may come later, with a new run.
        if needs_answer(script, &reply) {
            return Ok(reply);
        }
    }
    if let Some(schema) = schema("submit_plan") {
        return tools.call("submit_plan", &submissions::plan(script, *role, schema)).await;
    }
    implement(script, *role, session, &tools, schema("submit_result").is_some()).await
}

/// Returns `true` if the task needs an answer that the text does not contain.
fn needs_answer(script: &AgentScript, text: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    script.expected == ExpectedOutcome::Question
        && script.answer.as_ref().is_none_or(|answer| !words(text).contains(&words(answer)))
}

async fn implement(
    script: &AgentScript,
    role: ScriptedRole,
    session: &SessionRequest,
    tools: &ToolClient,
    has_result: bool,
) -> Result<String, ToolError> {
    if script.expected == ExpectedOutcome::PlanWrong {
        let says = script.notes.says.clone().unwrap_or_default();
        if !has_result {
            return tools.call("ask_human", &json!({ "question": says })).await;
        }
        let result = json!({ "status": "plan_wrong", "summary": says });
        return tools.call("submit_result", &result).await;
    }
    script.apply(&session.cwd).map_err(|error| format!("cannot write the patch: {error}"))?;
    let summary = match role {
        ScriptedRole::Demo => "The demo agent followed its script; it uses no model.",
        ScriptedRole::Oracle | ScriptedRole::Idle | ScriptedRole::StandIn => {
            "Applied the known patch."
        }
    };
    if has_result {
        let result = json!({ "status": "done", "summary": summary });
        return tools.call("submit_result", &result).await;
    }
    Ok(summary.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task_set::TaskSet;

    #[test]
    fn an_answer_is_recognised_in_a_longer_text() {
        let set = TaskSet::open("starter").expect("valid tasks");
        let task = set.task("ambiguous-request").expect("there");
        let mut script = AgentScript::without_solution(task);
        assert!(needs_answer(&script, "Order the report."), "it has no answer at all");
        script.answer.clone_from(&task.task.answer);
        let answer = script.answer.clone().expect("an answer");
        assert!(needs_answer(&script, "Order the report."));
        assert!(!needs_answer(&script, &format!("# Answers\n\n- {}\n", answer.replace(' ', "\n"))));
    }
}
