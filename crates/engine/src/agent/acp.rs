//! Client of the Agent Client Protocol: one session over the agent's standard input and output.
//!
//! Only this module depends on the protocol's library. Messages from the agent are kept as raw JSON
//! and parsed leniently, because the library drops unknown updates and fails on unknown stop
//! reasons. The agent's stop reason is only a claim; timeouts and the gateway override it, and
//! `turn_end` decides what it means.

mod bounded_lines;
mod permission_request;
mod session_option;
mod session_tracker;

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, HttpHeader, Implementation,
    InitializeRequest, LoadSessionRequest, McpServer, McpServerHttp, NewSessionRequest,
    PromptRequest, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    ResumeSessionRequest, SessionId,
};
use agent_client_protocol::{
    Agent, ByteStreams, Client, Error, JsonRpcNotification, UntypedMessage,
};
use chrono::TimeDelta;
use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::rules::SessionModes;
use tamma_core::task_loop::Timestamp;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};
use tokio_util::sync::CancellationToken;

use self::bounded_lines::BoundedLines;
use self::session_option::SessionOption;
pub(super) use self::session_tracker::SessionTracker;
use super::turn_end::{FinishedTurn, NextTurn, TurnPolicy};
use super::{AgentObserver, AgentUpdate, RunEnd, RunRequest};
use crate::agent_tools::{self, AgentQuestion, AgentTools};
use crate::gateway::{CallFailure, GatewayStop, RunEndpoint};
use crate::permission::PermissionEffect;
#[cfg(fuzzing)]
use crate::permission::PermissionRequest;
use crate::sanitize;
use crate::submission::{self, Submission};

/// Model name that leaves the choice to the agent.
pub(super) const DEFAULT_MODEL: &str = "default";

/// Error code of the protocol for a missing sign-in.
const AUTH_REQUIRED: i32 = -32_000;

/// Longest quota pause that an agent can claim. Subscriptions have weekly limits.
const MAX_CLAIMED_QUOTA: TimeDelta = TimeDelta::days(8);

/// Session update with its payload as raw JSON.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcNotification)]
#[notification(method = "session/update")]
#[serde(rename_all = "camelCase")]
struct RawUpdate {
    session_id: SessionId,
    update: Value,
}

/// Context of a session: the run and everything it needs.
#[derive(Clone)]
pub(super) struct SessionContext {
    pub(super) request: RunRequest,
    pub(super) modes: SessionModes,
    pub(super) tracker: SessionTracker,
    pub(super) observer: AgentObserver,
    pub(super) cancel: CancellationToken,
    pub(super) tools: AgentTools,
    pub(super) endpoint: Option<Arc<RunEndpoint>>,
}

/// Runs one session to its end.
pub(super) async fn run_session(
    (stdin, stdout): (ChildStdin, ChildStdout),
    context: SessionContext,
) -> RunEnd {
    let (updates, permissions, after) = (context.clone(), context.clone(), context.clone());
    let session = Client
        .v1()
        .name("tamma")
        .on_receive_notification(
            async move |raw: RawUpdate, _cx| {
                if let Some(update) =
                    updates.tracker.apply_update(raw.update, &updates.request.spend_limit)
                {
                    (updates.observer)(update);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                responder.respond(RequestPermissionResponse::new(
                    permissions.decide_permission(&request),
                ))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(
            ByteStreams::new(stdin.compat_write(), BoundedLines::new(stdout).compat()),
            async move |agent: ConnectionTo<Agent>| AcpSession { agent, ctx: context }.run().await,
        );
    // Too large to be part of every future that awaits a run.
    let ended = Box::pin(session).await;
    after.resolve_end(&ended)
}

impl SessionContext {
    fn decide_permission(&self, request: &RequestPermissionRequest) -> RequestPermissionOutcome {
        let (cancelled, tool_call) = {
            let state = self.tracker.lock();
            let tool_call = state.tools.get(&*request.tool_call.tool_call_id.0).cloned();
            (state.cancelled, tool_call.unwrap_or_default())
        };
        if cancelled {
            return RequestPermissionOutcome::Cancelled;
        }
        let ours = self.endpoint.is_some() && permission_request::is_own_tool(request, &tool_call);
        let parsed = permission_request::parse_request(request, tool_call);
        let decision = if ours {
            permission_request::allow_own_tool()
        } else {
            (self.request.policy)(&parsed)
        };
        let outcome = permission_request::response_for(request, decision.effect);
        if decision.effect == PermissionEffect::Ask {
            self.tracker.lock().cancelled = true;
            self.tracker
                .question
                .send_replace(Some(permission_request::approval_question(&parsed, &decision)));
        }
        self.tools.keep_denial(&parsed, &decision);
        (self.observer)(AgentUpdate::PermissionDecided(parsed, decision));
        outcome
    }

    /// Returns the outcome of a run whose agent reports an exhausted quota. The provider is closed
    /// for all tasks until then, so the claim counts only if the gateway cannot know better, and
    /// for a limited time.
    fn end_for_claimed_quota(&self, until: Timestamp) -> RunEnd {
        let access = self.request.access.as_ref();
        if access.is_some_and(|access| access.upstream.is_some()) {
            let reason = "the agent reports an exhausted quota, and its provider does not";
            return RunEnd::Unavailable { reason: reason.to_owned() };
        }
        let latest = self.request.now.checked_add_signed(MAX_CLAIMED_QUOTA).unwrap_or(until);
        RunEnd::Quota { until: until.min(latest) }
    }

    /// Determines the outcome of the run from the session and the gateway.
    fn resolve_end(&self, ended: &Result<RunEnd, Error>) -> RunEnd {
        let end = match ended {
            Ok(end) => end.clone(),
            Err(error) => match end_for_error(&self.tracker, error) {
                RunEnd::Quota { until } => self.end_for_claimed_quota(until),
                end => end,
            },
        };
        // Our own decisions are final. Only claims of the agent are compared with the gateway.
        let is_agent_claim = match &end {
            RunEnd::Finished { submission, .. } => {
                *submission == Submission::NotRequired
                    || matches!(submission, Submission::Invalid { .. })
            }
            RunEnd::Crashed { .. }
            | RunEnd::Unavailable { .. }
            | RunEnd::Quota { .. }
            | RunEnd::Refused { .. } => true,
            _ => false,
        };
        let Some(endpoint) = self.endpoint.as_ref().filter(|_| is_agent_claim) else {
            return end;
        };
        if let Some(stop) = endpoint.stopped().now_or_never() {
            return end_for_stop(stop);
        }
        let disconnected =
            ended.as_ref().is_err_and(agent_client_protocol::is_incoming_transport_closed);
        match endpoint.ledger().last_failure {
            Some(CallFailure { status, message: text }) if !disconnected => {
                let text = text.trim();
                let reason = format!("the model provider returned {status}: {text}");
                if status >= 500 {
                    RunEnd::Unavailable { reason }
                } else {
                    RunEnd::Crashed { reason }
                }
            }
            _ => end,
        }
    }
}

fn end_for_stop(stop: GatewayStop) -> RunEnd {
    match stop {
        GatewayStop::OverBudget { .. } => RunEnd::OverBudget,
        GatewayStop::Quota { until } => RunEnd::Quota { until },
        GatewayStop::Unpriced { model } => RunEnd::Unpriced { model },
    }
}

/// Session with a connected agent.
struct AcpSession {
    agent: ConnectionTo<Agent>,
    ctx: SessionContext,
}

impl AcpSession {
    async fn run(self) -> Result<RunEnd, Error> {
        let timeouts = self.ctx.request.timeouts;
        // A run that is cancelled during start-up needs no session.
        let started = tokio::select! {
            started = self.start() => started?,
            () = self.ctx.cancel.cancelled() => return Ok(RunEnd::Cancelled),
        };
        let session = match started {
            Ok(session) => session,
            Err(reason) => return Ok(RunEnd::Unavailable { reason }),
        };
        let turns = self.run_turns(&session);
        tokio::pin!(turns);
        let end = tokio::select! {
            // Biased, because our own observations take precedence over a simultaneous claim of the
            // agent.
            biased;
            stop = self.wait_for_stop() => end_for_stop(stop),
            () = self.ctx.cancel.cancelled() => RunEnd::Cancelled,
            question = self.wait_for_question() => {
                // Let the agent receive the tool's response, so that its session is consistent when
                // a later run resumes it.
                let ended = self.ctx.tracker.tool_ended.notified();
                tokio::select! {
                    _ = &mut turns => return Ok(RunEnd::QuestionAsked { question }),
                    _ = timeout(timeouts.cancel, ended) => RunEnd::QuestionAsked { question },
                }
            }
            end = &mut turns => return end,
            () = tokio::time::sleep(self.ctx.request.time_limit) => RunEnd::TimedOut,
            () = self.ctx.tracker.over_budget.notified() => RunEnd::OverBudget,
        };
        // From here on, permission requests are answered with "cancelled", as the protocol
        // requires.
        self.ctx.tracker.lock().cancelled = true;
        self.agent.send_notification(CancelNotification::new(session.clone()))?;
        // Wait for a final usage report. The outcome is already decided.
        drop(timeout(timeouts.cancel, &mut turns).await);
        Ok(end)
    }

    /// Waits until the gateway refuses further calls.
    async fn wait_for_stop(&self) -> GatewayStop {
        match &self.ctx.endpoint {
            Some(endpoint) => endpoint.stopped().await,
            None => std::future::pending().await,
        }
    }

    /// Waits for a question to a person.
    async fn wait_for_question(&self) -> AgentQuestion {
        let mut permission = self.ctx.tracker.question.subscribe();
        let permission = async {
            let question = permission.wait_for(Option::is_some).await;
            match question.ok().and_then(|question| question.clone()) {
                Some(question) => question,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            question = permission => question,
            question = self.ctx.tools.wait_for_question() => question,
        }
    }

    /// Creates the session. The inner error is the reason why there is none.
    async fn start(&self) -> Result<Result<SessionId, String>, Error> {
        let timeouts = self.ctx.request.timeouts;
        let silent = |step: &str, limit: Duration| {
            Ok(Err(format!("no response to {step} from the agent within {} s", limit.as_secs())))
        };
        let Ok(initialized) = timeout(timeouts.start, self.initialize()).await else {
            return silent("the `initialize` request", timeouts.start);
        };
        match timeout(timeouts.session, self.open(&initialized?)).await {
            Ok(opened) => opened,
            Err(_) => silent("the session request", timeouts.session),
        }
    }

    async fn initialize(&self) -> Result<Value, Error> {
        let initialized = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new())
            .client_info(Implementation::new("tamma", env!("CARGO_PKG_VERSION")));
        let initialized = self.request("initialize", &initialized).await?;
        let text = |name: &str| initialized["agentInfo"][name].as_str().unwrap_or_default();
        let agent = format!("{} {}", text("name"), text("version")).trim().to_owned();
        self.ctx.tracker.lock().agent = (!agent.is_empty()).then_some(agent);
        Ok(initialized)
    }

    /// Creates or resumes the session, and selects its mode and model.
    async fn open(&self, initialized: &Value) -> Result<Result<SessionId, String>, Error> {
        let capabilities = &initialized["agentCapabilities"];
        let (name, session, resumed) = self.create_or_resume(capabilities).await?;
        {
            let mut state = self.ctx.tracker.lock();
            state.session = Some(name.clone());
            state.resumed = resumed;
        }
        (self.ctx.observer)(AgentUpdate::Session { name: name.clone(), resumed });
        if let Err(reason) = self.select_options(&name, &session).await? {
            return Ok(Err(reason));
        }
        Ok(Ok(SessionId::new(name)))
    }

    async fn create_or_resume(&self, capabilities: &Value) -> Result<(String, Value, bool), Error> {
        let request = &self.ctx.request;
        let folder = request.worktree.clone();
        let servers = self.mcp_servers(capabilities);
        if let Some(name) = &request.resume {
            let id = SessionId::new(name.clone());
            let resumed = if capabilities["sessionCapabilities"]["resume"].is_object() {
                let resume = ResumeSessionRequest::new(id, folder.clone());
                self.request("session/resume", &resume.mcp_servers(servers.clone())).await
            } else if capabilities["loadSession"] == true {
                self.ctx.tracker.lock().replaying = true;
                let load = LoadSessionRequest::new(id, folder.clone());
                let loaded = self.request("session/load", &load.mcp_servers(servers.clone())).await;
                self.ctx.tracker.lock().replaying = false;
                loaded
            } else {
                Err(Error::method_not_found())
            };
            match resumed {
                Ok(session) => return Ok((name.clone(), session, true)),
                Err(error) if agent_client_protocol::is_incoming_transport_closed(&error) => {
                    return Err(error);
                }
                // The worktree has the earlier work; the agent has to rediscover the rest.
                Err(error) => tracing::info!(error = error.message, "failed to resume session"),
            }
        }
        let new = NewSessionRequest::new(folder).mcp_servers(servers);
        let session = self.request("session/new", &new).await?;
        Ok((session["sessionId"].as_str().unwrap_or_default().to_owned(), session, false))
    }

    /// Returns our tools, if the agent supports HTTP servers. Other agents submit in their last
    /// message.
    fn mcp_servers(&self, capabilities: &Value) -> Vec<McpServer> {
        let endpoint =
            self.ctx.endpoint.as_ref().filter(|_| capabilities["mcpCapabilities"]["http"] == true);
        let server = endpoint.map(|endpoint| {
            let bearer = format!("Bearer {}", endpoint.token().expose());
            let server =
                McpServerHttp::new(agent_tools::SERVER_NAME, format!("{}/mcp", endpoint.url()));
            McpServer::Http(server.headers(vec![HttpHeader::new("Authorization", bearer)]))
        });
        server.into_iter().collect()
    }

    /// Selects the mode and the model. The inner error names the one that is unavailable.
    async fn select_options(
        &self,
        name: &str,
        session: &Value,
    ) -> Result<Result<(), String>, Error> {
        let request = &self.ctx.request;
        let modes = &self.ctx.modes;
        let modes = if request.mode.is_read_only() { &modes.look } else { &modes.work };
        if !modes.is_empty() {
            let offer = SessionOption::modes(session);
            let choice = offer
                .as_ref()
                .and_then(|offer| modes.iter().find_map(|mode| Some((offer, offer.find(mode)?))));
            let Some((offer, mode)) = choice else {
                return Ok(Err(not_offered("mode", &modes.join("` or `"), offer.as_ref())));
            };
            self.set_option(name, offer, mode).await?;
        }
        if let Some(model) = request.model.as_deref().filter(|model| *model != DEFAULT_MODEL) {
            let offer = SessionOption::models(session);
            let choice = offer.as_ref().and_then(|offer| Some((offer, offer.find(model)?)));
            let Some((offer, model)) = choice else {
                return Ok(Err(not_offered("model", model, offer.as_ref())));
            };
            self.set_option(name, offer, model).await?;
        }
        Ok(Ok(()))
    }

    async fn set_option(
        &self,
        session: &str,
        offer: &SessionOption,
        value: &str,
    ) -> Result<(), Error> {
        if offer.current.as_deref() == Some(value) {
            return Ok(());
        }
        let (method, params) = offer.set_request(session, value);
        self.request(method, &params).await.map(drop)
    }

    /// Prompts the agent, and prompts again as long as its [`TurnPolicy`] says so.
    async fn run_turns(&self, session: &SessionId) -> Result<RunEnd, Error> {
        let SessionContext { request, tracker, tools, observer, .. } = &self.ctx;
        let mode = request.mode;
        // A resumed session has the rest already.
        let resumed = tracker.lock().resumed;
        let text = request.resume_prompt.as_ref().filter(|_| resumed).unwrap_or(&request.prompt);
        let mut policy = TurnPolicy::new(mode, request.timeouts.submission_retries);
        let mut prompt = format!("{text}\n\n{}", submission::instructions(mode));
        loop {
            let stop_reason = self.run_turn(session, prompt).await?;
            let message = std::mem::take(&mut tracker.lock().text);
            let submitted = tools
                .submission()
                .map_or_else(|| submission::parse_message(mode, &message, &request.facts), Ok);
            let can_continue =
                !tracker.lock().cancelled && !tools.has_question() && !self.has_model_failure();
            let turn = FinishedTurn { stop_reason, submitted, message, can_continue };
            prompt = match policy.next(turn) {
                NextTurn::End(end) => {
                    if let RunEnd::Finished { submission, .. } = &end
                        && let Some(update) = submission_update(submission)
                    {
                        observer(update);
                    }
                    return Ok(end);
                }
                NextTurn::Correct { mut prompt, errors } => {
                    // Most agents do not tell the model why a call was denied.
                    if let Some(denials) = tools.denials().take_new() {
                        prompt = format!("{denials}\n{prompt}");
                    }
                    observer(AgentUpdate::SubmissionRejected(errors));
                    prompt
                }
                NextTurn::Continue { prompt, reason } => {
                    observer(AgentUpdate::PromptedAgain(reason));
                    prompt
                }
            };
        }
    }

    fn has_model_failure(&self) -> bool {
        self.ctx.endpoint.as_ref().is_some_and(|endpoint| endpoint.ledger().last_failure.is_some())
    }

    async fn run_turn(&self, session: &SessionId, prompt: String) -> Result<String, Error> {
        let SessionContext { request, tracker, endpoint, observer, .. } = &self.ctx;
        let prompt_request = PromptRequest::new(session.clone(), vec![ContentBlock::from(prompt)]);
        let response = self.request("session/prompt", &prompt_request).await?;
        tracker.add_usage(&response);
        if endpoint.is_none() && tracker.lock().cost.is_none() {
            // Some agents report the cost of a turn after its end.
            tokio::time::sleep(request.timeouts.late_usage).await;
        }
        if let Some(usage) = tracker.usage() {
            observer(AgentUpdate::UsageReported(usage));
        }
        Ok(response["stopReason"].as_str().unwrap_or("unknown").to_owned())
    }

    async fn request(&self, method: &str, params: &impl Serialize) -> Result<Value, Error> {
        let params = serde_json::to_value(params).map_err(Error::into_internal_error)?;
        self.agent.send_request(UntypedMessage::new(method, params)?).block_task().await
    }
}

/// Returns the update about a submission that people read; `None` for the others.
fn submission_update(submission: &Submission) -> Option<AgentUpdate> {
    let document = |name, content: serde_json::Result<Value>| {
        content.ok().map(|content| AgentUpdate::DocumentSubmitted { name, content })
    };
    match submission {
        Submission::Result(result) => Some(AgentUpdate::ResultSubmitted(result.clone())),
        Submission::Plan(plan) => document("plan", serde_json::to_value(plan)),
        Submission::Verdict(verdict) => document("verdict", serde_json::to_value(verdict)),
        Submission::NotRequired
        | Submission::Opinion(_)
        | Submission::Conclusion(_)
        | Submission::Lessons(_)
        | Submission::Signal(..)
        | Submission::Split(_)
        | Submission::Invalid { .. } => None,
    }
}

fn not_offered(kind: &str, value: &str, offer: Option<&SessionOption>) -> String {
    match offer {
        Some(offer) => {
            let all = offer.values.join("`, `");
            format!("unknown {kind} `{value}`; the agent offers `{all}`")
        }
        None => format!("unknown {kind} `{value}`; the agent offers none"),
    }
}

/// Returns the outcome of a run whose agent returned an error or disconnected.
fn end_for_error(tracker: &SessionTracker, error: &Error) -> RunEnd {
    if agent_client_protocol::is_incoming_transport_closed(error) {
        return tracker.end_for_exit("the agent's process exited");
    }
    let reason = match &error.data {
        Some(data) => format!("{} ({data})", error.message),
        None => error.message.clone(),
    };
    let reason = sanitize::text(&reason).into_owned();
    let code = i32::from(error.code);
    match error.data.as_ref().and_then(quota_reset_time) {
        Some(until) => RunEnd::Quota { until },
        // A quota without a reset time is treated as an outage.
        None if code == AUTH_REQUIRED || code == 429 => RunEnd::Unavailable { reason },
        None => tracker.end_for_exit(&reason),
    }
}

/// Returns the reset time of a quota from an error's data: a timestamp, or Unix seconds.
fn quota_reset_time(data: &Value) -> Option<Timestamp> {
    let at = ["resetAt", "reset_at", "resetsAt", "resets_at"]
        .iter()
        .map(|name| &data[*name])
        .find(|value| !value.is_null())?;
    match at {
        Value::String(text) => text.parse().ok(),
        Value::Number(seconds) => Timestamp::from_timestamp(seconds.as_i64()?, 0),
        _ => None,
    }
}

/// Parses a permission request of the protocol, for fuzzing.
#[cfg(fuzzing)]
pub(crate) fn parse_permission(body: Value, earlier: Value) -> Option<PermissionRequest> {
    let request = serde_json::from_value(body).ok()?;
    Some(permission_request::parse_request(&request, earlier))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quota_reset_is_a_timestamp_or_unix_seconds() {
        let noon: Timestamp = "2026-11-15T12:00:00Z".parse().expect("a time");
        assert_eq!(quota_reset_time(&json!({ "resetAt": "2026-11-15T12:00:00Z" })), Some(noon));
        assert_eq!(quota_reset_time(&json!({ "resets_at": noon.timestamp() })), Some(noon));
        assert_eq!(quota_reset_time(&json!({ "resetAt": "soon" })), None);
        assert_eq!(quota_reset_time(&json!("429 Too Many Requests")), None);
    }
}
