//! The Agent Client Protocol: one session over the agent's standard input and output.
//!
//! This folder is the only place that names the protocol's library. Messages from the agent are kept
//! as raw JSON and read leniently: the library would drop an update of a kind that it does not know,
//! and fail on a stop reason that it does not know. Time is measured by our own clock, and a stop
//! reason is only what the agent says of itself: what the gateway saw stands over it.

mod ask;
mod choice;
mod heard;

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
use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::rules::SessionModes;
use tamma_core::task_loop::Timestamp;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};
use tokio_util::sync::CancellationToken;

use self::choice::Offer;
pub(super) use self::heard::Heard;
use super::{Observer, RunEnd, RunOrder, Update};
use crate::desk::{self, Desk, Question};
use crate::gateway::{Door, Failed, Stop};
use crate::permission::Verdict;
use crate::plain;
use crate::submission::{self, Submission};

/// The model that leaves the choice to the agent.
pub(super) const LEAVE: &str = "default";

/// The protocol's code for "sign in first".
const AUTHENTICATE_FIRST: i32 = -32_000;

/// An update as it came.
#[derive(Debug, Clone, Serialize, Deserialize, JsonRpcNotification)]
#[notification(method = "session/update")]
#[serde(rename_all = "camelCase")]
struct RawUpdate {
    session_id: SessionId,
    update: Value,
}

/// What a conversation is about, and who takes part.
#[derive(Clone)]
pub(super) struct Talk {
    pub(super) order: RunOrder,
    pub(super) modes: SessionModes,
    pub(super) heard: Heard,
    pub(super) see: Observer,
    pub(super) cancel: CancellationToken,
    pub(super) desk: Desk,
    pub(super) door: Option<Arc<Door>>,
}

/// Holds the conversation of one run, to its end.
pub(super) async fn talk((stdin, stdout): (ChildStdin, ChildStdout), talk: Talk) -> RunEnd {
    let (updates, asks, after) = (talk.clone(), talk.clone(), talk.clone());
    let ended = Client
        .v1()
        .name("tamma")
        .on_receive_notification(
            async move |raw: RawUpdate, _cx| {
                if let Some(update) = updates.heard.take(raw.update, &updates.order.allowance) {
                    (updates.see)(update);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                responder.respond(RequestPermissionResponse::new(asks.answer(&request)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(
            ByteStreams::new(stdin.compat_write(), stdout.compat()),
            async move |agent: ConnectionTo<Agent>| Session { agent, talk }.hold().await,
        )
        .await;
    after.judge(&ended)
}

impl Talk {
    fn answer(&self, request: &RequestPermissionRequest) -> RequestPermissionOutcome {
        let (cancelled, known) = {
            let state = self.heard.lock();
            let known = state.tools.get(&*request.tool_call.tool_call_id.0).cloned();
            (state.cancelled, known.unwrap_or_default())
        };
        if cancelled {
            return RequestPermissionOutcome::Cancelled;
        }
        let ours = self.door.is_some() && ask::is_ours(request, &known);
        let ask = ask::ask(request, known);
        let ruling = if ours { ask::ours() } else { (self.order.policy)(&ask) };
        let outcome = ask::answer(request, ruling.verdict);
        if ruling.verdict == Verdict::Ask {
            self.heard.lock().cancelled = true;
            self.heard.asked.send_replace(Some(ask::question(&ask, &ruling)));
        }
        (self.see)(Update::Asked(ask, ruling));
        outcome
    }

    /// How the run ended, by what the agent says and what the gateway saw.
    fn judge(&self, ended: &Result<RunEnd, Error>) -> RunEnd {
        let end = match ended {
            Ok(end) => end.clone(),
            Err(error) => failed(&self.heard, error),
        };
        // What we decided stands; only what the agent says of itself is looked at again.
        let said = match &end {
            RunEnd::Finished { submission, .. } => {
                *submission == Submission::Nothing
                    || matches!(submission, Submission::Invalid { .. })
            }
            RunEnd::Crashed { .. } | RunEnd::Unavailable { .. } | RunEnd::Quota { .. } => true,
            _ => false,
        };
        let Some(door) = self.door.as_ref().filter(|_| said) else {
            return end;
        };
        if let Some(stop) = door.stopped().now_or_never() {
            return stopped(stop);
        }
        let gone = ended.as_ref().is_err_and(agent_client_protocol::is_incoming_transport_closed);
        match door.ledger().last_failure {
            Some(Failed { status, text }) if !gone => {
                let text = text.trim();
                let reason = format!("the model's provider answered {status}: {text}");
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

fn stopped(stop: Stop) -> RunEnd {
    match stop {
        Stop::OverBudget { .. } => RunEnd::OverBudget,
        Stop::Quota { until } => RunEnd::Quota { until },
    }
}

/// One session, from its beginning to its end.
struct Session {
    agent: ConnectionTo<Agent>,
    talk: Talk,
}

impl Session {
    async fn hold(self) -> Result<RunEnd, Error> {
        let patience = self.talk.order.patience;
        // A run that was cancelled while it started needs no session.
        let started = tokio::select! {
            started = self.start() => started?,
            () = self.talk.cancel.cancelled() => return Ok(RunEnd::Cancelled),
        };
        let session = match started {
            Ok(session) => session,
            Err(reason) => return Ok(RunEnd::Unavailable { reason }),
        };
        let turns = self.turns(&session);
        tokio::pin!(turns);
        let end = tokio::select! {
            // In this order: what we know stands over what the agent says at the same moment.
            biased;
            stop = self.stopped() => stopped(stop),
            () = self.talk.cancel.cancelled() => RunEnd::Cancelled,
            question = self.asked() => {
                // It may hear that its question was passed on, so that its session is whole when it
                // goes on. Then it has nothing more to do.
                let ended = self.talk.heard.tool_ended.notified();
                tokio::select! {
                    _ = &mut turns => return Ok(RunEnd::Asked { question }),
                    _ = timeout(patience.cancel, ended) => RunEnd::Asked { question },
                }
            }
            end = &mut turns => return end,
            () = tokio::time::sleep(self.talk.order.time_limit) => RunEnd::TimedOut,
            () = self.talk.heard.over_budget.notified() => RunEnd::OverBudget,
        };
        // From now on every question is answered with "cancelled", as the protocol asks.
        self.talk.heard.lock().cancelled = true;
        self.agent.send_notification(CancelNotification::new(session.clone()))?;
        // The agent may still say what it used. Whatever it says, we have decided how this ended.
        drop(timeout(patience.cancel, &mut turns).await);
        Ok(end)
    }

    /// Waits until the gateway lets no more calls through.
    async fn stopped(&self) -> Stop {
        match &self.talk.door {
            Some(door) => door.stopped().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until a person has to be asked.
    async fn asked(&self) -> Question {
        let mut permission = self.talk.heard.asked.subscribe();
        let permission = async {
            let found = permission.wait_for(Option::is_some).await;
            match found.ok().and_then(|found| found.clone()) {
                Some(question) => question,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            question = permission => question,
            question = self.talk.desk.asked() => question,
        }
    }

    /// Comes to a session. The inner error is a reason why there is none.
    async fn start(&self) -> Result<Result<SessionId, String>, Error> {
        let patience = self.talk.order.patience;
        let silent = |what: &str, limit: Duration| {
            Ok(Err(format!("the agent gave no answer to {what} in {} s", limit.as_secs())))
        };
        let Ok(hello) = timeout(patience.start, self.greet()).await else {
            return silent("the first message", patience.start);
        };
        match timeout(patience.session, self.open(&hello?)).await {
            Ok(opened) => opened,
            Err(_) => silent("the request for a session", patience.session),
        }
    }

    async fn greet(&self) -> Result<Value, Error> {
        let hello = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new())
            .client_info(Implementation::new("tamma", env!("CARGO_PKG_VERSION")));
        let hello = self.request("initialize", &hello).await?;
        let text = |name: &str| hello["agentInfo"][name].as_str().unwrap_or_default();
        let agent = format!("{} {}", text("name"), text("version")).trim().to_owned();
        self.talk.heard.lock().agent = (!agent.is_empty()).then_some(agent);
        Ok(hello)
    }

    /// Opens the session that was asked for, or goes on with it, and makes its choices.
    async fn open(&self, hello: &Value) -> Result<Result<SessionId, String>, Error> {
        let able = &hello["agentCapabilities"];
        let (name, session, resumed) = self.session(able).await?;
        {
            let mut state = self.talk.heard.lock();
            state.session = Some(name.clone());
            state.resumed = resumed;
        }
        (self.talk.see)(Update::Session { name: name.clone(), resumed });
        if let Err(reason) = self.choose(&name, &session).await? {
            return Ok(Err(reason));
        }
        Ok(Ok(SessionId::new(name)))
    }

    async fn session(&self, able: &Value) -> Result<(String, Value, bool), Error> {
        let order = &self.talk.order;
        let folder = order.workspace.clone();
        let servers = self.servers(able);
        if let Some(name) = &order.resume {
            let id = SessionId::new(name.clone());
            let gone_on = if able["sessionCapabilities"]["resume"].is_object() {
                let resume = ResumeSessionRequest::new(id, folder.clone());
                self.request("session/resume", &resume.mcp_servers(servers.clone())).await
            } else if able["loadSession"] == true {
                self.talk.heard.lock().replaying = true;
                let load = LoadSessionRequest::new(id, folder.clone());
                let loaded = self.request("session/load", &load.mcp_servers(servers.clone())).await;
                self.talk.heard.lock().replaying = false;
                loaded
            } else {
                Err(Error::method_not_found())
            };
            match gone_on {
                Ok(session) => return Ok((name.clone(), session, true)),
                Err(error) if agent_client_protocol::is_incoming_transport_closed(&error) => {
                    return Err(error);
                }
                // The worktree has what was done. The rest the agent finds out again.
                Err(error) => tracing::info!(error = error.message, "a session cannot be resumed"),
            }
        }
        let new = NewSessionRequest::new(folder).mcp_servers(servers);
        let session = self.request("session/new", &new).await?;
        Ok((session["sessionId"].as_str().unwrap_or_default().to_owned(), session, false))
    }

    /// Our desk, where the agent can come to it. One that cannot hands in by its last message.
    fn servers(&self, able: &Value) -> Vec<McpServer> {
        let door = self.talk.door.as_ref().filter(|_| able["mcpCapabilities"]["http"] == true);
        let server = door.map(|door| {
            let bearer = format!("Bearer {}", door.token().expose());
            let server = McpServerHttp::new(desk::NAME, format!("{}/mcp", door.url()));
            McpServer::Http(server.headers(vec![HttpHeader::new("Authorization", bearer)]))
        });
        server.into_iter().collect()
    }

    /// Chooses the mode and the model. The inner error says what cannot be had.
    async fn choose(&self, name: &str, session: &Value) -> Result<Result<(), String>, Error> {
        let order = &self.talk.order;
        let modes = &self.talk.modes;
        let modes = if order.mode.looks() { &modes.look } else { &modes.work };
        if !modes.is_empty() {
            let offer = Offer::modes(session);
            let found = offer
                .as_ref()
                .and_then(|offer| modes.iter().find_map(|mode| Some((offer, offer.find(mode)?))));
            let Some((offer, mode)) = found else {
                return Ok(Err(not_offered("mode", &modes.join("` or `"), offer.as_ref())));
            };
            self.set(name, offer, mode).await?;
        }
        if let Some(model) = order.model.as_deref().filter(|model| *model != LEAVE) {
            let offer = Offer::models(session);
            let found = offer.as_ref().and_then(|offer| Some((offer, offer.find(model)?)));
            let Some((offer, model)) = found else {
                return Ok(Err(not_offered("model", model, offer.as_ref())));
            };
            self.set(name, offer, model).await?;
        }
        Ok(Ok(()))
    }

    async fn set(&self, session: &str, offer: &Offer, value: &str) -> Result<(), Error> {
        if offer.now.as_deref() == Some(value) {
            return Ok(());
        }
        let (method, params) = offer.choose(session, value);
        self.request(method, &params).await.map(drop)
    }

    /// Prompts, and prompts again while what is handed in cannot be taken.
    async fn turns(&self, session: &SessionId) -> Result<RunEnd, Error> {
        let Talk { order, heard, desk, see, .. } = &self.talk;
        let mode = order.mode;
        let mut prompt = match submission::instructions(mode) {
            Some(how) => format!("{}\n\n{how}", order.prompt),
            None => order.prompt.clone(),
        };
        let mut again = order.patience.again;
        loop {
            let stop = self.turn(session, prompt).await?;
            let text = std::mem::take(&mut heard.lock().text);
            let handed_in = desk
                .submission()
                .map_or_else(|| submission::read(mode, &text, &order.evidence), Ok);
            let submission = match handed_in {
                Ok(submission) => submission,
                // To ask again a model that cannot answer is of no use.
                Err(flaws) if again == 0 || heard.lock().cancelled || self.is_cut_off() => {
                    Submission::Invalid { flaws, text }
                }
                Err(flaws) => {
                    again -= 1;
                    prompt = submission::ask_again(mode, &flaws);
                    see(Update::Refused(flaws));
                    continue;
                }
            };
            return Ok(RunEnd::Finished { stop, submission });
        }
    }

    fn is_cut_off(&self) -> bool {
        self.talk.door.as_ref().is_some_and(|door| door.ledger().last_failure.is_some())
    }

    async fn turn(&self, session: &SessionId, prompt: String) -> Result<String, Error> {
        let Talk { order, heard, door, see, .. } = &self.talk;
        let request = PromptRequest::new(session.clone(), vec![ContentBlock::from(prompt)]);
        let answer = self.request("session/prompt", &request).await?;
        heard.add(&answer);
        if door.is_none() && heard.lock().cost.is_none() {
            // Some agents report what a turn cost after they have ended it.
            tokio::time::sleep(order.patience.late).await;
        }
        if let Some(usage) = heard.usage() {
            see(Update::Used(usage));
        }
        Ok(answer["stopReason"].as_str().unwrap_or("unknown").to_owned())
    }

    async fn request(&self, method: &str, params: &impl Serialize) -> Result<Value, Error> {
        let params = serde_json::to_value(params).map_err(Error::into_internal_error)?;
        self.agent.send_request(UntypedMessage::new(method, params)?).block_task().await
    }
}

fn not_offered(what: &str, wanted: &str, offer: Option<&Offer>) -> String {
    match offer {
        Some(offer) => {
            let all = offer.all.join("`, `");
            format!("the agent has no {what} `{wanted}`; it offers `{all}`")
        }
        None => format!("the agent has no {what} `{wanted}`, and offers none to choose from"),
    }
}

/// How a run ends whose agent answered with an error, or did not answer any more.
fn failed(heard: &Heard, error: &Error) -> RunEnd {
    if agent_client_protocol::is_incoming_transport_closed(error) {
        return heard.died("the agent's process ended");
    }
    let reason = match &error.data {
        Some(data) => format!("{} ({data})", error.message),
        None => error.message.clone(),
    };
    let reason = plain::text(&reason).into_owned();
    let code = i32::from(error.code);
    match error.data.as_ref().and_then(reset) {
        Some(until) => RunEnd::Quota { until },
        // A quota that does not say when it ends is waited for like anything that is not there.
        None if code == AUTHENTICATE_FIRST || code == 429 => RunEnd::Unavailable { reason },
        None => heard.died(&reason),
    }
}

/// When a quota is reset, if an error's data says so: `resetAt`, as a time or in seconds.
fn reset(data: &Value) -> Option<Timestamp> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_names_its_reset_as_a_time_or_in_seconds() {
        let noon: Timestamp = "2026-11-15T12:00:00Z".parse().expect("a time");
        assert_eq!(reset(&json!({ "resetAt": "2026-11-15T12:00:00Z" })), Some(noon));
        assert_eq!(reset(&json!({ "resets_at": noon.timestamp() })), Some(noon));
        assert_eq!(reset(&json!({ "resetAt": "soon" })), None);
        assert_eq!(reset(&json!("429 Too Many Requests")), None);
    }
}
